"""Softmax of rows, bf16; bound by memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evaluators.inputs import Array, draw
from evaluators.target import Target, Workload, WorkloadSet
from evaluators.targets import seed_text

if TYPE_CHECKING:
    from torch import Tensor


def reference(x: Tensor) -> Tensor:
    """softmax over the last axis. x[r c] -> [r c]."""
    import torch

    return torch.softmax(x, dim=-1)


def make_inputs(workload: Workload, distribution: str, rng: np.random.Generator) -> dict[str, Array]:
    """Logits enter as they are, so the large ones are scaled to overflow exp, and the near-constant ones too."""
    x = draw((workload.sizes["r"], workload.sizes["c"]), "bf16", distribution, rng)
    return {"x": x * {"large_logits": 16.0, "near_constant": 32.0}.get(distribution, 1.0)}


def workload(r: int, c: int) -> Workload:
    return Workload({"r": r, "c": c})


TARGET = Target(
    name="softmax",
    reference=reference,
    seed=seed_text("softmax"),
    make_inputs=make_inputs,
    workloads=(workload(16384, 2048), workload(16384, 4096), workload(8192, 8192), workload(4096, 32768)),
    hidden=(workload(10000, 5000), workload(2048, 65536)),
    checks=(workload(21, 200), workload(13, 1000), workload(9, 520), workload(5, 2104), workload(8, 4096)),
    tiny=(workload(4, 9), workload(3, 16)),
    sets={
        "models": WorkloadSet(
            workloads=(workload(32768, 1024), workload(65536, 256), workload(4096, 128256), workload(2048, 151936)),
            hidden=(workload(10000, 1500), workload(1000, 129280)),
            summary="rows of attention scores, routers of many experts and vocabularies",
        ),
        "decode": WorkloadSet(
            workloads=(workload(1, 128256), workload(16, 151936), workload(64, 32000), workload(64, 128256)),
            hidden=(workload(7, 50257), workload(33, 129280)),
            summary="logits of a decode step",
        ),
    },
    unit="GB/s",
    summary="softmax over rows, bf16",
)
