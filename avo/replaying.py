"""A recorded run done again without a network: models say what the journal holds, and the candidates are compared.

What a device measured, it measures but once: a run with such verdicts takes them from its record. So it can be done
again on a machine without that device, and what is compared is every decision of the search.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from archive.records import Candidate, Exchange
from avo.agents.protocol import Agent, Brief, Proposal
from avo.errors import HarnessUnavailable, UserMistake
from avo.outside import AGENT as OUTSIDE
from evaluators.evaluation import Evaluation, Score, Status

if TYPE_CHECKING:
    from archive.archive import Archive
    from avo.config import RunConfig
    from avo.events import Observer
    from avo.models import Model
    from dsl.hardware import Hardware
    from evaluators.target import Target


@dataclass(frozen=True)
class Replayed:
    """run: the new one. same: candidates that are equal in digest, parents, status, score and reason, from the first.
    difference: the first that is not, in words; "" where all are equal. recorded: verdicts are those of the record."""

    run: int
    same: int
    whole: int
    difference: str
    recorded: bool = False


class _Recorded:
    """The run's own agent, but for proposals that were told from outside: those are taken from the record."""

    def __init__(self, name: str, inner: Agent, found: list[Candidate]) -> None:
        self.name = name
        self._inner = inner
        self._digests = {c.k: c.digest for c in found}
        # in a run for proposals from outside every one was told, whatever name it goes by
        self._told = {c.k: c for c in found if c.k > 0 and (name == OUTSIDE or c.agent != name)}
        self._last = max(self._digests)

    def propose(self, brief: Brief) -> Proposal | None:
        told = self._told.get(brief.k)
        if told is not None:
            return Proposal(told.text, tuple(self._digests[p] for p in told.parents), told.rationale)
        return self._inner.propose(brief) if brief.k <= self._last else None


class RecordedVerdicts:
    """Judges as a run's record says, and nothing that is not in it. Of programs that were looked at and not judged,
    the compiler is asked again."""

    def __init__(self, verdicts: dict[str, Evaluation], key: str, look: Callable[[], Any]) -> None:
        """verdicts: by text. key: of the judge whose verdicts they are. look: makes what predicts them."""
        self.key = f"the record of {key}"
        self._verdicts = verdicts
        self._look = look
        self._predicts: Any = None
        self._lock = threading.Lock()

    def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        found = self._verdicts.get(text)
        why = "not in the record"
        return found or Evaluation(status=Status.NOT_RECORDED, mode="none", unit=target.unit, message=why)

    def preview(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        with self._lock:
            self._predicts = self._predicts or self._look()
        found: Evaluation = self._predicts.preview(text, target, hardware)
        return found

    def close(self) -> None:
        if self._predicts is not None:
            self._predicts.close()


def replay(store: Archive, run: int, observer: Observer | None = None) -> Replayed:
    """Does a run again, from its seed and its journal, as a new run of the same archive.

    Programs that are judged there under the same judge keep their verdicts, and all do where a device measured. Raises
    UserMistake where the run cannot be done again: it was begun in Python, is being judged otherwise, or still waits
    for verdicts.
    """
    from avo.budget import Budget
    from avo.config import versions
    from avo.launch import prepare, stored
    from avo.run import Run, begin, proceed

    record = store.run(run)
    before = store.candidates(run)
    if not before:
        raise UserMistake(f"run {run} has no candidate yet")
    if any(c.status is None for c in before):
        raise UserMistake(f"run {run} waits for verdicts: avo evolve --resume {run} first")
    if record.jobs > 1 and any(c.k > 0 and c.agent != record.agent for c in before):
        raise UserMistake(
            f"run {run} took proposals from outside between {record.jobs} at a time; it cannot be replayed"
        )
    config = stored(store, run)
    agent = _agent(store, run, config)
    judge = _measured(store, run, before, config)
    parts = prepare(config, agent=_Recorded(record.agent, agent, before), evaluator=judge)
    try:
        again = begin(
            store,
            target=parts.target,
            hardware=parts.hardware,
            agent=parts.agent,
            evaluator=parts.evaluator,
            seed=record.seed,
            jobs=record.jobs,
            config=parts.config.model_dump(mode="json") | {"agent": config.agent},
            versions=versions(),
            notes=record.config.get("notes"),
        )
        problem = ""
        try:
            proceed(
                Run(store, again.id),
                target=parts.target,
                hardware=parts.hardware,
                agent=parts.agent,
                evaluator=parts.evaluator,
                budget=Budget(steps=max(c.k for c in before)),
                options=config.agent_options,
                versions=versions(),
                observer=observer,
            )
        except HarnessUnavailable as error:
            if "the journal holds no reply" not in str(error):
                raise
            problem = "a request was made that the journal does not hold: prompts, briefs or options have changed since"
    finally:
        parts.evaluator.close()
    found = _compared(again.id, before, store.candidates(again.id), problem)
    return replace(found, recorded=judge is not None)


def _measured(store: Archive, run: int, found: list[Candidate], config: RunConfig) -> RecordedVerdicts | None:
    """The verdicts of the run where any was measured."""
    from avo import plugins

    verdicts = {c.text: e for c in found if (e := store.evaluation(c)) is not None}
    if not any(e.mode == "measured" for e in verdicts.values()):
        return None

    def look() -> Any:
        more = {"jobs": config.jobs, "seed": config.seed, "hardware": plugins.load("hardware", config.hw)}
        return plugins.create("evaluator", "predicted", more, {})

    return RecordedVerdicts(verdicts, store.run(run).judge, look)


def _agent(store: Archive, run: int, config: RunConfig) -> Agent:
    from avo import asking, plugins

    options = config.agent_options
    found = plugins.load("agent", config.agent)
    known = inspect.signature(found).parameters if callable(found) else {}
    available: dict[str, Any] = {
        "jobs": config.jobs,
        "seed": config.seed,
        "hardware": plugins.load("hardware", config.hw),
    }
    models: list[Model] = []
    for name in asking.names(config):
        from avo.models.scripted import ReplayModel

        own = [e for e in store.exchanges(run) if e.model == name]
        models.append(ReplayModel(name, own, _takes(config, name, own)))

    def make(model: Model | None) -> Agent:
        more = available if model is None else available | {"model": model}
        made: Agent = plugins.create("agent", config.agent, more, {k: v for k, v in options.items() if k in known})
        return made

    return asking.agent(models, asking.prices(config), make, config.jobs or 1)


def _takes(config: RunConfig, name: str, exchanges: list[Exchange]) -> frozenset[str]:
    """What one of the run's models takes; what its requests held, where it is a plug-in that is not here."""
    from avo import asking
    from avo.models import open_model
    from avo.models.protocol import Request, takes

    try:
        return takes(open_model(name, **asking.options(config, name)))
    except UserMistake:
        asked = [Request.from_json(e.request) for e in exchanges]
    held = {"tools": "tools", "gbnf": "grammar", "schema": "schema"}
    found = {name for name, part in held.items() if any(getattr(r, part) for r in asked)}
    return frozenset(found | ({"lark"} if any(t.grammar for r in asked for t in r.tools) else set()))


def _close(then: Score, now: Score) -> bool:
    """Another machine's logarithms differ in the last digit."""
    both = [(a, getattr(now, name)) for name, a in vars(then).items()]
    return all(a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9)) for a, b in both)


def _compared(run: int, before: list[Candidate], after: list[Candidate], problem: str) -> Replayed:
    new = {c.k: c for c in after}
    same = 0
    for c in before:
        other = new.get(c.k)
        if other is None:
            return Replayed(run, same, len(before), f"proposal {c.k} was not made: {problem or 'the agent gave up'}")
        for what in ("digest", "parents", "status", "rationale", "score"):
            then, now = getattr(c, what), getattr(other, what)
            if then != now and not (what == "score" and _close(then, now)):
                return Replayed(run, same, len(before), f"proposal {c.k}: its {what} was {then} and is {now}")
        same += 1
    return Replayed(run, same, len(before), "")
