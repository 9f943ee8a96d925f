"""The loss in one pass over chunks; the class's logit is read by an address that the data give."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, t, loss, C, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    m, s = float("-inf"), 0.0
    for c in range(0, C, BLOCK):
        v = tl.load(x + row * C + c + at, mask=c + at < C, other=float("-inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(v, 0))
        s = s * tl.exp(m - new) + tl.sum(tl.exp(v - new), 0)
        m = new
    tl.store(loss + row, m + tl.log(s) - tl.load(x + row * C + tl.load(t + row)).to(tl.float32))


def run(x, t):
    loss = torch.empty(x.shape[0], device=x.device)
    rows[(x.shape[0],)](x, t, loss, x.shape[1], BLOCK=512)
    return loss
