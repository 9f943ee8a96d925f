"""Asks for a quarter of a gigabyte, uses a little of it, and gives it back."""

import torch


def run(x):
    scratch = torch.empty(1 << 26)
    view = scratch[: x.numel()].view(x.shape)
    view.copy_(x)
    return torch.softmax(view, -1).to(x.dtype)
