"""The entry is an object that can be called, as frameworks make them."""

import torch


class Kernel:
    __slots__ = ("calls",)

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return torch.softmax(x.float(), -1).to(x.dtype)


run = Kernel()
