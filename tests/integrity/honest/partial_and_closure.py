"""Made of closures and partial functions: state in cells, none of it the data's."""

from functools import partial

import torch


def scaled(by):
    def work(x, dim):
        return torch.softmax(x.float() * by, dim)

    return work


run_rows = partial(scaled(1.0), dim=-1)


def run(x):
    return run_rows(x).to(x.dtype)
