"""gemm for sm_90: generated from program 38042c37b702ca37; runs alone, needs torch and triton with Gluon.

    c = relu(sum[k](a * b) + bias)
"""

import functools

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as TileDescriptor

# what newer versions call otherwise
fetch = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
write = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


@functools.cache
def layout_of(block, dtype):
    """Found once: it takes longer than the rest of a descriptor, and kernels of 0.1 ms wait for the host."""
    return gl.NVMMASharedLayout.get_default_for(block, dtype)


def tiles_of(x, *block, dtype):
    """A tensor as tiles that are copied into shared memory, as matrix products want them there."""
    return TileDescriptor.from_tensor(x, list(block), layout_of(block, dtype))


@gluon.jit
def relu(x):
    return gl.maximum(x, 0.0)


@gluon.jit
def gemm_kernel_load(
    a_desc,
    b_desc,
    bias_ptr,
    c_desc,
    M,
    K,
    N,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP: gl.constexpr,
    a_s,
    b_s,
    c_s,
    a_b_full,
    a_b_empty,
    ROWS: gl.constexpr,
):
    block = 0  # blocks so far: they go round the buffers
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):  # persistent
        tiles_m = gl.cdiv(M, BLOCK_M)
        tiles_n = gl.cdiv(N, BLOCK_N)
        group = tile // (GROUP * tiles_n)  # a group of rows shares the columns that it reads
        rows = gl.minimum(tiles_m - group * GROUP, GROUP)
        tile_m = group * GROUP + tile % (GROUP * tiles_n) % rows
        tile_n = tile % (GROUP * tiles_n) // rows
        m0 = tile_m * BLOCK_M
        n0 = tile_n * BLOCK_N
        for k0 in range(0, K, BLOCK_K):
            mbarrier.wait(a_b_empty.index(block % 3), (block // 3 & 1) ^ 1)
            mbarrier.expect(a_b_full.index(block % 3), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            fetch(a_desc, [m0, k0], a_b_full.index(block % 3), a_s.index(block % 3))
            fetch(b_desc, [k0, n0], a_b_full.index(block % 3), b_s.index(block % 3))
            block += 1


@gluon.jit
def gemm_kernel_mma(
    a_desc,
    b_desc,
    bias_ptr,
    c_desc,
    M,
    K,
    N,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP: gl.constexpr,
    a_s,
    b_s,
    c_s,
    a_b_full,
    a_b_empty,
    ROWS: gl.constexpr,
    WG: gl.constexpr,
):
    MN_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    N_LAYOUT: gl.constexpr = gl.SliceLayout(0, MN_LAYOUT)
    N_ONCE_LAYOUT: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    block = 0  # blocks so far: they go round the buffers
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):  # persistent
        tiles_m = gl.cdiv(M, BLOCK_M)
        tiles_n = gl.cdiv(N, BLOCK_N)
        group = tile // (GROUP * tiles_n)  # a group of rows shares the columns that it reads
        rows = gl.minimum(tiles_m - group * GROUP, GROUP)
        tile_m = group * GROUP + tile % (GROUP * tiles_n) % rows
        tile_n = tile % (GROUP * tiles_n) // rows
        m0 = tile_m * BLOCK_M
        n0 = tile_n * BLOCK_N
        acc = gl.full((ROWS, BLOCK_N), 0.0, gl.float32, MN_LAYOUT)
        ns = n0 + gl.arange(0, BLOCK_N, layout=N_ONCE_LAYOUT)
        bias = gl.load(bias_ptr + ns, mask=ns < N, other=0.0)
        m_own = m0 + WG * ROWS
        first = block
        for k0 in range(0, K, BLOCK_K):
            mbarrier.wait(a_b_full.index(block % 3), block // 3 & 1)
            acc = warpgroup_mma(
                a_s.index(block % 3).slice(WG * ROWS, ROWS, dim=0),
                b_s.index(block % 3),
                acc,
                is_async=True,
            )
            acc = warpgroup_mma_wait(1, deps=(acc,))
            mbarrier.arrive(a_b_empty.index((block - 1) % 3), count=1, pred=block > first)
            block += 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(a_b_empty.index((block - 1) % 3), count=1, pred=block > first)
        c = relu(acc + gl.convert_layout(bias, N_LAYOUT)[None, :]).to(gl.bfloat16)
        tma.store_wait(0)  # the buffer has left
        barrier()
        c_s.index(WG).store(c)
        fence_async_shared()
        barrier()
        write(c_desc, [m_own, n0], c_s.index(WG))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "K", "N"])
def gemm_kernel(
    a_desc,
    b_desc,
    bias_ptr,
    c_desc,
    M,
    K,
    N,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP: gl.constexpr,
    ROWS: gl.constexpr,
):
    # schedule: tile m=128 n=256 k=64; grid m n; order grouped(8); persistent; stream k stages=3; load tma
    # roles load=1 mma=2
    a_s = gl.allocate_shared_memory(a_desc.dtype, [3] + a_desc.block_type.shape, a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [3] + b_desc.block_type.shape, b_desc.layout)
    c_s = gl.allocate_shared_memory(c_desc.dtype, [2] + c_desc.block_type.shape, c_desc.layout)
    a_b_full = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    a_b_empty = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        mbarrier.init(a_b_full.index(i), count=1)
        mbarrier.init(a_b_empty.index(i), count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                gemm_kernel_mma,
                (
                    a_desc, b_desc, bias_ptr, c_desc, M, K, N, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, a_s,
                    b_s, c_s, a_b_full, a_b_empty, ROWS, 0,
                ),
            ),
            (
                gemm_kernel_mma,
                (
                    a_desc, b_desc, bias_ptr, c_desc, M, K, N, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, a_s,
                    b_s, c_s, a_b_full, a_b_empty, ROWS, 1,
                ),
            ),
            (
                gemm_kernel_load,
                (
                    a_desc, b_desc, bias_ptr, c_desc, M, K, N, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, a_s,
                    b_s, c_s, a_b_full, a_b_empty, ROWS,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )


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
    assert K % 8 == 0, "tma loads need K % 8 == 0 (rows of a)"
    assert N % 8 == 0, "tma loads need N % 8 == 0 (rows of b, c)"
    device = torch.cuda.get_device_properties(a.device) if a.is_cuda else None
    programs = min(device.multi_processor_count if device else 4, triton.cdiv(M, 128) * triton.cdiv(N, 256))
    gemm_kernel[(programs,)](
        tiles_of(a, 128, 64, dtype=gl.bfloat16),
        tiles_of(b, 64, 256, dtype=gl.bfloat16),
        bias,
        tiles_of(c, 64, 256, dtype=gl.bfloat16),
        M,
        K,
        N,
        BLOCK_M=128,
        BLOCK_N=256,
        BLOCK_K=64,
        GROUP=8,
        ROWS=64,
        num_warps=4,
        maxnreg=168,
    )
    return c
