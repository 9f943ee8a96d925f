"""What a device's worker does for `record_table.py`, beside its own tasks: look at a point once, then sample in rounds.

Loaded points stay loaded: a round over hundreds of kernels must not read each from disk again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from evaluators import compiler, device_tasks
from evaluators.device_tasks import _GRAPH_BELOW_S, _Arm, _errors, _guarded, _meter, _prepared, _sync, _tuple

Answer = tuple[dict[str, Any], Sequence[bytes]]

compiler._LOADED_MOST = 1 << 30
_arms: dict[str, _Arm] = {}


def _arm(point: dict[str, Any], prepared: Any) -> _Arm:
    """The arm of a point, settled: its first calls are behind it, and short ones have their graph."""
    name = f"{point['name']} {prepared.job['workload']}"
    if name not in _arms:
        arm = _Arm(point, prepared)
        arm.settle()
        if arm.call_s < _GRAPH_BELOW_S and torch.cuda.is_available():
            arm.capture()
        arm._kept = ()  # hundreds of kept outputs would fill the device
        _arms[name] = arm
    return _arms[name]


def _segment(arm: _Arm, untimed_s: float, timed_s: float) -> dict[str, Any]:
    found = arm.segment(untimed_s, timed_s)
    arm._kept = ()
    return {**found, "at": time.time()}


def screen_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """A point on a workload for the first time: errors of its output, then one segment; a short one if it is slow."""
    _meter.start()
    prepared = _prepared(payload["job"])
    point = payload["point"]
    with torch.no_grad(), _guarded():
        outputs = _tuple(device_tasks._entry(point)(*prepared.inputs, **prepared.job["params"]))
        _sync()
        figures = [
            {"output": i, "shape": list(x.shape), "dtype": str(x.dtype).removeprefix("torch."), **f}
            for i, x in enumerate(outputs[: len(prepared.job["outputs"])])
            for f in _errors(x, i, prepared)
        ]
        del outputs
        arm = _arm(point, prepared)
        slow = arm.call_s > payload["slow_s"]
        sample = _segment(arm, 0.0 if slow else payload["untimed_s"], 0.0 if slow else payload["timed_s"])
    return {"figures": figures, "sample": sample, "slow": slow, "missed": device_tasks._compilations["miss"]}, ()


def round_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """One segment of each point in the order given, back to back; a point may come several times."""
    _meter.start()
    prepared = _prepared(payload["job"])
    with torch.no_grad(), _guarded():
        arms = [_arm(point, prepared) for point in payload["points"]]
        samples = [_segment(arm, payload["untimed_s"], payload["timed_s"]) for arm in arms]
    return {"samples": samples}, ()


def heat_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Matrix products for so many seconds: the device stays as hot as between two kernels of a search."""
    _meter.start()
    calls = 0
    if torch.cuda.is_available():
        x = torch.randn((8192, 8192), device="cuda", dtype=torch.bfloat16)
        until = time.monotonic() + payload["seconds"]
        while time.monotonic() < until:
            for _ in range(8):
                x @ x
            torch.cuda.synchronize()
            calls += 8
    return {"calls": calls}, ()


TASKS = {"table_screen": screen_task, "table_round": round_task, "table_heat": heat_task}
