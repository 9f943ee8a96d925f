"""Write docs/reference.md from the code itself: `python docs/make_reference.py` (`--check` only compares)."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path

from pydantic import BaseModel
from sqlalchemy import Column

from archive.migrations import VERSION
from archive.records import Hypothesis
from archive.tables import metadata
from avo.agents.protocol import Brief, Judged, Proposal
from avo.config import RunConfig
from dsl.knobs import Knob
from evaluators.evaluation import GATES, Evaluation, GateResult, Status, WorkloadResult
from evaluators.target import Workload

PAGE = Path(__file__).parent / "reference.md"
HEAD = """\
# Settings, statuses, objects, tables

Written by `python docs/make_reference.py` from the code; do not edit. [The command line](cli.md) and
[the language](language.md) have pages of their own; `avo spec` prints the language's grammar and knobs.
"""
MEANING = {
    Status.OK: "passed every gate",
    Status.PARSE_ERROR: "not a program of the language",
    Status.CHECK_ERROR: "a program that contradicts itself, its target or the chip",
    Status.MEANING_ERROR: "computes something else than the reference, in float64",
    Status.NOT_LOWERED: "legal, but a construct has no lowering yet",
    Status.COMPILE_ERROR: "the compiler refused the emitted code",
    Status.RESOURCE: "needs more registers, shared memory or threads than the chip has",
    Status.INCORRECT: "the emitted code gives wrong values",
    Status.TIMEOUT: "took longer than the gate allows",
    Status.CRASH: "its process died, or the device faulted",
    Status.OUT_OF_MEMORY: "ran out of memory",
    Status.GAMING: "tried to deceive the judge; kept with the rule and the evidence",
    Status.SUSPICIOUS: "faster than is possible, or odd: a person decides (`avo review`)",
    Status.NOT_RECORDED: "replayed from a table that lacks it",
    Status.UNAVAILABLE: "the harness failed; tried again, never a verdict",
}


def page() -> str:
    """The whole page as it has to be."""
    return "\n".join([HEAD, *_settings(), *_statuses(), *_objects(), *_tables()]) + "\n"


def _settings() -> list[str]:
    lines = [
        "## Settings of a run",
        "",
        "In `run.toml` (`-c`), by `--set key=value`, or as flags of `avo evolve`; later ones win.",
        "",
        "| key | type | default |",
        "|---|---|---|",
    ]
    for name, field in RunConfig.model_fields.items():
        kind = str(field.annotation).replace("typing.", "").replace("<class '", "").replace("'>", "").replace("|", "or")
        default = field.get_default(call_default_factory=True)
        lines.append(f"| `{name}` | {kind} | {'none' if default in (None, {}) else f'`{default}`'} |")
    return [*lines, "", *_paragraph(RunConfig.__doc__ or ""), ""]


def _paragraph(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _statuses() -> list[str]:
    lines = [
        "## Statuses",
        "",
        f"The gates, in order: {', '.join(f'`{g}`' for g in GATES)}.",
        "",
        "| status | what it says |",
    ]
    return [*lines, "|---|---|", *[f"| `{s.value}` | {MEANING[s]} |" for s in Status], ""]


def _objects() -> list[str]:
    lines = ["## What plug-ins give and get", "", "All from `avo`, frozen, made by keyword.", ""]
    for kind in (Evaluation, GateResult, WorkloadResult, Proposal, Hypothesis, Brief, Judged, Knob, Workload):
        lines += [f"### {kind.__name__}", "", *_paragraph(kind.__doc__ or ""), ""]
        lines += ["| field | type | |", "|---|---|---|"]
        for name, said in inspect.get_annotations(kind).items():
            lines.append(f"| `{name}` | {said.replace('|', 'or')} | {_default(kind, name)} |")
        lines.append("")
    return lines


def _default(kind: type, name: str) -> str:
    if issubclass(kind, BaseModel):
        field = kind.model_fields[name]
        return "required" if field.is_required() else f"`{_plain(field.get_default(call_default_factory=True))}`"
    found = next(f for f in dataclasses.fields(kind) if f.name == name)
    if found.default is not dataclasses.MISSING:
        return f"`{_plain(found.default)}`"
    return "required" if found.default_factory is dataclasses.MISSING else f"`{_plain(found.default_factory())}`"


def _plain(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _tables() -> list[str]:
    lines = [
        f"## Tables of an archive, schema version {VERSION}",
        "",
        "[The archive](archive.md) says what each is for.",
        "",
    ]
    for table in metadata.sorted_tables:
        lines += [f"### {table.name}", "", "| column | type | |", "|---|---|---|"]
        lines += [f"| `{c.name}` | {_type(c)} | {_notes(c)} |" for c in table.columns]
        lines.append("")
    return lines


def _type(column: Column[object]) -> str:
    kind = type(column.type).__name__.lower()
    length = getattr(column.type, "length", None)
    return f"{kind}({length})" if length else kind


def _notes(column: Column[object]) -> str:
    notes = ["key"] if column.primary_key else []
    notes += [f"of `{key.column.table.name}`" for key in column.foreign_keys]
    notes += ["may be NULL"] if column.nullable else []
    return ", ".join(dict.fromkeys(notes))


def main() -> int:
    wanted = page()
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != wanted:
            print("docs/reference.md is not current: run python docs/make_reference.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
