"""Runs one program on one workload for a profiler: `python -m evaluators.profile_child REQUEST.json REPLY.json`.

mode "ncu": warm calls, then one call between cudaProfilerStart and Stop, which is all that Nsight Compute looks at.
mode "rocprofv3": warm calls, then one more, whose launches are the last. mode "proton": calls under Triton's own
profiler, which names each kernel's time. mode "events": timed as a judgement is. A process of its own, for profilers
wrap a whole process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from evaluators import baselines
from evaluators.benchmark_tasks import _inputs
from evaluators.compiler import load_source
from evaluators.sustained import measure, rotation, sync
from evaluators.timing import Regime

WARM, CALLS = 3, 20


def main(request: Path, reply: Path) -> int:
    asked = json.loads(request.read_text())
    job, device = asked["job"], "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":  # a simulated device, for tests
        from evaluators.interpreter import install

        install()
    entry = getattr(load_source(asked["source"]), asked["entry"])
    scale = baselines.scales(asked["target"], job["sizes"])
    first = _inputs(job, device, scale, job["seed"])
    size = sum(x.numel() * x.element_size() for x in first)
    count = 1 if asked["mode"] in ("ncu", "rocprofv3") else rotation(size)
    sets = [first, *(_inputs(job, device, scale, job["seed"] + turn) for turn in range(1, count))]

    def call(place: int) -> Any:
        return entry(*sets[place], **job["params"])

    with torch.no_grad():
        for _ in range(WARM):
            call(0)
        sync()
        found = _MODES[asked["mode"]](call, count, asked)
    reply.write_text(json.dumps(found))
    return 0


def _ncu(call: Callable[[int], Any], sets: int, asked: dict[str, Any]) -> dict[str, Any]:
    torch.cuda.cudart().cudaProfilerStart()
    call(0)
    sync()
    torch.cuda.cudart().cudaProfilerStop()
    return {}


def _rocprof(call: Callable[[int], Any], sets: int, asked: dict[str, Any]) -> dict[str, Any]:
    call(0)
    sync()
    return {}


def _proton(call: Callable[[int], Any], sets: int, asked: dict[str, Any]) -> dict[str, Any]:
    import triton.profiler as proton

    proton.start(asked["proton"])
    for turn in range(CALLS):
        call(turn % sets)
    sync()
    proton.finalize()
    return {"calls": CALLS}


def _events(call: Callable[[int], Any], sets: int, asked: dict[str, Any]) -> dict[str, Any]:
    found = measure({"program": call}, sets=sets, regime=Regime(**asked["regime"]), rounds=asked["rounds"])
    return {"seconds": found.seconds("program"), "state": found.clocks("program").model_dump(mode="json")}


_MODES = {"ncu": _ncu, "rocprofv3": _rocprof, "proton": _proton, "events": _events}

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
