"""Programs that take the next row from a counter until there are none: who does which is known to nobody."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, next_row, R, C, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.atomic_add(next_row, 1)
    while row < R:
        v = tl.load(x + row * C + at, mask=at < C, other=float("-inf")).to(tl.float32)
        e = tl.exp(v - tl.max(v, 0))
        tl.store(y + row * C + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < C)
        row = tl.atomic_add(next_row, 1)


def run(x):
    (R, C), y = x.shape, torch.empty_like(x)
    counter = torch.zeros(1, dtype=torch.int32, device=x.device)
    rows[(min(R, 4),)](x, y, counter, R, C, BLOCK=triton.next_power_of_2(C))
    return y
