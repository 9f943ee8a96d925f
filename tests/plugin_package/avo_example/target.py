"""Each row divided by its Euclidean length."""

import torch

from avo import Target, Workload


def row_l2(x: torch.Tensor) -> torch.Tensor:
    """The job in PyTorch: called in float64 for the exact values, in bf16 for the honest error."""
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)


SEED = """\
kernel row_l2
in  x[r c] bf16
out y[r c] bf16
y = x * rsqrt(sum[c](x * x) + 1e-6)

schedule
tile r=1 c=all
grid r
warps 4
"""

ROW_L2 = Target(
    name="row_l2",
    summary="rows divided by their Euclidean length, bf16",
    reference=row_l2,
    seed=SEED,
    workloads=(Workload({"r": 16384, "c": 4096}), Workload({"r": 4096, "c": 8192})),
    hidden=(Workload({"r": 8192, "c": 5120}),),
    checks=(Workload({"r": 5, "c": 67}), Workload({"r": 3, "c": 128})),
    tiny=(Workload({"r": 3, "c": 7}),),
    unit="GB/s",
)
