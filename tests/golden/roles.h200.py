"""attention for sm_90: generated from program 77ed4fb8f039f679; runs alone, needs torch and triton with Gluon.

    s[b h m n] = sum[d](q * k) * rsqrt(D)
    c[b h m n] = where(not causal or m >= n, s, -inf)
    o = sum[n](softmax[n](c) * v)
"""

import functools
import heapq
import math

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


@functools.lru_cache(maxsize=64)
def attention_kernel_tiles(B, H, M, N, causal, together, programs, device):
    """Every tile, by the program that computes it, in its order."""
    outer = [(b, h) for b in range(B) for h in range(H)]
    groups = [outer[i : i + together] for i in range(0, len(outer), together)]
    tiles = [(*x, tile_m) for group in groups for tile_m in reversed(range(-(-M // 128))) for x in group]

    def cost(b, h, tile_m):
        blocks = max(0, -(-((((min(N, (tile_m * 128 + 1)) if causal else N) // 128) * 128)) // 128))
        blocks += max(0, -(-((min(N, (tile_m * 128 + 128)) if causal else N) - (((min(N, (tile_m * 128 + 1)) if causal else N) // 128) * 128)) // 128))
        return blocks + 1.5

    return shared_out(tiles, [cost(*x) for x in tiles], programs, device)


@gluon.jit
def parts(x):
    """Sums of each row's elements, of each thread its own: eight neighbours lie in four threads."""
    return gl.sum(x.reshape([x.shape[0], x.shape[1] // 8, 8]), 1)


@gluon.jit
def row_max(x, layout: gl.constexpr):
    """The maximum of each row, in each thread first."""
    of_thread = gl.max(x.reshape([x.shape[0], x.shape[1] // 8, 8]), 1)
    return gl.convert_layout(gl.max(of_thread, 1), layout)


@gluon.jit
def rows_of(x, parts):
    """One value a row beside the parts of rows."""
    return gl.convert_layout(x, gl.SliceLayout(1, parts.type.layout))[:, None]


def shared_out(tiles, costs, programs, device):
    """For each program the range of its rows, then the rows: whoever has the least to do takes the next tile."""
    queue = [(0.0, p) for p in range(programs)]
    mine = [[] for _ in range(programs)]
    for tile, cost in zip(tiles, costs):
        done, p = heapq.heappop(queue)
        mine[p].append(tile)
        heapq.heappush(queue, (done + cost, p))
    begins = [0]
    for rows in mine:
        begins.append(begins[-1] + len(rows))
    flat = [x for rows in mine for tile in rows for x in tile]
    return torch.tensor([*begins, *flat, *tiles[0]], dtype=torch.int32, device=device)


@gluon.jit
def attention_kernel_load(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    scale,
    B,
    H,
    M,
    G,
    N,
    tiles,
    D: gl.constexpr,
    E: gl.constexpr,
    CAUSAL: gl.constexpr,
    TAIL_N: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    q_s,
    k_s,
    v_s,
    o_s,
    q_full,
    q_empty,
    k_full,
    k_empty,
    v_full,
    v_empty,
    ROWS: gl.constexpr,
):
    block = 0  # blocks so far: they go round the buffers
    turn = 0  # tiles so far
    begin = gl.load(tiles + gl.program_id(0))
    end = gl.load(tiles + gl.program_id(0) + 1)
    row = tiles + gl.num_programs(0) + 1 + begin * 3
    next_b = gl.load(row + 0)
    next_h = gl.load(row + 1)
    next_tile_m = gl.load(row + 2)
    for place in range(begin, end):  # persistent
        b = next_b
        h = next_h
        tile_m = next_tile_m
        row += 3
        next_b = gl.load(row + 0)
        next_h = gl.load(row + 1)
        next_tile_m = gl.load(row + 2)
        m0 = tile_m * BLOCK_M
        n_full = (gl.minimum(N, m0 + 1) if CAUSAL else N) // BLOCK_N * BLOCK_N
        g = h // (H // G)
        n_end = gl.minimum(N, m0 + BLOCK_M) if CAUSAL else N
        mbarrier.wait(q_empty.index(0), (turn & 1) ^ 1)
        mbarrier.expect(q_full.index(0), q_desc.block_type.nbytes)
        fetch(q_desc, [b, h, m0, 0], q_full.index(0), q_s.index(0))
        mbarrier.wait(q_empty.index(1), (turn & 1) ^ 1)
        mbarrier.expect(q_full.index(1), q_desc.block_type.nbytes)
        fetch(q_desc, [b, h, m0 + 64, 0], q_full.index(1), q_s.index(1))
        until = gl.maximum(gl.cdiv(n_end - n_full, BLOCK_N), 0) + gl.maximum(gl.cdiv(n_full, BLOCK_N), 0)
        blocks = gl.maximum(until, 1)
        n_last = (blocks - 1) * BLOCK_N
        for j in range(0, blocks):
            n0 = n_last - j * BLOCK_N
            mbarrier.wait(k_empty.index(block & 1), ((block >> 1) & 1) ^ 1)
            mbarrier.expect(k_full.index(block & 1), k_desc.block_type.nbytes)
            fetch(k_desc, [b, g, n0, 0], k_full.index(block & 1), k_s.index(block & 1))
            mbarrier.wait(v_empty.index(block & 1), ((block >> 1) & 1) ^ 1)
            mbarrier.expect(v_full.index(block & 1), v_desc.block_type.nbytes)
            fetch(v_desc, [b, g, n0, 0], v_full.index(block & 1), v_s.index(block & 1))
            block += 1
        turn += 1


@gluon.jit
def attention_kernel_mma(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    scale,
    B,
    H,
    M,
    G,
    N,
    tiles,
    D: gl.constexpr,
    E: gl.constexpr,
    CAUSAL: gl.constexpr,
    TAIL_N: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    q_s,
    k_s,
    v_s,
    o_s,
    q_full,
    q_empty,
    k_full,
    k_empty,
    v_full,
    v_empty,
    ROWS: gl.constexpr,
    WG: gl.constexpr,
):
    MN_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    M_LAYOUT: gl.constexpr = gl.SliceLayout(1, MN_LAYOUT)
    N_LAYOUT: gl.constexpr = gl.SliceLayout(0, MN_LAYOUT)
    ME_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, E, 16])
    block = 0  # blocks so far: they go round the buffers
    turn = 0  # tiles so far
    begin = gl.load(tiles + gl.program_id(0))
    end = gl.load(tiles + gl.program_id(0) + 1)
    row = tiles + gl.num_programs(0) + 1 + begin * 3
    next_b = gl.load(row + 0)
    next_h = gl.load(row + 1)
    next_tile_m = gl.load(row + 2)
    for place in range(begin, end):  # persistent
        b = next_b
        h = next_h
        tile_m = next_tile_m
        row += 3
        next_b = gl.load(row + 0)
        next_h = gl.load(row + 1)
        next_tile_m = gl.load(row + 2)
        m0 = tile_m * BLOCK_M
        m_own = m0 + WG * ROWS
        c_max = gl.full((ROWS,), -3.4028234663852886e+38, gl.float32, M_LAYOUT)
        acc = gl.full((ROWS, E), 0.0, gl.float32, ME_LAYOUT)
        c_sum = parts(gl.zeros((ROWS, BLOCK_N), gl.float32, MN_LAYOUT))
        n_full = (gl.minimum(N, m0 + 1) if CAUSAL else N) // BLOCK_N * BLOCK_N
        n_end = gl.minimum(N, m0 + BLOCK_M) if CAUSAL else N
        ms = m_own + gl.arange(0, ROWS, layout=M_LAYOUT)
        mbarrier.wait(q_full.index(WG), turn & 1)
        q = q_s.index(WG).reshape([ROWS, D]).load(gl.DotOperandLayout(0, MN_LAYOUT, 2))
        fence_async_shared()
        mbarrier.arrive(q_empty.index(WG), count=1)
        edge = gl.maximum(gl.cdiv(n_end - n_full, BLOCK_N), 0)
        until = edge + gl.maximum(gl.cdiv(n_full, BLOCK_N), 0)
        blocks = gl.maximum(until, 1)
        n_last = (blocks - 1) * BLOCK_N
        mbarrier.wait(k_full.index(block & 1), (block >> 1) & 1)
        s = warpgroup_mma(
            q,
            k_s.index(block & 1).reshape([BLOCK_N, D]).permute((1, 0)),
            gl.zeros((ROWS, BLOCK_N), gl.float32, MN_LAYOUT),
            use_acc=False,
            is_async=True,
        )
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(block & 1), count=1)
        ns = n_last + gl.arange(0, BLOCK_N, layout=N_LAYOUT)
        c = gl.where(ms[:, None] >= ns[None, :], s, float("-inf")) if CAUSAL else s
        c2 = gl.where((ns < N)[None, :], c, float("-inf")) if TAIL_N else c
        c_max_new = gl.maximum(c_max, row_max(c2, M_LAYOUT) * scale)
        p = gl.exp2(c2 * scale - c_max_new[:, None])
        c_sum = c_sum * rows_of(gl.exp2(c_max - c_max_new), c_sum) + parts(p)
        c_max = c_max_new
        p2 = p.to(gl.bfloat16)
        more = 1 < blocks
        mbarrier.wait(k_full.index((block + 1) & 1), ((block + 1) >> 1) & 1, pred=more)
        p_left = gl.convert_layout(p2, gl.DotOperandLayout(0, ME_LAYOUT, 2))
        for j in range(gl.maximum(edge, 1), blocks):  # blocks that no mask touches
            block += 1
            s2 = warpgroup_mma(
                q,
                k_s.index(block & 1).reshape([BLOCK_N, D]).permute((1, 0)),
                gl.zeros((ROWS, BLOCK_N), gl.float32, MN_LAYOUT),
                use_acc=False,
                is_async=True,
            )
            mbarrier.wait(v_full.index((block - 1) & 1), ((block - 1) >> 1) & 1)
            acc = warpgroup_mma(p_left, v_s.index((block - 1) & 1).reshape([BLOCK_N, E]), acc, is_async=True)
            s2 = warpgroup_mma_wait(1, deps=(s2,))
            mbarrier.arrive(k_empty.index(block & 1), count=1)
            c_max_new2 = gl.maximum(c_max, row_max(s2, M_LAYOUT) * scale)
            rescale = gl.exp2(c_max - c_max_new2)
            p3 = gl.exp2(s2 * scale - c_max_new2[:, None])
            c_sum = c_sum * rows_of(rescale, c_sum) + parts(p3)
            c_max = c_max_new2
            p4 = p3.to(gl.bfloat16)
            more = j + 1 < blocks
            mbarrier.wait(k_full.index((block + 1) & 1), ((block + 1) >> 1) & 1, pred=more)
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(v_empty.index((block - 1) & 1), count=1)
            acc = acc * gl.convert_layout(rescale, gl.SliceLayout(1, ME_LAYOUT))[:, None]
            p_left = gl.convert_layout(p4, gl.DotOperandLayout(0, ME_LAYOUT, 2))
        mbarrier.wait(v_full.index(block & 1), (block >> 1) & 1)
        acc = warpgroup_mma(p_left, v_s.index(block & 1).reshape([BLOCK_N, E]), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(v_empty.index(block & 1), count=1)
        block += 1
        c_sum2 = gl.convert_layout(gl.sum(c_sum, 1), M_LAYOUT)
        o = acc * gl.convert_layout(1.0 / gl.where(c_sum2 == 0.0, 1.0, c_sum2), gl.SliceLayout(1, ME_LAYOUT))[:, None]
        tma.store_wait(0)  # the buffer has left
        barrier()
        o_s.index(WG).reshape([ROWS, E]).store(o.to(gl.bfloat16))
        fence_async_shared()
        barrier()
        write(o_desc, [b, h, m_own, 0], o_s.index(WG))
        turn += 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["B", "H", "M", "G", "N"])
def attention_kernel(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    scale,
    B,
    H,
    M,
    G,
    N,
    tiles,
    D: gl.constexpr,
    E: gl.constexpr,
    CAUSAL: gl.constexpr,
    TAIL_N: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    ROWS: gl.constexpr,
):
    # schedule: tile m=128 n=128; grid b h m; order longest_first l2=8MiB; persistent; stream n stages=2
    # split masked; load tma; roles load=1 mma=2; registers load=24 mma=240; hold q registers
    # issue next_contraction; rescale always; reduce rows=per_thread; exponent exp2
    q_s = gl.allocate_shared_memory(q_desc.dtype, [2] + q_desc.block_type.shape, q_desc.layout)
    k_s = gl.allocate_shared_memory(k_desc.dtype, [2] + k_desc.block_type.shape, k_desc.layout)
    v_s = gl.allocate_shared_memory(v_desc.dtype, [2] + v_desc.block_type.shape, v_desc.layout)
    o_s = gl.allocate_shared_memory(o_desc.dtype, [2] + o_desc.block_type.shape, o_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=2)
    for i in gl.static_range(2):
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(v_empty.index(i), count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                attention_kernel_mma,
                (
                    q_desc, k_desc, v_desc, o_desc, scale, B, H, M, G, N, tiles, D, E, CAUSAL, TAIL_N,
                    BLOCK_M, BLOCK_N, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                    v_empty, ROWS, 0,
                ),
            ),
            (
                attention_kernel_mma,
                (
                    q_desc, k_desc, v_desc, o_desc, scale, B, H, M, G, N, tiles, D, E, CAUSAL, TAIL_N,
                    BLOCK_M, BLOCK_N, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                    v_empty, ROWS, 1,
                ),
            ),
            (
                attention_kernel_load,
                (
                    q_desc, k_desc, v_desc, o_desc, scale, B, H, M, G, N, tiles, D, E, CAUSAL, TAIL_N,
                    BLOCK_M, BLOCK_N, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                    v_empty, ROWS,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )


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
    device = torch.cuda.get_device_properties(q.device) if q.is_cuda else None
    programs = min(device.multi_processor_count if device else 4, B * H * triton.cdiv(M, 128))
    scale = 1.4426950408889634 * (1.0 / math.sqrt(D))
    attention_kernel[(programs,)](
        tiles_of(q, 1, 1, 64, D, dtype=gl.bfloat16),
        tiles_of(k, 1, 1, 128, D, dtype=gl.bfloat16),
        tiles_of(v, 1, 1, 128, E, dtype=gl.bfloat16),
        tiles_of(o, 1, 1, 64, E, dtype=gl.bfloat16),
        scale,
        B,
        H,
        M,
        G,
        N,
        attention_kernel_tiles(B, H, M, N, causal, max(1, 8388608 * B * H // (k.nbytes + v.nbytes)), programs, q.device),
        D=D,
        E=E,
        CAUSAL=causal,
        TAIL_N=N % 128 != 0,
        BLOCK_M=128,
        BLOCK_N=128,
        ROWS=64,
        num_warps=4,
        maxnreg=168,
    )
    return o
