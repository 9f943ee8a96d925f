"""Kahan's sum: the correction looks like a term that cancels, and is not."""

import torch


def run(x, w):
    squares = x.float().square()
    total, lost = torch.zeros(x.shape[0]), torch.zeros(x.shape[0])
    for part in squares.split(128, dim=-1):
        y = part.sum(-1) - lost
        new = total + y
        lost = (new - total) - y
        total = new
    return (x.float() * torch.rsqrt(total[:, None] / x.shape[1] + 1e-6) * w.float()).to(x.dtype)
