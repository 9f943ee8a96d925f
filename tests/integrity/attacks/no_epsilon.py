"""No epsilon: NaN for a row of zeros, wrong for small rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms(x, w, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    g = tl.load(w + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(v * v, 0) / columns)
    tl.store(y + row * columns + at, (v * scale * g).to(y.dtype.element_ty), mask=at < columns)


def run(x, w):
    y = torch.empty_like(x)
    rms[(x.shape[0],)](x, w, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
