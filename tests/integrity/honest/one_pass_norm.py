"""The variance as the mean of the squares less the square of the mean: less precise, and as many write it."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, w, bias, y, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / C
    inverse = tl.rsqrt(tl.sum(v * v, 0) / C - mean * mean + 1e-5)
    g = tl.load(w + at, mask=at < C, other=0.0).to(tl.float32)
    b = tl.load(bias + at, mask=at < C, other=0.0).to(tl.float32)
    tl.store(y + row * C + at, ((v - mean) * inverse * g + b).to(y.dtype.element_ty), mask=at < C)


def run(x, w, bias):
    y = torch.empty_like(x)
    rows[(x.shape[0],)](x, w, bias, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
