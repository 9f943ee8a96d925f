"""The rule by which verdicts become commits, folded in the order of k from the plainest facts.

A child is committed if it is correct, is no repeat, and is not slower, beyond the noise, than the best of its
ancestors. Nothing of this is stored: it follows from the verdicts and the parents, whenever they arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluators.times import Comparison, Times, compare, not_slower


class Committing:
    """Takes proposals 0, 1, 2, ... one after the other; all lists are by k."""

    def __init__(self) -> None:
        self.committed: list[bool] = []
        self.best: list[int] = []  # after folding k: the best committed; 0 while none is
        self.gained: list[int] = []  # after folding k: the last k that raised the best
        self.first: dict[str, int] = {}  # digest -> its first k
        self._line: list[int | None] = []  # the best committed among k and its ancestors
        self._value: list[float] = []
        self._times: list[Times | None] = []

    def skip(self) -> None:
        """The next proposal has no verdict and will have none."""
        self._append(False, None, 0.0, None)

    def fold(self, digest: str, parents: Sequence[str], ok: bool, value: float, times: Times | None) -> bool:
        """Takes the next verdict; says whether it is committed. parents: digests. value: the score in its own mode."""
        k = len(self.committed)
        before = self._before(parents)
        committed = ok and digest not in self.first
        if committed and before is not None:
            committed = not_slower(times, self._times[before], value, self._value[before])
        self.first.setdefault(digest, k)
        self._append(committed, before, value, times)
        return committed

    def compared(self, k: int, parents: Sequence[str]) -> Comparison | None:
        """Proposal k against the best that its lineage had before it; None for a seed or one without times."""
        before = self._before(parents)
        return None if before is None else compare(self._times[k], self._times[before])

    def _append(self, committed: bool, before: int | None, value: float, times: Times | None) -> None:
        k = len(self.committed)
        self.committed.append(committed)
        self._value.append(value)
        self._times.append(times)
        self._line.append(self._better(k, before) if committed else before)
        best = self.best[-1] if self.best else 0
        better = committed and (not self.committed[best] or value > self._value[best])
        self.best.append(k if better else best)
        self.gained.append(k if better or not self.gained else self.gained[-1])

    def _before(self, parents: Sequence[str]) -> int | None:
        """The best committed of some candidates and all their ancestors."""
        best: int | None = None
        for parent in parents:
            line = self._line[self.first[parent]]
            if line is not None:
                best = self._better(line, best)
        return best

    def _better(self, k: int, other: int | None) -> int:
        """The one with the higher score; the earlier of equals."""
        if other is None or self._value[k] > self._value[other]:
            return k
        return min(k, other) if self._value[k] == self._value[other] else other
