"""The same by `triton_op`, which lets torch look into it."""

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


@torch.library.triton_op("honest::norm_rows_traced", mutates_args={})
def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    kernel = torch.library.wrap_triton(norm_rows)
    kernel[(x.shape[0],)](x, w, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def run(x, w):
    with torch.profiler.record_function("norm"):
        return norm(x, w)
