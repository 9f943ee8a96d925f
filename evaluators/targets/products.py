"""Sizes of matrix products m x n x k that models really have, for every target that is one."""

from __future__ import annotations

from evaluators.target import Workload, WorkloadSet

# (n, k) of the projections of Llama 3 8B (query-key-value; down; gate and up) and 70B (query-key-value)
PROJECTIONS = ((6144, 4096), (4096, 14336), (28672, 4096), (10240, 8192))
BATCHES = (1, 16, 64)  # tokens of a decode step


def workload(m: int, n: int, k: int) -> Workload:
    return Workload({"m": m, "n": n, "k": k})


CHECKS = (
    workload(200, 136, 152),
    workload(72, 144, 264),
    workload(40, 72, 1032),
    workload(140, 264, 72),
    workload(128, 256, 256),  # no tails, as the public sizes have none
)
_FEW_ROWS = (
    workload(1, 136, 264),
    workload(16, 144, 1032),
    workload(64, 264, 152),
    workload(3, 72, 520),
    workload(1, 256, 512),
    workload(64, 256, 256),
)
SQUARES = tuple(workload(n, n, n) for n in (2048, 4096, 8192, 16384))
SETS = {
    "squares": WorkloadSet(
        workloads=SQUARES,
        hidden=(workload(6144, 6144, 6144), workload(5000, 5000, 5000)),
        summary="squares of 2048 to 16384",
    ),
    "tall": WorkloadSet(
        workloads=(
            workload(65536, 512, 4096),
            workload(32768, 256, 8192),
            workload(131072, 128, 1024),
            workload(512, 512, 65536),
        ),
        hidden=(workload(50000, 384, 4096), workload(20000, 264, 5000)),
        summary="tall and skinny: many rows, few columns; and few of both with a long sum, which may be cut in blocks",
        opens="all",
    ),
    "decode": WorkloadSet(
        workloads=tuple(workload(m, n, k) for m in BATCHES for n, k in PROJECTIONS),
        hidden=(workload(8, 5120, 5120), workload(33, 8192, 3072)),
        checks=_FEW_ROWS,
        summary="1, 16 and 64 tokens through the projections of Llama 3 8B and 70B",
    ),
}
