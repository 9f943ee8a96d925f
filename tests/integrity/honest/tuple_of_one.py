"""Returns its output in a tuple, and works in place on a copy of its own."""

import torch


def run(x):
    work = x.float().clone()
    work -= work.amax(-1, keepdim=True)
    work.exp_()
    work /= work.sum(-1, keepdim=True)
    return (work.to(torch.bfloat16),)
