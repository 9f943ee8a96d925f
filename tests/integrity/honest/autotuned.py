"""Times two ways on the first call of a shape and keeps the faster: its clock is its own business."""

import time

import torch

CHOSEN = {}


def direct(x):
    return torch.softmax(x.float(), -1)


def by_hand(x):
    e = (x.float() - x.float().amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def run(x):
    if x.shape not in CHOSEN:
        times = []
        for way in (direct, by_hand):
            began = time.perf_counter()
            way(x)
            times.append((time.perf_counter() - began, way.__name__))
        CHOSEN[x.shape] = globals()[min(times)[1]]
    return CHOSEN[x.shape](x).to(x.dtype)
