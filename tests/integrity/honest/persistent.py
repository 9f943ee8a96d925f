"""As many programs as a chip has multiprocessors, each takes every so-many-th row."""

import torch
import triton
import triton.language as tl

PROGRAMS = 4


@triton.jit
def rows(x, w, y, R, C, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    scale = tl.load(w + at, mask=at < C, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), R, tl.num_programs(0)):
        v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
        v = v * tl.rsqrt(tl.sum(v * v, 0) / C + 1e-6) * scale
        tl.store(y + row * C + at, v.to(y.dtype.element_ty), mask=at < C)


def run(x, w):
    y = torch.empty_like(x)
    rows[(PROGRAMS,)](x, w, y, *x.shape, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
