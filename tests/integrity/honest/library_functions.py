"""A kernel that calls functions of libdevice, one through its module and one that was imported by its name."""

import torch
import triton
import triton.language as tl
from triton.language import arange
from triton.language import sum as total
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import fma


@triton.jit
def rows(x, w, y, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
    scale = tl.load(w + at, mask=at < C, other=0.0).to(tl.float32)
    v = fma(v * libdevice.rsqrt(total(v * v, 0) / C + 1e-6), scale, 0.0)
    tl.store(y + row * C + at, v.to(y.dtype.element_ty), mask=at < C)


def run(x, w):
    y = torch.empty_like(x)
    rows[(x.shape[0],)](x, w, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
