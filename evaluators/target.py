"""A target: the job that a kernel has to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


class TargetError(Exception):
    """A target is wrong (its file, reference, workloads or inputs): a person's mistake, never a candidate's."""


@dataclass(frozen=True)
class Workload:
    """One size of the job. sizes: axis (lower case) -> extent; params: the program's params."""

    sizes: Mapping[str, int]
    params: Mapping[str, int | float | bool] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Canonical, e.g. `b=4,h=32,g=8,m=8192,n=8192,d=128,e=128,causal=1`."""
        both = {**self.sizes, **{k: int(v) if isinstance(v, bool) else v for k, v in self.params.items()}}
        return ",".join(f"{k}={v}" for k, v in both.items())


@dataclass(frozen=True)
class Target:
    """reference: a PyTorch function `(*inputs, **params) -> tensor or tuple`, inputs in the program's order, run in
    float64: its values are what the program has to mean.

    seed: the naive program. workloads: public, they make the score. hidden: for promotion only. checks: small sizes for
    correctness, tails included. tiny: sizes for the meaning gate (>= 3 blocks and a ragged tail on any block axis).
    Empty checks, tiny and hidden are derived from the workloads by `evaluators.loading.complete`.
    make_inputs: optional `(workload, distribution, rng) -> dict name -> numpy array`; the default draws every input
    from the named distribution by its declared dtype. unit: what the score counts. opens: what an agent may change.
    tier: largest relative L2 distance allowed between the exact and the rounded meaning.
    """

    name: str
    reference: Callable[..., Any]
    seed: str
    workloads: tuple[Workload, ...]
    checks: tuple[Workload, ...] = ()
    tiny: tuple[Workload, ...] = ()
    hidden: tuple[Workload, ...] = ()
    make_inputs: Callable[..., Mapping[str, Any]] | None = None
    unit: Literal["TFLOP/s", "GB/s"] = "TFLOP/s"
    opens: Literal["schedule", "numerics", "all"] = "schedule"
    tier: float = 2e-2
    summary: str = ""
