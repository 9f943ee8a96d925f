"""The results page and the champions, from stored data alone.

    python benchmarks/results_page.py                      writes docs/results/h200.md and configs/champions/h200/
    python benchmarks/results_page.py take RESULTS.json... takes tables of benchmarks/champions.py up into the data,
                                                           with what avo predicts for each of their points, or a table
                                                           of `avo bench` for the program that `avo evolve` found
    python benchmarks/results_page.py predict              predictions for tables that were taken up --unpredicted

Data: benchmarks/data/bench/CHIP/ (tables of `avo bench`, raw samples included) and benchmarks/data/runs/ (measured
runs). A table that was measured twice under the same name is kept as the newer one.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prediction_on_run import figures
from published import published
from results_champions import champions, rates, sweeps
from results_goals import goals, verdicts
from results_missing import missing
from results_tables import (
    DATA,
    GOALS,
    ROOT,
    SEARCHED,
    named,
    over_copy,
    over_plain,
    predict_missing,
    reached,
    tables,
    take,
)

from avo.benchmark_page import conditions, interval, markdown, sustained
from dsl.hardware import hardware
from evaluators.benchmark_result import Benchmark, Interval

RUNS = ROOT / "benchmarks" / "data" / "runs"


def page(chip: str, items: list[dict[str, Any]], kept: list[tuple[str, list[str]]]) -> str:
    title = hardware(chip).title
    first = Benchmark.model_validate(items[0]["benchmark"])
    intro = (
        "Written by `python benchmarks/results_page.py` from `benchmarks/data/`; do not edit. Every ratio is of one "
        "run, in one regime, arms in turns, with its 95% interval; above 1 is faster. Programs are the schedules of "
        f"`configs/candidates/{chip}.toml`, written by hand from what is known to be good on the chip, but for sizes "
        "marked *search*: `avo evolve` found these programs from the naive seed (the runs are below). Those that were "
        f"the best somewhere are in `configs/champions/{chip}/`. They were chosen on the samples that are shown, which "
        "flatters a little, and an interval of so few rounds is narrower than the truth."
    )
    heads = [
        *("target", "sizes", "best programs over the best baseline", "over the plain kernel"),
        *("of a copy", "of what the card sustains", "hoped for", ""),
    ]
    lines = [
        *(f"# Results on one {title}, measured", "", intro, ""),
        *(f"First table: {conditions(first)}. {_capital(sustained(first))}.", ""),
        *("| " + " | ".join(heads) + " |", "|---|---|---|---|---|---:|---|---|"),
    ]
    for item in items:
        found = Benchmark.model_validate(item["benchmark"])
        lines.append(_summary(item, found))
    lines += [
        "",
        "Sizes: the target's public ones or one of its sets (`avo targets NAME`).",
        "",
    ]
    lines += ["## Goals, and which stand", "", *goals(items), ""]
    lines += sweeps(chip)
    lines += published(
        ROOT / "benchmarks" / "data" / "published_attention.json", rates(chip), hardware(chip).name.upper()
    )
    lines += ["## What did not work", "", *[f"- {one}" for one in missing(items)], ""]
    notes = DATA / chip / "notes.md"
    if notes.exists():
        lines += ["## Misses, and why", "", notes.read_text(encoding="utf-8").strip(), ""]
    lines += ["## Prediction", "", *predicted(items), "", *predicted_in_runs(), ""]
    if told := runs():
        lines += ["## Runs of the heuristic from the naive seed", "", *told, ""]
    if told := profiles(chip):
        lines += ["## Profiles", "", "By `avo profile`.", "", *told, ""]
    lines += ["## Champions", "", "| table | programs (sizes where each is the best) |", "|---|---|"]
    lines += [f"| {stem} | {', '.join(listed)} |" for stem, listed in kept]
    table = "--bench benchmarks/data/bench/h200/matmul_public.json"
    listed = next((listed for stem, listed in kept if stem == "matmul_public"), [])
    files = " ".join(f"configs/champions/h200/{one.partition(' ')[0]}" for one in listed)
    example = f"avo export {files} {table} -o matmul_h200"
    lines += ["", "Each has its measurements beside it as JSON. To ship them:", "", "```", example, "```", ""]
    lines += ["## Tables", ""]
    for item in items:
        found = Benchmark.model_validate(item["benchmark"])
        lines += [markdown(found).replace("### ", f"### {item['set']}: ", 1)]
    return "\n".join(lines).rstrip() + "\n"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _summary(item: dict[str, Any], found: Benchmark) -> str:
    wanted = GOALS.get((found.target, item["set"]), ()) if item.get("part") in (None, "", SEARCHED) else ()
    if item.get("part") == SEARCHED and found.target == "attention":
        ratio = {"public": "1.08", "d256": "1.0"}.get(item["set"])
        wanted = ((("best", float(ratio), f"{ratio}x cuDNN"),) if ratio else ()) + wanted
    ceiling = reached(found, "ceiling")
    sizes = item["set"] + (f", {item['part']}" if item.get("part") else "")
    cells = (
        *(found.target, f"{sizes} ({len(found.rows)})", interval(found.dispatched()), interval(over_plain(found))),
        interval(over_copy(found)),
        "-" if ceiling is None else f"{ceiling:.3f}",
        *("; ".join(words for _, _, words in wanted), "; ".join(verdicts(item, found, wanted))),
    )
    return "| " + " | ".join(cells) + " |"


def predicted(items: list[dict[str, Any]]) -> list[str]:
    """Rank correlation and regret of the first choice, on every point that was measured."""
    heads = [
        *("table", "points", "Spearman", "regret of the first choice, mean", "worst"),
        "predicted / measured, geometric mean",
    ]
    lines = [
        "What avo predicts for every program and size above, with the compiler named below, held against the measured "
        "times: the rank correlation over all points of a table, and how much slower than the best program the one is "
        "that the prediction would choose (mean and worst over the sizes).",
        *("", "| " + " | ".join(heads) + " |", "|---|---:|---:|---:|---:|---:|"),
    ]
    versions = set()
    pooled: list[tuple[float, float]] = []
    for item in items:
        found = Benchmark.model_validate(item["benchmark"])
        told = item.get("predicted", {}).get("seconds", {})
        if "predicted" in item:
            versions.add(item["predicted"]["triton"])
        points, regrets = [], []
        for row in found.rows:
            here = [
                (told[o.arm][row.workload], o.seconds)
                for o in row.outcomes
                if o.seconds and not o.reason and row.workload in told.get(o.arm, {})
            ]
            points += [(p / row.floor_s, m / row.floor_s) for p, m in here]
            if len(here) > 1:
                regrets.append(min(here)[1] / min(m for _, m in here) - 1)
        if len(points) < 3:
            continue
        pooled += points
        ratio = math.exp(sum(math.log(p / m) for p, m in points) / len(points))
        mean = f"{sum(regrets) / len(regrets):.1%}" if regrets else "-"
        worst = f"{max(regrets):.1%}" if regrets else "-"
        cells = (named(item), len(points), f"{spearman(points):.3f}", mean, worst, f"{ratio:.2f}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if pooled:
        lines.append(f"| all | {len(pooled)} | {spearman(pooled):.3f} | | | |")
    lines += [
        "",
        "Times are taken over the speed of light of their size, so that large sizes do not make the correlation.",
    ]
    told = ", ".join(sorted(versions))
    lines.append(f"Predicted from machine code of Triton {told}; measured with the version that each table names.")
    return lines


def predicted_in_runs() -> list[str]:
    """The same on the candidates of the measured runs, whose search had chosen them by these predictions."""
    lines = [
        "The candidates of the measured runs below, by `python benchmarks/prediction_on_run.py`. The search proposed "
        "them with this prediction in its hands, so most are near the best.",
        "",
        "| run | sizes | points | Spearman, mean | least | regret of the first choice, mean | worst |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for path in sorted(RUNS.glob("h200_*.json")):
        found = figures(json.loads(path.read_text(encoding="utf-8")))
        if not found:
            continue
        ranked, regrets = [s for _, _, s, _ in found], [r for _, _, _, r in found]
        lines.append(
            f"| {path.stem} | {len(found)} | {sum(n for _, n, _, _ in found)} | {sum(ranked) / len(ranked):.3f} | "
            f"{min(ranked):.3f} | {sum(regrets) / len(regrets):.1%} | {max(regrets):.1%} |"
        )
    return lines


def spearman(points: list[tuple[float, float]]) -> float:
    a, b = (np.array(x) for x in zip(*points, strict=True))
    ranks = [np.argsort(np.argsort(x)) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def runs() -> list[str]:
    """What is kept of measured runs of `avo evolve`."""
    lines = []
    for path in sorted(RUNS.glob("h200_*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        good = [r for r in data["rows"] if r["status"] == "ok" and all(r["measured_s"])]
        if not good:
            continue
        best = min(good, key=lambda r: sum(map(math.log, r["measured_s"])))
        pairs = zip(good[0]["measured_s"], best["measured_s"], strict=True)
        gain = math.exp(sum(math.log(a / b) for a, b in pairs) / len(best["measured_s"]))
        changed = f"`{'; '.join(best['algorithm'][1:])}` with " if "algorithm" in best else ""
        lines.append(
            f"- {path.stem} ({data['date']}, Triton {data['versions'].get('triton', '?')}): `{data['command']}`, "
            f"{len(data['rows'])} candidates, {len(good)} timed at every size; the best is {gain:.2f}x the seed "
            f"(candidate {best['k']}: {changed}`{'; '.join(line for line in best['schedule'] if line)}`)"
            f"{_paced(data.get('pace'))}{_again(data.get('promotion'))}"
        )
    return lines


def _paced(pace: dict[str, Any] | None) -> str:
    if not pace:
        return ""
    printed = f" (it printed {pace['printed']}, its promotion counted as time)" if "printed" in pace else ""
    return f"; {pace['a_minute']:.0f} candidates a minute, the device {pace['busy_share']:.0%} busy{printed}"


def _again(promotion: dict[str, Any] | None) -> str:
    """Of the winner, judged again beside the seed; where a short call was launched by the host, that is said."""
    if not promotion:
        return ""
    hidden = sum(r["hidden"] for r in promotion["rows"])
    gain = interval(Interval(**promotion["speedup"]))
    said = f"; promoted at {gain} of the seed's speed, right at {hidden} hidden sizes"
    rows = {r["workload"]: r for r in promotion["rows"]}
    late = ", ".join(f"{name} ({rows[name]['seconds'] * 1e6:.3g} us)" for name in promotion["host"])
    return f"{said} (launched by the host, for the seed takes longer, and so launch-bound: {late})" if late else said


def profiles(chip: str) -> list[str]:
    """A line a stored profile of a champion."""
    from evaluators.profiling import Profile

    lines = []
    for path in sorted((DATA / chip / "profiles").glob("*.json")):
        found = Profile.model_validate_json(path.read_text(encoding="utf-8"))
        lines.append(
            f"- {path.stem}, {found.workload}: **{found.bottleneck}**, by {found.tool} ({found.date[:10]}): {found.why}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=["take", "predict"])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--hw", default="h200")
    parser.add_argument("--cache", type=Path, help="a folder of machine code that is compiled already")
    parser.add_argument("--unpredicted", action="store_true", help="with take: predictions are for later")
    flags = parser.parse_args()
    if flags.verb == "take":
        take(flags.paths, flags.cache, not flags.unpredicted)
    if flags.verb == "predict":
        predict_missing(flags.hw, flags.cache)
    items = tables(flags.hw)
    kept = champions(items, ROOT / "configs" / "champions" / flags.hw, flags.hw)
    place = ROOT / "docs" / "results" / f"{flags.hw}.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(page(flags.hw, items, kept), encoding="utf-8")
    print(f"{place.relative_to(ROOT)}: {len(items)} tables, {sum(len(x) for _, x in kept)} champions")


if __name__ == "__main__":
    main()
