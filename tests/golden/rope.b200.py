"""rope for sm_100: generated from program 0e7640cdab7a0fef; runs alone, needs torch and triton.

    y = x * cs + where(d < D // 2, -x[b s h (d + D // 2)], x[b s h (d - D // 2)]) * sn
"""

import torch
import triton
import triton.language as tl


@triton.jit
def rope_kernel(
    x_ptr,
    cs_ptr,
    sn_ptr,
    y_ptr,
    S,
    H,
    D: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    # schedule: tile s=16 d=all; grid b s h
    tile = tl.program_id(0)
    tiles_s = tl.cdiv(S, BLOCK_S)
    h = tile % H
    tile_s = tile // H % tiles_s
    b = tile // (tiles_s * H)
    s0 = tile_s * BLOCK_S
    ss = s0 + tl.arange(0, BLOCK_S)
    ds = tl.arange(0, D)
    x_at = x_ptr + b.to(tl.int64) * (S * H * D) + h.to(tl.int64) * D
    x = tl.load(x_at + ss[:, None] * (H * D) + ds[None, :], mask=(ss < S)[:, None], other=0.0)
    cs = tl.load(cs_ptr + ss[:, None] * D + ds[None, :], mask=(ss < S)[:, None], other=0.0)
    d_index = ds + D // 2
    x2 = tl.load(x_at + ss[:, None] * (H * D) + d_index[None, :], mask=(ss < S)[:, None] & ((d_index >= 0) & (d_index < D))[None, :], other=0.0)
    d_index2 = ds - D // 2
    x3 = tl.load(x_at + ss[:, None] * (H * D) + d_index2[None, :], mask=(ss < S)[:, None] & ((d_index2 >= 0) & (d_index2 < D))[None, :], other=0.0)
    sn = tl.load(sn_ptr + ss[:, None] * D + ds[None, :], mask=(ss < S)[:, None], other=0.0)
    y = x.to(tl.float32) * cs + tl.where((ds < D // 2)[None, :], -x2.to(tl.float32), x3.to(tl.float32)) * sn
    y_at = y_ptr + b.to(tl.int64) * (S * H * D) + h.to(tl.int64) * D
    tl.store(y_at + ss[:, None] * (H * D) + ds[None, :], y.to(tl.bfloat16), mask=(ss < S)[:, None])


def rope(x, cs, sn):
    """x [b s h d] bf16; cs [s d] f32; sn [s d] f32: contiguous tensors on one device."""
    B, S, H, D = x.shape
    assert x.dtype == torch.bfloat16 and x.is_contiguous(), "x: contiguous bf16"
    assert cs.shape == (S, D), f"cs is {tuple(cs.shape)}"
    assert cs.dtype == torch.float32 and cs.is_contiguous(), "cs: contiguous f32"
    assert sn.shape == (S, D), f"sn is {tuple(sn.shape)}"
    assert sn.dtype == torch.float32 and sn.is_contiguous(), "sn: contiguous f32"
    y = torch.empty((B, S, H, D), device=x.device, dtype=torch.bfloat16)
    assert max(x.numel() for x in (cs, sn)) < 2**31, "offsets within a tensor are of 32 bits"
    rope_kernel[(B * triton.cdiv(S, 16) * H,)](
        x,
        cs,
        sn,
        y,
        S,
        H,
        D=D,
        BLOCK_S=16,
        num_warps=4,
        num_stages=1,
    )
    return y
