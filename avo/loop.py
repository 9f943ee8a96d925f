"""The evolution loop: select a parent, brief the agent, have its proposal judged, record it.

Proposal k is made when the verdicts up to max(0, k - J) are in, and from those alone, whatever else is known by then.
So what a run does depends on its seed and the verdicts, not on timing, and a run that was killed goes on as if nothing
had happened. One thread (the caller's) records and decides; up to J daemon threads call the agent and the evaluator.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from archive.errors import ArchiveError
from archive.records import Candidate, Hypothesis, Spend
from avo.agents.protocol import Agent, Brief, Judged, Proposal
from avo.agents.sweeping import EVALUATIONS, Sweeping
from avo.budget import Budget
from avo.errors import Halted, HarnessUnavailable, UserMistake
from avo.events import Committed, Event, Finished, Observer, Proposed, Started, Stopping, Unavailable, Verdict
from avo.history import History, judged_of, notes_of
from avo.models.calling import RunJournal
from avo.plugin_answers import evaluation_of
from avo.plugins import told
from avo.programs import named
from avo.promoting import crown, device_seconds
from avo.proposing import Named, ask
from avo.signals import Interrupts
from dsl.wording import counted
from evaluators.evaluation import Evaluation, Status, score

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.writer import RunWriter
    from dsl.hardware import Hardware
    from evaluators.protocol import Evaluator
    from evaluators.target import Target

_BEAT_S = 5.0
_LOOK_S = 0.5  # how often a process looks for others at its run, and at what they did
SEED_AGENT = "seed"


@dataclass(frozen=True)
class Patience:
    """How often the harness may be UNAVAILABLE for one candidate, and how long to wait in between (doubling)."""

    attempts: int = 4
    first_s: float = 1.0


PATIENCE = Patience()


@dataclass(frozen=True)
class _Waiting:
    """A recorded proposal that has no verdict yet."""

    k: int
    digest: str
    text: str
    parents: tuple[str, ...]
    agent: str
    rationale: str
    hypothesis: Hypothesis | None

    def judged(self, evaluation: Evaluation) -> Judged:
        return Judged(**vars(self), evaluation=evaluation, score=score(evaluation))


class Loop:
    """One session of one run. `run()` returns why it ended; the caller closes the evaluator."""

    def __init__(
        self,
        archive: Archive,
        writer: RunWriter,
        *,
        target: Target,
        hardware: Hardware,
        agent: Agent,
        evaluator: Evaluator,
        budget: Budget,
        patience: Patience = PATIENCE,
        options: Mapping[str, Any] | None = None,
        observer: Observer | None = None,
        jobs: int | None = None,
    ) -> None:
        """jobs: instead of the run's own, for an agent that is no function of the brief."""
        self._archive = archive
        self._writer = writer
        self._target = target
        self._hardware = hardware
        self._jobs = jobs or writer.run.jobs
        sweep = (options or {}).get("sweep", EVALUATIONS)
        if isinstance(sweep, bool) or not isinstance(sweep, int) or sweep < 1:
            raise UserMistake(f"agent_options.sweep is how often open numbers are filled, at least 1; got {sweep!r}")
        self._evaluator = evaluator
        self._budget = budget
        self._patience = patience
        self._options = dict(options or {})
        self._observer = observer
        self._seed = writer.run.seed
        promoted = archive.spend_by(writer.run.id, "stage").get("promote", Spend())
        self._crowned_s = promoted.wall_s  # what earlier sessions promoted is beyond --minutes
        writer.adopt()
        self._history = History.of(archive, writer.run.id)
        adopt, best = getattr(evaluator, "adopt", None), archive.best(writer.run.id)
        if adopt is not None and best is not None:
            # A judge that races candidates against an incumbent goes on with the one that it had.
            adopt(best.text, target, archive.evaluation(best))
        # Recorded and not judged, when the run was taken up: paid for, so judged before anything new is proposed.
        self._pending = archive.candidates(writer.run.id, pending=True)
        self._recorded: dict[int, _Waiting | None] = {}  # proposals under judgement; None: the agent is at it
        self._judging: dict[str, list[int]] = {}  # digest -> the proposals that wait for its verdict
        self._elsewhere: set[str] = set()  # those of them that another process judges
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._next = 0
        since = len(self._history) if jobs else 0  # a guest leaves the sweeps of others alone
        self._agent = Sweeping(agent, self._jobs, sweep, since)
        self._last: int | None = None  # no proposal after this one
        self._bar: int | None = None  # neither this proposal nor a later one, by whatever limit
        self._others: list[str] = []  # processes that write the run beside this one
        self._taken: set[int] = set()  # proposals that they are at, or were when we last looked
        self._behind = False  # somebody has done, or is at, what this process thought was to do
        self._reason: str | None = None
        self._failure: BaseException | None = None
        self._quit = threading.Event()

    def run(self) -> str:
        """Until a limit is reached. Raises what an agent or evaluator raised, once what is under way is judged;
        HarnessUnavailable where judging kept failing; UserMistake where the seed program is not accepted;
        KeyboardInterrupt at the second Ctrl-C."""
        interrupts = Interrupts(lambda: self._inbox.put(None))
        reason, message = "failed", ""
        best: Judged | None = None
        try:
            with interrupts:
                self._tell(
                    Started(
                        run=self._writer.run.id,
                        done=len(self._history),
                        pending=len(self._pending),
                        steps=self._budget.steps,
                        minutes=self._budget.minutes,
                        jobs=self._jobs,
                        wall_s=self._worked_s,
                    )
                )
                self._check_seed()
                self._work(interrupts)
            if self._failure is not None:
                raise self._failure
            reason = self._reason or "steps"
            if reason != "interrupted" and self._writer.holds and self._budget.final:
                with contextlib.suppress(KeyboardInterrupt):  # it is tried again when the run is taken up
                    best = self._crown()
            return reason
        except KeyboardInterrupt:
            reason, message = "interrupted", "stopped at once"
            raise
        except HarnessUnavailable as error:
            reason, message = "unavailable", str(error)
            raise
        except BaseException as error:
            if (
                isinstance(error, BrokenPipeError) and error is not self._failure
            ):  # of the observer: `avo evolve | head`
                reason, message = "interrupted", "nobody reads its output any more"
            else:
                message = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._quit.set()
            with contextlib.suppress(ArchiveError):  # the first error is the one to show
                self._writer.release(reason, message)
            best = best or (self._history.best() if len(self._history) else None)
            self._tell(Finished(self._writer.run.id, reason, best, len(self._history), self._writer.wall_s, message))

    def _crown(self) -> Judged | None:
        parts = (self._evaluator, self._target, self._hardware)
        return crown(self._archive, self._writer, self._history, *parts, self._tell)

    def _work(self, interrupts: Interrupts) -> None:
        beat = look = -math.inf
        while True:
            now = time.monotonic()
            if interrupts.requested:
                self._stop("interrupted")
                self._quit.set()
            if now - look > _LOOK_S:
                self._look()
                look = time.monotonic()
            self._start_what_may_start()
            waits = (self._others or self._behind) and not (self._closing or self._complete)
            if not self._recorded and not waits:
                return
            with contextlib.suppress(Empty):
                act = self._inbox.get(timeout=1.0 if self._recorded else _LOOK_S)
                if act is not None:
                    act()
            if now - beat > _BEAT_S:
                self._writer.beat()
                beat = now

    # Beside other processes -------------------------------------------------------------------------

    @property
    def _complete(self) -> bool:
        """Every proposal that the limits allow has its verdict."""
        return self._bar is not None and len(self._history) >= self._bar

    @property
    def _room(self) -> int:
        """How many proposals this process is at, at most: its share of the run's jobs."""
        return -(-self._jobs // (1 + len(self._others)))

    def _lease(self, task: int | str) -> bool:
        mine = self._writer.lease(task)
        self._behind = self._behind or not mine
        return mine

    def _look(self) -> None:
        """Who else is at this run, and what they have recorded since."""
        alone = not self._others
        self._others = self._writer.others()
        if not self._others and alone and not self._behind:
            return
        self._behind = False
        run, since = self._writer.run.id, len(self._history)
        found = self._archive.candidates(run, since=since)
        above = {p for c in found for p in c.parents}
        digests = {c.k: c.digest for c in [*self._archive.candidates(run, ks=above, text=False), *found]}
        for judged in judged_of(self._archive, run, found, digests, all=False):
            if judged.k in self._recorded:
                if judged.k in self._judging.get(judged.digest, ()) and judged.digest in self._elsewhere:
                    self._elsewhere.discard(judged.digest)
                    for k in sorted(self._judging.pop(judged.digest)):
                        self._settle(k, judged.evaluation, 0.0)
            elif not self._history.knows(judged.k):
                self._announce(self._history.add(judged))
        known = {c.k for c in self._pending} | self._recorded.keys()
        self._pending += [c for c in found if c.status is None and c.k not in known]
        self._pending = [c for c in self._pending if not self._history.knows(c.k)]
        for digest in list(self._elsewhere):  # whoever was at it may have died
            ks = self._judging.get(digest)
            if ks and self._lease(digest):
                self._elsewhere.discard(digest)
                waiting = self._recorded[ks[0]]
                assert waiting is not None
                self._begin(waiting)
        self._taken.clear()
        self._next = len(self._history)
        self._check_seed()

    # Starting ---------------------------------------------------------------------------------------

    def _start_what_may_start(self) -> None:
        for found in [] if self._closing else list(self._pending):
            if len(self._recorded) < self._room and self._lease(found.digest):
                self._pending.remove(found)
                self._take_up(found)
        while len(self._recorded) < self._room and not self._closing and not (self._pending and not self._others):
            while self._history.knows(self._next) or self._next in self._recorded or self._next in self._taken:
                self._next += 1
            k = self._next
            seen = max(0, k - self._jobs)
            if self._bar is not None and k >= self._bar:
                return
            if k > 0 and len(self._history) <= seen:
                return  # proposal k has to wait for the verdict on `seen`
            if k > 0 and self._may_not(k, seen):
                self._bar = k
                return
            if not self._lease(k):
                self._taken.add(k)
                continue
            self._recorded[k] = None
            if k == 0:
                digest, text = named(self._target.start or self._target.seed)
                self._proposed(0, Named(Proposal(text, rationale="the seed program of the target"), digest, SEED_AGENT))
            else:
                brief = self._brief(k, seen)
                self._spawn(k, lambda brief=brief: ask(self._agent, brief), self._proposed)  # type: ignore[misc]

    @property
    def _closing(self) -> bool:
        """Nothing at all is started any more, not even what is recorded: it keeps until the run is resumed."""
        return self._reason == "interrupted" or self._failure is not None

    @property
    def _worked_s(self) -> float:
        """Of all sessions what counts against the budget: a run that is taken up again has not spent its promotions."""
        return self._writer.wall_s - self._crowned_s

    def _may_not(self, k: int, seen: int) -> bool:
        if self._last is not None and k > self._last:
            self._stop("agent")
            return True
        spend = self._archive.spend(self._writer.run.id) if self._budget.priced else Spend()
        reason = self._budget.reached(k, seen, self._history, self._worked_s, spend)
        if reason is not None:
            self._stop(reason)
        return reason is not None

    def _stop(self, reason: str) -> None:
        if self._reason is None or (reason == "interrupted" and self._reason != reason):
            self._reason = reason
            self._tell(Stopping(reason, len(self._recorded)))

    def _brief(self, k: int, seen: int) -> Brief:
        best = self._history.best(seen)
        spend = self._archive.spend(self._writer.run.id) if self._budget.priced else Spend()
        return Brief(
            k=k,
            seed=self._seed,
            target=self._target,
            hardware=self._hardware,
            parent=best,
            best=best,
            candidates=self._history.upto(seen),
            opens=self._target.opens,
            left=self._budget.left(k, self._worked_s, spend),
            options=self._options,
            preview=self._preview(),
            journal=RunJournal(
                self._writer,
                k,
                self._archive.exchanges(self._writer.run.id, k),
                lambda maximum: self._budget.exceeded(self._archive.spend(self._writer.run.id) + maximum),
                seen,
                lambda k: self._archive.exchanges(self._writer.run.id, k),
            ),
            notes=notes_of(self._archive, self._writer.run, seen),
            stop=self._quit,
        )

    def _preview(self) -> Callable[[str], Evaluation] | None:
        """What the evaluator can tell of a text without judging it, if it can."""
        preview = getattr(self._evaluator, "preview", None)
        if preview is None:
            return None

        def look(text: str) -> Evaluation:
            # A harness that fails must not decide what is proposed: asked again as for a verdict, then it ends the run.
            wait_s = self._patience.first_s
            for attempt in range(1, self._patience.attempts + 1):
                found = evaluation_of(self._evaluator, preview(text, self._target, self._hardware))
                if found.status is not Status.UNAVAILABLE:
                    return found
                if attempt == self._patience.attempts or self._quit.wait(wait_s):
                    break
                wait_s *= 2
            name = type(self._evaluator).__name__
            raise HarnessUnavailable(f"{name} could not preview a program: {found.message or 'no reason given'}")

        return look

    def _take_up(self, found: Candidate) -> None:
        """A proposal that an earlier session recorded and did not see judged."""
        first = {c.k: c.digest for c in self._archive.candidates(found.run, ks=found.parents, text=False)}
        tested = [t for t in self._archive.hypotheses(found.run) if t.k == found.k]
        parents = tuple(first[p] for p in found.parents)
        hypothesis = tested[0].hypothesis if tested else None
        self._judge(_Waiting(found.k, found.digest, found.text, parents, found.agent, found.rationale, hypothesis))

    # Proposing --------------------------------------------------------------------------------------

    def _proposed(self, k: int, found: Named, wall_s: float = 0.0) -> None:
        proposal = found.proposal
        if proposal is None:
            # What could be proposed without knowing this still is, so that timing decides nothing.
            self._last = k + self._jobs - 1 if self._last is None else min(self._last, k + self._jobs - 1)
            del self._recorded[k]
            self._writer.unlease(k)
            self._announce(self._history.skip(k))
            return
        digest = self._archive.name_for(found.digest, proposal.text)
        parents = [self._history.first(p) for p in proposal.parents]
        known = self._writer.add_candidate(
            k,
            digest,
            proposal.text,
            agent=found.agent,
            parents=[p for p in parents if p is not None],
            rationale=proposal.rationale,
            hypothesis=proposal.hypothesis,
            spend=None if k == 0 else replace(proposal.spend, wall_s=proposal.spend.wall_s or wall_s),
            model=proposal.model,
            prompts=proposal.prompts[:64],
        )
        waiting = _Waiting(
            k, digest, proposal.text, proposal.parents, found.agent, proposal.rationale, proposal.hypothesis
        )
        self._tell(
            Proposed(
                k,
                digest,
                proposal.parents,
                found.agent,
                proposal.rationale,
                known=known is not None,
                spend=self._archive.spend(self._writer.run.id) if proposal.model else None,
            )
        )
        if known is not None:
            self._recorded[k] = waiting
            self._settle(k, known, 0.0)
        else:
            self._judge(waiting, leased=False)

    # Judging ----------------------------------------------------------------------------------------

    def _judge(self, waiting: _Waiting, leased: bool = True) -> None:
        """Starts the judgement, or joins one of an equal program that is under way, here or elsewhere."""
        self._recorded[waiting.k] = waiting
        others = self._judging.setdefault(waiting.digest, [])
        others.append(waiting.k)
        if len(others) > 1:
            return
        if leased or self._lease(waiting.digest):
            self._begin(waiting)
        else:
            self._elsewhere.add(waiting.digest)

    def _begin(self, waiting: _Waiting) -> None:
        self._spawn(waiting.k, lambda: self._evaluate(waiting), self._judged)

    def _evaluate(self, waiting: _Waiting) -> Evaluation:
        """In a thread: the verdict, however often the harness has to be asked for it."""
        wait_s = self._patience.first_s
        name = type(self._evaluator).__name__
        for attempt in range(1, self._patience.attempts + 1):
            start = time.monotonic()
            found = self._evaluator.evaluate(waiting.text, self._target, self._hardware)
            evaluation = evaluation_of(self._evaluator, found)
            if evaluation.status is not Status.UNAVAILABLE:
                return evaluation
            spent = Spend(wall_s=time.monotonic() - start, device_s=device_seconds(evaluation))
            self._writer.book(waiting.k, "unavailable", spend=spent, note=evaluation.message)
            if attempt == self._patience.attempts:
                break
            event = Unavailable(waiting.k, attempt, self._patience.attempts, wait_s, evaluation.message)
            self._inbox.put(lambda event=event: self._tell(event))  # type: ignore[misc]
            if self._quit.wait(wait_s):
                break
            wait_s *= 2
        raise HarnessUnavailable(
            f"{name} could not judge proposal {waiting.k}: {evaluation.message or 'no reason given'} "
            f"({counted(attempt, 'attempt')}). It keeps its place, unjudged: --resume {self._writer.run.id} goes on "
            "from there"
        )

    def _judged(self, k: int, evaluation: Evaluation, wall_s: float) -> None:
        spent = Spend(wall_s=wall_s, device_s=device_seconds(evaluation))
        kept = self._writer.record_evaluation(k, evaluation, spent)
        waiting = self._recorded[k]
        assert waiting is not None
        for other in sorted(self._judging.pop(waiting.digest)):
            self._settle(other, kept, wall_s if other == k else 0.0)

    def _settle(self, k: int, evaluation: Evaluation, wall_s: float) -> None:
        """A verdict is in the archive: fold it in, and let proposals that waited for it begin."""
        waiting = self._recorded.pop(k)
        assert waiting is not None
        judged = waiting.judged(evaluation)
        self._tell(Verdict(judged, wall_s))
        self._announce(self._history.add(judged))
        self._check_seed()

    def _announce(self, final: list[Judged]) -> None:
        for judged in final:
            if judged.committed:
                best = self._history.best(judged.k) is judged
                self._tell(Committed(judged, self._history.compared(judged), best))

    def _check_seed(self) -> None:
        if len(self._history) and self._failure is None:
            seed = self._history.upto(0)[0]
            if seed.status is not Status.OK:
                gate = seed.evaluation.failed_gate
                self._failure = UserMistake(
                    f"the seed program of {self._target.name} is not accepted on {self._hardware.name}: {seed.status}"
                    + (f" at the gate {gate}" if gate else "")
                    + (f": {seed.evaluation.message}" if seed.evaluation.message else "")
                )
                self._stop("failed")

    def _spawn(self, k: int, task: Callable[[], Any], then: Callable[[int, Any, float], None]) -> None:
        """Runs `task` in a thread and `then(k, result, seconds)` here when it is done."""

        def work() -> None:
            start = time.monotonic()
            try:
                result = task()
            except BaseException as error:  # whatever it is, the run has to hear of it
                self._inbox.put(lambda error=error: self._failed(k, error))  # type: ignore[misc]
            else:
                seconds = time.monotonic() - start
                self._inbox.put(lambda: then(k, result, seconds))

        # Daemon: at the second Ctrl-C nobody waits for a judge that hangs.
        threading.Thread(target=work, name=f"proposal-{k}", daemon=True).start()

    def _failed(self, k: int, error: BaseException) -> None:
        """The agent, the evaluator or the harness failed at proposal k. What else is under way is finished first.

        A limit that the agent met ends the run likewise, and is no failure."""
        if isinstance(error, SystemExit):  # it must not end whoever called us, nor with a code of its own
            stopped, error = error, UserMistake(told("a plug-in of the run", error))
            error.__cause__ = stopped
        error.add_note(f"while working on proposal {k} of run {self._writer.run.id}")
        waiting = self._recorded.pop(k)
        if waiting is not None:
            for other in self._judging.pop(waiting.digest, []):
                self._recorded.pop(other, None)
        if isinstance(error, Halted):  # a limit, or Ctrl-C: the proposal is made when the run is resumed
            self._bar = k if self._bar is None else min(self._bar, k)
            self._stop(error.reason)
        elif self._failure is None:
            self._failure = error
            self._stop("failed")

    def _tell(self, event: Event) -> None:
        if self._observer is not None:
            self._observer(event)
