"""A target: the job that a kernel has to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
class WorkloadSet:
    """Other public sizes of the same job, chosen by name (`--workloads decode`).

    hidden, checks: for these sizes; where empty, hidden sizes are derived from `workloads` and the checks are the
    target's own. summary: what kind of use has such sizes. opens: what an agent may change there, if not what the
    target says.
    """

    workloads: tuple[Workload, ...]
    hidden: tuple[Workload, ...] = ()
    checks: tuple[Workload, ...] = ()
    summary: str = ""
    opens: Literal["schedule", "numerics", "all"] | None = None


@dataclass(frozen=True)
class Target:
    """reference: a PyTorch function `(*inputs, **params) -> tensor or tuple`, inputs in the program's order, run in
    float64: its values are what the program has to mean.

    seed: the naive program. workloads: public, they make the score. hidden: for promotion only. checks: small sizes for
    correctness, tails included. tiny: sizes for the meaning gate (>= 3 blocks and a ragged tail on any block axis).
    Empty checks, tiny and hidden are derived from the workloads by `evaluators.loading.complete`.
    make_inputs: optional `(workload, distribution, rng) -> dict name -> numpy array`; the default draws every input
    from the named distribution by its declared dtype. unit: what the score counts. opens: what an agent may change.
    tier: largest relative L2 distance allowed between the exact and the rounded meaning. sets: other public sizes that
    a person may choose by name.

    For raw Python candidates alone. start: the file that a run of them begins with; empty in every other run. torch:
    which torch calls `run` may make; "glue" is memory, views, casts and elementwise arithmetic, so that the work has to
    be done by Triton kernels; "any" is everything. inplace: output -> the input in whose memory it is returned; every
    other output is a new tensor and every other input is only read.
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
    start: str = ""
    torch: Literal["glue", "any"] = "glue"
    inplace: Mapping[str, str] = field(default_factory=dict)
    sets: Mapping[str, WorkloadSet] = field(default_factory=dict)

    def chosen(self, name: str) -> Target:
        """The target with the public, hidden and check sizes of one of its sets, and what it opens there. Raises
        TargetError for no such set."""
        if name not in self.sets:
            known = ", ".join(self.sets) or "none"
            raise TargetError(f"target {self.name} has no set of workloads '{name}'; it has: {known}")
        one = self.sets[name]
        checks, opens = one.checks or self.checks, one.opens or self.opens
        return replace(self, workloads=one.workloads, hidden=one.hidden, checks=checks, opens=opens)
