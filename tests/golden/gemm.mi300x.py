"""gemm for gfx942: generated from program 67bd7d0d9047df07; runs alone, needs torch and triton.

    c = gelu(sum[k](a * b) + bias)
"""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gemm_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    M,
    K,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    # schedule: grid m n; order grouped(8); persistent; warps 8; tile m=256 n=256 k=64; stream k stages=2
    # load pointer; waves_per_eu 2; matrix_instr 16
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N), tl.num_programs(0)):  # persistent
        tiles_m = tl.cdiv(M, BLOCK_M)
        tiles_n = tl.cdiv(N, BLOCK_N)
        group = tile // (GROUP * tiles_n)  # a group of rows shares the columns that it reads
        rows = tl.minimum(tiles_m - group * GROUP, GROUP)
        tile_m = group * GROUP + tile % (GROUP * tiles_n) % rows
        tile_n = tile % (GROUP * tiles_n) // rows
        m0 = tile_m * BLOCK_M
        n0 = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        ms = m0 + tl.arange(0, BLOCK_M)
        ns = n0 + tl.arange(0, BLOCK_N)
        for k0 in tl.range(0, K, BLOCK_K):
            ks = k0 + tl.arange(0, BLOCK_K)
            a = tl.load(a_ptr + ms[:, None] * K + ks[None, :], mask=(ms < M)[:, None] & (ks < K)[None, :], other=0.0)
            b = tl.load(b_ptr + ks[:, None] * N + ns[None, :], mask=(ks < K)[:, None] & (ns < N)[None, :], other=0.0)
            acc = tl.dot(a, b, acc)
        bias = tl.load(bias_ptr + ns, mask=ns < N, other=0.0)
        c = gelu(acc + bias[None, :]).to(tl.bfloat16)
        tl.store(c_ptr + ms[:, None] * N + ns[None, :], c, mask=(ms < M)[:, None] & (ns < N)[None, :])


def gemm(a, b, bias):
    """a [m k] bf16; b [k n] bf16; bias [n] f32: contiguous tensors on one device."""
    M, K = a.shape
    assert a.dtype == torch.bfloat16 and a.is_contiguous(), "a: contiguous bf16"
    _, N = b.shape
    assert b.shape == (K, N), f"b is {tuple(b.shape)}"
    assert b.dtype == torch.bfloat16 and b.is_contiguous(), "b: contiguous bf16"
    assert bias.shape == (N,), f"bias is {tuple(bias.shape)}"
    assert bias.dtype == torch.float32 and bias.is_contiguous(), "bias: contiguous f32"
    c = torch.empty((M, N), device=a.device, dtype=torch.bfloat16)
    assert max(x.numel() for x in (a, b, c)) < 2**31, "offsets within a tensor are of 32 bits"
    device = torch.cuda.get_device_properties(a.device) if a.is_cuda else None
    programs = min(device.multi_processor_count if device else 4, triton.cdiv(M, 256) * triton.cdiv(N, 256))
    gemm_kernel[(programs,)](
        a,
        b,
        bias,
        c,
        M,
        K,
        N,
        BLOCK_M=256,
        BLOCK_N=256,
        BLOCK_K=64,
        GROUP=8,
        num_warps=8,
        num_stages=2,
        waves_per_eu=2,
        matrix_instr_nonkdim=16,
    )
    return c
