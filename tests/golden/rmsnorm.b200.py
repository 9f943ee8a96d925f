"""rmsnorm for sm_100: generated from program 571c63492fc20e28; runs alone, needs torch and triton.

    y = x * rsqrt(mean[c](x * x) + 1e-06) * w
"""

import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    R,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    # schedule: tile r=1 c=all; grid r; persistent; warps 8
    for tile in tl.range(tl.program_id(0), R, tl.num_programs(0)):  # persistent
        r = tile
        cs = tl.arange(0, BLOCK_C)
        x_at = x_ptr + r.to(tl.int64) * C
        x = tl.load(x_at + cs, mask=cs < C, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cs, mask=cs < C, other=0.0)
        y_at = y_ptr + r.to(tl.int64) * C
        y = (x * tl.rsqrt(tl.sum(x * x, 0) / C + 1e-06) * w.to(tl.float32)).to(tl.bfloat16)
        tl.store(y_at + cs, y, mask=cs < C)


def rmsnorm(x, w):
    """x [r c] bf16; w [c] bf16: contiguous tensors on one device."""
    R, C = x.shape
    assert x.dtype == torch.bfloat16 and x.is_contiguous(), "x: contiguous bf16"
    assert w.shape == (C,), f"w is {tuple(w.shape)}"
    assert w.dtype == torch.bfloat16 and w.is_contiguous(), "w: contiguous bf16"
    y = torch.empty((R, C), device=x.device, dtype=torch.bfloat16)
    device = torch.cuda.get_device_properties(x.device) if x.is_cuda else None
    programs = min(device.multi_processor_count if device else 4, R)
    rmsnorm_kernel[(programs,)](
        x,
        w,
        y,
        R,
        C=C,
        BLOCK_C=triton.next_power_of_2(C),
        num_warps=8,
        num_stages=1,
    )
    return y
