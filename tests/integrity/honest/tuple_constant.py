import torch
import triton
import triton.language as tl

BLOCKS = tl.constexpr((64, 128, 256))


@triton.jit
def kernel(x, y, columns, BLOCK: tl.constexpr):
    CH: tl.constexpr = BLOCKS[0]
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    w = tl.reshape(v, (BLOCK // CH, CH))
    top = tl.max(tl.max(w, 1), 0)
    e = tl.exp(v - top)
    tl.store(y + row * columns + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < columns)


def run(x):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=max(64, triton.next_power_of_2(x.shape[1])))
    return y
