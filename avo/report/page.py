"""The HTML page: one file, no requests, nothing that a model or a program wrote is ever markup.

The data stands in the file as JSON in a script element of a type that no browser runs, with every character that could
end the element escaped; the page's script builds all text by `textContent`. A content security policy by hashes allows
this script and this style alone, so that even a mistake there could neither run nor fetch anything.

Texts are stored as indexes into one table of distinct lines and evidence as indexes into one table of distinct values:
a lineage's programs differ in a line or two, so 2,000 candidates with their Triton take a few megabytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections import Counter
from importlib import resources
from typing import Any

from avo.report.keeping import FULL, best, telling, told
from avo.report.model import KINDS, Candidate, ReportModel, finite

LIMIT = 25_000_000  # bytes of the file

SCRIPTS = (
    "data.js",
    "charts.js",
    "overview.js",
    "findings.js",
    "tree.js",
    "text.js",
    "evidence.js",
    "panel.js",
    "start.js",
)


def render_html(model: ReportModel, full: int = FULL, limit: int = LIMIT, *, live: str | None = None) -> str:
    """The page as text. Keeps all candidates up to `full`; beyond, or above `limit` bytes, the most telling ones.

    live: the version of what it shows, for a page that a server keeps current; it may ask that server and no other.
    """
    keep = full
    while True:
        page = _page(model, _payload(model, keep), live)
        # A lower bound ends the loop: commits, ancestors and flagged candidates stay in, whatever they weigh.
        if len(page) <= limit or keep <= 1:
            return page
        keep //= 2


def candidate_json(model: ReportModel, k: int) -> str | None:
    """One candidate as the page's data has it, with tables of its own; None where the model does not have it."""
    found = model.by_k(k)
    if found is None:
        return None
    tables = _Tables()
    row = _row(found, {c.k for c in model.candidates}, _above(model), tables)
    values = [json.loads(v) for v in tables.values]
    return json.dumps(finite({"candidate": row, "lines": list(tables.lines), "values": values}), allow_nan=False)


def _above(model: ReportModel) -> dict[int, int | None]:
    """k -> the first parent, of every candidate of the run."""
    return {**model.above, **{c.k: next(iter(c.parents), None) for c in model.candidates}}


def escaped_json(value: Any) -> str:
    """JSON in ASCII that is safe inside a script element: no `<`, `>`, `&`; U+2028 and U+2029 are escapes too."""
    try:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except ValueError:  # seldom: so the whole of it is not walked for it each time
        text = json.dumps(finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def kept(model: ReportModel, full: int) -> set[int]:
    """Numbers of those in full: all up to `full`, else commits, their ancestors, flagged ones, the last `full`."""
    points = (*model.running_best.measured, *model.running_best.predicted)
    good = [c for c in model.candidates if c.outcome in ("committed", "passed")]
    top = {k for kind in KINDS for k in best((c.k, getattr(c.score, kind)) for c in good)}
    flagged, said = {c.k for c in model.candidates if c.flagged}, {t.k for t in told(model.tried)}
    return telling(
        {c.k: c.parents for c in model.candidates},
        full,
        commits=(c.k for c in model.commits),
        others=flagged | said | top | {p.k for p in points} | {model.baseline},
    )


class _Tables:
    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.values: dict[str, int] = {}

    def text(self, text: str) -> list[int]:
        # split on "\n" alone: the page joins with it, and other separators are part of what was written
        return [self.lines.setdefault(line, len(self.lines)) for line in text.split("\n")] if text else []

    def value(self, value: Any) -> int | None:
        if not value:
            return None
        return self.values.setdefault(json.dumps(_rounded(value), ensure_ascii=True), len(self.values))


def _rounded(value: Any) -> Any:
    """Seven digits are more than a page shows; `avo report --json` has the rest."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(k): _rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(v) for v in value]
    return value


def _payload(model: ReportModel, full: int) -> dict[str, Any]:
    keep = kept(model, full)
    tables = _Tables()
    head = model.model_dump(by_alias=True, exclude={"candidates", "tried", "above"})
    above = _above(model)
    rows = [_row(c, keep, above, tables) for c in sorted(model.candidates, key=lambda c: c.k) if c.k in keep]
    omitted = Counter(c.outcome for c in model.candidates if c.k not in keep) + Counter(model.omitted)
    return {
        **head,
        "candidates": rows,
        "counts": model.outcomes(),
        "total": model.total,
        "omitted": dict(omitted),
        "tried": [t.model_dump() for t in told(model.tried)],
        "tried_total": max(model.tried_total, len(model.tried)),
        "lines": list(tables.lines),
        "values": [json.loads(v) for v in tables.values],
    }


def _row(c: Candidate, keep: set[int], above: dict[int, int | None], tables: _Tables) -> dict[str, Any]:
    row = c.model_dump(exclude={"text", "diff", "source", "gates", "workloads", "cost", "hypothesis", "promotion"})
    over, skipped = above[c.k], 0
    while over is not None and over not in keep and over in above:
        over, skipped = above[over], skipped + 1
    row["over"] = over if over in keep else None
    row["skipped"] = skipped
    row["outcome"] = c.outcome
    row["text"], row["diff"], row["source"] = tables.text(c.text), tables.text(c.diff), tables.text(c.source)
    row["cost"], row["hypothesis"] = tables.value(c.cost), tables.value(c.hypothesis)
    row["promotion"] = tables.value(c.promotion)
    row["gates"] = [[g.gate, g.passed, g.message, tables.value(g.evidence), round(g.seconds, 4)] for g in c.gates]
    row["workloads"] = [
        [
            w.workload,
            _rounded(w.predicted_s),
            _rounded(w.measured_s),
            _rounded(w.floor_s),
            w.work,
            w.limiter,
            tables.value(w.detail),
        ]
        for w in c.workloads
    ]
    return row


def _page(model: ReportModel, payload: dict[str, Any], live: str | None) -> str:
    files = resources.files("avo.report")
    style = files.joinpath("page.css").read_text("utf-8")
    names = SCRIPTS if live is None else (*SCRIPTS, "live.js")
    script = '(() => {\n"use strict";\n' + "\n".join(files.joinpath(n).read_text("utf-8") for n in names) + "\n})();"
    title = f"avo: {model.target.name} on {model.chip.name}"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'" + ("" if live is None else "; connect-src 'self'")
    )
    parts = {
        "POLICY": html.escape(policy),
        "TITLE": html.escape(title),
        "VERSION": html.escape(live or ""),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": escaped_json(payload),
    }
    page = files.joinpath("page.html").read_text("utf-8")
    head, *rest = page.split("%%")
    # one pass over the template, so that nothing inside the data can be taken for a placeholder
    return head + "".join(parts[piece] if i % 2 == 0 else piece for i, piece in enumerate(rest))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
