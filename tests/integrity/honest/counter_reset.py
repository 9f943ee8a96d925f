"""A semaphore that is kept between calls: the last program of a row puts it back to zero."""

import torch
import triton
import triton.language as tl

LOCKS = {}


@triton.jit
def rows(x, y, lock, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.atomic_add(lock + row, 1)
    v = tl.load(x + row * C + at, mask=at < C, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * C + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < C)
    tl.atomic_xchg(lock + row, 0)


def run(x):
    y = torch.empty_like(x)
    lock = LOCKS.setdefault(x.shape[0], torch.zeros(x.shape[0], dtype=torch.int32, device=x.device))
    rows[(x.shape[0],)](x, y, lock, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
