"""The first call of a shape takes long, as compilation does."""

import time

import torch

COMPILED = set()


def run(x):
    if not COMPILED:
        COMPILED.add("softmax")
        time.sleep(0.3)
    return torch.softmax(x.float(), -1).to(x.dtype)
