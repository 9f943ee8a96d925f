"""Works on the transpose, and makes the result contiguous at the end."""

import torch


def run(x):
    return torch.softmax(x.t().contiguous().float(), 0).t().contiguous().to(x.dtype)
