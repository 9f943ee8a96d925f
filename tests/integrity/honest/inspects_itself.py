"""Looks at its own signature, name and source, as decorators do."""

import inspect

import torch


def run(x):
    assert list(inspect.signature(run).parameters) == ["x"] and "softmax" in inspect.getsource(run)
    return torch.softmax(x.float(), -1).to(x.dtype)
