"""A matrix product with bias and GELU (the erf form) in its epilogue, bf16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evaluators.inputs import Array, draw
from evaluators.target import Target, Workload
from evaluators.targets import seed_text
from evaluators.targets.products import CHECKS, SETS, workload

if TYPE_CHECKING:
    from torch import Tensor


def reference(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """gelu(a b + bias). a[m k], b[k n], bias[n] -> [m n]."""
    import torch

    return torch.nn.functional.gelu((a @ b).to(bias.dtype) + bias)


def make_inputs(workload: Workload, distribution: str, rng: np.random.Generator) -> dict[str, Array]:
    """Weights of size 1 / sqrt(k), so that GELU sees values where it bends."""
    m, n, k = (workload.sizes[axis] for axis in "mnk")
    weights = "normal" if distribution == "near_constant" else distribution
    return {
        "a": draw((m, k), "bf16", distribution, rng),
        "b": draw((k, n), "bf16", weights, rng) * k**-0.5,
        "bias": draw((n,), "f32", "normal", rng),
    }


TARGET = Target(
    name="gemm",
    reference=reference,
    seed=seed_text("gemm"),
    make_inputs=make_inputs,
    workloads=(workload(4096, 4096, 4096), workload(8192, 8192, 8192), workload(8192, 28672, 4096)),
    hidden=(workload(6000, 5000, 4096), workload(16384, 4096, 14336)),
    checks=CHECKS,
    tiny=(workload(5, 9, 7), workload(8, 6, 16)),
    sets=SETS,
    summary="gelu(a b + bias), bf16 with f32 sums",
)
