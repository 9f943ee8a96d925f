"""The cross-entropy loss of each row of logits against its class, bf16 in and f32 out; bound by memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evaluators.inputs import Array, draw, draw_index
from evaluators.target import Target, Workload, WorkloadSet
from evaluators.targets import seed_text

if TYPE_CHECKING:
    from torch import Tensor


def reference(x: Tensor, t: Tensor) -> Tensor:
    """logsumexp(x) - x[t] of each row. x[r c], t[r] integers in [0, c) -> [r], never narrower than f32."""
    import torch

    x = x if x.dtype == torch.float64 else x.float()
    return torch.logsumexp(x, dim=-1) - x.gather(1, t.long()[:, None])[:, 0]


def make_inputs(workload: Workload, distribution: str, rng: np.random.Generator) -> dict[str, Array]:
    """Logits enter as they are, so the large ones are scaled to overflow exp, and the near-constant ones too."""
    r, c = workload.sizes["r"], workload.sizes["c"]
    x = draw((r, c), "bf16", distribution, rng)
    return {
        "x": x * {"large_logits": 16.0, "near_constant": 32.0}.get(distribution, 1.0),
        "t": draw_index((r,), c, distribution, rng),
    }


def workload(r: int, c: int) -> Workload:
    return Workload({"r": r, "c": c})


TARGET = Target(
    name="cross_entropy",
    reference=reference,
    seed=seed_text("cross_entropy"),
    make_inputs=make_inputs,
    workloads=(workload(8192, 32000), workload(8192, 50257), workload(4096, 128256)),
    hidden=(workload(5000, 32768), workload(2048, 151936)),
    checks=(workload(17, 1000), workload(11, 2600), workload(7, 5000), workload(40, 136), workload(8, 8192)),
    tiny=(workload(4, 9), workload(3, 16)),
    sets={
        "long": WorkloadSet(
            workloads=(workload(16384, 128256), workload(16384, 151936), workload(8192, 256000)),
            hidden=(workload(9000, 129280), workload(5000, 202048)),
            summary="16,384 tokens over the largest vocabularies",
        ),
    },
    unit="GB/s",
    summary="logsumexp(x) - x[t] of rows, bf16 in, f32 out",
)
