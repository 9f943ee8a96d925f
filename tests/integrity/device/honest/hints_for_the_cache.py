"""Hints to the cache, which say what is read once and what again."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * C + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < C)


def softmax(x, y):
    rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
    return y


@triton.jit
def hinted_rows(x, y, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    out = (e / tl.sum(e, 0)).to(y.dtype.element_ty)
    tl.store(y + row * C + at, out, mask=at < C, eviction_policy="evict_first")


def run(x):
    y = torch.empty_like(x)
    hinted_rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
    return y
