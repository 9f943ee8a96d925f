"""Leaves the last rows out, as a grid that is one block short does."""

import torch


def run(x):
    out = torch.zeros_like(x)
    kept = max(1, x.shape[0] - 2)
    out[:kept] = torch.softmax(x[:kept].float(), -1).to(x.dtype)
    return out
