"""What each knob was worth on the recorded grids: writes docs/results/knobs.md.

    python benchmarks/knob_effects.py

For every value of a knob: the fastest point that has it, as a share of the grid's fastest, and the median of the ratio
of speeds over all pairs of points that differ in this knob alone, against the value that stands first. Only timed
points count. Needs no GPU.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from evaluators.recorded import Table, read_table

ROOT = Path(__file__).resolve().parents[1]
WORDS = ("warps", "load", "split", "exponent")

HEAD = """# What each knob was worth, measured

Written by `python benchmarks/knob_effects.py` from `benchmarks/data/tables/`; do not edit. Plain Triton kernels (no \
`roles`) on one NVIDIA H200, {date}, torch {torch}, triton {triton}; sustained regime, mostly one segment a point, so \
that a few percent are noise ([how the grids were recorded](evidence.md#recorded-tables)).

*Best*: the fastest timed point that has the value, as a share of the grid's fastest: what it costs to insist on it. \
*Pairs*: the median of the speed against the first value, over all pairs of points that differ in this knob alone \
(their number): what it does to a schedule that nobody has tuned. The two differ, as knobs only count together.
"""


def effects(table: Table) -> list[str]:
    times = {s: r.seconds for s, r in table.rows.items() if r.seconds is not None}
    fastest = min(times.values())
    best = dict(zip(table.knobs, table.best, strict=True))
    shown = ", ".join(f"{k} {v}" if k in WORDS else f"{k}={v}" for k, v in best.items())
    lines = [f"## {table.name}", "", f"Fastest of {len(times)} timed points: {shown}.", ""]
    lines += ["| knob | value | best | pairs |", "|---|---|---:|---:|"]
    for i, (knob, values) in enumerate(table.knobs.items()):
        for value in values:
            have = [t for s, t in times.items() if s[i] == value]
            share = f"{fastest / min(have):.2f}" if have else "not timed"
            pairs = [
                times[(*s[:i], values[0], *s[i + 1 :])] / t
                for s, t in times.items()
                if s[i] == value and (*s[:i], values[0], *s[i + 1 :]) in times
            ]
            told = "1" if value == values[0] else f"{statistics.median(pairs):.2f} ({len(pairs)})" if pairs else "-"
            lines.append(f"| {knob if value == values[0] else ''} | `{value}` | {share} | {told} |")
    return [*lines, ""]


def page(tables: list[Table]) -> str:
    head = tables[0].head
    said = HEAD.format(date=head["date"], torch=head["versions"]["torch"], triton=head["versions"]["triton"])
    return "\n".join([said, *itertools.chain.from_iterable(map(effects, tables))]).rstrip() + "\n"


def main() -> None:
    tables = [read_table(p) for p in sorted((ROOT / "benchmarks" / "data" / "tables").glob("*.json"))]
    (ROOT / "docs" / "results" / "knobs.md").write_text(page(tables), encoding="utf-8")


if __name__ == "__main__":
    main()
