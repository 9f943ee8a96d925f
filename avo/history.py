"""The verdicts of a run folded in the order of k: what is committed, what is best, what proposal k may see.

Nothing of this is stored: it follows from the evaluations and the parents, whenever they arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from avo.agents.protocol import Judged
from avo.committing import Committing
from evaluators.evaluation import Status, score
from evaluators.times import Comparison, times_of

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.records import Candidate, Note, Run


def notes_of(archive: Archive, record: Run, seen: int) -> tuple[Note, ...]:
    """What the agent of a run may read: its own notes up to proposal `seen`, and those that were there before it."""
    mark = int(record.config.get("notes") or 0)
    return tuple(n for n in archive.notes() if (n.k <= seen if n.run == record.id else n.id <= mark))


def judged_of(
    archive: Archive, run: int, found: Sequence[Candidate], digests: Mapping[int, str], all: bool = True
) -> Iterator[Judged]:
    """Those of some recorded candidates that have a verdict, as the loop has them. digests: of them and their parents.
    all: they are all of the run, so that its hypotheses are read at once."""
    wanted = {c.k for c in found}
    ids = None if all else [id for id, k, _ in archive.expected(run) if k in wanted]
    hypotheses = {t.k: t.hypothesis for t in archive.hypotheses(run, ids) if t.k is not None}
    for c, evaluation in archive.evaluations(found):
        yield Judged(
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


COPIED = 0.8  # of the lines of both: so alike is a copy


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}


class History:
    """Takes verdicts in any order, folds them in the order of k, and shows any past state exactly."""

    def __init__(self) -> None:
        self._folded: list[Judged | None] = []  # by k; None where the agent gave up
        self._early: dict[int, Judged | None] = {}  # those whose turn has not come
        self._rule = Committing()

    @classmethod
    def of(cls, archive: Archive, run: int, *, whole: bool = False) -> History:
        """Rebuilt from what was recorded. whole: also what comes after a proposal without a verdict, to look at."""
        history = cls()
        found = archive.candidates(run)
        for judged in judged_of(archive, run, found, {c.k: c.digest for c in found}):
            history.add(judged)
        if whole:
            for k in range(max((c.k for c in found), default=0)):
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
                self._rule.skip()
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
        return self._at(self._rule.best[-1 if k is None else k])

    def ranked(self) -> list[Judged]:
        """What is committed, best score first; the earlier of equals. The seed program is among it where it is."""
        return sorted((c for c in self.all() if c.committed), key=lambda c: (-c.value, c.k))

    def stale(self, k: int) -> int:
        """How many proposals up to k have passed since the best was last raised."""
        return k - self._rule.gained[k]

    def first(self, digest: str) -> int | None:
        """The number of the first proposal with this digest."""
        return self._rule.first.get(digest)

    def compared(self, judged: Judged) -> Comparison | None:
        """A final verdict against the best that its lineage had before it; None for a seed or one that is not OK."""
        return self._rule.compared(judged.k, judged.parents)

    def _fold(self, judged: Judged) -> Judged:
        reused = judged.digest in self._rule.first
        inherited = self._inherited(judged) if judged.status is Status.GAMING else None
        times = times_of(judged.evaluation)
        ok = judged.status is Status.OK
        committed = self._rule.fold(judged.digest, judged.parents, ok, judged.value, times)
        judged = replace(judged, committed=committed, reused=reused, inherited=inherited)
        self._folded.append(judged)
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
        return (self._rule.first[p] for p in judged.parents)

    def _at(self, k: int) -> Judged:
        found = self._folded[k]
        assert found is not None, f"proposal {k} has no verdict"
        return found
