# ruff: noqa: E501  (sentences of a page)
"""The part of docs/results/evidence.md on other tools: KernelBench's evaluator and Helion's autotuner on the same card."""

from __future__ import annotations

import csv
import json
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from prediction_on_tables import spearman

PEERS = Path(__file__).resolve().parent / "data" / "peers"


def kernelbench_part() -> list[str]:
    path = PEERS / "kernelbench_h200.json"
    if not path.exists():
        return []
    data = json.loads(path.read_text(encoding="utf-8"))
    theirs = data["kernelbench"]
    rows = theirs["rows"]
    pace = 60 * len(rows) / theirs["seconds"]
    correct = sum(bool(r.get("correct")) for r in rows)
    spread = statistics.median(1.96 * r["stats"]["std"] / r["stats"]["mean"] / 10 for r in rows if r.get("stats"))
    lines = [
        "## KernelBench's evaluator on the same kernels",
        "",
        f"{len(data['programs'])} Triton products of 4096 x 4096 x 4096, bf16: eight schedules and nine variants of each, the same emitted source in both harnesses, on one card, one harness after the other.",
        "",
        "| harness | candidates | seconds | a minute | accepted | accepted a minute | over KernelBench's pace | what each accepted one went through |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
        f"| KernelBench, in process | {len(rows)} | {theirs['seconds']:.1f} | {pace:.1f} | {correct} | {60 * correct / theirs['seconds']:.1f} | 1 | "
        f"5 trials at 4096 (inputs drawn on the CPU), 100 timed calls, 100 of the reference; 95% interval of the mean, were calls independent: +-{spread:.2%} |",
    ]
    notes = []
    for name in ("ordinary", "strict"):
        ours = data[name]
        done = ours["rows"]
        good = [r for r in done if r["accepted"]]
        rate, kept = 60 * len(done) / ours["seconds"], 60 * len(good) / ours["seconds"]
        checks, full = [r["checks"] for r in good], [r["full_size"] for r in good]
        count, within = [r["segments"] for r in good], [r["within"] for r in good]
        lines.append(
            f"| avo, {name} | {len(done)} | {ours['seconds']:.1f} | {rate:.1f} | {len(good)} | {kept:.1f} | {rate / pace:.1f}x; accepted {kept / pace:.1f}x | "
            f"{min(checks)} checks on fresh seeds, {min(full)} of them at 4096, in float64; {min(count)} to {max(count)} segments of 15 ms; "
            f"interval median +-{statistics.median(within):.2%}, widest +-{max(within):.2%} |"
        )
        both = _both(good, rows)
        if both:
            ratios = [a / b for a, b in both]
            notes.append(
                f"`{name}`: avo's time over KernelBench's: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}; "
                f"their orders agree with Spearman {spearman(*np.array(both).T):.3f}."
            )
    device, versions = data["strict"]["device"], data["strict"]["environment"]["versions"]
    lines += [
        "",
        "`ordinary` checks as the judge of `avo evolve` does: five sizes with tails and 4096 itself. `strict` takes five seeds at 4096 in place of the small ones. "
        "In place of the race against the incumbent, which says who is faster and gives slower ones no exact time, each has an interval of its own. A candidate whose interval is wider than +-2% is judged, and not counted as accepted. Start-up is counted in neither "
        f"(avo {data['ordinary']['start_s']:.0f} s with its workers and the heating of the card, KernelBench {theirs['start_s']:.1f} s after torch is loaded).",
        "",
        *notes,
        *_again(data),
        "KernelBench flushes the L2 and waits before every call, so a launch and a rested clock are part of its time; avo times calls back to back on a card under load.",
        "",
        f"{device['name']}, driver {device['driver']}, {data['date']}; torch {versions['torch']}, triton {versions['triton']}, KernelBench {data.get('commit', 'unknown')[:7]}. Command: "
        "`python benchmarks/kernelbench_compare.py --kernelbench DIR --out FILE` with a checkout of KernelBench in DIR."
        + (
            f" KernelBench's part was run on {data['kernelbench_date']}, avo's on {data['date']}, on cards of one host."
            if "kernelbench_date" in data
            else ""
        ),
        "",
    ]
    return lines


def _again(data: dict[str, Any]) -> list[str]:
    """What the interval of a tenth of a second is worth: the same candidates once more, in the other order."""
    if "again" not in data:
        return []
    first = {r["program"]: r for r in data["strict"]["rows"] if r["accepted"]}
    both = [(first[r["program"]], r) for r in data["again"]["rows"] if r["accepted"] and r["program"] in first]
    logs = np.log([b["us"] / a["us"] for a, b in both])
    shift = float(np.median(logs))
    far = np.abs(logs)
    return [
        f"The same {len(both)} candidates judged once more, in the other order and minutes later, came out {np.median(far):.2%} off by the median, nine of ten within "
        f"{np.quantile(far, 0.9):.2%}, at most {far.max():.2%} (all together {shift:+.2%}): an interval of a tenth of a second does not hold the clock of another minute."
    ]


def _both(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[tuple[float, float]]:
    seen = {r["program"]: r["us"] for r in theirs if r.get("correct")}
    return [(r["us"], seen[r["program"]]) for r in ours if r["program"] in seen]


def helion_part() -> list[str]:
    found = [case for case in ("gemm", "attention") if (PEERS / f"measured_{case}.json").exists()]
    if not found:
        return []
    lines = [
        "## Helion's autotuner in the same seconds",
        "",
        "Each tool had the card and 16 cores for itself, one after the other, for the same seconds by the clock, its start included; then both results and the vendor's kernel were timed in turns, sustained.",
        "",
        "| job | tool | seconds taken | candidates | its result, TFLOP/s | of the vendor's [95%] | within 1% of its own last after |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    notes = []
    for case in found:
        measured = json.loads((PEERS / f"measured_{case}.json").read_text(encoding="utf-8"))
        facts = json.loads((PEERS / f"compare_{case}.json").read_text(encoding="utf-8"))
        for tool in ("avo", "helion"):
            path = PEERS / f"{tool}_{case}.json"
            row = measured["rows"].get(tool)
            if not path.exists() or row is None:
                lines.append(f"| {case} | {tool} | - | - | no result | - | - |")
                continue
            one = json.loads(path.read_text(encoding="utf-8"))
            low, high = row["of_vendor"][1:]
            lines.append(
                f"| {case} | {tool} | {one['seconds']:.0f} of {facts['seconds']:g} | {sum((one.get('statuses') or {}).values())} | {row['tflops']:.0f} | "
                f"{row['of_vendor'][0]:.3f} [{low:.3f}, {high:.3f}] | {_settled(one)} |"
            )
        if "of_helion" in measured["rows"].get("avo", {}):
            r = measured["rows"]["avo"]["of_helion"]
            notes.append(f"- {case}: avo's result is {r[0]:.3f} [{r[1]:.3f}, {r[2]:.3f}] of the speed of Helion's.")
        notes.append(
            f"- {case}: {measured['device']}, {facts['date']}; helion {facts['helion']}, torch {facts['torch']}, triton {facts['triton']}; `{facts['command']} --out DIR`. "
            "The vendor's kernel is " + ("cuBLAS." if case == "gemm" else "cuDNN's attention.")
        )
    lines += ["", *notes, ""]
    return lines


def peer_losses() -> list[str]:
    """Where another tool is better, or a goal beside it was missed."""
    lines = []
    for case in ("gemm", "attention"):
        path = PEERS / f"measured_{case}.json"
        found = (
            json.loads(path.read_text(encoding="utf-8"))["rows"].get("avo", {}).get("of_helion")
            if path.exists()
            else None
        )
        if path.exists() and found is None:
            lines.append(f"- {case}: one of avo and Helion had no result in these seconds; see above.")
        elif found and found[0] < 1:
            lines.append(
                f"- {case}: Helion's result is faster: avo's has {found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}] of its speed."
            )
    path = PEERS / "kernelbench_h200.json"
    if not path.exists():
        return [*lines, "- Not done: KernelBench's evaluator with an interval of its own for every candidate."]
    data = json.loads(path.read_text(encoding="utf-8"))
    rows = data["kernelbench"]["rows"]
    pace = 60 * len(rows) / data["kernelbench"]["seconds"]
    for name in ("ordinary", "strict"):
        kept = 60 * sum(r["accepted"] for r in data[name]["rows"]) / data[name]["seconds"]
        if kept < 10 * pace:
            lines.append(
                f"- KernelBench: ten times its pace was hoped for; `{name}` accepts {kept / pace:.1f} times as many."
            )
    return lines


def faults_part() -> list[str]:
    """What one candidate that reads an illegal address costs each tool."""
    worker, alone = (PEERS / f"helion_fault_{n}.csv" for n in (1, 0))
    mine = PEERS / "avo_faults.txt"
    if not worker.exists() or not mine.exists():
        return []
    with worker.open(newline="") as text:
        rows = list(csv.DictReader(text))
    error = next(i for i, r in enumerate(rows) if r["status"] == "error")
    after = next(r for r in rows[error:] if r["status"] == "ok")
    cost = float(after["timestamp_s"]) - float(rows[error - 1]["timestamp_s"])
    with alone.open(newline="") as text:
        ended = list(csv.DictReader(text))[-1]["status"] == "started"
    return [
        "## A candidate that faults",
        "",
        "One of three configurations in Helion reads an illegal address; in avo's device worker three candidates fault in a row.",
        "",
        "| tool | what happens | seconds until the next good verdict |",
        "|---|---|---|",
        f"| Helion, benchmarks in a worker (its default) | that configuration is an error and the search goes on; a new worker starts | {cost:.1f} |",
        f"| Helion, `HELION_AUTOTUNE_BENCHMARK_SUBPROCESS=0` | {'the search ends with an exception; which configuration it was is said' if ended else 'the search goes on'} | - |",
        *(
            f"| avo, {kind} | that candidate is a crash, a spare worker takes over | {took} |"
            for kind, took in _faults(mine)
        ),
        "",
        "avo's first fault was the first call of all: 17 s of it are the start of the workers. Fifty in a row: [measuring](../measuring.md#faults).",
        "",
        "NVIDIA H200, 2026-11-30; helion 1.5.0 (1.5.1 does not import with torch 2.11), torch 2.11.0, triton 3.6.0. Command: `python benchmarks/helion_compare.py --case faults --out DIR`.",
        "",
    ]


def _faults(path: Path) -> list[tuple[str, str]]:
    found = re.findall(r"fault +(\d+) ([a-z ]+):.*, ([\d.]+) s until", path.read_text(encoding="utf-8"))
    return [(f"fault {number}, {kind}", seconds) for number, kind, seconds in found]


def _settled(one: dict[str, Any]) -> str:
    steps = one.get("best_so_far") or []
    if not steps:
        return "-"
    last = steps[-1][1]
    return f"{next(at for at, ms in steps if ms <= last * 1.01):.0f} s"
