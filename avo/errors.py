"""Ways to stop that are no bug: the person's mistake (exit code 2), an absent harness (3), a limit reached."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserMistake(Exception):
    """The person asked for something that cannot be: what was wrong, what is legal, what to do."""


class HarnessUnavailable(Exception):
    """The machine cannot do it now (no device, no compiler, disk full): never a verdict about a candidate."""


class Halted(Exception):
    """The run ends and this proposal is not made now. reason: as the end of a run is called ("usd", "interrupted")."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """`unknown KIND 'WORD'; did you mean 'X'? known: X, ...` with the nearest name first."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=len(names) or 1, cutoff=0.5)
    ordered = [*near, *(n for n in names if n not in near)]
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return f"unknown {kind} '{word}'{hint} known: {', '.join(ordered) or 'none'}"
