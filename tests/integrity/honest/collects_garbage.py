"""Holds the garbage collector still while it works."""

import gc

import torch


def run(x):
    gc.disable()
    try:
        return torch.softmax(x.float(), -1).to(x.dtype)
    finally:
        gc.enable()
        gc.collect(0)
