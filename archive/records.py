"""What the archive hands out and takes in: frozen records. Needs no database to import."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from evaluators.evaluation import Score, Status


@dataclass(frozen=True)
class Spend:
    """What something cost. usd: None where the price is unknown (then it is not zero). Seconds for `_s`.

    tokens_in counts all input tokens, tokens_cached those of them that came from the provider's cache.
    """

    usd: float | None = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    device_s: float = 0.0
    wall_s: float = 0.0

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            usd=None if self.usd is None or other.usd is None else self.usd + other.usd,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            device_s=self.device_s + other.device_s,
            wall_s=self.wall_s + other.wall_s,
        )

    @property
    def tokens(self) -> int:
        """In and out; cached ones are among those in."""
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True)
class Hypothesis:
    """Why a change should help. expected_gain: ratio of the child's score to its parent's (1.05: 5% faster)."""

    claim: str
    expected_gain: float | None = None
    bottleneck: str = ""


@dataclass(frozen=True)
class Run:
    """One search. config, versions: as stored when it began. judge: runs with an equal one share evaluations.

    state: "running" while a process holds it, "interrupted" when the last one was killed or told to stop, "new" before
    the first, else "ended". ended: why it is no longer running, "interrupted" where it was told to stop; None after a
    kill. wall_s: over all sessions.
    """

    id: int
    target: str
    hardware: str
    agent: str
    seed: int
    jobs: int
    judge: str
    config: dict[str, Any]
    versions: dict[str, Any]
    created_at: dt.datetime
    state: Literal["new", "running", "interrupted", "ended"]
    ended: str | None
    message: str
    holder: str | None
    wall_s: float

    @property
    def given(self) -> dict[str, Any]:
        """What the run was asked to do, as it was asked: the part of `config` that a person gave."""
        found = self.config.get("given", self.config)
        return found if isinstance(found, dict) else {}

    @property
    def standing(self) -> str:
        """The state for people: `running`, `interrupted`, `ended (steps)`."""
        return f"{self.state} ({self.ended})" if self.state == "ended" else self.state


@dataclass(frozen=True)
class Candidate:
    """Proposal k of a run. parents: their k, in the agent's order. status None: proposed and not yet judged.

    reused: an earlier proposal of the run is the same program. text is "" where a list was asked for without texts.
    prompts: which prompts a model was asked with ("" where none was): a name and the digest of their texts.
    """

    run: int
    k: int
    digest: str
    text: str
    parents: tuple[int, ...]
    agent: str
    rationale: str
    proposed_at: dt.datetime
    reused: bool
    evaluation_id: int | None
    status: Status | None
    mode: str
    failed_gate: str | None
    message: str
    score: Score
    judged_at: dt.datetime | None
    wall_s: float
    prompts: str = ""

    @property
    def value(self) -> float:
        """The score in its own mode, measured or predicted; 0 where there is none."""
        return (self.score.measured if self.mode == "measured" else self.score.predicted) or 0.0


class Outline(NamedTuple):
    """A candidate by its plainest facts, read without its texts and evidence: words and numbers as they stand in the
    tables. times: see `evaluators.times.Times.from_text`."""

    k: int
    digest: str
    parents: tuple[int, ...]
    status: str | None
    mode: str
    failed_gate: str | None
    predicted: float | None
    measured: float | None
    times: str | None

    @property
    def value(self) -> float:
        """As `Candidate.value`."""
        return (self.measured if self.mode == "measured" else self.predicted) or 0.0


@dataclass(frozen=True)
class Tested:
    """A hypothesis and what came of it. k None: nominated at step `nominated_k` and never tried.

    actual_gain: score of k over the best of its parents', None where either has none.
    """

    run: int
    nominated_k: int
    k: int | None
    hypothesis: Hypothesis
    actual_gain: float | None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Booking:
    """One line of the ledger. settled False: the most that it can have cost; the true figure never came."""

    id: int
    run: int
    k: int | None
    stage: str
    model: str
    spend: Spend
    settled: bool
    note: str
    booked_at: dt.datetime


@dataclass(frozen=True)
class Exchange:
    """One request to a model and its reply; outcome None: no reply came."""

    run: int
    k: int
    seq: int
    model: str
    request: str
    reply: str | None
    outcome: str | None
    sent_at: dt.datetime
    replied_at: dt.datetime | None


@dataclass(frozen=True)
class Note:
    """What an agent wrote down. id: rises with time, over all runs of an archive."""

    id: int
    run: int
    k: int
    target: str
    topic: str
    body: str
    written_at: dt.datetime


@dataclass(frozen=True)
class Review:
    """A verdict in the place of the judge's. by: a person's name, or "rules". undone_at None: it has not been undone;
    of several the newest holds."""

    id: int
    evaluation_id: int
    by: str
    reason: str
    status: Status
    decided_at: dt.datetime
    undone_at: dt.datetime | None
