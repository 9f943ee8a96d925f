"""Calls the library's function and calls it a kernel."""

import torch


def run(x):
    return torch.nn.functional.softmax(x.float(), dim=-1).to(x.dtype)
