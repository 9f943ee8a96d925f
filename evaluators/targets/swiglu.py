"""A gated MLP's first half, bf16: two products of one input, joined by SiLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evaluators.inputs import Array, draw
from evaluators.target import Target, Workload, WorkloadSet
from evaluators.targets import seed_text

if TYPE_CHECKING:
    from torch import Tensor


def reference(x: Tensor, wg: Tensor, wu: Tensor) -> Tensor:
    """silu(x wg) * (x wu). x[r c], wg[c f], wu[c f] -> [r f]."""
    import torch

    return torch.nn.functional.silu(x @ wg) * (x @ wu)


def make_inputs(workload: Workload, distribution: str, rng: np.random.Generator) -> dict[str, Array]:
    """Weights of size 1 / sqrt(c), so that SiLU sees values where it bends."""
    r, c, f = (workload.sizes[axis] for axis in "rcf")
    weights = "normal" if distribution == "near_constant" else distribution
    return {
        "x": draw((r, c), "bf16", distribution, rng),
        "wg": draw((c, f), "bf16", weights, rng) * c**-0.5,
        "wu": draw((c, f), "bf16", weights, rng) * c**-0.5,
    }


def workload(r: int, c: int, f: int) -> Workload:
    return Workload({"r": r, "c": c, "f": f})


TARGET = Target(
    name="swiglu",
    reference=reference,
    seed=seed_text("swiglu"),
    make_inputs=make_inputs,
    workloads=(workload(4096, 4096, 14336), workload(8192, 4096, 14336), workload(8192, 8192, 28672)),
    hidden=(workload(6000, 5120, 13824), workload(16384, 2048, 8192)),
    checks=(
        workload(200, 152, 136),
        workload(72, 264, 144),
        workload(40, 1032, 72),
        workload(140, 72, 264),
        workload(128, 256, 256),  # no tails, as the public sizes have none
    ),
    tiny=(workload(5, 7, 9), workload(8, 16, 6)),
    sets={
        "decode": WorkloadSet(
            workloads=tuple(workload(r, c, f) for r in (1, 16, 64) for c, f in ((4096, 14336), (8192, 28672))),
            hidden=(workload(8, 5120, 13824), workload(33, 3072, 8192)),
            checks=(
                workload(1, 264, 136),
                workload(16, 1032, 144),
                workload(64, 152, 264),
                workload(3, 520, 72),
                workload(64, 256, 256),
            ),
            summary="1, 16 and 64 tokens through the gated MLPs of Llama 3 8B and 70B",
        )
    },
    summary="silu(x wg) · (x wu), bf16 with f32 sums",
)
