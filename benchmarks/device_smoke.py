"""Is this machine ready to measure? Facts, worker starts, cache hits, errors, times and faults, each with its seconds.

python benchmarks/device_smoke.py [--target attention] [--program FILE] [--faults 50] [--only-faults]   (needs a GPU)
Without --program, attention's second program is the schedule that is known to be good on Hopper. Of the faults every
fifth is a hang, the others read far outside of their tensors or ask for too much memory, in turns. After each a good
kernel has to be verified; a fault costs the seconds from its call to that verdict.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.parser import parse
from evaluators.device import automatic, local_devices
from evaluators.device_jobs import correct
from evaluators.device_jobs import job as device_job
from evaluators.evaluation import score
from evaluators.failures import WorkerFailure
from evaluators.gates import Rejected
from evaluators.inputs import generator
from evaluators.loading import complete
from evaluators.measured import RUN_S, MeasuredEvaluator
from evaluators.target import Target
from evaluators.targets import target

GOOD = """
schedule
tile m=128 n=64
grid b h m
order longest_first
stream n stages=2
split masked
load tma
exponent exp2
warps 4
"""

# An honest wrapper around a kernel that reads far outside of its tensors, and one that never ends.
FAULTS = {
    "illegal address": """
import torch, triton, triton.language as tl
@triton.jit
def k(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i.to(tl.int64) * 1073741824 + 99999999999, i)
def entry(*inputs, **params):
    o = torch.empty((1024,), device=inputs[0].device, dtype=torch.int32)
    k[(8,)](o, 1024, B=128)
    return o
""",
    "hang": """
import torch, triton, triton.language as tl
@triton.jit
def k(x, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, volatile=True)
    while tl.sum(v * 0, 0) == 0:
        v = tl.load(x + i, volatile=True)
    tl.store(x + i, v)
def entry(*inputs, **params):
    o = torch.zeros((128,), device=inputs[0].device, dtype=torch.int32)
    k[(1,)](o, B=128)
    return o
""",
    "out of memory": """
import torch
def entry(*inputs, **params):
    return torch.zeros((1 << 40,), device=inputs[0].device, dtype=torch.int32)
""",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="attention")
    parser.add_argument("--program", default=None)
    parser.add_argument("--faults", type=int, default=1)
    parser.add_argument("--only-faults", action="store_true")
    flags = parser.parse_args()
    began = time.monotonic()

    def said(what: str, *more: object) -> None:
        print(f"{time.monotonic() - began:7.2f} s  {what}", *more, flush=True)

    devices = local_devices()
    for d in devices:
        said("device", d.model_dump_json(), "warnings:", d.warnings())
    chip = automatic(devices)
    said("chip", chip.name)
    job = complete(target(flags.target))
    texts = [job.seed]
    if flags.program:
        texts.append(Path(flags.program).read_text())
    elif job.name == "attention":
        texts.append(job.seed.partition("schedule")[0] + GOOD.strip() + "\n")
    judge = MeasuredEvaluator(hardware(chip.name), jobs=2, seed=1)
    try:
        for text in () if flags.only_faults else (*texts, texts[-1]):
            before = [(s.misses, s.busy_s) for s in judge.slots]
            start = time.monotonic()
            found = judge.evaluate(text, job, chip)
            said(f"{found.status} {found.message} score {score(found).measured} in {time.monotonic() - start:.2f} s")
            for gate in found.gates:
                said(f"    {gate.gate:<12}{gate.seconds:8.2f} s {gate.message}")
            for w in found.workloads:
                if w.measured_s:
                    scale = 1e-12 if job.unit == "TFLOP/s" else 1e-9
                    last = w.detail["samples"][-1]
                    low, high = w.detail["interval_s"]
                    said(
                        f"    {w.workload:<56}{w.measured_s * 1e3:9.3f} ms +-{(high - low) / 2 / w.measured_s:6.2%}"
                        f"{w.work / w.measured_s * scale:9.1f} {job.unit}, predicted {w.predicted_s * 1e3:.3f} ms,"
                        f" {last['sm_mhz']} MHz, {last['watts']} W, {last['calls']} calls"
                    )
            if found.status != "ok":
                bad = next((g for g in found.gates if not g.passed), None)
                said("    " + json.dumps(bad.evidence if bad else {})[:2000])
            after = [(s.misses - m, round(s.busy_s - b, 2)) for s, (m, b) in zip(judge.slots, before, strict=True)]
            said("    kernels compiled on the device's worker, seconds busy:", after)
            said("environment", json.dumps({k: v for k, v in found.environment.items() if k != "versions"}))
        if flags.faults:
            faults(judge, job, flags.faults, said)
    finally:
        judge.close()
    said("closed")


def faults(judge: MeasuredEvaluator, job: Target, count: int, said: Callable[..., None]) -> None:
    """That many in a row; what each costs, and whether a good kernel is verified after each."""
    slot, small, good = judge.slots[0], _small(job), lower(parse(job.seed), judge.chip)
    arm = {"source": good.source, "entry": good.entry}
    start = time.monotonic()
    correct([small], slot.run("verify", {"arm": arm, "jobs": [small]}, [small], 60.0).result["rows"])
    said(f"the first good verdict, workers started for it: {time.monotonic() - start:.2f} s")
    costs: dict[str, list[float]] = {name: [] for name in FAULTS}
    lost = 0
    for number in range(count):
        name = "hang" if number % 5 == 4 else ("illegal address", "out of memory")[number % 5 % 2]
        start = time.monotonic()
        try:
            slot.run("verify", {"arm": {"source": FAULTS[name], "entry": "entry"}, "jobs": [small]}, [small], RUN_S)
            what = "nothing happened"
        except WorkerFailure as failure:
            what = f"{type(failure).__name__}: {failure.message}"
        fault_s = time.monotonic() - start
        try:
            rows = slot.run("verify", {"arm": arm, "jobs": [small]}, [small], 30.0).result["rows"]
            correct([small], rows)
        except (WorkerFailure, Rejected) as failure:
            lost += 1
            what += f"; THEN LOST: {failure}"
        costs[name].append(time.monotonic() - start)
        said(
            f"fault {number + 1:3} {name}: {what[:100]} ({fault_s:.2f} s, {costs[name][-1]:.2f} s until a good verdict)"
        )
    for name, found in costs.items():
        if found:
            said(f"{name:<16}{len(found):4} times, mean {sum(found) / len(found):.2f} s, most {max(found):.2f} s")
    said(f"{count} faults in a row, {lost} good verdicts lost")


def _small(wanted: Target) -> dict[str, Any]:
    rng = generator(0, "faults")
    return device_job(wanted, parse(wanted.seed), wanted.checks[0], "normal", 5, rng)


if __name__ == "__main__":
    main()
