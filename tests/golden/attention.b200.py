"""attention for sm_100: generated from program 673cca40109af1e4; runs alone, needs torch and triton.

    s[b h m n] = sum[d](q * k) * rsqrt(D)
    c[b h m n] = where(not causal or m >= n, s, -inf)
    o = sum[n](softmax[n](c) * v)
"""

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOWEST = tl.constexpr(-3.4028234663852886e+38)  # stands for -inf as a maximum: a mask may empty a row


@triton.jit
def attention_kernel(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    scale,
    H,
    M,
    G,
    N,
    D: tl.constexpr,
    E: tl.constexpr,
    CAUSAL: tl.constexpr,
    TAIL_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # schedule: tile m=128 n=64; grid b h m; order longest_first; stream n stages=2; split masked; load tma
    # rescale lazy(8); exponent exp2; warps 4
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tile_m = tile % tiles_m
    h = tile // tiles_m % H
    b = tile // (H * tiles_m)
    tile_m = tiles_m - 1 - tile_m  # longest rows first
    m0 = tile_m * BLOCK_M
    c_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    acc = tl.zeros((BLOCK_M, E), tl.float32)
    c_sum = tl.zeros((BLOCK_M,), tl.float32)
    n_full = (tl.minimum(N, m0 + 1) if CAUSAL else N) // BLOCK_N * BLOCK_N
    q = q_desc.load([b, h, m0, 0]).reshape(BLOCK_M, D)
    g = h // (H // G)
    n_end = tl.minimum(N, m0 + BLOCK_M) if CAUSAL else N
    ms = m0 + tl.arange(0, BLOCK_M)
    for n0 in tl.range(0, n_full, BLOCK_N):  # blocks that no mask touches
        k = k_desc.load([b, g, n0, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, k.T)
        c_top = tl.max(s, 1) * scale
        c_max_new = tl.where(c_top > c_max + 8.0, c_top, c_max)
        rescale = tl.exp2(c_max - c_max_new)
        p = tl.exp2(s * scale - c_max_new[:, None])
        p_sum = tl.sum(p, 1)
        if tl.max(c_max_new - c_max, 0) > 0.0:  # only where a row's maximum rose
            acc = acc * rescale[:, None]
        c_sum = c_sum * rescale + p_sum
        v = v_desc.load([b, g, n0, 0]).reshape(BLOCK_N, E)
        acc = tl.dot(p.to(tl.bfloat16), v, acc)
        c_max = c_max_new
    if CAUSAL or TAIL_N:
        for n0 in tl.range(n_full, n_end, BLOCK_N):  # the edge: masks apply
            ns = n0 + tl.arange(0, BLOCK_N)
            k = k_desc.load([b, g, n0, 0]).reshape(BLOCK_N, D)
            s = tl.dot(q, k.T)
            c = tl.where(ms[:, None] >= ns[None, :], s, float("-inf")) if CAUSAL else s
            c2 = tl.where((ns < N)[None, :], c, float("-inf")) if TAIL_N else c
            c_top = tl.max(c2, 1) * scale
            c_max_new = tl.where(c_top > c_max + 8.0, c_top, c_max)
            rescale = tl.exp2(c_max - c_max_new)
            p = tl.exp2(c2 * scale - c_max_new[:, None])
            p_sum = tl.sum(p, 1)
            if tl.max(c_max_new - c_max, 0) > 0.0:  # only where a row's maximum rose
                acc = acc * rescale[:, None]
            c_sum = c_sum * rescale + p_sum
            v = v_desc.load([b, g, n0, 0]).reshape(BLOCK_N, E)
            acc = tl.dot(p.to(tl.bfloat16), v, acc)
            c_max = c_max_new
    o = (acc / tl.where(c_sum == 0.0, 1.0, c_sum)[:, None]).to(tl.bfloat16)
    o_desc.store([b, h, m0, 0], o.reshape(1, 1, BLOCK_M, E))


def attention(q, k, v, causal):
    """q [b h m d] bf16; k [b g n d] bf16; v [b g n e] bf16: contiguous tensors on one device."""
    B, H, M, D = q.shape
    assert q.dtype == torch.bfloat16 and q.is_contiguous(), "q: contiguous bf16"
    _, G, N, _ = k.shape
    assert k.shape == (B, G, N, D), f"k is {tuple(k.shape)}"
    assert k.dtype == torch.bfloat16 and k.is_contiguous(), "k: contiguous bf16"
    _, _, _, E = v.shape
    assert v.shape == (B, G, N, E), f"v is {tuple(v.shape)}"
    assert v.dtype == torch.bfloat16 and v.is_contiguous(), "v: contiguous bf16"
    assert G == triton.cdiv(H, H // G), "H and G do not agree"
    o = torch.empty((B, H, M, E), device=q.device, dtype=torch.bfloat16)
    assert D % 8 == 0, "tma loads need D % 8 == 0 (rows of q, k)"
    assert E % 8 == 0, "tma loads need E % 8 == 0 (rows of v, o)"
    scale = 1.4426950408889634 * (1.0 / math.sqrt(D))
    attention_kernel[(B * H * triton.cdiv(M, 128),)](
        TensorDescriptor.from_tensor(q, [1, 1, 128, D]),
        TensorDescriptor.from_tensor(k, [1, 1, 64, D]),
        TensorDescriptor.from_tensor(v, [1, 1, 64, E]),
        TensorDescriptor.from_tensor(o, [1, 1, 128, E]),
        scale,
        H,
        M,
        G,
        N,
        D=D,
        E=E,
        CAUSAL=causal,
        TAIL_N=N % 64 != 0,
        BLOCK_M=128,
        BLOCK_N=64,
        num_warps=4,
        num_stages=2,
    )
    return o
