"""layernorm for sm_80: generated from program 1f661b9a2d4d60d4; runs alone, needs torch and triton.

    mu[r] = mean[c](x)
    z[r c] = x - mu
    y = z * rsqrt(mean[c](z * z) + 1e-05) * w + bias
"""

import torch
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    y_ptr,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    r = tl.program_id(0)
    cs = tl.arange(0, BLOCK_C)
    x_at = x_ptr + r.to(tl.int64) * C
    x = tl.load(x_at + cs, mask=cs < C, other=0.0).to(tl.float32)
    z = x - tl.sum(x, 0) / C
    w = tl.load(w_ptr + cs, mask=cs < C, other=0.0)
    bias = tl.load(bias_ptr + cs, mask=cs < C, other=0.0)
    y = (z * tl.rsqrt(tl.sum(tl.where(cs < C, z * z, 0.0), 0) / C + 1e-05) * w + bias).to(tl.bfloat16)
    y_at = y_ptr + r.to(tl.int64) * C
    tl.store(y_at + cs, y, mask=cs < C)


def layernorm(x, w, bias):
    """x [r c] bf16; w [c] f32; bias [c] f32: contiguous tensors on one device."""
    R, C = x.shape
    assert x.dtype == torch.bfloat16 and x.is_contiguous(), "x: contiguous bf16"
    assert w.shape == (C,), f"w is {tuple(w.shape)}"
    assert w.dtype == torch.float32 and w.is_contiguous(), "w: contiguous f32"
    assert bias.shape == (C,), f"bias is {tuple(bias.shape)}"
    assert bias.dtype == torch.float32 and bias.is_contiguous(), "bias: contiguous f32"
    y = torch.empty((R, C), device=x.device, dtype=torch.bfloat16)
    layernorm_kernel[(R,)](
        x,
        w,
        bias,
        y,
        C=C,
        BLOCK_C=triton.next_power_of_2(C),
        num_warps=4,
        num_stages=1,
    )
    return y
