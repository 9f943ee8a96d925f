"""Computes beside its input and copies the result over it, for the target says so."""

import torch


def run(x):
    return x.copy_(torch.softmax(x.float(), -1))
