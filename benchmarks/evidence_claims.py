# ruff: noqa: E501  (sentences of a page)
"""The first table of docs/results/evidence.md: each claim with its figure, interval, regime, versions and command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from evidence_peers import HOPED, accepted_pace, helion_claims, kernelbench_data

from evaluators.benchmark_result import Benchmark, Interval

DATA = Path(__file__).resolve().parent / "data"
BENCH = DATA / "bench" / "h200"
DRAWS = 2000  # of a bootstrap


def claims_part() -> list[str]:
    rows = [
        *_searches(),
        *_libraries(),
        *_efficiency(),
        *_prediction(),
        *_kernelbench(),
        *helion_claims(),
    ]
    return [
        "## Claims",
        "",
        "Ratios of speeds, above 1 is faster, with 95% intervals. How each was measured, and where avo loses, is below and on [the page of the H200](h200.md).",
        "",
        "| claim | figure | regime | with | command |",
        "|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def shown(found: Interval | None) -> str:
    return "-" if found is None else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _under(found: Benchmark) -> tuple[str, str]:
    versions = ", ".join(f"{k} {found.versions[k]}" for k in ("torch", "triton", "driver") if k in found.versions)
    return f"{found.regime.name}, {found.rounds} rounds", f"{found.device['name']}, {found.date[:10]}; {versions}"


def _searches() -> list[tuple[str, ...]]:
    """What `avo evolve` found from the naive seed, beside the best library of each size."""
    rows = []
    for path in sorted(BENCH.glob("*_search*.json")):
        item = json.loads(path.read_text(encoding="utf-8"))
        found = Benchmark.model_validate(item["benchmark"])
        sizes = "" if item["set"] == "public" else f" ({item['set']})"
        several = sum(a.program is not None for a in found.arms)
        what = "the few programs of one run" if several > 1 else "one program"
        peers = ", ".join(a.name for a in found.arms if a.kind == "baseline")
        rows.append(
            (
                f"`avo evolve` from the naive seed: {found.target}{sizes}, {what}, {len(found.rows)} sizes, over the best of {peers}",
                shown(found.dispatched()),
                *_under(found),
                f"`avo evolve --target {found.target}{'' if item['set'] == 'public' else ' --workloads ' + item['set']} --hw h200`, then `avo bench` ([table](h200.md))",
            )
        )
    return rows


def _libraries() -> list[tuple[str, ...]]:
    """Schedules set by hand beside libraries of their own kind."""
    rows = []
    for stem, peers in (("attention_public_b4", ("FlexAttention", "SageAttention", "FA2")),):
        path = BENCH / f"{stem}.json"
        if not path.exists():
            continue
        found = Benchmark.model_validate(json.loads(path.read_text(encoding="utf-8"))["benchmark"])
        have = {a.name for a in found.arms}
        for peer in peers:
            if peer in have:
                more = ", which multiplies 8-bit numbers" if peer == "SageAttention" else ""
                rows.append(
                    (
                        f"attention, 4 x 16 x 8192 x 128, full and causal, schedules set by hand, over {peer}{more}",
                        shown(found.dispatched(peer)),
                        *_under(found),
                        "`python benchmarks/champions.py measure --plan peers`",
                    )
                )
    return rows


def library_losses() -> list[str]:
    """Tables whose best programs are slower than the best library."""
    lines = []
    for path in sorted(BENCH.glob("*.json")):
        item = json.loads(path.read_text(encoding="utf-8"))
        found = Benchmark.model_validate(item["benchmark"])
        ratio = found.dispatched()
        if ratio is not None and ratio.value < 1:
            whose = "programs that `avo evolve` found" if item.get("part") == "search" else "schedules set by hand"
            sizes = item["set"] + (f", {item['part']}" if item.get("part") not in (None, "", "search") else "")
            lines.append(f"- {found.target} ({sizes}), {whose}: {shown(ratio)} of the best library, {found.date[:10]}.")
    return lines


def _efficiency() -> list[tuple[str, ...]]:
    path = DATA / "search_on_tables.json"
    if not path.exists():
        return []
    tables = json.loads(path.read_text(encoding="utf-8"))["tables"]
    rows = []
    for other in ("TPE", "random", "blind"):
        pairs = [
            (t["arms"]["heuristic"]["counts"], t["arms"][other]["counts"])
            for t in tables.values()
            if {"heuristic", other} <= set(t["arms"])
        ]
        if not pairs:
            continue
        seeds = sorted({len(x) for pair in pairs for x in pair})
        told = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        value, low, high = over(pairs)
        named = {"TPE": "Optuna's TPE", "random": "random", "blind": "the heuristic without prediction"}[other]
        rows.append(
            (
                f"the heuristic's evaluations to 98% of the best over those of {named}: geometric mean of {len(pairs)} tables' medians (below 1 is fewer)",
                f"{value:.2f} [{low:.2f}, {high:.2f}]",
                "recorded tables, no GPU",
                f"{told} seeds each",
                "`python benchmarks/search_on_tables.py`",
            )
        )
    return rows


def over(pairs: list[tuple[list[int], list[int]]]) -> tuple[float, float, float]:
    """Geometric mean of the ratios of medians, with the percentile interval of its bootstrap over seeds."""
    rng = np.random.default_rng(0)

    def medians(counts: list[int]) -> np.ndarray[Any, Any]:
        x = np.asarray(counts)
        return np.log(np.median(x[rng.integers(0, x.size, size=(DRAWS, x.size))], axis=1))

    draws = np.mean([medians(a) - medians(b) for a, b in pairs], axis=0)
    value = math.exp(float(np.mean([math.log(np.median(a) / np.median(b)) for a, b in pairs])))
    return value, *(float(math.exp(q)) for q in np.quantile(draws, [0.025, 0.975]))


def _prediction() -> list[tuple[str, ...]]:
    path = DATA / "prediction_on_tables.json"
    if not path.exists():
        return []
    tables = json.loads(path.read_text(encoding="utf-8"))["tables"]
    worst, best = (pick(tables.values(), key=lambda t: t["spearman"]) for pick in (min, max))
    return [
        (
            f"predicted times against measured ones, Spearman on {sum(t['points'] for t in tables.values())} points of {len(tables)} tables, the least and the greatest",
            " to ".join(f"{t['spearman']:.3f} [{t['interval'][0]:.3f}, {t['interval'][1]:.3f}]" for t in (worst, best)),
            "predicted without a GPU, measured sustained",
            "the tables' versions",
            "`python benchmarks/prediction_on_tables.py`",
        )
    ]


def _kernelbench() -> list[tuple[str, ...]]:
    data = kernelbench_data()
    if data is None:
        return []
    device, versions = data["strict"]["device"], data["strict"]["environment"]["versions"]
    return [
        (
            f"candidates a minute, each with at least five checks and an interval of +-2%, over KernelBench's evaluator ({HOPED} hoped for)",
            f"{accepted_pace(data):.1f}",
            "an interval of its own for each, under load",
            f"{device['name']}, {data['date']}; torch {versions['torch']}, triton {versions['triton']}, KernelBench {data['commit'][:7]}",
            "`python benchmarks/kernelbench_compare.py`",
        )
    ]
