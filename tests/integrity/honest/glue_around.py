"""Casts and scales in torch before the kernel, rounds in torch after it: glue, as the target allows."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * C + at, e / tl.sum(e, 0), mask=at < C)


def run(x):
    wide = (x.float() * 1.0).contiguous().view(-1, x.shape[-1])
    y = torch.empty_like(wide)
    rows[(x.shape[0],)](wide, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return torch.clamp(y, 0.0, 1.0).to(x.dtype).reshape(x.shape)
