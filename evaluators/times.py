"""The times of one verdict, in little: enough to say which of two programs is faster beyond the noise.

An archive keeps them beside each verdict, so that what was committed in a run of 100,000 follows without its evidence.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Literal

from evaluators.evaluation import Evaluation, WorkloadResult


@dataclass(frozen=True, slots=True)
class Times:
    """kind: mode ("predicted" or "measured") and a hash of the workloads' names in order; times of another kind are not
    comparable. numbers: JSON, see `values`. Both are text, for of 100,000 verdicts few are ever compared in full."""

    kind: str
    numbers: str

    @property
    def predicted(self) -> bool:
        return self.kind.startswith("predicted")

    @property
    def values(self) -> list[tuple[float, float, float]]:
        """Seconds of each workload, as (time, low, high) with the interval that the noise leaves."""
        return [(v, v, v) if isinstance(v, float) else (v[0], v[1], v[2]) for v in json.loads(self.numbers)]

    def to_text(self) -> str:
        return f"{self.kind} {self.numbers}"

    @classmethod
    def from_text(cls, text: str) -> Times:
        kind, _, numbers = text.partition(" ")
        return cls(kind, numbers)


def times_of(evaluation: Evaluation) -> Times | None:
    """None where nothing can be compared with it: it has no workloads, or not a time for each of them.

    A measured workload may carry its interval as `detail["interval_s"] = [low, high]`, in seconds.
    """
    if evaluation.mode == "none" or not evaluation.workloads:
        return None
    values = [_time(w, evaluation.mode) for w in evaluation.workloads]
    whole = tuple(v for v in values if v is not None)
    if len(whole) != len(values):
        return None
    names = "\n".join(w.workload for w in evaluation.workloads)
    kind = f"{evaluation.mode}:{hashlib.sha256(names.encode('utf-8', 'replace')).hexdigest()[:16]}"
    return Times(kind, json.dumps([v[0] if v[0] == v[1] == v[2] else v for v in whole], separators=(",", ":")))


def _time(workload: WorkloadResult, mode: str) -> tuple[float, float, float] | None:
    time = workload.measured_s if mode == "measured" else workload.predicted_s
    if not time or not math.isfinite(time) or time < 0:
        return None
    interval = workload.detail.get("interval_s") if mode == "measured" else None
    low, high = interval if isinstance(interval, list | tuple) and len(interval) == 2 else (time, time)
    if not 0 < low <= high < math.inf:
        return None
    return float(time), float(low), float(high)


@dataclass(frozen=True)
class Comparison:
    """A child's time over its lineage's best: `ratio`, with the interval `low` to `high` that the noise leaves.

    Geometric mean over the workloads; below 1 is faster. Predicted times have no noise, so the three are equal.
    """

    verdict: Literal["better", "within noise", "slower"]
    ratio: float
    low: float
    high: float


def compare(child: Times | None, best: Times | None) -> Comparison | None:
    """None where the two cannot be compared: another mode, other workloads, or a time that is missing."""
    if child is None or best is None or child.kind != best.kind:
        return None
    values = child.values
    sums = [0.0, 0.0, 0.0]
    for mine, other in zip(values, best.values, strict=True):
        sums[0] += math.log(mine[0] / other[0])
        sums[1] += math.log(mine[1] / other[2])
        sums[2] += math.log(mine[2] / other[1])
    ratio, low, high = (math.exp(s / len(values)) for s in sums)
    verdict: Literal["better", "within noise", "slower"] = "within noise"
    if high < 1:
        verdict = "better"
    elif low > 1:
        verdict = "slower"
    return Comparison(verdict, ratio, low, high)


def not_slower(child: Times | None, best: Times | None, score: float, best_score: float) -> bool:
    """Whether `compare` would say so, and nothing more. The scores, each in its own mode, settle it where times are
    predicted: their ratio is that of the times, to the last digits."""
    if child is None or best is None or child.kind != best.kind:
        return False
    if child.predicted and score and best_score and abs(score / best_score - 1) > 1e-9:
        return score > best_score
    found = compare(child, best)
    return found is not None and found.verdict != "slower"
