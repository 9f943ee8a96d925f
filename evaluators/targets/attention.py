"""Attention forward, bf16, grouped heads: the workloads of AVO (arXiv 2603.24517), 32,768 tokens in all of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluators.target import Target, Workload, WorkloadSet
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


LENGTHS = ((8, 4096), (4, 8192), (2, 16384), (1, 32768))  # (batch, tokens): 32,768 tokens in all


def sizes(heads: int, groups: int, d: int) -> tuple[Workload, ...]:
    return tuple(workload(b, heads, groups, n, n, d, causal) for causal in (False, True) for b, n in LENGTHS)


def small(d: int, group: int = 1) -> tuple[Workload, ...]:
    """Checks at that head dim: tails, none, and a long stream, where sums in a narrow dtype show."""
    return (
        workload(1, 2 * group, 2, 200, 200, d, True),
        workload(1, group, 1, 136, 330, d, False),
        workload(2, group, 1, 70, 150, d, True),
        workload(1, group, 1, 70, 1032, d, False),
        workload(1, group, 1, 256, 256, d, True),
        workload(1, group, 1, 64, 1024, d, False),
    )


TARGET = Target(
    name="attention",
    reference=reference,
    seed=seed_text("attention"),
    workloads=sizes(16, 16, 128),
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
    sets={
        "grouped": WorkloadSet(
            workloads=(*sizes(32, 8, 128), *sizes(32, 4, 128)),
            hidden=(workload(3, 32, 8, 6000, 6000, 128, True), workload(3, 32, 4, 6000, 6000, 128, False)),
            summary="32 query heads over 8 and over 4 key heads, as large models have them",
        ),
        "d64": WorkloadSet(
            workloads=sizes(32, 32, 64),
            hidden=(workload(3, 32, 32, 6000, 6000, 64, True), workload(3, 32, 32, 6000, 6000, 64, False)),
            checks=small(64),
            summary="32 heads of 64",
        ),
        "d256": WorkloadSet(
            workloads=sizes(8, 8, 256),
            hidden=(workload(3, 8, 8, 6000, 6000, 256, True), workload(3, 8, 8, 6000, 6000, 256, False)),
            checks=small(256),
            summary="8 heads of 256",
        ),
    },
)
