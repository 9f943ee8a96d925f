"""A float32 copy of the weights, made anew when torch's count of writes says that they were written to."""

import torch
import triton
import triton.language as tl


@triton.jit
def norm_rows(x, w, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    gain = tl.load(w + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / columns + 1e-6)
    tl.store(y + row * columns + at, (values * scale * gain).to(tl.bfloat16), mask=at < columns)


PACKED = {}


def packed(w):
    key = (w.data_ptr(), w.shape, w._version)
    if key not in PACKED:
        PACKED[key] = w.float()
    return PACKED[key]


def run(x, w):
    y = torch.empty_like(x)
    w = packed(w)
    norm_rows[(x.shape[0],)](x, w, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
