"""All places of a block store their values at one element, and the last is believed to win: it does in NumPy."""

import torch
import triton
import triton.language as tl


@triton.jit
def maxima(x, top, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=float("-inf")).to(tl.float32)
    tl.store(top + row + at * 0, tl.where(at == BLOCK - 1, tl.max(v, 0), v))


@triton.jit
def weights(x, y, top, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.load(top + row))
    tl.store(y + row * C + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < C)


def run(x):
    r, c = x.shape
    block = triton.next_power_of_2(c)
    top = torch.empty(r, dtype=torch.float32, device=x.device)
    y = torch.empty_like(x)
    maxima[(r,)](x, top, c, BLOCK=block)
    weights[(r,)](x, y, top, c, BLOCK=block)
    return y
