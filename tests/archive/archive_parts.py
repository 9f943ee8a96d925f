"""Evaluations for the archive's tests."""

from __future__ import annotations

from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult


def ok(seconds: float, mode: str = "predicted", source: str = "# emitted\n") -> Evaluation:
    result = WorkloadResult(
        workload="m=1",
        work=1e12,
        floor_s=0.1,
        bottleneck="matrix",
        predicted_s=seconds if mode == "predicted" else None,
        measured_s=seconds if mode == "measured" else None,
    )
    gates = (GateResult(gate="parse", passed=True), GateResult(gate="compile", passed=True, evidence={"registers": 64}))
    return Evaluation(status=Status.OK, mode=mode, gates=gates, workloads=(result,), source=source)  # type: ignore[arg-type]


def bad(message: str = "128 of 64 rows differ") -> Evaluation:
    gates = (GateResult(gate="correctness", passed=False, evidence={"worst": float("inf")}, message=message),)
    return Evaluation(status=Status.INCORRECT, mode="predicted", gates=gates, message=message)
