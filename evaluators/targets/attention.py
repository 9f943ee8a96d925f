"""Attention forward, bf16, grouped heads: the workloads of AVO (arXiv 2603.24517), 32,768 tokens in all of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluators.target import Target, Workload
from evaluators.targets import seed_text

if TYPE_CHECKING:
    from torch import Tensor


def reference(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """softmax(q k^T / sqrt(d)) v. q[b h m d], k[b g n d], v[b g n e] -> [b h m e].

    Query head h reads head h // (H / G). `causal` keeps n <= m, counted from the top left.
    """
    import torch

    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def workload(b: int, h: int, g: int, m: int, n: int, d: int, causal: bool) -> Workload:
    return Workload({"b": b, "h": h, "g": g, "m": m, "n": n, "d": d, "e": d}, {"causal": causal})


TARGET = Target(
    name="attention",
    reference=reference,
    seed=seed_text("attention"),
    workloads=tuple(
        workload(b, 16, 16, n, n, 128, causal)
        for causal in (False, True)
        for b, n in ((8, 4096), (4, 8192), (2, 16384), (1, 32768))
    ),
    hidden=(
        workload(2, 32, 8, 8192, 8192, 128, True),  # grouped heads 32 over 8 and 32 over 4, as in the paper
        workload(2, 32, 4, 8192, 8192, 128, False),
        workload(3, 16, 16, 6000, 6000, 128, True),  # no multiple of a tile
        workload(3, 16, 16, 6000, 6000, 128, False),
    ),
    checks=(
        workload(1, 4, 2, 200, 200, 128, True),  # two tiles of 128 and a tail
        workload(1, 2, 2, 136, 330, 64, False),
        workload(2, 2, 1, 70, 150, 64, True),
        # Two long streams, where sums in a narrow dtype show. Two places apart, one draws inputs that weigh all keys.
        workload(1, 1, 1, 70, 1544, 128, False),
        workload(1, 2, 1, 256, 256, 128, True),  # no tails: kernels are specialised to that, as the public sizes are
        workload(1, 1, 1, 64, 1536, 128, False),
    ),
    tiny=(
        workload(2, 4, 2, 7, 9, 6, True),
        workload(1, 2, 1, 9, 7, 8, True),
        workload(1, 2, 2, 5, 11, 4, False),
    ),
    summary="softmax(q kᵀ / √d) v, bf16, grouped heads, causal and not",
)
