"""Leaves out the last transposition: the numbers are right, the memory is not laid out as declared."""

import torch


def run(x):
    return torch.softmax(x.t().contiguous().float(), 0).to(x.dtype).t()
