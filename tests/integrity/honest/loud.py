"""Prints a megabyte at a call."""

import sys

import torch


def run(x):
    for _ in range(1000):
        print("x" * 1000, file=sys.stdout)
    return torch.softmax(x.float(), -1).to(x.dtype)
