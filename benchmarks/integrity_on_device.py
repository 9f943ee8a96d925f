"""Attacks and honest kernels on a device: what a naive timer says, and what the judge says.

    python benchmarks/integrity_on_device.py --hw h200 --out record.json

Judged are `tests/integrity/device` and the kernels of `tests/integrity/honest`. The naive timer is what many people
write: one input, checked once, then twenty calls between two events, and twenty one by one behind a wait and 256 MiB
of zeros, as triton.testing.do_bench has it; each kernel runs in a fork of this process, which
never touches the device. `--simulate` runs the judge alone, on the CPU. Rows are written as they come, and whatever one
candidate brings about is a row too.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import runpy
import signal
import statistics
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from trusted_arm import Trusted

from dsl.hardware import hardware
from evaluators.integrity import corpus, timed_calls
from evaluators.integrity.calls import right
from evaluators.integrity.corpus import Item
from evaluators.integrity.narrow_sums import recipes
from evaluators.integrity.raw_device import RawDeviceEvaluator
from evaluators.judge import environment
from evaluators.loading import complete, seed_program
from evaluators.target import Target, Workload

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "integrity"
CALLS = 20
GOAL = 5.0  # seconds that an honest kernel may cost beyond what it would cost if it were trusted
NAIVE_S = 60  # for a naive timer
# Sizes at which launching is a small part of a call; of another target its first public one.
SIZES = {
    "softmax": {"r": 16384, "c": 2048},
    "rmsnorm": {"r": 16384, "c": 2048},
    "matmul": {"m": 2048, "n": 2048, "k": 2048},
    "cross_entropy": {"r": 4096, "c": 32000},
    "swiglu": {"r": 1024, "c": 1024, "f": 4096},
    "attention": {"b": 2, "h": 8, "g": 8, "m": 2048, "n": 2048, "d": 128, "e": 128},
}
SMALL = {
    "softmax": {"r": 64, "c": 512},
    "rmsnorm": {"r": 64, "c": 512},
    "matmul": {"m": 64, "n": 64, "k": 128},
    "cross_entropy": {"r": 32, "c": 512},
    "swiglu": {"r": 32, "c": 64, "f": 64},
    "attention": {"b": 1, "h": 2, "g": 2, "m": 64, "n": 64, "d": 32, "e": 32},
}


def timed(job: Target, simulate: bool) -> Workload:
    """The size that is timed: the shortest of the checks where there is no device."""
    if job.name in SIZES:
        return Workload((SMALL if simulate else SIZES)[job.name], {"causal": True} if job.name == "attention" else {})
    if simulate:
        return min(job.checks, key=lambda w: math.prod(w.sizes.values()))
    return job.workloads[0]


def naive(item: Item, sizes: dict[str, int]) -> dict[str, Any]:
    """In a fork: {correct, us} as a naive grader finds them."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(NAIVE_S)
        try:
            found = _grade(item, sizes)
        except BaseException as error:
            found = {"correct": False, "us": None, "error": f"{type(error).__name__}: {error}"[:200]}
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    said = os.read(read, 1 << 16).decode()  # it is short, and what an attack has started may hold the pipe
    os.close(read)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    return json.loads(said) if said else {"correct": False, "us": None, "error": "it died"}


def _grade(item: Item, sizes: dict[str, int]) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    if item.target == "matmul":
        a, b = (torch.randn(*shape, device="cuda").bfloat16() for shape in _shapes(sizes))
        given, wanted = (a, b), a.float() @ b.float()
    else:
        x = torch.randn(sizes["r"], sizes["c"], device="cuda").bfloat16()
        given, wanted = (x,), torch.softmax(x.float(), -1)
    run = runpy.run_path(str(item.path))["run"]
    got = run(*given)
    torch.cuda.synchronize()
    time.sleep(0.02)
    correct = torch.allclose(got.float(), wanted, atol=1e-2 * float(wanted.std()) + 1e-3, rtol=5e-2)
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(CALLS):
        run(*given)
    stop.record()
    stop.synchronize()
    found = {"correct": bool(correct), "us": round(start.elapsed_time(stop) * 1000 / CALLS, 2)}
    flush, times = torch.empty(256 << 20, dtype=torch.uint8, device="cuda"), []
    for _ in range(CALLS):
        flush.zero_()
        torch.cuda._sleep(1_000_000)
        start.record()
        run(*given)
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1000)
    return found | {"flushed_us": round(statistics.median(times), 2)}


def _shapes(sizes: dict[str, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    return (sizes["m"], sizes["k"]), (sizes["k"], sizes["n"])


def chosen(only: str) -> list[Item]:
    """The honest ones first, or in the order of the parts of `only`; of the corpus without a device those that launch
    kernels."""
    own = corpus.read(FOLDER / "device")
    others = [i for i in corpus.read(FOLDER) if i.kind == "honest" and "@triton.jit" in i.path.read_text()]
    items = sorted([*own, *others], key=lambda i: (i.kind != "honest", i.name))
    if not only:
        return items
    named = {f"{i.kind}/{i.name}": i for i in items}
    return [named[name] for name in dict.fromkeys(n for part in only.split(",") for n in named if part in n)]


def compared(item: Item) -> bool:
    """Whether a naive timer looks at it too."""
    return item.kind == "attacks" or item.name in ("plain_rows", "hints_for_the_cache", "float32_sums")


def started(judge: RawDeviceEvaluator, item: Item, simulate: bool, beside: str) -> Trusted | None:
    """What an honest kernel would cost if it were trusted, where that is asked for: its process, without a result."""
    if item.kind != "honest" or beside not in ("all", "honest"):
        return None
    job = item.job
    return Trusted(item.path, replace(job, workloads=(timed(job, simulate),)), judge._rounds)


def judged(
    judge: RawDeviceEvaluator, item: Item, simulate: bool, chip: Any, beside: str, trusted: Trusted | None, before: Any
) -> dict[str, Any]:
    """One row of the record. beside: for which kinds a naive timer looks, too. trusted: is asked, and ended.
    before: is called right before it is judged."""
    workload = timed(item.job, simulate)
    job = replace(item.job, workloads=(workload,))
    row: dict[str, Any] = {"corpus": item.kind, "name": item.name, "kind": item.kind_of, "target": item.target}
    asked = compared(item) and (beside == "all" or beside == item.kind) and not simulate
    row["naive"] = naive(item, dict(workload.sizes)) if asked else None
    row["trusted"] = trusted.judged() if trusted else None
    judge._pool.settled()  # children that wait are what a warm pool has
    before()
    alone = (row["trusted"] or {}).get("seconds")
    began = time.monotonic()
    found = judge.evaluate(item.path.read_text(), job, chip)
    seconds = time.monotonic() - began
    gate = found.gate(found.failed_gate) if found.failed_gate else None
    integrity = found.gate("integrity")
    facts: dict[str, Any] = integrity.evidence if integrity else {}
    return row | {
        "status": found.status,
        "rule": gate.evidence.get("rule") if gate else None,
        "message": found.message[:300],
        "seen": facts.get("seen"),
        "us": [round(w.measured_s * 1e6, 2) for w in found.workloads if w.measured_s],
        "least_us": [round(w.detail["least_s"] * 1e6, 2) for w in found.workloads],
        "outside_us": [round(w.detail["clock_outside_s"] * 1e6, 2) for w in found.workloads],
        **{f"{key}_us": [[round(c * 1e6, 2) for c in p] for p in facts.get(key, [])] for key in ("clocks", "tails")},
        "told_us": round(1e6 * facts["told_s"], 2) if "told_s" in facts else None,
        **{key: facts.get(key) for key in ("holds", "threads", "aten", "ghost", "launches", "work", "played")},
        "gate_seconds": {g.gate: round(g.seconds, 2) for g in found.gates},
        "seconds": round(seconds, 2),
        "added": round(seconds - alone, 2) if alone else None,
    }


def once(items: list[Item]) -> dict[str, float]:
    """Seconds of what a judge finds out about a target at its first candidate, so that no candidate is charged."""
    found: dict[str, float] = {}
    for item in items:
        if item.target not in found:
            began = time.monotonic()
            job = complete(item.job)
            recipes(job, seed_program(job), right)
            found[item.target] = round(time.monotonic() - began, 2)
    return found


def failed(item: Item, error: Exception) -> dict[str, Any]:
    """The row of a candidate that nothing was learned of."""
    message = f"{type(error).__name__}: {error}"[:300]
    row: dict[str, Any] = {"corpus": item.kind, "name": item.name, "kind": item.kind_of, "target": item.target}
    row |= {"status": "not judged", "message": message, "us": []}
    return row | dict.fromkeys(("naive", "trusted", "rule", "seen", "work", "seconds", "added", "told_us", "played"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hw", default="h200")
    parser.add_argument("--out", default="integrity_on_device.json")
    parser.add_argument("--only", default="", help="parts of corpus/name, with commas between: attacks, honest, a name")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further kernel is begun after these")
    parser.add_argument(
        "--beside",
        default="all",
        help="honest, attacks, all or none: of which is told too what a "
        "naive timer says and what an honest kernel would cost if it were trusted",
    )
    parser.add_argument("--simulate", action="store_true")
    given = parser.parse_args()
    Path(given.out).parent.mkdir(parents=True, exist_ok=True)
    if given.simulate:
        os.environ["TRITON_INTERPRET"] = "1"
    import torch  # noqa: F401  before the forks, and never its device
    import triton  # noqa: F401

    if given.simulate:
        from evaluators import interpreter

        interpreter.install()
    begun = time.monotonic()
    chip = hardware(given.hw)
    rows: list[dict[str, Any]] = []
    record: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "sizes": SIZES, "rows": rows}
    if given.simulate:
        timed_calls.MANY = 2  # the interpreter takes its time
    rounds, most = (2, 120.0) if given.simulate else (6, 40.0)
    with RawDeviceEvaluator(chip, sizes=1, rounds=rounds, simulate=given.simulate, run_timeout=most) as judge:
        judge._pool.warm((judge._kind,))
        items = chosen(given.only)
        record["once"] = once(items)
        judge._pool.warm((judge._kind,), wait=True)
        judge._pool.prepare(judge._kind, judge._processes)
        record["asked"] = {"only": given.only, "seconds": given.seconds, "beside": given.beside}
        record["environment"] = {**environment(chip), **judge._more()}
        waiting: dict[str, Trusted | None] = {}

        def start(place: int) -> None:
            """The next one's, while this one's calls are checked: it is there when it is asked."""
            if place < len(items):
                item = items[place]
                waiting[str(item.path)] = started(judge, item, given.simulate, given.beside)

        start(0)
        for place, item in enumerate(items):
            if time.monotonic() - begun > given.seconds:
                print(f"out of time: {len(items) - len(rows)} were not judged")
                break
            trusted, began = waiting.pop(str(item.path), None), time.monotonic()
            try:
                row = judged(
                    judge, item, given.simulate, chip, given.beside, trusted, functools.partial(start, place + 1)
                )
            except Exception as error:  # the record's own fault, and no verdict: told, and the next one's turn
                traceback.print_exc()
                row = failed(item, error)
                if place + 1 < len(items) and str(items[place + 1].path) not in waiting:
                    start(place + 1)
            row["whole"] = round(time.monotonic() - began, 2)
            rows.append(row)
            written = Path(given.out).with_suffix(".part")
            written.write_text(json.dumps(record, indent=1, default=str))
            written.replace(given.out)
            told = row["naive"] or {"correct": "-", "us": None}
            times = f"naive {told['us']}/{told.get('flushed_us')} us {told['correct']}; judge {row['us']} us"
            times += f"; {row['seconds']} s, added {row['added']}"
            work = str(row["work"])[:60]
            print(f"{item.kind:8}{item.name:26}{row['status']:12}{times}; {work}; {row['message'][:150]}", flush=True)
            if len(rows) == 3 and not given.only and all(r["status"] not in ("ok", "suspicious") for r in rows):
                raise SystemExit("three honest kernels failed: nothing can be learned here")
        for left in waiting.values():
            if left:
                left.close()
    attacks = [r for r in rows if r["corpus"] == "attacks"]
    honest = [r for r in rows if r["corpus"] == "honest"]
    stopped, passed = (
        sum(r["status"] not in ("ok", "not judged") for r in attacks),
        sum(r["status"] == "ok" for r in honest),
    )
    fair = sum(r["status"] == "ok" and r["work"] == "proved" for r in attacks)
    proved = sum(r["work"] == "proved" for r in honest)
    print(f"attacks {len(attacks)}: {stopped} stopped, {fair} timed by the judge alone and so without effect")
    added = sorted(r["added"] for r in honest if r["added"] is not None)
    if added:
        most, within = added[-1], sum(a <= GOAL for a in added)
        print(f"added: median {statistics.median(added):.2f} s, most {most} s, {within} of {len(added)} within {GOAL}")
    print(f"honest {len(honest)}: {passed} passed, of {proved} the work is proved")


if __name__ == "__main__":
    main()
