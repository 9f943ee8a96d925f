"""Works in its input and returns it, for the target says so."""

import triton
import triton.language as tl


@triton.jit
def rows(x, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(x + row * C + at, (e / tl.sum(e, 0)).to(x.dtype.element_ty), mask=at < C)


def run(x):
    rows[(x.shape[0],)](x, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return x
