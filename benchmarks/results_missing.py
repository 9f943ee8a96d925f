"""What did not work, for the results page: rows that failed, flaws of a measurement, goals that were missed."""

from __future__ import annotations

import math
from typing import Any

from results_tables import GOALS, SEARCHED, named, over_plain, reached

from avo.benchmark_page import interval
from evaluators.benchmark_result import Benchmark


def missing(items: list[dict[str, Any]]) -> list[str]:
    from avo.benchmark_page import trouble

    said = []
    for item in items:
        found = Benchmark.model_validate(item["benchmark"])
        said += [f"{named(item)}: {one}" for one in trouble(found)]
        rested = [r.workload for r in found.rows if _rested(r)]
        if rested:
            said.append(
                f"{named(item)}: before {len(rested)} of {len(found.rows)} workloads the card had rested (it drew less "
                "than half of what it drew then), so that the first rounds ran at other clocks than the last; ratios "
                "are paired within rounds"
            )
        said += cut_short(item, found)
        said += _neighbours(item, found)
        said += _no_limit(item, found)
    for goal in GOALS:
        said += _of_goals(items, *goal)
    said += _never(items)
    return said or ["Nothing that was tried."]


def cut_short(item: dict[str, Any], found: Benchmark) -> list[str]:
    """Sizes that a search's table lacks."""
    from evaluators.targets import target

    if item.get("part") != SEARCHED:
        return []
    job = target(found.target)
    whole = job.workloads if item["set"] == "public" else job.chosen(item["set"]).workloads
    left = [w.name for w in whole if w.name not in {r.workload for r in found.rows}]
    return [f"{named(item)}: the card's time ended before {', '.join(left)}"] if left else []


def _never(items: list[dict[str, Any]]) -> list[str]:
    """Targets, sets and libraries that no table has."""
    from evaluators import baselines
    from evaluators.targets import BUILTIN, target

    have = {(i["benchmark"]["target"], i["set"]) for i in items}
    sets = [f"{n} ({s})" for n in BUILTIN for s in ("public", *target(n).sets) if (n, s) not in have and s != "squares"]
    seen = {(i["benchmark"]["target"], a["name"]) for i in items for a in i["benchmark"]["arms"]}
    arms = [
        f"{b.name} ({n})"
        for n in dict.fromkeys(t for t, _ in sorted(have))
        for b in baselines.of(n)
        if (n, b.name) not in seen
    ]
    said = [f"Not measured at all: {', '.join(sets)}"] if sets else []
    return said + ([f"Libraries that were not run beside a target that was: {', '.join(arms)}"] if arms else [])


def _neighbours(item: dict[str, Any], found: Benchmark) -> list[str]:
    """Where all rounds had one order, each arm had one neighbour on the way there and another on the way back."""
    worst = (0.0, "")
    for row in found.rows:
        if row.measurement is None or len(row.measurement.names) < 3:
            continue
        count = 2 * len(row.measurement.names)
        rounds = [row.measurement.samples[i : i + count] for i in range(0, len(row.measurement.samples), count)]
        if len({tuple(s.arm for s in one) for one in rounds}) > 1:
            return []
        for place, name in enumerate(row.measurement.names):
            ways: tuple[list[float], list[float]] = ([], [])
            for one in rounds:
                pair = [s.seconds for s in one if s.arm == place]
                ways[0].append(math.log(pair[0]))
                ways[1].append(math.log(pair[1]))
            apart = abs(sum(ways[0]) - sum(ways[1])) / len(rounds)
            worst = max(worst, (apart, name))
    if worst[0] < 0.03:
        return []
    return [
        f"{named(item)}: all rounds had one order, and who ran before an arm is part of its time (after one that draws "
        f"little power it runs faster): up to {math.expm1(worst[0]):.1%} between its two turns ({worst[1]}). Later "
        "versions change the order from round to round"
    ]


def _of_goals(items: list[dict[str, Any]], target: str, chosen: str) -> list[str]:
    same = [i for i in items if i["benchmark"]["target"] == target and i["set"] == chosen and not i.get("part")]
    goals = GOALS[target, chosen]
    if not same:
        return [f"{target} ({chosen}): not measured; {words} was hoped for" for _, _, words in goals]
    found = Benchmark.model_validate(same[0]["benchmark"])
    worst, where = min(((o.speed.value, r.workload) for r, o in found.best_programs() if o.speed), default=(0.0, ""))
    said = []
    for over, ratio, words in goals:
        got = reached(found, over)
        if over == "plain" and got is not None:
            plain = over_plain(found, roles=False)
            if plain is not None and plain.value < ratio:
                said.append(
                    f"{target} ({chosen}): the schedules without roles, which lower to plain Triton, are at "
                    f"{interval(plain)} of the plain kernel's best setting, where {words} was hoped for; with roles "
                    f"{interval(over_plain(found))}"
                )
        if got is None:
            one = interval(found.dispatched("plain Triton"))
            said.append(
                f"{target} ({chosen}): whether plain schedules reach {words} is not decided. The plain kernel ran at "
                f"one setting a kind there (lazy where not causal), over which the best programs are at {one}; on "
                "grouped heads, where both of its settings were measured, they miss it (table above). Schedules with "
                "roles reach it where both were measured (below them), on five of the eight sizes"
            )
        elif got < ratio:
            more = f"; worst over the best baseline {worst:.3f} at {where}" if over == "best" else ""
            said.append(f"{target} ({chosen}): {got:.3f} where {words} was hoped for{more}")
    return said


def _no_limit(item: dict[str, Any], found: Benchmark) -> list[str]:
    """Where a program moves more bytes a second than the copy beside it, the copy was none of the limits."""
    where = []
    for row, best in found.best_programs():
        copy = row.outcome("copy")
        if copy is not None and copy.seconds and best.seconds and copy.seconds > 1.05 * best.seconds:
            where.append(f"{row.workload} ({copy.seconds / best.seconds:.2f}x)")
    if not where:
        return []
    if any(a.name == "copy" and "faster of" in a.about for a in found.arms):
        return [
            f"{named(item)}: faster than a copy of the same bytes (half read, half written; a memcpy or a "
            f"kernel), and so no limit there: {', '.join(where)}"
        ]
    return [
        f"{named(item)}: faster than the copy of the same bytes, which was a memcpy and slow at such sizes, and so no "
        f"limit there: {', '.join(where)}. Later versions take the faster of a memcpy and a kernel"
    ]


def _rested(row: Any) -> bool:
    if row.measurement is None or row.measurement.before.watts is None:
        return False
    drew = [s.watts for s in row.measurement.samples if s.watts is not None]
    return bool(drew) and row.measurement.before.watts < 0.5 * sum(drew) / len(drew)
