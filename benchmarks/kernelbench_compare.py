"""The same eighty Triton products of 4096 x 4096 x 4096, bf16, through KernelBench's evaluator and through avo's judge.

python benchmarks/kernelbench_compare.py --kernelbench DIR --out FILE.json     on a machine with an H200
python benchmarks/kernelbench_compare.py --simulate --out FILE.json            avo's part alone, small, on the CPU

DIR is a checkout of KernelBench (github.com/ScalingIntelligence/KernelBench), of which nothing is kept here; what its
utilities import for language models (openai, litellm) need not be installed. Eight schedules that a person would write
down and nine variants of each, one knob or two away, are lowered by avo; both harnesses get that source.

KernelBench: `eval_kernel_against_ref` on its own problem `1_Square_matrix_multiplication_`, in process, as its scripts
do by default: 5 trials for correctness, 100 timed calls, then 100 of the reference. avo: the gates of `avo evolve` to
correctness, in the same visit to the device; in place of a look and a race, which only have to say who is faster, each
candidate gets an interval of its own: segments of 4 ms back to back, the first three left out, for what ran before
still sets its clock, then eight and as many more, up to 57, as bring Student's 95% interval of their mean within +-2%.

`ordinary` checks as the judge does: five small sizes with tails, each with a fresh seed and another distribution, and
the size that is timed. `strict` checks five fresh seeds at 4096 in their place. One is accepted where at least five
checks on fresh seeds passed and its interval is within +-2%. `again` is `strict` in the other order: how far the same
candidate's time then differs says what an interval of a tenth of a second is worth.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from kernelbench_harness import FRESH, PROBLEM, beside, commit

from dsl.check import errors
from dsl.hardware import hardware
from dsl.knobs import knobs, neighbours, set_knob
from dsl.lowering import lower
from dsl.parser import parse
from dsl.printer import digest, print_program
from evaluators.device import held
from evaluators.gates import Bench, Case, Evidence, exact_sizes
from evaluators.judge import environment
from evaluators.loading import complete
from evaluators.measured import MeasuredEvaluator
from evaluators.measuring import Timed
from evaluators.racing import student
from evaluators.target import Target, Workload
from evaluators.targets import target
from evaluators.timing import Regime

EXTENT = 4096
WITHIN = 0.02
AVO_MINUTES = 2.0  # of each of avo's passes, at most
VARIANTS = 9
PASSES = ("ordinary", "strict", "again")
BASES = (
    "tile m=128 n=128 k=64\ngrid m n\norder grouped(8)\nstream k stages=3\nwarps 8\n",
    "tile m=128 n=256 k=64\ngrid m n\norder grouped(8)\nstream k stages=3\nwarps 8\nload tma\n",
    "tile m=128 n=128 k=64\ngrid m n\norder grouped(8)\nstream k stages=4\nwarps 4\nload tma\n",
    "tile m=256 n=128 k=64\ngrid m n\norder grouped(4)\nstream k stages=3\nwarps 8\nload tma\n",
    "tile m=64 n=128 k=64\ngrid m n\norder grouped(8)\nstream k stages=4\nwarps 4\n",
    "tile m=128 n=64 k=64\ngrid m n\norder grouped(16)\nstream k stages=4\nwarps 4\nload tma\n",
    "tile m=64 n=64 k=64\ngrid m n\norder grouped(8)\nstream k stages=4\nwarps 4\n",
    "tile m=64 n=256 k=32\ngrid m n\norder grouped(8)\nstream k stages=4\nwarps 4\nload tma\n",
)


def at_4096(extent: int) -> Target:
    """The target with that square alone; the hidden sizes stay avo's own, unless it is a small one for a trial."""
    found = target("matmul")
    square = Workload({"m": extent, "n": extent, "k": extent})
    hidden = found.hidden if extent == EXTENT else (Workload({"m": 40, "n": 24, "k": 56}),)
    return replace(found, workloads=(square,), hidden=hidden, sets={})


def candidates(wanted: Target) -> list[str]:
    """Programs: the eight, and of each nine others that avo's check accepts, one knob or two away."""
    hw, rng = hardware("h200"), random.Random(8)
    head = target("matmul").seed.partition("\nschedule\n")[0] + "\nschedule\n"
    starts = [parse(head + base) for base in BASES]
    found = {digest(start): print_program(start) for start in starts}
    for start in starts:
        mine = {digest(start): print_program(start)}
        while len(mine) < 1 + VARIANTS:
            program = start
            for _ in range(rng.choice((1, 1, 2))):
                knob = rng.choice([k for k in knobs(program, hw) if not k.chips and _ordinary(k.name)])
                if near := neighbours(knob):
                    program = set_knob(program, knob, rng.choice(near))
            taken = digest(program) in found or digest(program) in mine
            if taken or errors(program, hw, wanted.workloads[0].sizes) or not _fits(program, wanted):
                continue
            mine[digest(program)] = print_program(program)
        found |= mine
    return list(found.values())


def _ordinary(name: str) -> bool:
    return name in ("tile m", "tile n", "tile k", "stream stages", "warps", "load", "order", "persistent")


def _fits(program: Any, wanted: Target) -> bool:
    """Whether it lowers; what does not compile is left for both harnesses to find."""
    try:
        _source(print_program(program), wanted)
    except Exception:
        return False
    return True


def _source(text: str, wanted: Target) -> tuple[str, str]:
    hw = hardware("h200")
    case = Case(text=text, target=wanted, wanted=parse(wanted.seed), hardware=hw, program=parse(text))
    found = lower(case.sure, hw, exact_sizes(case))
    return found.source, found.entry


# avo ------------------------------------------------------------------------------------------------------------------


OWN = Regime("own interval", untimed_s=0.0, timed_s=0.004)
LEFT_OUT = 3
INTERVAL = {"left_out": LEFT_OUT, "least": 8, "most": 60, "within": 0.95 * math.log1p(WITHIN), "timed_s": OWN.timed_s}


class Timing(MeasuredEvaluator):
    """The judge with an interval of its own for every candidate, from the visit that checks it."""

    look_task, look_rule, look_file = "interval", {"interval": INTERVAL}, Path(__file__).with_name("interval_tasks.py")

    def _timing_gate(self, case: Case, bench: Bench) -> Evidence:
        timed = Timed()
        found = self._read(case, timed, case.screen)[case.target.workloads[0].name][LEFT_OUT:]
        logs = [math.log(s.seconds) for s in found]
        half = student(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        mean = sum(logs) / len(logs)
        detail = {"interval_s": [math.exp(mean - half), math.exp(mean + half)], "segments": len(logs)}
        case.results = tuple(
            r.model_copy(update={"measured_s": math.exp(mean), "detail": {**r.detail, **detail}}) for r in case.results
        )
        self._note_overclock(case)
        return {"regime": OWN.name, "segments": len(logs)}


def through_avo(programs: list[str], wanted: Target, strict: bool, minutes: float, simulate: bool) -> dict[str, Any]:
    """Every candidate through the judge, as many at once as its compilers can take."""
    chip = hardware("h200")
    if strict:
        wanted = replace(wanted, checks=wanted.workloads * FRESH)  # each with a seed and a distribution of its own
    more: dict[str, Any] = {}
    if simulate:
        from evaluators.device import DeviceFacts

        more = {"devices": [DeviceFacts(index=0, name="NVIDIA H200", uuid="GPU-simulated")], "simulate": True}
    judge = Timing(chip, jobs=32, seed=8, **more)
    started = time.monotonic()
    try:
        judge.evaluate(wanted.seed, wanted, chip)  # workers start, the card is heated, the seed is the first incumbent
        before, cpu = judge.parts_s, time.process_time()
        began = time.monotonic()
        ends = began + 60 * minutes
        done: list[dict[str, Any]] = []

        def one(text: str) -> None:
            if time.monotonic() < ends:
                done.append(_row(judge.evaluate(text, wanted, chip), text, time.monotonic() - began))

        with ThreadPoolExecutor(judge.compilers + 8) as threads:
            list(threads.map(one, programs))
        spent = max((r["at_s"] for r in done), default=0.0)
        return {
            "rows": done,
            "seconds": spent,
            "start_s": began - started,
            "busy_share": judge.busy_share,
            "parts_s": {k: round(v - before.get(k, 0.0), 2) for k, v in judge.parts_s.items()},
            "parent_cpu_s": round(time.process_time() - cpu, 2),
            "compilers": judge.compilers,
            "faults": sum(s.faults for s in judge.slots),
            "environment": {k: v for k, v in environment(chip).items() if k != "chip"},
            "device": {**judge.slots[0].facts.model_dump(mode="json"), **judge.slots[0].worker},
            "regime": OWN.facts(),
        }
    finally:
        judge.close()


def _row(found: Any, text: str, at: float) -> dict[str, Any]:
    row: dict[str, Any] = {"program": digest(parse(text)), "at_s": round(at, 2), "status": str(found.status)}
    correctness, timing = found.gate("correctness"), found.gate("timing")
    cases = correctness.evidence.get("cases", []) if correctness else []
    row["checks"] = sum("reasons" not in c for c in cases)
    row["full_size"] = sum("reasons" not in c and f"m={EXTENT}" in c["workload"].replace(" ", "") for c in cases)
    row["segments"] = timing.evidence.get("segments") if timing else None
    row["message"] = found.message[:160]
    if found.workloads and found.workloads[0].measured_s:
        w = found.workloads[0]
        low, high = w.detail["interval_s"]
        row |= {"us": w.measured_s * 1e6, "within": math.sqrt(high / low) - 1}
    row["accepted"] = row["status"] == "ok" and row["checks"] >= FRESH and row.get("within", 1.0) <= WITHIN
    return row


# Together -------------------------------------------------------------------------------------------------------------


def summary(found: dict[str, Any]) -> str:
    """The table."""
    lines = []
    theirs = found.get("kernelbench")
    pace = 0.0
    if theirs and theirs["rows"]:
        correct = sum(bool(r.get("correct")) for r in theirs["rows"])
        pace = 60 * len(theirs["rows"]) / theirs["seconds"]
        spreads = [
            1.96 * r["stats"]["std"] / r["stats"]["mean"] / 10 for r in theirs["rows"] if r.get("stats")
        ]  # of a mean over 100 calls
        lines.append(
            f"KernelBench: {len(theirs['rows'])} candidates in {theirs['seconds']:.1f} s: {pace:.1f} a minute; "
            f"{correct} correct in 5 trials, 100 timed calls each; start {theirs['start_s']:.1f} s"
        )
        if spreads:
            lines.append(f"    its 95% interval of a mean, if calls were independent: median +-{_percent(spreads)}")
    for name in PASSES:
        ours = found.get(name)
        if not ours or not ours["rows"]:
            continue
        rows = ours["rows"]
        accepted = [r for r in rows if r["accepted"]]
        mine = 60 * len(rows) / ours["seconds"]
        lines.append(
            f"avo, {name}: {len(rows)} candidates in {ours['seconds']:.1f} s: {mine:.1f} a minute"
            + (f", {mine / pace:.1f}x" if pace else "")
            + f"; {len(accepted)} accepted: {60 * len(accepted) / ours['seconds']:.1f} a minute"
            + f"; device {ours['busy_share']:.0%} busy, {ours['compilers']} compilers, start {ours['start_s']:.1f} s"
        )
        lines.append(f"    statuses {dict(Counter(r['status'] for r in rows))}")
        if accepted:
            checks, full, count, within = (
                [r[k] for r in accepted] for k in ("checks", "full_size", "segments", "within")
            )
            lines.append(
                f"    each accepted: {min(checks)} to {max(checks)} checks, {min(full)} of them at {EXTENT}; "
                f"{min(count)} to {max(count)} segments; interval median +-{_percent(within)}, "
                f"widest +-{max(within):.2%}"
            )
        spent = ", ".join(f"{k} {v:.1f}" for k, v in ours["parts_s"].items() if v)
        lines.append(f"    seconds of the device: {spent}; of the parent's processor {ours['parent_cpu_s']:.1f}")
        both = [
            (r["us"], t["us"])
            for r in accepted
            for t in (theirs["rows"] if theirs else [])
            if t["program"] == r["program"] and t.get("correct") and t["us"] > 0
        ]
        if len(both) > 3:
            ratios = [a / b for a, b in both]
            lines.append(
                f"    times over KernelBench's: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to "
                f"{max(ratios):.3f} ({len(both)} candidates; Spearman {_spearman(both):.3f})"
            )
    if found.get("again"):
        far = sorted(abs(x) for x in repeated(found))
        if far:
            lines.append(
                f"the same candidate in the other order: median {far[len(far) // 2]:.2%} off, nine of ten within "
                f"{far[int(0.9 * (len(far) - 1))]:.2%}, at most {far[-1]:.2%} ({len(far)} accepted in both)"
            )
    return "\n".join(lines)


def repeated(found: dict[str, Any]) -> list[float]:
    """Log ratio of the two times of each candidate that both passes accepted."""
    first = {r["program"]: r["us"] for r in found["strict"]["rows"] if r["accepted"]}
    return [
        math.log(r["us"] / first[r["program"]])
        for r in found["again"]["rows"]
        if r["accepted"] and r["program"] in first
    ]


def _percent(values: list[float]) -> str:
    return f"{statistics.median(values):.2%}"


def _spearman(pairs: list[tuple[float, float]]) -> float:
    ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0)
    return float(np.corrcoef(ranks.T)[0, 1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, help="a checkout of KernelBench; left out: avo's part alone")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=6.0, help="of KernelBench's part, at most")
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=PASSES)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--count", type=int, default=len(BASES) * (1 + VARIANTS))
    flags = parser.parse_args()
    if flags.kernelbench and not (flags.kernelbench / PROBLEM).is_file():
        parser.error(f"{flags.kernelbench} is no checkout of KernelBench: it has no {PROBLEM}")
    wanted = complete(at_4096(64 if flags.simulate else EXTENT))
    programs = candidates(wanted)[: flags.count]
    sources = []
    for text in programs:
        source, entry = _source(text, wanted)
        sources.append({"program": digest(parse(text)), "source": source, "entry": entry})
    found: dict[str, Any] = {
        "command": "python benchmarks/kernelbench_compare.py --kernelbench DIR",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "extent": EXTENT,
        "programs": dict(zip([s["program"] for s in sources], programs, strict=True)),
    }

    def write() -> None:
        flags.out.parent.mkdir(parents=True, exist_ok=True)
        flags.out.write_text(json.dumps(found, indent=1) + "\n")

    for name in flags.passes:
        order = programs[::-1] if name == "again" else programs
        found[name] = through_avo(order, wanted, name != "ordinary", AVO_MINUTES, flags.simulate)
        write()
        print(summary(found), flush=True)
    if flags.kernelbench:
        found["commit"] = commit(flags.kernelbench)
        with contextlib.nullcontext() if flags.simulate else held():
            found["kernelbench"] = beside(flags.kernelbench, sources, flags.minutes, flags.out.parent)
        write()
        print(summary(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
