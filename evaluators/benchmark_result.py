"""What came of a bench: arms, their times and answers on every workload, and the ratios that raw samples give."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
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

    def speed(self, arm: str, over: str | None = None) -> Interval | None:
        """Of one arm over the best baseline, or over another arm; None where that gave a wrong answer, for no time of
        such a one is worth comparing with, or where either was not timed."""
        if over is not None and ((other := self.outcome(over)) is None or other.reason):
            return None
        return speed_between(self.measurement, arm, over or self.best_baseline)


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
        """Geometric mean over the workloads where both were right, over the best baseline of each, or over one arm."""
        found = []
        for row in self.rows:
            one = row.speed(arm, over)
            outcome = row.outcome(arm)
            if one is not None and outcome is not None and not outcome.reason:
                found.append(one)
        return mean_of(found)

    def best_programs(self, among: Collection[str] | None = None) -> list[tuple[Row, Outcome]]:
        """For each workload its fastest correct program, of these or of all with the seed."""
        programs = {a.name for a in self.arms if a.kind == "program" and (among is None or a.name in among)}
        found = []
        for row in self.rows:
            good = [o for o in row.outcomes if o.arm in programs and o.seconds and not o.reason]
            if good:
                found.append((row, min(good, key=lambda o: o.seconds or math.inf)))
        return found

    def dispatched(self, over: str | None = None, among: Collection[str] | None = None) -> Interval | None:
        """Geometric mean of the best program of each workload over the best baseline, or over one arm.

        among: names of the programs that count, all with the seed where it is None. None where a workload has no
        correct program, or no baseline that is right: half a table has no mean.
        """
        chosen = self.best_programs(among)
        if len(chosen) < len(self.rows):
            return None
        speeds = [row.speed(o.arm, over) for row, o in chosen]
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
