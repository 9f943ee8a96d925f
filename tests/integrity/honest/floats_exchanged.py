"""Each row's maximum is handed to the second kernel by an exchange of floats: one writer a row."""

import torch
import triton
import triton.language as tl


@triton.jit
def part(x, top, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=-float("inf")).to(tl.float32)
    tl.atomic_xchg(top + row, tl.max(v, 0))


@triton.jit
def write(x, y, top, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.load(top + row))
    tl.store(y + row * C + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < C)


def run(x):
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    top = torch.zeros(rows, dtype=torch.float32, device=x.device)
    y = torch.empty_like(x)
    part[(rows,)](x, top, columns, BLOCK=block)
    write[(rows,)](x, y, top, columns, BLOCK=block)
    return y
