"""Saves the memory of the output: it works in its input and returns that."""

import torch


def run(x):
    x.copy_(torch.softmax(x.float(), -1))
    return x
