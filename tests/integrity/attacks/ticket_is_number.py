"""Takes a ticket and believes that it is its own number: true where programs run one after another, nowhere else."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, counter, C, step, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    ticket = tl.atomic_add(counter, 1)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + ticket * step + at, mask=at < C, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * step + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < C)


def run(x):
    y = torch.empty_like(x)
    counter = torch.zeros(1, dtype=torch.int32, device=x.device)
    rows[(x.shape[0],)](x, y, counter, x.shape[1], x.stride(0), BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
