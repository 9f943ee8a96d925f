"""A benchmark as people read it: a table for the terminal, a page of Markdown, and whether it is good enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsl.wording import counted

if TYPE_CHECKING:
    from evaluators.benchmark_result import Benchmark, Interval, Outcome, Row

BEST = "best of each workload"


def conditions(found: Benchmark) -> str:
    """Under what the figures were taken, as it stands beside each of them."""
    device, r = found.device, found.regime
    told = [name for name in ("torch", "triton", "cudnn", "rocm", "driver") if name in found.versions]
    versions = ", ".join(f"{name} {found.versions[name]}" for name in told)
    return (
        f"{device['name']}, {found.date[:10]}; {versions}; {r.name} regime: {r.untimed_s * 1e3:g} ms untimed and "
        f"{r.timed_s * 1e3:g} ms timed a segment, arms in turns, {counted(found.rounds, 'round')}, cold L2, "
        f"{launched(found)}"
    )


def launched(found: Benchmark) -> str:
    """Whether calls came from CUDA graphs, which all arms of a size do or none."""
    rows = [row for row in found.rows if row.measurement is not None]
    short = [row for row in rows if row.measurement and row.measurement.graphs]
    if not short:
        return "calls launched one by one"
    return "calls launched from graphs" + ("" if short == rows else f" at {counted(len(short), 'size')} of {len(rows)}")


def sustained(found: Benchmark) -> str:
    """What the card itself reached in this run."""
    ceilings = found.ceilings
    products = ", ".join(f"{f / 1e12:.0f} TFLOP/s {dtype}" for dtype, f in ceilings["flops"].items())
    copied = f"{ceilings['bytes_per_s'] / 1e12:.2f} TB/s copied"
    return f"sustained by this card in this run: {products + ', ' if products else ''}{copied}"


def summary(found: Benchmark, against: str | None = None) -> list[tuple[str, str, str, str, str, str]]:
    """A row an arm: name, where it ran, mean rate, speed over the best baseline, of the floor, of the ceiling."""
    rows = []
    for arm in found.arms:
        good = [(row, o) for row in found.rows if (o := row.outcome(arm.name)) and o.seconds and not o.reason]
        if good:
            rows.append((arm.name, *_means(found, good, found.speed(arm.name, against))))
        else:
            rows.append((arm.name, f"0/{len(found.rows)}", "-", "-", "-", "-"))
    programs = [a for a in found.arms if a.kind == "program"]
    best = found.best_programs()
    if len(programs) > 1 and best:
        rows.append((BEST, *_means(found, best, found.dispatched(against))))
    return rows


def _means(
    found: Benchmark, good: Sequence[tuple[Row, Outcome]], speed: Interval | None
) -> tuple[str, str, str, str, str]:
    rate = _geometric([o.rate for _, o in good])
    floor = _geometric([o.of_floor for _, o in good])
    ceiling = _geometric([o.of_ceiling for _, o in good])
    return (
        f"{len(good)}/{len(found.rows)}",
        "-" if rate is None else f"{rate:.4g}",
        interval(speed),
        "-" if floor is None else f"{floor:.3f}",
        "-" if ceiling is None else f"{ceiling:.3f}",
    )


def interval(found: Interval | None) -> str:
    """`1.023 [1.019, 1.027]`"""
    return "-" if found is None else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def trouble(found: Benchmark) -> list[str]:
    """What could not run, was wrong, or cannot be believed, each with where."""
    said: dict[str, list[str]] = {}
    for row in found.rows:
        for what in (row.trouble, row.measurement and row.measurement.launch_bound):
            if what:
                said.setdefault(what, []).append(row.workload)
        for o in row.outcomes:
            if o.reason:
                said.setdefault(f"{o.arm}: {o.reason}", []).append(row.workload)
    every = len(found.rows)
    return [
        f"{what} ({'everywhere' if len(where) == every and every > 1 else '; '.join(where)})"
        for what, where in said.items()
    ]


def markdown(found: Benchmark, against: str | None = None) -> str:
    """The whole benchmark as Markdown."""
    lines = [
        f"### {found.target} on {found.hardware}, measured",
        "",
        conditions(found) + ".",
        sustained(found) + ".",
        "",
    ]
    lines += [f"> {w}" for w in found.warnings] + ([""] if found.warnings else [])
    names = [a.name for a in found.arms]
    lines += ["| workload | " + " | ".join(names) + " | unit | best baseline | speed of the best program over it |"]
    lines += ["|---|" + "---:|" * len(names) + "---|---|---|"]
    for row in found.rows:
        cells = []
        for name in names:
            o = row.outcome(name)
            cells.append("-" if o is None or o.rate is None else f"{o.rate:.4g}" + ("*" if o.reason else ""))
        best = next((o for r, o in found.best_programs() if r is row), None)
        speed = interval(best.speed) if best is not None else "-"
        told = f"{speed} ({best.arm})" if best is not None and speed != "-" else speed
        lines.append(
            f"| {row.workload} | " + " | ".join(cells) + f" | {found.unit} | {row.best_baseline or '-'} | {told} |"
        )
    over = against or "best baseline"
    lines += ["", f"| arm | ran | {found.unit} | speed over {over} | of the floor | of the ceiling |"]
    lines += ["|---|---|---:|---|---:|---:|"]
    lines += ["| " + " | ".join(row) + " |" for row in summary(found, against)]
    lines += ["", "Geometric means over the workloads where an arm ran; speeds with 95% intervals, above 1 is faster."]
    if failed := trouble(found):
        lines += ["", "What did not work:", "", *[f"- {one}" for one in failed]]
    return "\n".join(lines) + "\n"


def _geometric(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v]
    return math.exp(sum(map(math.log, known)) / len(known)) if known and len(known) == len(values) else None
