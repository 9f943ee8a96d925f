"""Split-k: programs add their parts to a float32 output by atomics, in whatever order they finish."""

import torch
import triton
import triton.language as tl


@triton.jit
def parts(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.program_id(2) * BK, K, BK * SPLIT):
        at = k + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + at[None, :], mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        y = tl.load(b + at[:, None] * N + n[None, :], mask=(at[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(x, y)
    tl.atomic_add(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def run(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros(M, N, device=a.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), 2)
    parts[grid](a, b, c, M, N, K, BM=64, BN=64, BK=64, SPLIT=2)
    return c.to(a.dtype)
