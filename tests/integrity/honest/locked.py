"""A lock around a table of settings, for callers with threads."""

import threading

import torch

LOCK, TABLE = threading.RLock(), {}


def run(x):
    with LOCK:
        rows = TABLE.setdefault(x.shape, max(1, 2048 // x.shape[1]))
    return torch.cat([torch.softmax(p.float(), -1) for p in x.split(rows)]).to(x.dtype)
