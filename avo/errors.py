"""Two ways to stop that are no bug: the person's mistake (exit code 2) and an absent harness (exit code 3)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserMistake(Exception):
    """The person asked for something that cannot be: what was wrong, what is legal, what to do."""


class HarnessUnavailable(Exception):
    """The machine cannot do it now (no device, no compiler, disk full): never a verdict about a candidate."""


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """`unknown KIND 'WORD'; did you mean 'X'? known: X, ...` with the nearest name first."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=len(names) or 1, cutoff=0.5)
    ordered = [*near, *(n for n in names if n not in near)]
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return f"unknown {kind} '{word}'{hint} known: {', '.join(ordered) or 'none'}"
