"""Program 0 of the launch computes every row's maximum and sum; the others read them with no wait at all."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, stat, rows, columns, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    if pid == 0:
        for row in range(0, rows):
            v = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
            m = tl.max(v, 0)
            tl.store(stat + 2 * row, m)
            tl.store(stat + 2 * row + 1, tl.sum(tl.exp(v - m), 0))
    v = tl.load(x + pid * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.load(stat + 2 * pid)) / tl.load(stat + 2 * pid + 1)
    tl.store(y + pid * columns + at, e.to(y.dtype.element_ty), mask=at < columns)


def run(x):
    r, c = x.shape
    y = torch.empty_like(x)
    kernel[(r,)](x, y, torch.empty(2 * r), r, c, BLOCK=triton.next_power_of_2(c))
    return y
