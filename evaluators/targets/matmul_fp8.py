"""A matrix product of 8-bit floats (e4m3) with a scale a row and a scale a column, bf16 out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluators.target import Target
from evaluators.targets import seed_text
from evaluators.targets.products import CHECKS, SETS, SQUARES, workload

if TYPE_CHECKING:
    from torch import Tensor


def reference(a: Tensor, sa: Tensor, b: Tensor, sb: Tensor) -> Tensor:
    """(a bᵀ) sa sb. a[m k] and b[n k] e4m3, sa[m], sb[n] -> [m n]."""
    return (a @ b.transpose(0, 1)) * sa[:, None] * sb[None, :]


TARGET = Target(
    name="matmul_fp8",
    reference=reference,
    seed=seed_text("matmul_fp8"),
    workloads=SQUARES,
    hidden=SETS["squares"].hidden,
    checks=CHECKS,
    tiny=(workload(5, 9, 7), workload(8, 6, 16)),
    sets=SETS,
    summary="a bᵀ of square e4m3 matrices with scales, bf16 out",
)
