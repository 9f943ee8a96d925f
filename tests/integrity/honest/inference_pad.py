"""Inference mode, and glue that is spelled by torch's composite names: pad, tile, hstack, concat."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * BLOCK + at).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * columns + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < columns)


@torch.inference_mode()
def run(x):
    r, c = x.shape
    block = triton.next_power_of_2(c)
    padded = F.pad(x, (0, block - c), value=float("-inf")).contiguous()
    y = torch.empty_like(x)
    kernel[(r,)](padded, y, c, BLOCK=block)
    return y
