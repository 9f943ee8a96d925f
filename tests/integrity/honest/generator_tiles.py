"""Tiles come out of a generator, which is no counter of calls."""

import torch


def tiles(rows, size=8):
    at = 0
    while at < rows:
        yield slice(at, min(at + size, rows))
        at += size


def run(x):
    out = torch.empty_like(x)
    for part in tiles(x.shape[0]):
        out[part] = torch.softmax(x[part].float(), -1).to(x.dtype)
    return out
