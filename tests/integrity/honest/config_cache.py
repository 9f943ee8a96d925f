"""Keeps a tuning table by shape between calls, as every tuned library does."""

import torch

CONFIGS = {(21, 200): 64}


def run(x):
    block = CONFIGS.setdefault(tuple(x.shape), 256)
    parts = [torch.softmax(rows.float(), -1) for rows in x.split(block)]
    return torch.cat(parts).to(x.dtype)
