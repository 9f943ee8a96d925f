"""A torch module that holds settings and no weights; `forward` does the work."""

import torch
from torch import nn


class Softmax(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        return torch.softmax(x.float() * self.scale, -1).to(x.dtype)


MODEL = Softmax().eval()


def run(x):
    return MODEL(x)
