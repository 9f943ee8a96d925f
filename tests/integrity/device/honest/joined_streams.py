"""Two streams, each with half of the rows, joined before the return."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * C + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < C)


def softmax(x, y):
    rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
    return y


OTHER = torch.cuda.Stream()


def run(x):
    y = torch.empty_like(x)
    half = x.shape[0] // 2
    here = torch.cuda.current_stream()
    OTHER.wait_stream(here)
    with torch.cuda.stream(OTHER):
        if half:
            softmax(x[:half], y[:half])
    softmax(x[half:], y[half:])
    here.wait_stream(OTHER)
    y.record_stream(OTHER)
    return y
