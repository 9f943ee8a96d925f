"""Root-mean-square normalisation of rows with a weight, bf16; bound by memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluators.target import Target, Workload, WorkloadSet
from evaluators.targets import seed_text

if TYPE_CHECKING:
    from torch import Tensor


def reference(x: Tensor, w: Tensor) -> Tensor:
    """x / sqrt(mean(x²) + 1e-6) w over the last axis. x[r c], w[c] -> [r c]."""
    import torch

    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def workload(r: int, c: int) -> Workload:
    return Workload({"r": r, "c": c})


TARGET = Target(
    name="rmsnorm",
    reference=reference,
    seed=seed_text("rmsnorm"),
    workloads=(workload(16384, 2048), workload(16384, 4096), workload(8192, 8192), workload(4096, 16384)),
    hidden=(workload(10000, 5120), workload(32768, 3072)),
    checks=(workload(21, 200), workload(13, 1000), workload(9, 520), workload(12, 4200), workload(8, 4096)),
    tiny=(workload(4, 9), workload(3, 16)),
    sets={
        "models": WorkloadSet(
            workloads=(workload(16384, 4096), workload(16384, 5120), workload(8192, 7168), workload(4096, 16384)),
            hidden=(workload(9000, 6144), workload(20000, 3584)),
            summary="hidden sizes of Llama 3 8B, Qwen 3 14B, DeepSeek V3 and Llama 3.1 405B",
        ),
        "decode": WorkloadSet(
            workloads=(workload(1, 8192), workload(16, 4096), workload(64, 7168), workload(256, 5120)),
            hidden=(workload(7, 6144), workload(100, 3584)),
            summary="the rows of a decode step",
        ),
    },
    unit="GB/s",
    summary="x / rms(x) w over rows, bf16",
)
