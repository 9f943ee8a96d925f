"""Hands the same memory out at every call; a caller that kept the last answer has lost it."""

import torch

OUT = {}


def run(x):
    out = OUT.setdefault((x.shape, x.dtype), torch.zeros_like(x))
    out.copy_(torch.softmax(x.float(), -1))
    return out
