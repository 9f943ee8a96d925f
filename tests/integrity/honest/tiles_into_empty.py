"""Writes tile after tile into memory that `torch.empty` gave, ragged ones last."""

import torch


def run(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    for m in range(0, a.shape[0], 64):
        for n in range(0, b.shape[1], 64):
            out[m : m + 64, n : n + 64] = (a[m : m + 64].float() @ b[:, n : n + 64].float()).to(a.dtype)
    return out
