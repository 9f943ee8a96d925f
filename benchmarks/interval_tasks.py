"""What a device's worker does for `kernelbench_compare.py`: checks a candidate, times it until its interval is narrow.

Segments back to back, the first few left out, for what ran before still sets the clock; then as many as Student's 95%
interval of the others wants to be within `within`, at most `most`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from evaluators import graphs
from evaluators.device_prepared import Prepared, ready
from evaluators.device_tasks import CAPTURE_BELOW_S, _Arm, _compilations, _entry, _guarded, _missed, _part, _recheck
from evaluators.device_tasks import _verify as verify
from evaluators.device_tasks import _working as working
from evaluators.racing import student
from evaluators.sustained import METER, clocked, sync

Answer = tuple[dict[str, Any], Sequence[bytes]]

graphs.GRAPH_CALLS = 8  # of this worker: a graph of twenty calls of 250 us is a segment by itself


@working
def interval_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Verifies on the jobs `checks`, times on each of `timed` as `interval` says; returns what screen_task does."""
    parts: dict[str, float] = {}
    before = dict(_compilations)
    rows, timed = [], []
    METER.start()
    with torch.no_grad():
        for job in payload["checks"]:
            prepared = ready(job)
            with _guarded():
                rows.append(verify(_entry(payload["arm"]), prepared, payload.get("repeats", 2), parts))
        for job in payload["timed"]:
            with _guarded():
                timed.append(_timed(payload, ready(job), parts))
    return {"rows": rows, "timed": timed, "parts": parts, "compilations": _missed(before)}, ()


def _timed(payload: Mapping[str, Any], prepared: Prepared, parts: dict[str, float]) -> dict[str, Any]:
    rule = payload["interval"]
    arm = _Arm(payload["arm"], prepared)
    with _part(parts, "loading code"):
        arm.call()
        sync()
        arm.call_s = clocked(arm.call, 1)[0]
        captured, bound = graphs.together([arm], CAPTURE_BELOW_S)
    samples: list[dict[str, Any]] = []
    with _part(parts, "timing"):
        while len(samples) < rule["most"] and half(samples[rule["left_out"] :], rule["least"]) > rule["within"]:
            samples.append({"arm": 0, **arm.segment(0.0, rule["timed_s"])})
    with _part(parts, "checking what was timed"):
        found = _recheck(arm, prepared, payload["pick"])
    return {"samples": samples, "graphs": captured, "launch_bound": bound, **found}


def half(samples: Sequence[Mapping[str, Any]], least: int) -> float:
    """Half the width of Student's 95% interval of the mean of the logs; infinite before there are `least`."""
    if len(samples) < max(2, least):
        return math.inf
    logs = [math.log(s["seconds"]) for s in samples]
    return student(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))


TASKS = {"interval": interval_task}
