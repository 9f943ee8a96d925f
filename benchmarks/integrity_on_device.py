"""Attacks and honest kernels of `tests/integrity/device` on a device: what a naive timer says, and what the judge says.

    python benchmarks/integrity_on_device.py --hw h200 --out record.json

The naive timer is what many people write: one input, checked once, then twenty calls between two events. Each kernel
runs in a fork of this process, which never touches the device. `--simulate` runs the judge alone, on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsl.hardware import hardware
from evaluators.integrity.raw_device import RawDeviceEvaluator
from evaluators.judge import environment
from evaluators.target import Workload
from evaluators.targets import target

HERE = Path(__file__).resolve().parents[1] / "tests" / "integrity" / "device"
CALLS = 20


def naive(path: Path, rows: int, columns: int) -> dict[str, Any]:
    """In a fork: {correct, us} as a naive grader finds them."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            found = _grade(path, rows, columns)
        except BaseException as error:
            found = {"correct": False, "us": None, "error": f"{type(error).__name__}: {error}"[:200]}
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(said) if said else {"correct": False, "us": None, "error": "it died"}


def _grade(path: Path, rows: int, columns: int) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    x = torch.randn(rows, columns, device="cuda").bfloat16()
    run = runpy.run_path(str(path))["run"]
    got = run(x)
    torch.cuda.synchronize()
    time.sleep(0.02)
    correct = torch.allclose(got.float(), torch.softmax(x.float(), -1), atol=1e-2, rtol=1e-2)
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(CALLS):
        run(x)
    stop.record()
    stop.synchronize()
    return {"correct": bool(correct), "us": round(start.elapsed_time(stop) * 1000 / CALLS, 2)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hw", default="h200")
    parser.add_argument("--out", default="integrity_on_device.json")
    parser.add_argument("--only", default="", help="a part of the path: attacks, honest, a name")
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--simulate", action="store_true")
    given = parser.parse_args()
    import torch  # noqa: F401  before the forks, and never its device
    import triton  # noqa: F401

    chip = hardware(given.hw)
    sizes = (Workload({"r": 64, "c": 512}) if given.simulate else Workload({"r": 16384, "c": given.columns}),)
    job = replace(target("softmax"), workloads=sizes)
    size = sizes[0].sizes
    rows: list[dict[str, Any]] = []
    record: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "workload": sizes[0].name, "rows": rows}
    with RawDeviceEvaluator(chip, sizes=1, rounds=6, simulate=given.simulate) as judge:
        record["environment"] = {**environment(chip), **judge._more()}
        for path in sorted(HERE.glob("*/*.py"), key=lambda p: (p.parent.name != "honest", p.name)):
            if given.only and given.only not in str(path):
                continue
            row: dict[str, Any] = {"corpus": path.parent.name, "name": path.stem}
            row["naive"] = None if given.simulate else naive(path, size["r"], size["c"])
            began = time.monotonic()
            found = judge.evaluate(path.read_text(), job, chip)
            gate = found.gate(found.failed_gate) if found.failed_gate else None
            integrity = found.gate("integrity")
            facts: dict[str, Any] = integrity.evidence if integrity else {}
            row |= {
                "status": found.status,
                "rule": gate.evidence.get("rule") if gate else None,
                "message": found.message[:300],
                "us": [round(w.measured_s * 1e6, 2) for w in found.workloads if w.measured_s],
                "floor_us": [w.floor_s * 1e6 for w in found.workloads],
                "outside_us": [w.detail["clock_outside_s"] * 1e6 for w in found.workloads],
                "clocks_us": [[c * 1e6 for c in pair] for pair in facts.get("clocks", [])],
                **{key: facts.get(key) for key in ("threads", "aten", "ghost", "launches")},
                "gate_seconds": {g.gate: round(g.seconds, 2) for g in found.gates},
                "seconds": round(time.monotonic() - began, 2),
            }
            rows.append(row)
            Path(given.out).write_text(json.dumps(record, indent=1, default=str))
            told = row["naive"] or {"correct": "-", "us": None}
            times = f"naive {told['us']} us {told['correct']}; judge {row['us']} us; {row['seconds']} s"
            print(f"{row['corpus']:8}{row['name']:18}{row['status']:12}{times}; {row['message'][:150]}", flush=True)
            if len(rows) == 2 and all(r["status"] not in ("ok", "suspicious") for r in rows) and not given.only:
                print(json.dumps([g.model_dump(mode="json") for g in found.gates], default=str)[:6000])
                raise SystemExit("two honest kernels failed: nothing can be learned here")
    attacks = [r for r in rows if r["corpus"] == "attacks"]
    honest = [r for r in rows if r["corpus"] == "honest"]
    stopped, passed = sum(r["status"] != "ok" for r in attacks), sum(r["status"] == "ok" for r in honest)
    print(f"{stopped} of {len(attacks)} attacks stopped, {passed} of {len(honest)} honest kernels passed")


if __name__ == "__main__":
    main()
