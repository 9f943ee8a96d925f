"""Mechanical repairs: what the messages of the parser and the checker name, done to the text, comments and all.

Only what needs no thought: a word for the nearest known one, a number for the nearest legal one, a form of another
language for its own here, a cast that a product lacks, a line that has no use. What a person has to decide stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dsl.diagnostics import Diagnostic
from dsl.syntax import Span

ROUNDS = 12  # a repair may bring the next mistake to light


@dataclass(frozen=True)
class Change:
    """Line `line` of the text as it was then had `old`, now `new`. rule: of the message that asked for it."""

    line: int
    rule: str
    old: str
    new: str


@dataclass(frozen=True)
class _Edit:
    """Characters start..end of row number `row` (from 0) become `new`."""

    row: int
    start: int
    end: int
    new: str
    rule: str


Complaints = Callable[[str], Sequence[Diagnostic]]


def repaired(source: str, complaints: Complaints) -> tuple[str, list[Change]]:
    """The text after every repair that makes it better, and what was changed, in order.

    complaints: everything that is wrong with a text. A change stays only if fewer errors are left than before, or if a
    text that did not parse does; so the result is never worse.
    """
    changes: list[Change] = []
    written: set[str] = set()
    for _ in range(ROUNDS):
        errors = _errors(complaints(source))
        rows = source.split("\n")
        # What a repair has just written, another does not take away: that would delete what the user meant.
        found = [e for d in errors for e in _edits(d, source) if e.new or rows[e.row][e.start : e.end] not in written]
        edits = _apart(found)
        # Each by itself: among good ones a bad one would pass. All at once only where none helps alone.
        kept, text = _those_that_help(source, edits, errors, complaints)
        if not kept:
            text = _applied(source, edits)
            if not edits or not _better(errors, _errors(complaints(text))):
                break
            kept = edits
        edits = kept
        written |= {e.new.strip() for e in edits if e.new}
        changes += [Change(e.row + 1, e.rule, rows[e.row][e.start : e.end], e.new) for e in edits]
        source = text
    return source, changes


def _errors(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    return [d for d in found if d.severity == "error"]


# What the parser says: where one of these is left, the checker has not spoken yet.
_OF_THE_PARSER = frozenset(
    (
        *("habit", "syntax", "keyword", "number", "character", "brackets", "reserved", "half", "no-kernel"),
        *("axis-case", "dtype", "default", "results", "axis-form"),
    )
)


def _better(before: list[Diagnostic], after: list[Diagnostic]) -> bool:
    unparsed = [sum(d.rule in _OF_THE_PARSER for d in found) for found in (before, after)]
    return (unparsed[1], len(after)) < (unparsed[0], len(before)) if unparsed[0] else len(after) < len(before)


def _those_that_help(
    source: str, edits: list[_Edit], errors: list[Diagnostic], complaints: Complaints
) -> tuple[list[_Edit], str]:
    kept: list[_Edit] = []
    for e in edits:
        found = _errors(complaints(_applied(source, [*kept, e])))
        if _better(errors, found):
            kept, errors = [*kept, e], found
    return kept, _applied(source, kept)


def _apart(edits: list[_Edit]) -> list[_Edit]:
    """The first of those that overlap."""
    found: list[_Edit] = []
    for e in edits:
        if e not in found and not any(e.row == f.row and e.start < f.end and f.start < e.end for f in found):
            found.append(e)
    return sorted(found, key=lambda e: (e.row, e.start))


def _applied(source: str, edits: list[_Edit]) -> str:
    rows: list[str | None] = [*source.split("\n")]
    for e in sorted(edits, key=lambda e: (e.row, e.start), reverse=True):
        row = rows[e.row] or ""
        whole = e.new == "" and not (row[: e.start] + row[e.end :]).split("#")[0].strip()
        rows[e.row] = None if whole else row[: e.start] + e.new + row[e.end :]
    return "\n".join(r for r in rows if r is not None)


# From a message to edits ----------------------------------------------------------------------------------------------


def _edits(d: Diagnostic, source: str) -> list[_Edit]:
    rows = source.split("\n")
    row = d.span.line - 1
    if not 0 <= row < len(rows):
        return []
    start, end = d.span.column - 1, d.span.end_column - 1
    if d.repair is not None:
        return [_Edit(row, start, end, d.repair, d.rule)]
    by_rule = _BY_RULE.get(d.rule, _by_fix)
    return by_rule(d, rows, Span(row, start, end))


def _by_fix(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """A fix that is one phrase in backticks takes the place of the span, or of the word that the message names."""
    phrase = re.match(r"`([^`]+)`(?:$|, or )", d.fix)
    row, here = rows[at.line], rows[at.line][at.column : at.end_column]
    if removed := re.fullmatch(r"remove the `(\w+)` line", d.fix):
        return [_Edit(at.line, 0, len(row), "", d.rule)] if row.split()[:1] == [removed[1]] else []
    if removed := re.fullmatch(r"remove `(\w+)`(?: from `(\w+)`)?", d.fix):
        return _without(d, rows, at, removed[1], removed[2] or "")
    if d.fix == "keep one of them":  # the second goes, with the blanks before it
        blanks = at.column - len(row[: at.column].rstrip())
        return [_Edit(at.line, at.column - blanks, at.end_column, "", d.rule)]
    if phrase is None:
        return []
    new = phrase[1]
    directive = row.split()[0] if row.split() else ""
    if new.startswith(directive + " ") and not here.startswith(directive):
        return [_Edit(at.line, at.column, at.end_column, new.removeprefix(directive).strip(), d.rule)]
    if new.startswith(directive + " "):
        return [_Edit(at.line, at.column, at.end_column, new, d.rule)]
    named = re.search(r"`([^`]+)`", d.message)
    word = named[1] if named else ""
    if re.fullmatch(r"\w+=", new) and re.fullmatch(r"\w+=.*", here):  # another key, the same value
        return [_Edit(at.line, at.column, at.column + here.index("=") + 1, new, d.rule)]
    for start, stop in ((at.column, at.end_column), (0, len(row.split("#")[0]))):
        found = [m for m in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", row[:stop]) if m.start() >= start]
        if word and len(found) == 1:
            return [_Edit(at.line, found[0].start(), found[0].end(), new, d.rule)]
    return [_Edit(at.line, at.column, at.end_column, new, d.rule)] if re.fullmatch(r"\w+=\S+", new) else []


def _without(d: Diagnostic, rows: list[str], at: Span, axis: str, directive: str) -> list[_Edit]:
    """One item of a directive goes: that of the span, or of the `directive` line of the same block."""
    numbers = [at.line] if not directive else _block(rows, at.line)
    for n in numbers:
        code = rows[n].split("#")[0]
        if not directive or code.split()[:1] == [directive]:
            for m in re.finditer(rf"\s+{re.escape(axis)}(?:=\S+)?(?!\w)", code):
                return [_Edit(n, m.start(), m.end(), "", d.rule)]
    return []


def _block(rows: list[str], row: int) -> list[int]:
    """The rows of the schedule block that a row stands in."""
    first = row
    while first > 0 and not rows[first].startswith("schedule"):
        first -= 1
    last = first + 1
    while last < len(rows) and not rows[last].startswith("schedule"):
        last += 1
    return list(range(first, last))


def _whole(pick: Callable[[Diagnostic], str | None]) -> Callable[[Diagnostic, list[str], Span], list[_Edit]]:
    """The span becomes what `pick` says."""

    def edits(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
        new = pick(d)
        return [] if new is None else [_Edit(at.line, at.column, at.end_column, new, d.rule)]

    return edits


def _dtype(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """`x[m n] bfloat16`: the last word of the span."""
    word = re.search(r"`([^`]+)`", d.message)
    here = rows[at.line][at.column : at.end_column]
    if not word or not re.fullmatch(r"\w+", d.fix) or not re.search(rf"(?<!\w){re.escape(word[1])}$", here):
        return []
    return [_Edit(at.line, at.end_column - len(word[1]), at.end_column, d.fix, d.rule)]


def _syntax(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    if d.message == "there is no sign `+`":
        return [_Edit(at.line, at.column, at.end_column, "", d.rule)]
    if d.message == "`=` inside an expression":
        return [_Edit(at.line, at.column, at.end_column, "==", d.rule)]
    return []


def _habit(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """Those without a repair of their own: chains of comparisons, words of Python."""
    row = rows[at.line]
    if d.message == "comparisons do not chain":
        parts = re.fullmatch(r"(\S+) (\S+) (\S+) and \3 (\S+) (\S+)", d.fix)
        if parts:
            chain = r"\s*".join(map(re.escape, parts.groups()))
            if found := re.search(chain, row):
                return [_Edit(at.line, found.start(), found.end(), d.fix, d.rule)]
        return []
    if d.message.endswith("is not a word of the language") and re.fullmatch(r"\w+", d.fix):
        return [_Edit(at.line, at.column, at.end_column, d.fix, d.rule)]
    return []


def _half(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    if d.fix != "put a line `schedule` above it" or any(r.startswith("schedule") for r in rows):
        return []
    return [_Edit(at.line, 0, 0, "\nschedule\n", d.rule)]


def _cast(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """One operand of a product is cast to the dtype of the other."""
    wanted = re.fullmatch(r"cast one: (\w+)\(\.\.\.\)", d.fix)
    pair = re.search(r"are (\w+) and (\w+)", d.message)
    if not wanted or not pair:
        return []
    other = next(p for p in pair.groups() if p != wanted[1])
    text = "\n".join(r.split("#")[0] for r in rows)
    names = {m[1] for m in re.finditer(r"(\w+)\s*\[[^\]]*\]\s+" + other + r"\b", text)}
    here = rows[at.line][at.column : at.end_column]
    found = [m for m in re.finditer(r"(?<![\w(])(\w+)(\[[^\]]*\])?(?!\w|\()|(?<=\()(\w+)(?=\s*\*)", here)]
    uses = [m for m in found if (m[1] or m[3]) in names]
    if len(uses) != 1:
        return []
    m = uses[0]
    return [_Edit(at.line, at.column + m.start(), at.column + m.end(), f"{wanted[1]}({m[0]})", d.rule)]


def _fits(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """`stages=2 fits`, `f=16 c=16 fits`: the keys that the message names, wherever their block sets them."""
    if not d.fix.endswith(" fits"):
        return []
    edits = []
    for key, value in re.findall(r"(\w+)=(\d+)", d.fix):
        for n in _block(rows, at.line):
            code = rows[n].split("#")[0]
            for m in re.finditer(rf"(?<!\w){key}=(\w+)", code):
                edits.append(_Edit(n, m.start(1), m.end(1), value, d.rule))
    return edits


def _tiled(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """`tile n=64`: into the block's tile line, or a line of its own."""
    item = re.match(r"`tile (\w+=\d+)`", d.fix)
    if not item:
        return []
    for n in _block(rows, at.line):
        code = rows[n].split("#")[0].rstrip()
        if code.split()[:1] == ["tile"]:
            return [_Edit(n, len(code), len(code), " " + item[1], d.rule)]
    return [_Edit(at.line, 0, 0, f"tile {item[1]}\n", d.rule)]


def _renamed(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """A name that cannot be: everywhere."""
    word, new = re.match(r"`(\w+)`", d.message), re.fullmatch(r"`?(\w+)`?", d.fix)
    if not word or not new:
        return []
    edits = []
    for n, row in enumerate(rows):
        for m in re.finditer(rf"(?<!\w){word[1]}(?!\w)", row.split("#")[0]):
            edits.append(_Edit(n, m.start(), m.end(), new[1], d.rule))
    return edits


def _lower_case(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """An axis in capitals, at this place: elsewhere they may mean its extent."""
    found = re.search(rf"(?<!\w){d.fix.upper()}(?!\w)", rows[at.line][at.column : at.end_column], re.IGNORECASE)
    if not found:
        return []
    return [_Edit(at.line, at.column + found.start(), at.column + found.end(), d.fix, d.rule)]


def _unbracketed(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """`exp[n](x)`: the bracket goes."""
    bracket = re.match(r"\w+(\[[^\]]*\])\(", rows[at.line][at.column :])
    if not bracket:
        return []
    return [_Edit(at.line, at.column + bracket.start(1), at.column + bracket.end(1), "", d.rule)]


def _kernels(d: Diagnostic, rows: list[str], at: Span) -> list[_Edit]:
    """A name in the `kernels` line, whose message stands at the head of the block."""
    lines = [i for i, r in enumerate(rows) if r.split()[:1] == ["kernels"]]
    return _by_fix(d, rows, Span(lines[0], 0, len(rows[lines[0]]))) if len(lines) == 1 else []


_BY_RULE: dict[str, Callable[[Diagnostic, list[str], Span], list[_Edit]]] = {
    "axis-case": _lower_case,
    "bracket": _unbracketed,
    "brackets": _whole(lambda d: d.fix if " where the " in d.message else None),
    "contraction-dtypes": _cast,
    "dtype": _dtype,
    "habit": _habit,
    "half": _half,
    "kernels-unknown": _kernels,
    "keyword": _whole(lambda d: d.fix if d.message.endswith("is no keyword") and re.fullmatch(r"\w+", d.fix) else None),
    "name-reserved": _renamed,
    "number": _whole(lambda d: None if d.fix == "one number" else d.fix),
    "shared-memory": _fits,
    "stream-untiled": _tiled,
    "syntax": _syntax,
    "tile-too-large": _fits,
    "duplicate-directive": lambda d, rows, at: [],
}
