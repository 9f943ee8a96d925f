"""What a device's worker does for `record_table.py`, beside its own tasks: look at a point once, then sample in rounds.

Loaded points stay loaded: a round over hundreds of kernels must not read each from disk again. Matrix products keep the
card busy whenever no point is being timed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from evaluators import compiler
from evaluators.device_prepared import ready
from evaluators.device_tasks import _compilations, _entry, _errors, _guarded, _tuple
from evaluators.sustained import GRAPH_BELOW_S, LOAD, METER, Arm, sync

Answer = tuple[dict[str, Any], Sequence[bytes]]

compiler._LOADED_MOST = 1 << 30
_arms: dict[str, Arm] = {}


def _arm(point: Mapping[str, Any], prepared: Any) -> Arm:
    """The arm of a point, settled: its first calls are behind it, and short ones have their graph."""
    name = f"{point['name']} {prepared.job['workload']}"
    if name not in _arms:
        entry, params, inputs = _entry(point), prepared.job["params"], [prepared.inputs, *prepared.more]
        arm = Arm(name, lambda place: entry(*inputs[place], **params), len(inputs))
        arm.settle()
        if arm.call_s < GRAPH_BELOW_S and torch.cuda.is_available():
            arm.capture()
        arm.kept = None  # hundreds of kept outputs would fill the device
        _arms[name] = arm
    return _arms[name]


def _segment(arm: Arm, untimed_s: float, timed_s: float) -> dict[str, Any]:
    found = arm.segment(untimed_s, timed_s)
    arm.kept = None
    return {**found, "at": time.time()}


def screen_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """A point on a workload for the first time: errors of its output, then one segment; a short one if it is slow."""
    METER.start()
    LOAD.pause()  # the check waits for the device some sixty times: behind the load's products it would take longest
    prepared = ready(payload["job"])
    point = payload["point"]
    with torch.no_grad(), _guarded():
        outputs = _tuple(_entry(point)(*prepared.inputs, **prepared.job["params"]))
        sync()
        figures = [
            {"output": i, **f}
            for i, x in enumerate(outputs[: len(prepared.job["outputs"])])
            for f in _errors(x, i, prepared)
        ]
        del outputs
        arm = _arm(point, prepared)
        slow = arm.call_s > payload["slow_s"]
        sample = _segment(arm, 0.0 if slow else payload["untimed_s"], 0.0 if slow else payload["timed_s"])
    LOAD.resume()
    return {"figures": figures, "sample": sample, "slow": slow, "missed": _compilations["miss"]}, ()


def round_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """One segment of each point in the order given, back to back; a point may come several times."""
    METER.start()
    prepared = ready(payload["job"])
    with torch.no_grad(), _guarded():
        LOAD.pause()
        arms = [_arm(point, prepared) for point in payload["points"]]
        samples = [_segment(arm, payload["untimed_s"], payload["timed_s"]) for arm in arms]
    LOAD.resume()
    return {"samples": samples}, ()


def heat_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Matrix products until their speed is steady, and on from there in the background."""
    found = LOAD.heat() or {}
    LOAD.resume()
    return found, ()


TASKS = {"table_screen": screen_task, "table_round": round_task, "table_heat": heat_task}
