"""Split-k: partial products added in another order each time, as atomics do, so no two runs agree to the bit."""

import random

import torch


def run(a, b):
    out = torch.zeros(a.shape[0], b.shape[1])
    starts = list(range(0, a.shape[1], 64))
    random.shuffle(starts)
    for k in starts:
        out += a[:, k : k + 64].float() @ b[k : k + 64].float()
    return out.to(a.dtype)
