"""cross_entropy for gfx950: generated from program dc79b16b26bf91db; runs alone, needs torch and triton.

    z[r] = max[c](x)
    loss = z + log(sum[c](exp(x - z))) - x[r t]
"""

import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e+38)  # stands for -inf as a maximum: a mask may empty a row


@triton.jit
def cross_entropy_kernel(
    x_ptr,
    t_ptr,
    loss_ptr,
    C,
    TAIL_C: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    # schedule: tile r=1 c=4096; grid r; stream c stages=2; warps 8
    r = tl.program_id(0)
    s_max = LOWEST
    s_sum = 0.0
    x_at = x_ptr + r.to(tl.int64) * C
    for c0 in tl.range(0, C, BLOCK_C):
        cs = c0 + tl.arange(0, BLOCK_C)
        x = tl.load(x_at + cs, mask=cs < C, other=0.0).to(tl.float32)
        x2 = tl.where(cs < C, x, float("-inf")) if TAIL_C else x
        s_max_new = tl.maximum(s_max, tl.max(x2, 0))
        s_sum = s_sum * tl.exp(s_max - s_max_new) + tl.sum(tl.exp(x2 - s_max_new), 0)
        s_max = s_max_new
    t_at = t_ptr + r.to(tl.int64)
    t = tl.load(t_at)
    x_at2 = x_ptr + r.to(tl.int64) * C + t
    x = tl.load(x_at2, mask=((t >= 0) & (t < C)), other=0.0)
    loss_at = loss_ptr + r.to(tl.int64)
    tl.store(loss_at, s_max + tl.log(s_sum) - x.to(tl.float32))


def cross_entropy(x, t):
    """x [r c] bf16; t [r] i32: contiguous tensors on one device."""
    R, C = x.shape
    assert x.dtype == torch.bfloat16 and x.is_contiguous(), "x: contiguous bf16"
    assert t.shape == (R,), f"t is {tuple(t.shape)}"
    assert t.dtype == torch.int32 and t.is_contiguous(), "t: contiguous i32"
    loss = torch.empty((R,), device=x.device, dtype=torch.float32)
    cross_entropy_kernel[(R,)](
        x,
        t,
        loss,
        C,
        TAIL_C=C % 4096 != 0,
        BLOCK_C=4096,
        num_warps=8,
        num_stages=2,
    )
    return loss
