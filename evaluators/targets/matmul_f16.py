"""A plain matrix product, f16, of square matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluators.target import Target
from evaluators.targets import seed_text
from evaluators.targets.products import CHECKS, SETS, SQUARES, workload

if TYPE_CHECKING:
    from torch import Tensor


def reference(a: Tensor, b: Tensor) -> Tensor:
    """a b. a[m k], b[k n] -> [m n]."""
    return a @ b


TARGET = Target(
    name="matmul_f16",
    reference=reference,
    seed=seed_text("matmul_f16"),
    workloads=SQUARES,
    hidden=SETS["squares"].hidden,
    checks=CHECKS,
    tiny=(workload(5, 9, 7), workload(8, 6, 16)),
    sets=SETS,
    summary="a b of square matrices, f16 with f32 sums",
)
