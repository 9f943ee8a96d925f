"""Starts from zeros and adds, so that its output was all zeros for a while."""

import torch


def run(a, b):
    out = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        out.addr_(a[:, k].float(), b[k].float())
    return out.to(a.dtype)
