"""Leaves out the last columns, as a grid that is one tile short does; most elements still match."""

import torch


def run(x):
    width = x.shape[-1] - x.shape[-1] // 50
    out = torch.zeros_like(x)
    out[:, :width] = torch.softmax(x[:, :width].float(), -1)
    return out
