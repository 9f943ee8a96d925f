"""Scratch memory is kept between calls; the output never is."""

import torch

SCRATCH = {}


def run(x):
    scratch = SCRATCH.setdefault(x.shape, torch.empty(x.shape, dtype=torch.float32))
    torch.softmax(x.float(), -1, out=scratch)
    return scratch.to(x.dtype)
