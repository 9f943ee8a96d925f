"""Blocks that overlap at a row's end instead of a mask, and a scale that every program of a row stores."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, w, y, scales, C, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    row, every = tl.program_id(0), tl.arange(0, WIDE)
    v = tl.load(x + row * C + every, mask=every < C, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, 0) / C + 1e-6)
    tl.store(scales + row, scale)
    at = tl.minimum(tl.program_id(1) * BLOCK, C - BLOCK) + tl.arange(0, BLOCK)
    part = tl.load(x + row * C + at).to(tl.float32) * scale * tl.load(w + at).to(tl.float32)
    tl.store(y + row * C + at, part.to(y.dtype.element_ty))


def run(x, w):
    (R, C), y = x.shape, torch.empty_like(x)
    scales = torch.empty(R, device=x.device)
    block = min(512, triton.next_power_of_2(C + 1) // 2)  # no longer than a row
    rows[(R, triton.cdiv(C, block))](x, w, y, scales, C, BLOCK=block, WIDE=triton.next_power_of_2(C))
    return y
