"""More precise than it has to be."""

import torch


def run(x):
    return torch.softmax(x.double(), -1).to(x.dtype)
