"""What a run tells whoever watches it. The console hangs on these, and the run on nothing that a watcher does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from archive.records import Spend
from avo.agents.protocol import Judged
from evaluators.evaluation import Evaluation
from evaluators.times import Comparison


@dataclass(frozen=True)
class Started:
    """run: its number in the archive. done, wall_s: verdicts and seconds of its earlier sessions."""

    run: int
    done: int
    pending: int
    steps: int | None
    minutes: float | None
    jobs: int
    wall_s: float


@dataclass(frozen=True)
class Proposed:
    """A program was recorded and goes to the judge, unless an equal one has been there (known).

    spend: of the run so far, all its sessions, where a model was asked; None else.
    """

    k: int
    digest: str
    parents: tuple[str, ...]
    agent: str
    rationale: str
    known: bool
    spend: Spend | None = None


@dataclass(frozen=True)
class Verdict:
    """A candidate was judged, in the order of finishing. `candidate.committed` is not known yet: see Committed."""

    candidate: Judged
    wall_s: float


@dataclass(frozen=True)
class Committed:
    """A candidate entered its lineage, in the order of k. comparison: against the lineage's best before it (None: the
    seed). best: it is now the best of the run."""

    candidate: Judged
    comparison: Comparison | None
    best: bool


@dataclass(frozen=True)
class Promoting:
    """The run's best is judged again, on fresh inputs and on sizes that nobody saw: no proposals are made meanwhile."""

    candidate: Judged


@dataclass(frozen=True)
class Promoted:
    """What came of it. Where `evaluation` is not OK, the next best is tried."""

    candidate: Judged
    evaluation: Evaluation


@dataclass(frozen=True)
class Unavailable:
    """The harness could not judge; tried again in wait_s seconds. Not the candidate's fault."""

    k: int
    attempt: int
    attempts: int
    wait_s: float
    message: str


@dataclass(frozen=True)
class Stopping:
    """No more proposals; what is under way is finished. reason as in Finished."""

    reason: str
    in_flight: int


@dataclass(frozen=True)
class Finished:
    """reason: "steps", "minutes", "usd", "tokens", "device", "epsilon", "window", "agent", "interrupted", "failed"."""

    run: int
    reason: str
    best: Judged | None
    judged: int
    wall_s: float
    message: str = ""


Event: TypeAlias = Started | Proposed | Verdict | Committed | Promoting | Promoted | Unavailable | Stopping | Finished
Observer: TypeAlias = Callable[[Event], None]
