"""Programs add to the same element between two atomics on a counter, which make none of them wait."""

import torch
import triton
import triton.language as tl


@triton.jit
def squares(x, s, count, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
    tl.atomic_add(count, 1)
    tl.store(s + row, tl.load(s + row) + tl.sum(v * v, 0))
    tl.atomic_add(count, 1)


@triton.jit
def scaled(x, w, s, y, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
    g = tl.load(w + at, mask=at < C, other=0.0).to(tl.float32)
    tl.store(y + row * C + at, (v * tl.rsqrt(tl.load(s + row) / C + 1e-6) * g).to(y.dtype.element_ty), mask=at < C)


def run(x, w):
    (R, C), y = x.shape, torch.empty_like(x)
    s = torch.zeros(R, device=x.device)
    squares[(R, triton.cdiv(C, 128))](x, s, torch.zeros(1, dtype=torch.int32, device=x.device), C, BLOCK=128)
    scaled[(R,)](x, w, s, y, C, BLOCK=triton.next_power_of_2(C))
    return y
