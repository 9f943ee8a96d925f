"""A pool of two threads that lives from the first call on; each call waits for its own work."""

from concurrent.futures import ThreadPoolExecutor

import torch

POOL = ThreadPoolExecutor(2)


def run(x):
    parts = POOL.map(lambda rows: torch.softmax(rows.float(), -1).to(x.dtype), x.chunk(2))
    return torch.cat(list(parts))
