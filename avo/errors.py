"""Ways to stop that are no bug: the person's mistake (exit code 2), an absent harness (3), a limit reached."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class UserMistake(Exception):
    """The person asked for something that cannot be: what was wrong, what is legal, what to do."""


class HarnessUnavailable(Exception):
    """The machine cannot do it now (no device, no compiler, disk full): never a verdict about a candidate."""


class Halted(Exception):
    """The run ends and this proposal is not made now. reason: as the end of a run is called ("usd", "interrupted")."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "a text",
    "path": "a path",
}
_BOUNDS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
}


def unfit(name: str, error: Mapping[str, Any]) -> str:
    """`--steps is at least 1, got 0`, `--steps wants a whole number, got 'x'`, from one of pydantic's errors."""
    kind, given = str(error["type"]), error["input"]
    if kind in _BOUNDS:
        return f"{name} is {_BOUNDS[kind].format(**error['ctx'])}, got {given}"
    if wanted := _WANTED.get(kind.partition("_")[0]):
        return f"{name} wants {wanted}, got {given!r}"
    said = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{name}: {said[:1].lower()}{said[1:]}, got {given!r}"


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """`unknown KIND 'WORD'; did you mean 'X'? known: X, ...` with the nearest name first."""
    names = sorted(known)
    same = [n for n in names if n.lower() == word.lower()]  # of one letter, say, which nothing else is near to
    near = list(dict.fromkeys([*same, *difflib.get_close_matches(word, names, n=len(names) or 1, cutoff=0.5)]))
    ordered = [*near, *(n for n in names if n not in near)]
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return f"unknown {kind} '{word}'{hint} known: {', '.join(ordered) or 'none'}"
