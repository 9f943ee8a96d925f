"""A run whose proposals come from outside: what the next step is told, and one proposal judged and recorded in it.

Any run can be told a proposal, also one that an agent of avo's made so far. It is a proposal like any other: recorded
before it is judged, with its parent, and a resumed run goes on from its verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from archive.errors import Held
from archive.records import Hypothesis
from avo.agents.answer import Answer
from avo.agents.protocol import Brief, Judged, Left, Proposal
from avo.agents.sweeping import EVALUATIONS
from avo.errors import UserMistake
from avo.history import History, notes_of
from avo.python_arm import begun
from evaluators.times import Comparison

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.records import Run as Record
    from avo.config import RunConfig
    from avo.events import Observer
    from avo.launch import Parts

AGENT = "outside"


class OutsideAgent:
    """Stands for whoever answers `avo ask`. It has nothing to propose by itself."""

    name = AGENT

    def propose(self, brief: Brief) -> Proposal | None:
        raise UserMistake(
            "proposals of the agent 'outside' come from `avo tell`: `avo ask` prints what the next step is told, and "
            "`avo tell FILE` judges the answer. For a run that proposes by itself, name another agent"
        )


class _Told:
    """The agent of one proposal."""

    def __init__(self, proposal: Proposal, name: str) -> None:
        self.name = name
        self._proposal: Proposal | None = proposal

    def propose(self, brief: Brief) -> Proposal | None:
        proposal, self._proposal = self._proposal, None
        return proposal


@dataclass(frozen=True)
class Told:
    """A told proposal with its verdict. comparison: against the best of its ancestors; None where there is none."""

    judged: Judged
    comparison: Comparison | None
    best: Judged
    known: bool


def begin(config: RunConfig, observer: Observer | None = None) -> int:
    """A new run for proposals from outside, with its seed program judged; returns its number."""
    from avo.budget import Budget
    from avo.launch import start

    config = config.model_copy(update={"agent": AGENT, "jobs": 1})
    with start(config, observer=observer, budget=Budget(steps=0)) as run:
        return run.id


def brief_of(store: Archive, record: Record) -> Brief:
    """What the next proposal of a run is told: all verdicts that are in. Reads only; needs neither torch nor a judge.

    Raises UserMistake where the seed program has no verdict yet, archive.errors.Held where another process is at it.
    """
    from avo import choosing, plugins, workloads
    from avo.launch import stored
    from evaluators.loading import complete

    config = stored(store, record.id)
    for kind, name in (("target", config.target), ("hardware", config.hw)):
        if name.startswith("<"):
            raise UserMistake(
                f"run {record.id} was begun in Python with {name[1:-1]}, so its {kind} has no name to go by"
            )
    job = plugins.load("target", config.target)
    if config.program is not None and config.language == "avo":
        from avo.files import read_program

        job = replace(job, seed=read_program(config.program)[0])
    chip = choosing.chip(config.hw)
    target = begun(config, complete(workloads.retarget(job, config.workloads.values())), chip)
    history = History.of(store, record.id)
    if not len(history):
        if record.holder is not None:
            raise Held(
                f"run {record.id} is being written by {record.holder}, which has not judged its seed program yet. "
                "Wait for it, then try again"
            )
        raise UserMistake(f"the seed program of run {record.id} is not judged yet: avo evolve --resume {record.id}")
    best = history.best()
    return Brief(
        k=_next(store, record.id, history),
        seed=record.seed,
        target=target,
        hardware=chip,
        parent=best,
        best=best,
        candidates=history.all(),
        opens=target.opens,
        left=Left(),
        options=config.agent_options,
        notes=notes_of(store, record, len(history)),
    )


def _next(store: Archive, run: int, history: History) -> int:
    """The first number that no proposal has; 0 is the seed program's."""
    waiting = {c.k for c in store.candidates(run, pending=True, text=False)}
    k = max(1, len(history))
    while history.knows(k) or k in waiting:
        k += 1
    return k


def started_from(brief: Brief, digest: str) -> Brief:
    """The brief with another candidate as its parent, by the start of its digest. Raises UserMistake."""
    found = {c.digest: c for c in reversed(brief.candidates) if digest and c.digest.startswith(digest.lower())}
    if len(found) != 1:
        known = ", ".join(c.digest[:8] for c in brief.candidates[-8:])
        problem = "is the start of several digests" if found else "is no candidate of this run"
        raise UserMistake(f"--parent {digest} {problem}; the newest are {known}")
    return replace(brief, parent=next(iter(found.values())))


def proposal_of(answer: Answer, parent: Judged, why: str = "", expect: float | None = None) -> Proposal:
    """The proposal that an answer is; what is given beside it wins over what it says itself."""
    gain = expect if expect is not None else answer.expect
    claim = why or answer.why
    return Proposal(
        answer.text,
        parents=(parent.digest,),
        rationale=claim,
        hypothesis=Hypothesis(claim or "a higher score", gain) if gain is not None else None,
    )


def tell(store: Archive, parts: Parts, run: int, proposal: Proposal, by: str, observer: Observer | None = None) -> Told:
    """Judges one proposal as the run's judge does and records it; proposals that wait for a verdict are judged first.
    One that leaves numbers open is judged several times, filled by a sampler; the best filling is returned.

    Raises UserMistake where the run was judged otherwise than it would be now, archive.errors.Held where another
    process writes it, HarnessUnavailable.
    """
    from avo.budget import Budget
    from avo.config import versions
    from avo.run import Run, proceed

    k = _next(store, run, History.of(store, run))
    sweep = parts.config.agent_options.get("sweep", EVALUATIONS) if "?" in proposal.text else 1
    proceed(
        Run(store, run),
        target=parts.target,
        hardware=parts.hardware,
        agent=_Told(proposal, by),
        evaluator=parts.evaluator,
        budget=Budget(steps=k + sweep - 1),
        options=parts.config.agent_options,
        versions=versions(),
        observer=observer,
        guest=True,
    )
    after = History.of(store, run)
    found = [c for c in after.all() if c.k >= k]
    judged = max(found, key=lambda c: (c.value, -c.k), default=None)
    if judged is None:
        raise UserMistake(
            f"run {run} was stopped before the proposal was judged; it keeps its place, --resume judges it"
        )
    return Told(judged, after.compared(judged), after.best(), judged.reused)
