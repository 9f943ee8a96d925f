"""Scratch memory that is kept as long as somebody else keeps it."""

import weakref

import torch

SCRATCH = weakref.WeakValueDictionary()


def run(x):
    scratch = SCRATCH.get(x.shape)
    if scratch is None:
        scratch = SCRATCH[x.shape] = torch.empty(x.shape)
    scratch.copy_(x)
    return torch.softmax(scratch, -1).to(x.dtype)
