"""What a page of a long run keeps in full; all else is counted, and `avo show` has it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence

from avo.report.model import Tried

FULL = 2000  # candidates that are kept in full, beside commits, their ancestors and flagged ones
BEST = 20  # of either kind of score
TRIED = 12  # hypotheses that are told


def telling(
    parents: Mapping[int, Sequence[int]], full: int, *, commits: Iterable[int], others: Iterable[int | None]
) -> set[int]:
    """Numbers of the candidates to keep: all up to `full`; else the last `full`, `others`, `commits` with ancestors."""
    ordered = sorted(parents)
    if len(ordered) <= full:
        return set(ordered)
    found: set[int] = set()
    waiting = list(commits)
    while waiting:
        k = waiting.pop()
        if k not in found:
            found.add(k)
            waiting += parents.get(k, ())
    return (found | {*ordered[-full:]} | {k for k in others if k is not None}) & parents.keys()


def best(scores: Iterable[tuple[int, float | None]]) -> list[int]:
    """The numbers of those with the highest scores, the earlier of equals: what a table shows."""
    return [k for k, s in heapq.nsmallest(BEST, ((k, s) for k, s in scores if s), key=lambda row: (-row[1], row[0]))]


def gap(expected: float | None, actual: float | None) -> float:
    """How far from its expectation something came out, as a logarithm of ratios; -1 where that cannot be said."""
    if actual is None or expected is None or actual <= 0 or expected <= 0:
        return -1.0
    return abs(math.log(actual / expected))


def told(tried: Iterable[Tried]) -> list[Tried]:
    """The hypotheses that teach most: those furthest from what came of them first, what never was tried last."""
    return sorted(tried, key=lambda t: (-gap(t.expected, t.actual), t.k if t.k is not None else -1))[:TRIED]
