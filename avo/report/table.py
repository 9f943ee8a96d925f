"""The report in a terminal: plain aligned text that is legible at 80 columns.

What a model or a program wrote reaches the terminal without its control characters.
"""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from avo.report.model import KINDS, Candidate, Kind, ReportModel
from dsl.wording import counted

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def render_table(model: ReportModel, width: int = 80, limit: int = 20) -> str:
    """Headline, workloads, what won, what failed, and the best `limit` candidates, as text without colours."""
    sheet = io.StringIO()
    out = Console(file=sheet, width=max(60, width), color_system=None, highlight=False, markup=False, emoji=False)
    _headline(out, model)
    for kind in KINDS:
        _workloads(out, model, kind)
    _commits(out, model, max(limit, 2))
    _decisions(out, model, limit)
    _candidates(out, model, limit)
    return "\n".join(line.rstrip() for line in sheet.getvalue().strip("\n").split("\n"))


def _text(line: str) -> Text:
    """A line or a cell: names, states and times too are words of whoever wrote the archive."""
    return Text(_CONTROL.sub(lambda m: f"<U+{ord(m[0]):04X}>", line))


def _grid(*columns: str | tuple[str, dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="none")
    for column in columns:
        name, options = column if isinstance(column, tuple) else (column, {})
        table.add_column(name, **options)
    return table


_RIGHT: dict[str, Any] = {"justify": "right", "no_wrap": True}
_KEEP: dict[str, Any] = {"no_wrap": True}


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _headline(out: Console, model: ReportModel) -> None:
    run = model.run
    state = f"{run.state} ({run.ended})" if run.ended and run.ended != run.state else run.state
    facts = [f"run {run.id}", state, f"agent {run.agent}" if run.agent else "", run.created]
    out.print(_text(f"{model.target.name} on {model.chip.name}: " + ", ".join(f for f in facts if f)))
    why = f" ({model.mode_reason})" if model.mode_reason else ""
    if model.mode == "predicted":
        out.print(_text(f"Times are predicted from the machine code{why}."))
    elif model.mode == "none":
        out.print(_text(f"No time is claimed{why}."))
    else:
        out.print(_text(f"Times are measured on the chip{why}; predicted ones stand apart."))
    base = model.by_k(model.baseline)
    for kind in KINDS:
        best = model.best(kind)
        value = getattr(best.score, kind) if best is not None else None
        if best is None or value is None:
            continue
        line = f"best, {kind}: {value:.4g} {model.target.unit} by {best.id} (proposal {best.k})"
        first = getattr(base.score, kind) if base is not None else None
        if first:
            line += f"; {value / first:.2f}x the seed"
        if model.speed_of_light:
            line += f"; {100 * value / model.speed_of_light:.1f}% of the speed of light"
        out.print(_text(line))
    for judged in model.candidates:
        if judged.promotion:
            out.print(_text(f"{judged.id} (proposal {judged.k}) " + str(judged.promotion["headline"])))
    counts = model.outcomes()
    good = ("committed", "passed", "repeat", "pending")
    passed = counts.get("committed", 0) + counts.get("passed", 0)
    parts = [f"{counted(model.total, 'candidate')}: {passed} passed every gate, {counts.get('committed', 0)} committed"]
    words = {"repeat": "repeated", "pending": "pending"}
    parts += [f"{counts[name]} {word}" for name, word in words.items() if name in counts]
    out.print(_text(", ".join(parts)))
    fails = [f"{name} {n}" for name, n in counts.items() if name not in good]
    if fails:
        out.print(_text("failed at: " + ", ".join(fails)))


def _workloads(out: Console, model: ReportModel, kind: Kind) -> None:
    best, base = model.best(kind), model.by_k(model.baseline)
    if best is None:
        return
    before = {w.workload: getattr(w, f"{kind}_s") for w in base.workloads} if base is not None else {}
    labels = {w.name: w.label for w in model.workloads}
    table = _grid("workload", ("rate", _RIGHT), ("time", _RIGHT), ("x seed", _RIGHT), ("light", _RIGHT), "limited by")
    for w in best.workloads:
        seconds = getattr(w, f"{kind}_s")
        if not seconds:
            continue
        first = before.get(w.workload)
        table.add_row(
            _text(labels.get(w.workload, w.workload)),
            f"{w.work * (1e-12 if model.target.unit == 'TFLOP/s' else 1e-9) / seconds:.4g}",
            _time(seconds),
            _ratio(first / seconds if first else None),
            f"{100 * w.floor_s / seconds:.1f}%",
            _text(w.limiter or "-"),
        )
    out.print()
    shared = f"; all with {model.shared}" if model.shared else ""
    out.print(
        _text(f"Best per workload, {kind}, rate in {model.target.unit}{shared}; light: share of the speed of light")
    )
    out.print(table)


def _commits(out: Console, model: ReportModel, limit: int) -> None:
    line = [c for c in model.commits if c.line]
    if not line:
        return
    table = _grid(("no.", _RIGHT), ("id", _KEEP), ("score", _RIGHT), ("gain", _RIGHT), ("x seed", _RIGHT), "change")
    ids = {c.k: c.id for c in model.candidates}
    shown = line if len(line) <= limit else [line[0], *line[1 - limit :]]
    for c in shown:
        table.add_row(
            str(c.k),
            _text(ids[c.k]),
            f"{c.score:.4g}",
            "-" if c.gain is None else f"{100 * (c.gain - 1):+.1f}%",
            _ratio(c.over_seed),
            _text(c.change or ("seed program" if c.gain is None else "-")),
        )
    out.print()
    out.print(_text(f"What won, score {line[0].kind} in {model.target.unit}"))
    out.print(table)
    if len(shown) < len(line):
        rest = len(line) - len(shown)
        out.print(_text(f"and {rest} more between the seed and these: `avo tree {model.run.id} --committed`"))


def _decisions(out: Console, model: ReportModel, limit: int) -> None:
    """Those that differ in one decision alone; the page has the others too."""
    shown = [d for d in model.decisions if not d.others][:limit]
    if not shown:
        return
    table = _grid(("of the best", _RIGHT), ("no.", _RIGHT), "instead of what the best has")
    for d in shown:
        table.add_row(f"{100 * (d.ratio - 1):+.1f}%", str(d.k), _text(d.instead))
    out.print()
    out.print(_text(f"What each decision is worth, {model.kind}: candidates that differ in it alone"))
    out.print(table)


def _candidates(out: Console, model: ReportModel, limit: int) -> None:
    kind = model.kind

    def order(c: Candidate) -> tuple[bool, float, int]:
        value = getattr(c.score, kind) if c.outcome in ("committed", "passed") else None
        return (not value, -(value or 0.0), c.k)

    shown = sorted(model.candidates, key=order)[:limit]
    if not shown:
        return
    table = _grid(
        ("no.", _RIGHT),
        ("id", _KEEP),
        ("outcome", _KEEP),
        ("score", _RIGHT),
        ("light", _RIGHT),
        ("from", _RIGHT),
        "change",
    )
    for c in shown:
        value = getattr(c.score, kind) if c.outcome in ("committed", "passed") else None
        light = model.speed_of_light
        table.add_row(
            str(c.k),
            _text(c.id),
            _text(c.outcome if c.outcome in ("committed", "passed", "repeat", "pending") else str(c.status)),
            "-" if not value else f"{value:.4g}",
            "-" if not value or not light else f"{100 * value / light:.1f}%",
            ",".join(map(str, c.parents)) or "-",
            _text(c.change if c.outcome in ("committed", "passed") else c.message.split("\n")[0] or c.change),
        )
    out.print()
    rest = model.total - len(shown)
    timed = model.mode != "none"
    out.print(_text(f"Candidates, best first, score {kind} in {model.target.unit}" if timed else "Candidates, untimed"))
    out.print(table)
    if rest > 0:
        out.print(
            _text(f"and {rest} more: `avo report {model.run.id} --json`, `avo log`, `avo show {model.run.id}/NO`")
        )
