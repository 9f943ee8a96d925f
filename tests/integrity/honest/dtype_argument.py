"""A kernel that is told its output's dtype, and names another as a global."""

import torch
import triton
import triton.language as tl
from triton.language import float32


@triton.jit
def rows(x, w, y, C, BLOCK: tl.constexpr, OUT: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(float32)
    scale = tl.load(w + at, mask=at < C, other=0.0).to(float32)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / C + 1e-6) * scale
    tl.store(y + row * C + at, v.to(OUT), mask=at < C)


def run(x, w):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    rows[(x.shape[0],)](x, w, y, x.shape[1], BLOCK=block, OUT=tl.bfloat16)
    return y
