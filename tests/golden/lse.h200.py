"""attention_lse for sm_90: generated from program 120c2b571a54924b; runs alone, needs torch and triton.

    s[b h m n] = sum[d](q * k) * rsqrt(D)
    x[b h m] = max[n](s)
    l[b h m] = sum[n](exp(s - x))
    lse = x + log(l)
    o = sum[n](exp(s - x) * v) / l
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def attention_lse_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    scale,
    H,
    M,
    N,
    D: tl.constexpr,
    E: tl.constexpr,
    TAIL_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # schedule: tile m=64 n=32; grid b h m; stream n stages=2
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tile_m = tile % tiles_m
    h = tile // tiles_m % H
    b = tile // (H * tiles_m)
    m0 = tile_m * BLOCK_M
    s_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    acc = tl.zeros((BLOCK_M, E), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    ms = m0 + tl.arange(0, BLOCK_M)
    ds = tl.arange(0, D)
    q_at = q_ptr + (b * H + h).to(tl.int64) * (M * D)
    q = tl.load(q_at + ms[:, None] * D + ds[None, :], mask=(ms < M)[:, None], other=0.0)
    es = tl.arange(0, E)
    k_at = k_ptr + (b * H + h).to(tl.int64) * (N * D)
    v_at = v_ptr + (b * H + h).to(tl.int64) * (N * E)
    for n0 in tl.range(0, N, BLOCK_N):
        ns = n0 + tl.arange(0, BLOCK_N)
        k = tl.load(k_at + ns[:, None] * D + ds[None, :], mask=(ns < N)[:, None], other=0.0)
        s = tl.dot(q, k.T)
        s2 = tl.where((ns < N)[None, :], s, float("-inf")) if TAIL_N else s
        s_max_new = tl.maximum(s_max, tl.max(s2, 1) * scale)
        rescale = tl.exp(s_max - s_max_new)
        p = tl.exp(s2 * scale - s_max_new[:, None])
        acc = acc * rescale[:, None]
        l = l * rescale + tl.sum(p, 1)
        v = tl.load(v_at + ns[:, None] * E + es[None, :], mask=(ns < N)[:, None], other=0.0)
        acc = tl.dot(p.to(tl.float16), v, acc)
        s_max = s_max_new
    o_at = o_ptr + (b * H + h).to(tl.int64) * (M * E)
    tl.store(o_at + ms[:, None] * E + es[None, :], (acc / l[:, None]).to(tl.float16), mask=(ms < M)[:, None])
    lse_at = lse_ptr + (b * H + h).to(tl.int64) * M
    tl.store(lse_at + ms, s_max + tl.log(l), mask=ms < M)


def attention_lse(q, k, v):
    """q [b h m d] f16; k [b h n d] f16; v [b h n e] f16: contiguous tensors on one device."""
    B, H, M, D = q.shape
    assert q.dtype == torch.float16 and q.is_contiguous(), "q: contiguous f16"
    _, _, N, _ = k.shape
    assert k.shape == (B, H, N, D), f"k is {tuple(k.shape)}"
    assert k.dtype == torch.float16 and k.is_contiguous(), "k: contiguous f16"
    _, _, _, E = v.shape
    assert v.shape == (B, H, N, E), f"v is {tuple(v.shape)}"
    assert v.dtype == torch.float16 and v.is_contiguous(), "v: contiguous f16"
    o = torch.empty((B, H, M, E), device=q.device, dtype=torch.float16)
    lse = torch.empty((B, H, M), device=q.device, dtype=torch.float32)
    scale = 1.0 / math.sqrt(D)
    attention_lse_kernel[(B * H * triton.cdiv(M, 64),)](
        q,
        k,
        v,
        o,
        lse,
        scale,
        H,
        M,
        N,
        D=D,
        E=E,
        TAIL_N=N % 32 != 0,
        BLOCK_M=64,
        BLOCK_N=32,
        num_warps=4,
        num_stages=2,
    )
    return o, lse
