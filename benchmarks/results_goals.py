"""The goals of the results page: of each what `avo evolve` found and what schedules set by hand reached, and whether it
stands."""

from __future__ import annotations

from typing import Any

from results_missing import cut_short
from results_tables import GOALS, SEARCHED, named, standing

from evaluators.benchmark_result import Benchmark

COLUMNS = (SEARCHED, None)  # the parts of tables that count: all sizes of a set, or what a search found for them


def goals(items: list[dict[str, Any]]) -> list[str]:
    lines = [
        "A goal stands where programs that `avo evolve` found from the naive seed reach it at all sizes of the set; "
        "where none were measured, or they miss it, schedules set by hand do not make it stand, but are told beside. "
        "Of a copy: over the faster of a memcpy and a kernel that moves as many bytes, in the same rounds.",
        "",
        "| target | sizes | goal | found by `avo evolve` | set by hand | stands |",
        "|---|---|---|---|---|---|",
    ]
    for (target, chosen), wanted in GOALS.items():
        for over, ratio, words in wanted:
            told = [_told(_table(items, target, chosen, part), over, ratio) for part in COLUMNS]
            cells = (target, chosen, words, *(cell for cell, _ in told), _stands(*(verdict for _, verdict in told)))
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def verdicts(item: dict[str, Any], found: Benchmark, wanted: tuple[tuple[str, float, str], ...]) -> list[str]:
    """Of one table, a verdict a goal."""
    if cut_short(item, found):
        return ["not decided"] * len(wanted)
    return [standing(found, over, ratio)[1] for over, ratio, _ in wanted]


def _table(items: list[dict[str, Any]], target: str, chosen: str, part: str | None) -> dict[str, Any] | None:
    same = (i for i in items if i["benchmark"]["target"] == target and i["set"] == chosen)
    return next((i for i in same if (i.get("part") or None) == part), None)


def _told(item: dict[str, Any] | None, over: str, ratio: float) -> tuple[str, str]:
    """The cell of a table, and its verdict."""
    if item is None:
        return "-", "not measured"
    found = Benchmark.model_validate(item["benchmark"])
    if cut_short(item, found):
        return f"not all sizes ({named(item)})", "not decided"
    figure, verdict = standing(found, over, ratio)
    return f"{figure}: {verdict} ({named(item)})", verdict


def _stands(found: str, by_hand: str) -> str:
    if found.startswith("reached"):
        return f"**yes**{found.removeprefix('reached')}"
    if by_hand.startswith("reached"):
        return f"by hand alone{by_hand.removeprefix('reached')}; by search {found}"
    if "missed" in (found, by_hand):
        return "**no**"
    return found if found == by_hand else "not decided"
