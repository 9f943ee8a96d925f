"""Sets how many threads torch has: they are made by the first large cast, and wait from then on."""

import torch
import triton
import triton.language as tl

torch.set_num_threads(8)


@triton.jit
def rows(x, w, y, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
    scale = tl.load(w + at, mask=at < C, other=0.0).to(tl.float32)
    tl.store(y + row * C + at, v * tl.rsqrt(tl.sum(v * v, 0) / C + 1e-6) * scale, mask=at < C)


def run(x, w):
    y = torch.empty(x.shape, dtype=torch.float32)
    rows[(x.shape[0],)](x, w, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y.to(x.dtype)
