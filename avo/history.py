"""The verdicts of a run folded in the order of k: what is committed, what is best, what proposal k may see.

Nothing of this is stored: it follows from the evaluations and the parents, whenever they arrived.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from avo.agents.protocol import Judged
from evaluators.evaluation import Evaluation, Status, score

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.records import Note, Run


@dataclass(frozen=True)
class Comparison:
    """A child's time over its lineage's best: `ratio`, with the interval `low` to `high` that the noise leaves.

    Geometric mean over the workloads; below 1 is faster. Predicted times have no noise, so the three are equal.
    """

    verdict: Literal["better", "within noise", "slower"]
    ratio: float
    low: float
    high: float


def compare(child: Evaluation, best: Evaluation) -> Comparison | None:
    """None where the two cannot be compared: another mode, other workloads, or a time that is missing.

    A measured workload may carry its interval as `detail["interval_s"] = [low, high]`, in seconds.
    """
    if child.mode != best.mode or child.mode == "none" or len(child.workloads) != len(best.workloads):
        return None
    sums = [0.0, 0.0, 0.0]
    for a, b in zip(child.workloads, best.workloads, strict=True):
        mine, other = _times(a, child.mode), _times(b, best.mode)
        if mine is None or other is None or a.workload != b.workload:
            return None
        sums[0] += math.log(mine[0] / other[0])
        sums[1] += math.log(mine[1] / other[2])
        sums[2] += math.log(mine[2] / other[1])
    ratio, low, high = (math.exp(s / len(child.workloads)) for s in sums)
    verdict: Literal["better", "within noise", "slower"] = "within noise"
    if high < 1:
        verdict = "better"
    elif low > 1:
        verdict = "slower"
    return Comparison(verdict, ratio, low, high)


def _times(workload: object, mode: str) -> tuple[float, float, float] | None:
    """(time, low, high) in seconds."""
    time = getattr(workload, f"{mode}_s")
    if not time or not math.isfinite(time) or time < 0:
        return None
    interval = getattr(workload, "detail", {}).get("interval_s") if mode == "measured" else None
    low, high = interval if isinstance(interval, list | tuple) and len(interval) == 2 else (time, time)
    if not 0 < low <= high < math.inf:
        return None
    return time, low, high


def notes_of(archive: Archive, record: Run, seen: int) -> tuple[Note, ...]:
    """What the agent of a run may read: its own notes up to proposal `seen`, and those that were there before it."""
    mark = int(record.config.get("notes") or 0)
    return tuple(n for n in archive.notes() if (n.k <= seen if n.run == record.id else n.id <= mark))


COPIED = 0.8  # of the lines of both: so alike is a copy


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}


class History:
    """Takes verdicts in any order, folds them in the order of k, and shows any past state exactly."""

    def __init__(self) -> None:
        self._folded: list[Judged | None] = []  # by k; None where the agent gave up
        self._early: dict[int, Judged | None] = {}  # those whose turn has not come
        self._best: list[int] = []  # after folding k: the best committed
        self._gained: list[int] = []  # after folding k: the last k that raised the best
        self._line: list[int | None] = []  # the best committed among k and its ancestors
        self._first: dict[str, int] = {}  # digest -> its first k

    @classmethod
    def of(cls, archive: Archive, run: int, *, whole: bool = False) -> History:
        """Rebuilt from what was recorded. whole: also what comes after a proposal without a verdict, to look at."""
        history = cls()
        found = archive.candidates(run)
        digests = {c.k: c.digest for c in found}
        hypotheses = {t.k: t.hypothesis for t in archive.hypotheses(run) if t.k is not None}
        for c, evaluation in archive.evaluations(found):
            history.add(
                Judged(
                    k=c.k,
                    digest=c.digest,
                    text=c.text,
                    parents=tuple(digests[p] for p in c.parents),
                    agent=c.agent,
                    evaluation=evaluation,
                    score=score(evaluation),
                    rationale=c.rationale,
                    hypothesis=hypotheses.get(c.k),
                )
            )
        if whole:
            for k in range(max(digests, default=0)):
                if not history.knows(k):
                    history.skip(k)
        return history

    def add(self, judged: Judged) -> list[Judged]:
        """Takes one verdict; returns those that it made final, in the order of k, with `committed` and `reused` set."""
        return self._advance(judged.k, judged)

    def skip(self, k: int) -> list[Judged]:
        """There is no verdict for k and none will come; returns as `add` does."""
        return self._advance(k, None)

    def _advance(self, k: int, judged: Judged | None) -> list[Judged]:
        self._early[k] = judged
        final = []
        while len(self._folded) in self._early:
            turn = self._early.pop(len(self._folded))
            if turn is not None:
                final.append(self._fold(turn))
            else:
                self._folded.append(None)
                self._line.append(None)
                self._best.append(self._best[-1] if self._best else 0)
                self._gained.append(self._gained[-1] if self._gained else 0)
        return final

    def __len__(self) -> int:
        """How many verdicts are final: those of proposals 0 to len - 1."""
        return len(self._folded)

    def knows(self, k: int) -> bool:
        return k < len(self._folded) or k in self._early

    def upto(self, k: int) -> tuple[Judged, ...]:
        """Proposals 0 to k with their verdicts."""
        return tuple(c for c in self._folded[: k + 1] if c is not None)

    def all(self) -> tuple[Judged, ...]:
        """Every verdict that is final, in the order of k."""
        return self.upto(len(self._folded))

    def best(self, k: int | None = None) -> Judged:
        """The best committed of proposals 0 to k (of all that are final); the seed where none is committed."""
        return self._at(self._best[-1 if k is None else k])

    def ranked(self) -> list[Judged]:
        """What is committed, best score first; the earlier of equals. The seed program is among it where it is."""
        return sorted((c for c in self.all() if c.committed), key=lambda c: (-c.value, c.k))

    def stale(self, k: int) -> int:
        """How many proposals up to k have passed since the best was last raised."""
        return k - self._gained[k]

    def first(self, digest: str) -> int | None:
        """The number of the first proposal with this digest."""
        return self._first.get(digest)

    def compared(self, judged: Judged) -> Comparison | None:
        """A final verdict against the best that its lineage had before it; None for a seed or one that is not OK."""
        before = self._before(self._parents(judged))
        return None if before is None else compare(judged.evaluation, self._at(before).evaluation)

    def _fold(self, judged: Judged) -> Judged:
        k = judged.k
        reused = judged.digest in self._first
        before = self._before(self._parents(judged))
        committed = judged.status is Status.OK and not reused
        if committed and before is not None:
            found = compare(judged.evaluation, self._at(before).evaluation)
            committed = found is not None and found.verdict != "slower"
        inherited = self._inherited(judged) if judged.status is Status.GAMING else None
        judged = replace(judged, committed=committed, reused=reused, inherited=inherited)
        self._first.setdefault(judged.digest, k)
        self._folded.append(judged)
        self._line.append(self._better(k, before) if committed else before)
        best = self._best[-1] if self._best else 0
        better = committed and (not self._at(best).committed or judged.value > self._at(best).value)
        self._best.append(k if better else best)
        self._gained.append(k if better or not self._gained else self._gained[-1])
        return judged

    def _inherited(self, judged: Judged) -> int | None:
        """The gaming proposal that this one goes back to: the nearest of its ancestors, or one that it copies."""
        line, seen = list(self._parents(judged)), set()
        while line:
            k = line.pop(0)
            if k in seen:
                continue
            seen.add(k)
            if self._at(k).status is Status.GAMING:
                return k
            line += self._parents(self._at(k))
        mine = _lines(judged.text)
        for other in reversed(self._folded):
            if other is not None and other.status is Status.GAMING and mine:
                theirs = _lines(other.text)
                if len(mine & theirs) >= COPIED * len(mine | theirs):
                    return other.k
        return None

    def _parents(self, judged: Judged) -> Iterable[int]:
        return (self._first[p] for p in judged.parents)

    def _before(self, parents: Iterable[int]) -> int | None:
        """The best committed of some candidates and all their ancestors."""
        best: int | None = None
        for parent in parents:
            line = self._line[parent]
            if line is not None:
                best = self._better(line, best)
        return best

    def _better(self, k: int, other: int | None) -> int:
        """The one with the higher score; the earlier of equals."""
        if other is None or self._at(k).value > self._at(other).value:
            return k
        return min(k, other) if self._at(k).value == self._at(other).value else other

    def _at(self, k: int) -> Judged:
        found = self._folded[k]
        assert found is not None, f"proposal {k} has no verdict"
        return found
