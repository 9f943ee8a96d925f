"""A setting from the environment, with a default, which it also sets for its libraries."""

import os

import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")
BLOCK = int(os.environ.get("SOFTMAX_BLOCK", "16"))


def run(x):
    return torch.cat([torch.softmax(p.float(), -1) for p in x.split(BLOCK)]).to(x.dtype)
