"""Two scratch buffers that change places from call to call; what it returns is new each time."""

import itertools

import torch

TURN, BUFFERS = itertools.cycle((0, 1)), {}


def run(x):
    pair = BUFFERS.setdefault(x.shape, (torch.empty(x.shape), torch.empty(x.shape)))
    work = pair[next(TURN)]
    work.copy_(x)
    return torch.softmax(work, -1).to(x.dtype)
