"""A row's values go through memory from thread to thread of one program without a barrier: a race on every device,
and right in an interpreter, which has no threads."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, between, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < C
    v = tl.load(x + row * C + at, mask=inside, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(between + row * C + at, e / tl.sum(e, 0), mask=inside)
    back = C - 1 - at
    p = tl.load(between + row * C + back, mask=inside, other=0.0)
    tl.store(y + row * C + back, p.to(y.dtype.element_ty), mask=inside)


def run(x):
    y = torch.empty_like(x)
    between = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    rows[(x.shape[0],)](x, y, between, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
