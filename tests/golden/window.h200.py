"""window for sm_90: generated from program 3c3f441fb0377858; runs alone, needs torch and triton.

    s[b h m n] = sum[d](q * k) * rsqrt(D)
    c[b h m n] = where(m >= n and m - n < window, s, -inf)
    o = sum[n](softmax[n](c) * v)
"""

import math

import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e+38)  # stands for -inf as a maximum: a mask may empty a row


@triton.jit
def window_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    scale,
    H,
    M,
    N,
    D: tl.constexpr,
    E: tl.constexpr,
    WINDOW: tl.constexpr,
    TAIL_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # schedule: tile m=64 n=32; grid b h m; stream n stages=2; split masked
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tile_m = tile % tiles_m
    h = tile // tiles_m % H
    b = tile // (H * tiles_m)
    m0 = tile_m * BLOCK_M
    c_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    acc = tl.zeros((BLOCK_M, E), tl.float32)
    c_sum = tl.zeros((BLOCK_M,), tl.float32)
    m_end = m0 + BLOCK_M
    n_end = tl.minimum(N, m_end)
    shift = -(WINDOW - 1)
    n_from = tl.minimum((tl.maximum(0, m_end - 1 + shift) + BLOCK_N - 1) // BLOCK_N * BLOCK_N, n_end)
    n_full = tl.maximum(tl.minimum(N, m0 + 1) // BLOCK_N * BLOCK_N, n_from)
    ms = m0 + tl.arange(0, BLOCK_M)
    ds = tl.arange(0, D)
    q_at = q_ptr + (b * H + h).to(tl.int64) * (M * D)
    q = tl.load(q_at + ms[:, None] * D + ds[None, :], mask=(ms < M)[:, None], other=0.0)
    es = tl.arange(0, E)
    k_at = k_ptr + (b * H + h).to(tl.int64) * (N * D)
    v_at = v_ptr + (b * H + h).to(tl.int64) * (N * E)
    for n0 in tl.range(tl.maximum(0, m0 + shift) // BLOCK_N * BLOCK_N, n_from, BLOCK_N):  # the first edge: masks apply
        ns = n0 + tl.arange(0, BLOCK_N)
        k = tl.load(k_at + ns[:, None] * D + ds[None, :], mask=(ns < N)[:, None], other=0.0)
        s = tl.dot(q, k.T)
        c = tl.where((ms[:, None] >= ns[None, :]) & (ms[:, None] - ns[None, :] < WINDOW), s, float("-inf"))
        c2 = tl.where((ns < N)[None, :], c, float("-inf")) if TAIL_N else c
        c_max_new = tl.maximum(c_max, tl.max(c2, 1) * scale)
        rescale = tl.exp(c_max - c_max_new)
        p = tl.exp(c2 * scale - c_max_new[:, None])
        acc = acc * rescale[:, None]
        c_sum = c_sum * rescale + tl.sum(p, 1)
        v = tl.load(v_at + ns[:, None] * E + es[None, :], mask=(ns < N)[:, None], other=0.0)
        acc = tl.dot(p.to(tl.bfloat16), v, acc)
        c_max = c_max_new
    for n0 in tl.range(n_from, n_full, BLOCK_N):  # blocks that no mask touches
        ns = n0 + tl.arange(0, BLOCK_N)
        k = tl.load(k_at + ns[:, None] * D + ds[None, :])
        s = tl.dot(q, k.T)
        c_max_new = tl.maximum(c_max, tl.max(s, 1) * scale)
        rescale = tl.exp(c_max - c_max_new)
        p = tl.exp(s * scale - c_max_new[:, None])
        acc = acc * rescale[:, None]
        c_sum = c_sum * rescale + tl.sum(p, 1)
        v = tl.load(v_at + ns[:, None] * E + es[None, :])
        acc = tl.dot(p.to(tl.bfloat16), v, acc)
        c_max = c_max_new
    for n0 in tl.range(n_full, n_end, BLOCK_N):  # the last edge: masks apply
        ns = n0 + tl.arange(0, BLOCK_N)
        k = tl.load(k_at + ns[:, None] * D + ds[None, :], mask=(ns < N)[:, None], other=0.0)
        s = tl.dot(q, k.T)
        c = tl.where((ms[:, None] >= ns[None, :]) & (ms[:, None] - ns[None, :] < WINDOW), s, float("-inf"))
        c2 = tl.where((ns < N)[None, :], c, float("-inf")) if TAIL_N else c
        c_max_new = tl.maximum(c_max, tl.max(c2, 1) * scale)
        rescale = tl.exp(c_max - c_max_new)
        p = tl.exp(c2 * scale - c_max_new[:, None])
        acc = acc * rescale[:, None]
        c_sum = c_sum * rescale + tl.sum(p, 1)
        v = tl.load(v_at + ns[:, None] * E + es[None, :], mask=(ns < N)[:, None], other=0.0)
        acc = tl.dot(p.to(tl.bfloat16), v, acc)
        c_max = c_max_new
    o_at = o_ptr + (b * H + h).to(tl.int64) * (M * E)
    o = (acc / tl.where(c_sum == 0.0, 1.0, c_sum)[:, None]).to(tl.bfloat16)
    tl.store(o_at + ms[:, None] * E + es[None, :], o, mask=(ms < M)[:, None])


def window(q, k, v, window=40):
    """q [b h m d] bf16; k [b h n d] bf16; v [b h n e] bf16: contiguous tensors on one device."""
    B, H, M, D = q.shape
    assert q.dtype == torch.bfloat16 and q.is_contiguous(), "q: contiguous bf16"
    _, _, N, _ = k.shape
    assert k.shape == (B, H, N, D), f"k is {tuple(k.shape)}"
    assert k.dtype == torch.bfloat16 and k.is_contiguous(), "k: contiguous bf16"
    _, _, _, E = v.shape
    assert v.shape == (B, H, N, E), f"v is {tuple(v.shape)}"
    assert v.dtype == torch.bfloat16 and v.is_contiguous(), "v: contiguous bf16"
    o = torch.empty((B, H, M, E), device=q.device, dtype=torch.bfloat16)
    scale = 1.0 / math.sqrt(D)
    window_kernel[(B * H * triton.cdiv(M, 64),)](
        q,
        k,
        v,
        o,
        scale,
        H,
        M,
        N,
        D=D,
        E=E,
        WINDOW=window,
        TAIL_N=N % 32 != 0,
        BLOCK_M=64,
        BLOCK_N=32,
        num_warps=4,
        num_stages=2,
    )
    return o
