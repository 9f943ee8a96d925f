"""A kernel made in a factory: its constants are closed over."""

import functools

import torch
import triton
import triton.language as tl


@functools.cache
def make(block: int, fast: bool):
    BLOCK = tl.constexpr(block)

    @triton.jit
    def kernel(x, y, columns):
        row = tl.program_id(0)
        at = tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        e = tl.exp(v - tl.max(v, 0))
        tl.store(y + row * columns + at, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=at < columns)

    return kernel


def run(x):
    y = torch.empty_like(x)
    make(triton.next_power_of_2(x.shape[1]), True)[(x.shape[0],)](x, y, x.shape[1])
    return y
