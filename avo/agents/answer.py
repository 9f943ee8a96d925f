"""Reading an answer: the program in what somebody wrote, whether whole, as a diff or as edits, fenced or in prose.

Knows forms, not rightness: what is found may well be wrong, and the judge says how.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

Form = Literal["program", "schedule", "diff", "edits", "python"]


class Unreadable(Exception):
    """An answer in which there is no program, or a diff that does not apply: what was looked for and what to send."""


@dataclass(frozen=True)
class Answer:
    """text: the whole program. expect: the score over the parent's, as the answer hopes; None where it does not say.

    parent: the digest (or its start) that the answer says it edits; "" where it does not say.
    """

    text: str
    form: Form
    why: str = ""
    expect: float | None = None
    parent: str = ""


@dataclass(frozen=True)
class Remarks:
    """What an answer says beside its program."""

    why: str = ""
    expect: float | None = None
    parent: str = ""


HOW = (
    "a whole program (from its `kernel` line), a whole `schedule` for the same algorithm, a unified diff against the "
    "program, or single directive lines (`tile m=128`, `no split`), best in one ``` fence"
)

# What is read of an answer, for the search stands still meanwhile: characters, fences (the last ones), hunks of a diff,
# and characters that are parsed to find where a program ends and prose begins.
MOST = 1 << 20
_FENCES = 20
_HUNKS = 200
_PARSED = 200_000

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_KERNEL = re.compile(r"^[ \t]*kernel\s+\w+[ \t]*(?:@\s*\w+.*)?(?:#.*)?$", re.MULTILINE)
_SCHEDULE = re.compile(r"^[ \t]*(?:schedule\b(?:[ \t]+\w+)*|kernels\s+\w+.*)[ \t]*(?:#.*)?$", re.MULTILINE)
# Each part of it ends where the next begins, and the first one with its line: 20,000 empty lines would take seconds.
_REMARK = re.compile(r"^[ \t\r*_>#-]*(why|expect|parent)[*_]*\s*:[*_]*\s*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_RUN = re.compile(r"^(?:def\s+run\b|run\s*=|from\s.*\brun\b)", re.MULTILINE)
_HUNK = re.compile(r"^@@(?:\s*-(\d{1,9})(?:,\d+)?\s+\+\d+(?:,\d+)?\s*@@.*|.*)$")


def remarks(text: str) -> Remarks:
    """The `why:`, `expect:` and `parent:` lines of an answer, or those of its JSON."""
    given = _json(text)
    if given is None:
        given = {m[1].lower(): m[2].rstrip() for m in _REMARK.finditer(text)}
    return Remarks(str(given.get("why") or ""), _ratio(given.get("expect")), str(given.get("parent") or "").strip("`"))


PYTHON_HOW = "a whole Python file with `def run`, or a unified diff against the file, in one ``` fence"


def read_answer(text: str, parent: str, language: Literal["avo", "python"] = "avo") -> Answer:
    """The program that an answer means. parent: the program that diffs and edits are against.

    Raises Unreadable where there is none, or where a diff does not apply.
    """
    if len(text) > MOST:
        raise Unreadable(f"the answer has {len(text):,} characters; {MOST:,} are read. Send the program alone")
    said = remarks(text)
    if language == "python":
        return replace(_read_python(text, parent), why=said.why, expect=said.expect, parent=said.parent)
    document = _json(text)
    if document is not None:
        body = document.get("program") or document.get("schedule") or document.get("diff") or document.get("edits")
        if isinstance(body, list):
            body = "\n".join(map(str, body))
        if not isinstance(body, str):
            raise Unreadable(f"the JSON has none of program, schedule, diff, edits. Send {HOW}")
        return replace(_read(body, parent), why=said.why, expect=said.expect, parent=said.parent)
    return replace(_read(text, parent), why=said.why, expect=said.expect, parent=said.parent)


def _read(text: str, parent: str) -> Answer:
    if not text.strip():
        raise Unreadable(f"the answer is empty. Send {HOW}")
    fenced = [m[2] for m in _FENCE.finditer(text)]
    problem: Unreadable | None = None
    # The last fence is the conclusion; what stands before it may quote the parent.
    for body in reversed(fenced[-_FENCES:]):
        try:
            found = _body(body, parent, loose=False)
        except Unreadable as error:
            problem = problem or error
            continue
        if found is not None:
            return found
    found = _body(text, parent, loose=True)
    if found is not None:
        return found
    raise problem or Unreadable(f"there is no program in the answer. Send {HOW}")


def _read_python(text: str, parent: str) -> Answer:
    """The last fence with a file or a diff in it, or the whole text where that is a file."""
    document = _json(text) or {}
    given = document.get("program") or document.get("diff")
    bodies = [given] if isinstance(given, str) else [m[2] for m in _FENCE.finditer(text)]
    problem: Unreadable | None = None
    for body in reversed(bodies[-_FENCES:] or [text]):
        if any(_HUNK.match(row) for row in body.splitlines()):
            try:
                return Answer(apply_diff(parent, body), "diff")
            except Unreadable as error:
                problem = problem or error
        elif _RUN.search(body):
            return Answer(body.strip("\n") + "\n", "python")
    raise problem or Unreadable(f"there is no `run` in the answer. Send {PYTHON_HOW}")


def _body(text: str, parent: str, loose: bool) -> Answer | None:
    """loose: prose may stand around it."""
    if any(_HUNK.match(row) for row in text.splitlines()):
        return Answer(apply_diff(parent, text), "diff")
    if _KERNEL.search(text):
        return Answer(_cut(text, _KERNEL) if loose else text[_start(text, _KERNEL) :], "program")
    if _SCHEDULE.search(text):
        rest = _cut(text, _SCHEDULE) if loose else text[_start(text, _SCHEDULE) :]
        return Answer(_algorithm_of(parent).rstrip("\n") + "\n\n" + rest, "schedule")
    edits = list(_edits(text, loose))
    if edits:
        return Answer(apply_edits(parent, edits), "edits")
    return None


def _start(text: str, first: re.Pattern[str]) -> int:
    found = first.search(text)
    assert found is not None
    return found.start()


def _cut(text: str, first: re.Pattern[str]) -> str:
    """From its first line up to the first line of prose; less, by paragraphs, where only that parses."""
    rows: list[str] = []
    for row in text[_start(text, first) :].splitlines():
        if rows and _prose(row):
            break
        rows.append(row)
    whole = "\n".join(rows).rstrip() + "\n"
    if first is not _KERNEL or _parses(whole):
        return whole
    parts = re.split(r"(\n[ \t]*\n)", whole)
    parsed = 0
    for end in range(len(parts) - 2, 0, -2):
        tried = "".join(parts[:end]) + "\n"
        if _SCHEDULE.search(whole) and not _SCHEDULE.search(tried):
            break
        parsed += len(tried)
        if parsed > _PARSED:
            break
        if _parses(tried):
            return tried
    return whole


def _parses(text: str) -> bool:
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse

    try:
        parse(text)
    except (ProgramError, RecursionError):
        return False
    return True


def _prose(row: str) -> bool:
    """`This should be faster, since ...`: words that begin large and hold no assignment."""
    words = row.split()
    return row[:1].isupper() and len(words) > 3 and "=" not in row


def _algorithm_of(program: str) -> str:
    found = _SCHEDULE.search(program)
    return program if found is None else program[: found.start()]


# Diffs ------------------------------------------------------------------------------------------------


def apply_diff(text: str, diff: str) -> str:
    """A unified diff applied to a text. Line numbers are hints: a hunk goes where its lines are, nearest first.

    Spaces at line ends do not count. Raises Unreadable, with the hunk's first line that is not there.
    """
    rows = text.rstrip("\n").splitlines()
    shift = 0
    for number, (at, old, new) in enumerate(_hunks(diff), 1):
        if number > _HUNKS:
            raise Unreadable(f"the diff has more than {_HUNKS} hunks. Send {HOW}")
        wanted = (at - 1 if at is not None else 0) + shift
        place = _nearest(rows, old, wanted) if old else min(max(wanted + 1, 0), len(rows))
        if place is None:
            have = {r.strip() for r in rows}
            missing = next((r for r in old if r.strip() not in have), old[0])
            raise Unreadable(
                f"hunk {number} of the diff does not apply: the program has no "
                + (f"line `{missing.strip()}`" if missing.strip() not in have else "such lines in this order")
                + f". Copy context lines exactly, or send {HOW}"
            )
        rows[place : place + len(old)] = new
        shift += len(new) - len(old)
    return "\n".join(rows) + "\n"


def _nearest(rows: list[str], wanted: list[str], line: int) -> int | None:
    """Where these lines are, nearest to a line; spaces at their ends do not count. By a search in the text, which is
    linear also where all lines are alike."""
    stripped = [row.rstrip() for row in rows]
    text, sought = "\n".join(["", *stripped, ""]), "\n".join(["", *(row.rstrip() for row in wanted), ""])
    begin = sum(len(row) + 1 for row in stripped[: max(0, line)])
    behind, before = (
        text.find(sought, begin),
        text[::-1].find(sought[::-1], max(0, len(text) - begin - len(sought) + 1)),
    )
    found = [behind, len(text) - len(sought) - before if before >= 0 else -1]  # `rfind` is no linear search
    places = [text.count("\n", 0, at) for at in found if at >= 0]
    return min(places, key=lambda p: abs(p - line), default=None)


def _hunks(diff: str) -> Iterator[tuple[int | None, list[str], list[str]]]:
    """(first line of the old text, old lines, new lines) of each hunk."""
    at: int | None = None
    old: list[str] = []
    new: list[str] = []
    inside = False
    for row in diff.splitlines():
        if match := _HUNK.match(row):
            if inside:
                yield at, *_trimmed(old, new)
            at, old, new, inside = int(match[1]) if match[1] else None, [], [], True
        elif not inside or row.startswith(("--- ", "+++ ", "\\")):
            continue
        elif row.startswith("-"):
            old.append(row[1:])
        elif row.startswith("+"):
            new.append(row[1:])
        elif row.startswith(" ") or not row:
            old.append(row[1:])
            new.append(row[1:])
        else:
            break  # prose after the diff
    if inside:
        yield at, *_trimmed(old, new)


def _trimmed(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """Without empty lines of context at the end, which stand there by the way a reply is laid out."""
    while old and new and not old[-1].strip() and not new[-1].strip():
        old, new = old[:-1], new[:-1]
    return old, new


# Directive edits --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """`line` is merged, item by item, into the directive of its name in the last kernel's block; "" takes it out."""

    name: str
    line: str


def _edits(text: str, loose: bool) -> Iterator[Edit]:
    from dsl.directives import DIRECTIVES

    for row in text.splitlines():
        line = re.sub(r"^[-+*]\s+(?=[\w`])", "", row.split("#", 1)[0].strip()).strip("`")
        words = line.split()
        if not words:
            continue
        if words[0] in ("no", "remove", "drop") and len(words) == 2 and words[1] in DIRECTIVES:
            yield Edit(words[1], "")
        elif (words[0] in DIRECTIVES or _misspelt(words)) and not (loose and _reads_as_prose(words)):
            yield Edit(words[0], line)
        elif not loose and not _REMARK.match(row):
            return  # a fence with anything else in it is no list of edits


def _misspelt(words: list[str]) -> bool:
    """`wraps 8` is a line for the check to complain of, not prose: nearly a directive's name, then items."""
    from dsl.diagnostics import nearest
    from dsl.directives import DIRECTIVES, HABITS

    items = words[1:]
    shaped = 0 < len(items) <= 4 and all(re.fullmatch(r"\w+(=\w+|\(\w+\))?", i) for i in items)
    return (
        shaped
        and any(c in "=(0123456789" for i in items for c in i)
        and bool(nearest(words[0], (*DIRECTIVES, *HABITS)))
    )


def _reads_as_prose(words: list[str]) -> bool:
    return len(words) == 1 or len(words) > 6 or any(w.endswith((".", ",", ";", ":")) for w in words)


def apply_edits(program: str, edits: list[Edit]) -> str:
    """Directive lines put into the last block of the schedule (its only one, where there is one kernel)."""
    rows = program.rstrip("\n").splitlines()
    heads = [n for n, row in enumerate(rows) if _SCHEDULE.fullmatch(row) and row.split()[0] == "schedule"]
    if not heads:
        rows += ["", "schedule"]
        heads = [len(rows) - 1]
    start = heads[-1] + 1
    block = rows[start:]
    for edit in edits:
        place = next((n for n, row in enumerate(block) if row.split()[:1] == [edit.name]), None)
        old = [] if place is None else block[place].split("#", 1)[0].split()[1:]
        block = [row for row in block if row.split()[:1] != [edit.name]]
        if edit.line:
            block.insert(len(block) if place is None else place, _merged(edit, old))
    return "\n".join([*rows[:start], *block]) + "\n"


def _merged(edit: Edit, old: list[str]) -> str:
    """`tile m=128` on `tile m=64 n=64` is `tile m=128 n=64`: what an edit does not name stays."""
    new = edit.line.split()[1:]
    bare = [w for w in new if "=" not in w] or [w for w in old if "=" not in w]
    given = {w.split("=", 1)[0]: w for w in new if "=" in w}
    keyed = [given.pop(w.split("=", 1)[0], w) for w in old if "=" in w]
    return " ".join([edit.name, *bare, *keyed, *given.values()])


# JSON -------------------------------------------------------------------------------------------------


def _json(text: str) -> dict[str, Any] | None:
    """An answer that is one JSON object, fenced or not."""
    body = text.strip()
    fences = _FENCE.findall(text)
    if len(fences) == 1 and not body.startswith("{"):
        body = fences[0][1].strip()
    if not body.startswith("{"):
        return None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _ratio(value: Any) -> float | None:
    """`1.1`, `1.1x`, `10%` (faster): a ratio of scores, or None."""
    if isinstance(value, bool) or value is None:
        return None
    match = re.match(r"^[~+]?\s*(\d+(?:\.\d+)?)\s*(%?)", str(value).strip())
    if match is None:
        return None
    number = 1 + float(match[1]) / 100 if match[2] else float(match[1])
    return number if 0 < number < 1e6 else None
