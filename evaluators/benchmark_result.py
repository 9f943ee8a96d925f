"""What came of a bench: arms, their times and answers on every workload, and the ratios that raw samples give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from evaluators.timing import Measurement, Ratio, Regime, State

FORM = 1  # of the stored document
Kind = Literal["program", "baseline", "approximate", "limit", "function"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(_Frozen):
    """A ratio of speeds (above 1: faster) with its 95% interval."""

    value: float
    low: float
    high: float


class Arm(_Frozen):
    """Who took part. program: its text, for those in the language. about: in a few words."""

    name: str
    kind: Kind
    about: str = ""
    program: str | None = None
    digest: str | None = None


class Outcome(_Frozen):
    """One arm on one workload. rate in the target's unit. reason: why there is no time, or why the answer is wrong.

    speed: of this arm over the best baseline, paired. of_floor: speed of light over time; of_ceiling: time at what
    this card sustains over time. error: relative L2 of its output against float64, and the honest one's.
    """

    arm: str
    seconds: float | None = None
    rate: float | None = None
    speed: Interval | None = None
    of_floor: float | None = None
    of_ceiling: float | None = None
    state: State = State()
    error: tuple[float, float] | None = None
    reason: str = ""


class Row(_Frozen):
    """One workload: work in FLOP or bytes, seconds at the speed of light and at what the card sustains."""

    workload: str
    work: float
    floor_s: float
    bottleneck: str
    ceiling_s: float | None
    best_baseline: str | None
    outcomes: tuple[Outcome, ...]
    measurement: Measurement | None = None
    trouble: str | None = None

    def outcome(self, arm: str) -> Outcome | None:
        return next((o for o in self.outcomes if o.arm == arm), None)


class Benchmark(_Frozen):
    """Everything of one run of `avo bench`, raw samples included. Ratios of speeds: above 1 is faster."""

    form: int = FORM
    target: str
    hardware: str
    unit: Literal["TFLOP/s", "GB/s"]
    date: str
    device: dict[str, Any]
    versions: dict[str, str]
    regime: Regime
    rounds: int
    ceilings: dict[str, Any]
    arms: tuple[Arm, ...]
    rows: tuple[Row, ...]
    warnings: tuple[str, ...] = ()

    def speed(self, arm: str, over: str | None = None) -> Interval | None:
        """Geometric mean over the workloads where both ran, over the best baseline of each, or over one arm."""
        found = []
        for row in self.rows:
            other = row.best_baseline if over is None else over
            one = speed_between(row.measurement, arm, other)
            outcome = row.outcome(arm)
            if one is not None and outcome is not None and not outcome.reason:
                found.append(one)
        return mean_of(found)

    def best_programs(self) -> list[tuple[Row, Outcome]]:
        """For each workload its fastest correct program: what an export dispatches to."""
        programs = {a.name for a in self.arms if a.kind == "program"}
        found = []
        for row in self.rows:
            good = [o for o in row.outcomes if o.arm in programs and o.seconds and not o.reason]
            if good:
                found.append((row, min(good, key=lambda o: o.seconds or math.inf)))
        return found

    def dispatched(self, over: str | None = None) -> Interval | None:
        """Geometric mean of the best program of each workload over the best baseline, or over one arm.

        None where a workload has no correct program, or none has a baseline: half a table has no mean.
        """
        chosen = self.best_programs()
        if len(chosen) < len(self.rows):
            return None
        speeds = [speed_between(row.measurement, o.arm, over or row.best_baseline) for row, o in chosen]
        known = [s for s in speeds if s is not None]
        return mean_of(known) if len(known) == len(self.rows) else None


def speed_between(measurement: Measurement | None, name: str, over: str | None) -> Interval | None:
    """Of one arm over another in one measurement; None where either was not timed."""
    if measurement is None or over is None or name not in measurement.names or over not in measurement.names:
        return None
    if name == over:
        return Interval(value=1.0, low=1.0, high=1.0)
    ratio: Ratio = measurement.ratio(name, over)
    return Interval(value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low)


def mean_of(found: Sequence[Interval]) -> Interval | None:
    """Geometric mean; half widths of independent workloads add up by their squares."""
    if not found:
        return None
    count = len(found)
    middle = sum(math.log(i.value) for i in found) / count
    low = math.sqrt(sum(math.log(i.value / i.low) ** 2 for i in found)) / count
    high = math.sqrt(sum(math.log(i.high / i.value) ** 2 for i in found)) / count
    return Interval(value=math.exp(middle), low=math.exp(middle - low), high=math.exp(middle + high))
