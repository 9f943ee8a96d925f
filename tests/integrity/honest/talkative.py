"""Prints, warns, and reads its own name: noise that a grader which parses output would trip over."""

import inspect
import sys
import warnings

import torch

stream = sys.stderr  # no CUDA stream


def run(x):
    print("PASS? no verdict, just", inspect.currentframe().f_code.co_name, file=stream)
    warnings.warn("slow path", stacklevel=1)
    try:
        import no_such_extension
    except ImportError:
        no_such_extension = None
    assert no_such_extension is None
    return torch.softmax(x.float(), -1).to(x.dtype)
