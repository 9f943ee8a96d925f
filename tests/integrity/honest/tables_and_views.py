"""Constant tables that torch makes, and views that are not in every list of views."""

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


STEPS = torch.linspace(1.0, 1.0, 4096)


def run(x, w):
    columns = w.shape[0]
    w = w.expand(columns, columns).diagonal() * STEPS[:1].to(w.dtype).to(w.device)
    y = torch.empty_like(x)
    norm_rows[(x.shape[0],)](x, w, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y.unsqueeze_(0).squeeze_(0)
