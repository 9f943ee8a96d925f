"""What passes between the evolution loop and an agent: a brief goes in, a proposal comes out.

Proposal k is a pure function of the run's seed, k, and the verdicts of proposals up to k-J (J is `--jobs`). An agent
therefore keeps nothing between calls that it could not rebuild from the brief: that is what makes `--resume` exact.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from archive.records import Hypothesis, Note, Spend

if TYPE_CHECKING:
    from avo.models.calling import Journal
    from dsl.hardware import Hardware
    from evaluators.evaluation import Evaluation, Score, Status
    from evaluators.target import Target


@dataclass(frozen=True)
class Proposal:
    """A program that an agent wants judged. parents: digests that the brief showed; empty means `brief.parent`.

    spend is what the agent spent on it and has not booked otherwise; `model` says at which model, if any, and `prompts`
    which prompts that was asked with (a name and a digest, at most 64 characters).
    """

    text: str
    parents: tuple[str, ...] = ()
    rationale: str = ""
    hypothesis: Hypothesis | None = None
    spend: Spend = Spend()
    model: str = ""
    prompts: str = ""


@dataclass(frozen=True)
class Judged:
    """A proposal with its verdict, as an agent sees it. k 0 is the seed program.

    committed: it is correct and was not slower, beyond the noise, than the best of its ancestors. reused: a program of
    the same digest had been judged before, and that verdict holds here. inherited: of a gaming one, the number of the
    gaming proposal that it descends from or copies.
    """

    k: int
    digest: str
    text: str
    parents: tuple[str, ...]
    agent: str
    evaluation: Evaluation
    score: Score
    rationale: str = ""
    hypothesis: Hypothesis | None = None
    committed: bool = False
    reused: bool = False
    inherited: int | None = None

    @property
    def status(self) -> Status:
        return self.evaluation.status

    @property
    def value(self) -> float:
        """What candidates of one run are ranked by: the measured score in measured mode, else the predicted one.

        Never both: a run has one mode. 0 where there is no score.
        """
        found = self.score.measured if self.evaluation.mode == "measured" else self.score.predicted
        return found or 0.0


@dataclass(frozen=True)
class Left:
    """What is left of each budget; None where there is none. Only `steps` is the same in a replay: a proposal that is
    to be reproducible reads no other."""

    steps: int | None = None
    seconds: float | None = None
    usd: float | None = None
    tokens: int | None = None
    device_s: float | None = None


@dataclass(frozen=True)
class Brief:
    """All that an agent may know when it makes proposal k.

    candidates: every proposal up to k-J with its verdict, in the order of k; never empty, since the seed program is
    judged before anything is proposed. best: the best committed of them (the seed where none is). parent: the one to
    start from; an agent may start from any other. opens: what an edit may change. options: the agent's own settings.
    notes: what agents wrote down, the oldest first: in other runs of this archive, before this one began, and in this
    one up to proposal k-J. preview: the predicted verdict of a text, compiled and never run, where the judge gives
    one: it is the same for the same text, and costs a compilation. journal, stop: for asking a model
    (`avo.models.calling.converse`): where requests and replies are kept, and what is set when the run is to end at
    once.
    """

    k: int
    seed: int
    target: Target
    hardware: Hardware
    parent: Judged
    best: Judged
    candidates: tuple[Judged, ...]
    opens: Literal["schedule", "numerics", "all"] = "schedule"
    left: Left = Left()
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    preview: Callable[[str], Evaluation] | None = field(default=None, compare=False, repr=False)
    journal: Journal | None = field(default=None, compare=False, repr=False)
    stop: threading.Event | None = field(default=None, compare=False, repr=False)

    @property
    def language(self) -> Literal["avo", "python"]:
        """What candidates of this run are written in."""
        return "python" if self.target.start else "avo"

    @property
    def entropy(self) -> int:
        """64 bits that depend on the run's seed and k alone, to seed any generator."""
        return entropy(self.seed, self.k)

    def rng(self) -> random.Random:
        """A generator seeded by `entropy`. Every call starts it afresh, so keep the one you got."""
        return random.Random(self.entropy)

    def find(self, digest: str) -> Judged | None:
        """The first candidate of that digest."""
        return next((c for c in self.candidates if c.digest == digest), None)


def entropy(seed: int, k: int) -> int:
    """64 bits from the run's seed and a proposal's number; the same on every machine and Python."""
    return int.from_bytes(hashlib.sha256(f"avo proposal {seed} {k}".encode()).digest()[:8], "big")


@runtime_checkable
class Agent(Protocol):
    """brief -> proposal. `None` gives up: the run ends once what is under way is judged.

    `propose` is called from several threads at once where the run has `--jobs` above 1. It may propose a program that
    does not parse: that is a verdict like any other. It raises only for a bug or a person's mistake, which stops the
    run cleanly. `name` is stored with each candidate.
    """

    name: str

    def propose(self, brief: Brief) -> Proposal | None: ...
