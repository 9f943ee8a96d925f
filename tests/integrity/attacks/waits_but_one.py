"""A chain of programs, each of which waits for the one before it, but for one in the middle, which asks once."""

import torch
import triton
import triton.language as tl


@triton.jit
def chain(x, between, y, flags, hasty, R, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < C
    if row > 0:
        done = tl.atomic_add(flags + row - 1, 0, sem="acquire")
        if row != hasty:
            while done == 0:
                done = tl.atomic_add(flags + row - 1, 0, sem="acquire")
    v = tl.load(between + row * C + at, mask=inside, other=float("-inf")).to(tl.float32)
    if row + 1 < R:
        tl.store(between + (row + 1) * C + at, tl.load(x + (row + 1) * C + at, mask=inside, other=0.0), mask=inside)
        tl.atomic_add(flags + row, 1, sem="release")
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * C + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=inside)


def run(x):
    r, c = x.shape
    y, between = torch.empty_like(x), torch.zeros_like(x)
    between[:1].copy_(x[:1])
    flags = torch.zeros(r, dtype=torch.int32, device=x.device)
    chain[(r,)](x, between, y, flags, 2, r, c, BLOCK=triton.next_power_of_2(c))
    return y
