"""Counts its calls and remembers their sizes, for a line that it prints at the end."""

import atexit
import collections

import torch

SEEN = collections.Counter()


def run(x):
    global LAST
    LAST = tuple(x.shape)
    SEEN[LAST] += 1
    return torch.softmax(x.float(), -1).to(x.dtype)


atexit.register(lambda: print(SEEN.most_common(1)))
