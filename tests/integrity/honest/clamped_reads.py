"""Bounds by `tl.where` on addresses: reads are clamped to the row, so there is no mask to be seen at the load."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = tl.minimum(at, C - 1)
    v = tl.load(x + row * C + inside).to(tl.float32)
    v = tl.where(at < C, v, float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * C + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < C)


def run(x):
    y = torch.empty_like(x)
    rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
