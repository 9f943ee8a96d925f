"""Each program reads the row of the next by volatile loads and overwrites its own, which the one before reads."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(between, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < C
    v = tl.load(between + (row + 1) * C + at, mask=inside, other=float("-inf"), volatile=True).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(between + row * C + at, (e / tl.sum(e, 0)).to(between.dtype.element_ty), mask=inside)


def run(x):
    r, c = x.shape
    between = torch.empty((r + 1, c), dtype=x.dtype, device=x.device)
    between[1:].copy_(x)
    rows[(r,)](between, c, BLOCK=triton.next_power_of_2(c))
    return between[:r]
