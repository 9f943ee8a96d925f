"""Layer normalisation of rows with a weight and a bias, bf16; bound by memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluators.target import Target, Workload, WorkloadSet
from evaluators.targets import seed_text

if TYPE_CHECKING:
    from torch import Tensor


def reference(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + 1e-5) w + bias over the last axis. x[r c], w[c], bias[c] -> [r c]."""
    import torch

    z = x - x.mean(-1, keepdim=True)
    return z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-5) * w + bias


def workload(r: int, c: int) -> Workload:
    return Workload({"r": r, "c": c})


TARGET = Target(
    name="layernorm",
    reference=reference,
    seed=seed_text("layernorm"),
    workloads=(workload(65536, 768), workload(32768, 1280), workload(16384, 4096), workload(8192, 12288)),
    hidden=(workload(10000, 5120), workload(30000, 1024)),
    checks=(workload(21, 200), workload(13, 1000), workload(9, 520), workload(12, 4200), workload(8, 4096)),
    tiny=(workload(4, 9), workload(3, 16)),
    sets={
        "decode": WorkloadSet(
            workloads=(workload(1, 4096), workload(16, 12288), workload(64, 1280), workload(256, 768)),
            hidden=(workload(7, 5120), workload(100, 1024)),
            summary="the rows of a decode step",
        )
    },
    unit="GB/s",
    summary="(x - mean) / deviation w + bias over rows, bf16",
)
