"""A plain matrix product, bf16, of square matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluators.target import Target, Workload
from evaluators.targets import seed_text

if TYPE_CHECKING:
    from torch import Tensor


def reference(a: Tensor, b: Tensor) -> Tensor:
    """a b. a[m k], b[k n] -> [m n]."""
    return a @ b


def workload(m: int, n: int, k: int) -> Workload:
    return Workload({"m": m, "n": n, "k": k})


TARGET = Target(
    name="matmul",
    reference=reference,
    seed=seed_text("matmul"),
    workloads=tuple(workload(n, n, n) for n in (2048, 4096, 8192, 16384)),
    hidden=(workload(6144, 6144, 6144), workload(5000, 5000, 5000)),
    checks=(
        workload(200, 136, 152),
        workload(72, 144, 264),
        workload(40, 72, 1032),
        workload(140, 264, 72),
        workload(128, 256, 256),  # no tails, as the public sizes have none
    ),
    tiny=(workload(5, 9, 7), workload(8, 6, 16)),
    summary="a b of square matrices, bf16 with f32 sums",
)
