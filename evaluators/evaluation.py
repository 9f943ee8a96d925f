"""The facts of one judgement. A score is a pure function of them, so a changed scoring rule needs no rerun."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Status(StrEnum):
    """What came of a candidate. UNAVAILABLE is the harness's fault, is retried and never carries a score. NOT_RECORDED:
    the evaluator replays what was measured, and this candidate was not (`evaluators.recorded`)."""

    OK = "ok"
    PARSE_ERROR = "parse_error"
    CHECK_ERROR = "check_error"
    MEANING_ERROR = "meaning_error"
    NOT_LOWERED = "not_lowered"
    COMPILE_ERROR = "compile_error"
    RESOURCE = "resource"
    INCORRECT = "incorrect"
    TIMEOUT = "timeout"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    GAMING = "gaming"
    SUSPICIOUS = "suspicious"
    NOT_RECORDED = "not_recorded"
    UNAVAILABLE = "unavailable"


GATES = ("parse", "check", "meaning", "compile", "correctness", "integrity", "timing", "prediction", "floor")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GateResult(_Frozen):
    """One gate's verdict. `evidence` is JSON and deterministic: times and other noise stand in `seconds` alone."""

    gate: str
    passed: bool
    message: str = ""
    evidence: dict[str, Any] = Field(default_factory=dict)
    seconds: float = 0.0


class WorkloadResult(_Frozen):
    """One public workload. Seconds; `work` counts what `unit` counts a second of (FLOP for TFLOP/s, bytes for GB/s).

    `predicted_s` and `measured_s` are different facts and never stand in one ranking. `floor_s` is the speed of light,
    `bottleneck` the pipe that sets it for the target, `limiter` what limits this candidate.
    """

    workload: str
    work: float
    floor_s: float
    bottleneck: str
    predicted_s: float | None = None
    measured_s: float | None = None
    limiter: str = ""
    detail: dict[str, Any] = Field(default_factory=dict)


class Evaluation(_Frozen):
    """Everything that was found out. `mode` says where times come from: "predicted", "measured" or "none"."""

    status: Status
    mode: Literal["predicted", "measured", "none"] = "none"
    unit: Literal["TFLOP/s", "GB/s"] = "TFLOP/s"
    gates: tuple[GateResult, ...] = ()
    workloads: tuple[WorkloadResult, ...] = ()
    environment: dict[str, Any] = Field(default_factory=dict)
    source: str = ""  # the emitted Triton, where it got that far
    message: str = ""  # one line: why this status

    def gate(self, name: str) -> GateResult | None:
        return next((g for g in self.gates if g.gate == name), None)

    @property
    def failed_gate(self) -> str | None:
        """The gate that ended the judgement, or None where all passed."""
        return next((g.gate for g in self.gates if not g.passed), None)


class Score(_Frozen):
    """Geometric mean over the public workloads, in the evaluation's unit; None where there is no such fact.

    `headroom` is the geometric mean of time over floor (1 is the speed of light).
    """

    predicted: float | None = None
    measured: float | None = None
    headroom: float | None = None


_SCALE = {"TFLOP/s": 1e-12, "GB/s": 1e-9}


def score(evaluation: Evaluation) -> Score:
    """0 for any candidate that is not OK; the geometric mean of work per second otherwise."""
    if evaluation.status is Status.UNAVAILABLE:
        return Score()
    if evaluation.status is not Status.OK:
        return Score(
            predicted=0.0 if evaluation.mode != "measured" else None,
            measured=0.0 if evaluation.mode == "measured" else None,
        )

    def mean(times: list[float | None]) -> float | None:
        if not times or any(t is None for t in times):
            return None
        logs = [
            math.log(w.work * _SCALE[evaluation.unit] / t)
            for w, t in zip(evaluation.workloads, times, strict=True)
            if t
        ]
        return math.exp(sum(logs) / len(logs))

    predicted = mean([w.predicted_s for w in evaluation.workloads])
    measured = mean([w.measured_s for w in evaluation.workloads])
    times = [w.measured_s if evaluation.mode == "measured" else w.predicted_s for w in evaluation.workloads]
    ratios = [math.log(t / w.floor_s) for w, t in zip(evaluation.workloads, times, strict=True) if t and w.floor_s > 0]
    headroom = math.exp(sum(ratios) / len(ratios)) if ratios else None
    return Score(predicted=predicted, measured=measured, headroom=headroom)
