"""Divides the rows in halves until few are left."""

import torch


def run(x):
    if x.shape[0] <= 4:
        return torch.softmax(x.float(), -1).to(x.dtype)
    half = x.shape[0] // 2
    return torch.cat([run(x[:half]), run(x[half:])])
