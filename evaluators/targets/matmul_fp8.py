"""A matrix product of 8-bit floats (e4m3) with a scale a row and a scale a column, bf16 out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from evaluators.target import Target, Workload
from evaluators.targets import seed_text
from evaluators.targets.products import CHECKS, SETS, SQUARES, workload

if TYPE_CHECKING:
    from torch import Tensor


def reference(a: Tensor, sa: Tensor, b: Tensor, sb: Tensor) -> Tensor:
    """(a bᵀ) sa sb. a[m k] and b[n k] e4m3, sa[m], sb[n] -> [m n]."""
    return (a @ b.transpose(0, 1)) * sa[:, None] * sb[None, :]


def whole(sizes: Iterable[Workload]) -> tuple[Workload, ...]:
    """The sizes with sums of whole 16 bytes, as tensor memory accelerators and libraries want rows in 8 bits: with any
    other among the checks, no program that loads by TMA would ever be right."""
    return tuple(workload(w.sizes["m"], w.sizes["n"], -(-w.sizes["k"] // 16) * 16) for w in sizes)


WHOLE = {
    name: replace(s, workloads=whole(s.workloads), hidden=whole(s.hidden), checks=whole(s.checks))
    for name, s in SETS.items()
}
TARGET = Target(
    name="matmul_fp8",
    reference=reference,
    seed=seed_text("matmul_fp8"),
    workloads=SQUARES,
    hidden=WHOLE["squares"].hidden,
    checks=whole(CHECKS),
    tiny=(workload(5, 9, 7), workload(8, 6, 16)),
    sets=WHOLE,
    summary="a bᵀ of square e4m3 matrices with scales, bf16 out",
)
