"""swiglu for sm_120: generated from program 12d04815b34b7058; runs alone, needs torch and triton.

    y = silu(sum[k](x * wg)) * sum[k](x * wu)
"""

import torch
import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu_kernel(
    x_ptr,
    wg_ptr,
    wu_ptr,
    y_ptr,
    M,
    K,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # schedule: tile m=64 n=64 k=32; grid m n; stream k stages=2
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_n = tile % tiles_n
    tile_m = tile // tiles_n
    m0 = tile_m * BLOCK_M
    n0 = tile_n * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    acc2 = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    ms = m0 + tl.arange(0, BLOCK_M)
    ns = n0 + tl.arange(0, BLOCK_N)
    for k0 in tl.range(0, K, BLOCK_K):
        ks = k0 + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + ms[:, None] * K + ks[None, :], mask=(ms < M)[:, None] & (ks < K)[None, :], other=0.0)
        wg = tl.load(wg_ptr + ks[:, None] * N + ns[None, :], mask=(ks < K)[:, None] & (ns < N)[None, :], other=0.0)
        acc = tl.dot(x, wg, acc)
        wu = tl.load(wu_ptr + ks[:, None] * N + ns[None, :], mask=(ks < K)[:, None] & (ns < N)[None, :], other=0.0)
        acc2 = tl.dot(x, wu, acc2)
    tl.store(y_ptr + ms[:, None] * N + ns[None, :], (silu(acc) * acc2).to(tl.bfloat16), mask=(ms < M)[:, None] & (ns < N)[None, :])


def swiglu(x, wg, wu):
    """x [m k] bf16; wg [k n] bf16; wu [k n] bf16: contiguous tensors on one device."""
    M, K = x.shape
    assert x.dtype == torch.bfloat16 and x.is_contiguous(), "x: contiguous bf16"
    _, N = wg.shape
    assert wg.shape == (K, N), f"wg is {tuple(wg.shape)}"
    assert wg.dtype == torch.bfloat16 and wg.is_contiguous(), "wg: contiguous bf16"
    assert wu.shape == (K, N), f"wu is {tuple(wu.shape)}"
    assert wu.dtype == torch.bfloat16 and wu.is_contiguous(), "wu: contiguous bf16"
    y = torch.empty((M, N), device=x.device, dtype=torch.bfloat16)
    assert max(x.numel() for x in (x, wg, wu, y)) < 2**31, "offsets within a tensor are of 32 bits"
    swiglu_kernel[(triton.cdiv(M, 64) * triton.cdiv(N, 64),)](
        x,
        wg,
        wu,
        y,
        M,
        K,
        N,
        BLOCK_M=64,
        BLOCK_N=64,
        BLOCK_K=32,
        num_warps=4,
        num_stages=2,
    )
    return y
