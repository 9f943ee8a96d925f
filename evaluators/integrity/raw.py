"""Judges raw Python: `def run(*inputs, **params)` in a file, without trusting any of it.

The parent (here) holds the seed, the inputs to come, the right answers and the verdict. The child (`child`) is a
process of this candidate's own, confined (`sandbox`); it gets the bytes of one call, hands back the bytes of the
outputs, and only then gets the next. Every call is judged, so there is no phase in which a wrong answer goes unseen.

What the behaviour shows beyond wrong numbers is called by its name (`rules`), with its evidence: an output that changes
after it was returned, an answer that is right in a fresh process and wrong after other calls, work that torch does
where the target leaves it to kernels. Names in the source (`tripwires`) are shown and decide nothing. Correctness
alone: no time is claimed for a raw candidate here.
"""

from __future__ import annotations

import ast
import secrets
import time
import tokenize
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from evaluators.evaluation import Evaluation, GateResult, Status
from evaluators.failures import Timeout, Unavailable, WorkerFailure
from evaluators.gates import Rejected
from evaluators.inputs import generator
from evaluators.integrity import ahead, rules, sandbox
from evaluators.integrity.calls import _Call, _Case, _later, _one, _started
from evaluators.integrity.plan import _plan, long_limit
from evaluators.integrity.proving import OWN_CLOCK, PROVED, _ghost, _told, _whose_work, _without_kernels, told_early
from evaluators.integrity.tripwires import tripwires
from evaluators.judge import environment
from evaluators.loading import complete, seed_program
from evaluators.pool import WorkerPool
from evaluators.target import Target

if TYPE_CHECKING:
    from dsl.hardware import Hardware

_AT_WORK_NS = 1_000_000  # a thread that computes longer while nothing is asked is at work
_ONE_BY_ONE = "; without a device the programs of a launch run one after another: one that waits for another never ends"
_RACE = '"a race: '  # as `launch_order` says it, and quoted, for a candidate's process told it
_ENOUGH = 4  # wrong calls, after which the others are not made
_CALLS_TIME = 3.0  # times the time of one call: what all calls together may take


class RawEvaluator:
    """Implements `evaluators.protocol.Evaluator` for raw Python. Judges correctness, on the host's CPU.

    seed: of the inputs; drawn anew for each judgement where None, for whoever knows it and the text knows the inputs to
    come. It is told with its verdict, so that the same judgement can be had again. level: of the sandbox; the strongest
    that works here where None. accept: the weakest level whose verdicts may promote a candidate. run_timeout: seconds
    for one call.
    """

    def __init__(
        self,
        jobs: int = 1,
        seed: int | None = None,
        *,
        level: sandbox.Level | None = None,
        accept: sandbox.Level = "full",
        run_timeout: float = 60.0,
        pool: WorkerPool | None = None,
    ) -> None:
        self._own_pool, self._thorough = pool is None, False
        self.compiles = False  # whether what is launched is compiled too, without a device; always before a promotion
        self._pool = pool or WorkerPool(jobs + 1)  # each candidate uses one up: one more is on its way
        self._seed = seed
        self.level: sandbox.Level = level or sandbox.best()
        self.accept: sandbox.Level = accept
        self._timeout = run_timeout

    def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        """Facts about one candidate. Raises TargetError where the target is wrong, and for nothing else."""
        job = complete(target)
        with suppress(Unavailable):  # the gate that needs a worker will say so
            self._pool.warm((self._kind,))
        program = seed_program(job)
        seed = secrets.randbits(63) if self._seed is None else self._seed
        case = _Case(text, job, program, seed, self.level, self._timeout, hardware, self._kind, self._thorough)
        case.ahead = self._mode == "none" and (self.compiles or self._thorough)
        if case.ahead and job.torch == "glue":
            with suppress(Unavailable):  # beside the calls
                self._pool.warm((f"{self._kind}-chip",))
        try:
            with case.open:
                return self._evaluated(case, job)
        finally:
            self._pool.prepare(self._kind, self._processes)

    def _evaluated(self, case: _Case, job: Target) -> Evaluation:
        text, hardware = case.text, case.hardware
        found: list[GateResult] = []

        def evaluation(status: Status, message: str = "") -> Evaluation:
            facts = environment(hardware)
            facts["sandbox"] = {"level": self.level, "accepted": self.accept, "promotable": self.promotable}
            facts |= {"seed": case.seed, **self._more()}
            return Evaluation(
                status=status,
                mode=self._mode,
                unit=job.unit,
                gates=tuple(found),
                workloads=tuple(case.results),
                environment=facts,
                source=text,
                message=message,
            )

        for name, gate in self._gates():
            began = time.monotonic()
            try:
                evidence = gate(case, self._pool)
            except Rejected as no:
                failed = "integrity" if no.status in (Status.GAMING, Status.SUSPICIOUS) else name
                found.append(_result(failed, False, no.message, no.evidence, began))
                return evaluation(no.status, no.message)
            except Unavailable as failure:
                return evaluation(Status.UNAVAILABLE, f"{name}: {failure.message}")
            except WorkerFailure as failure:
                found.append(_result(name, False, failure.message, {}, began))
                said = f"{name}: {failure.message}"
                if isinstance(failure, Timeout) and self._mode == "none":
                    said += _ONE_BY_ONE
                return evaluation(failure.status or Status.CRASH, said)
            except (OSError, MemoryError, ImportError) as trouble:
                return evaluation(Status.UNAVAILABLE, f"{name}: {type(trouble).__name__}: {trouble}")
            found.append(_result(name, True, "", evidence, began))
        unasked = case.facts.get("unasked", "")
        if unasked:
            unasked = f"not asked: a call at {unasked}, as long as public sizes are, takes too long without a device"
        if self.promotable:
            return evaluation(Status.OK, unasked)
        weak = f"judged in a sandbox of level {self.level}, below {self.accept}: kept out of promotion"
        weak += f" (--accept-sandbox {self.level} accepts it)"
        return evaluation(Status.OK, f"{unasked}; {weak}" if unasked else weak)

    _mode: ClassVar[Literal["measured", "none"]] = "none"
    _processes: ClassVar[int] = 2  # that a judgement takes: the candidate's, its steps played

    @property
    def _kind(self) -> str:
        """Of the workers that candidates are run in."""
        return f"raw-{self.level}"

    def _gates(self) -> Sequence[tuple[str, _Gate]]:
        return (("parse", _parse), ("correctness", _correctness), ("integrity", _integrity))

    def _more(self) -> dict[str, Any]:
        """Of the environment: what else the facts depend on."""
        return {}

    def _again(self, seed: int | None) -> RawEvaluator:
        return RawEvaluator(seed=seed, level=self.level, accept=self.accept, run_timeout=self._timeout, pool=self._pool)

    @property
    def promotable(self) -> bool:
        """Whether a verdict of this judge may promote a candidate."""
        return sandbox.reaches(self.level, self.accept)

    def promote(self, text: str, target: Target, hardware: Hardware, versus: str | None = None) -> Evaluation:
        """A winner judged again on inputs of another seed, and on the hidden sizes where times are taken. SUSPICIOUS
        where the sandbox is weaker than is accepted, where kernels have to do the work and that is not proved, or
        where nobody but the candidate's process told its time.
        versus: not asked for, its times would be of another process."""
        if not self.promotable:
            message = (
                f"the sandbox here reaches {self.level}, {self.accept} is asked for; --accept-sandbox {self.level}"
            )
            gate = GateResult(gate="integrity", passed=False, message=message)
            return Evaluation(status=Status.SUSPICIOUS, gates=(gate,), source=text, message=message)
        again = None if self._seed is None else int(generator(self._seed, "promotion").integers(2**63))
        job = complete(target)
        hidden = replace(job, workloads=job.hidden, hidden=job.workloads) if job.hidden else job
        judge = self._again(again)
        judge._thorough = True
        found = judge.evaluate(text, hidden, hardware)
        rows = tuple(w.model_copy(update={"detail": {**w.detail, "hidden": True}}) for w in found.workloads)
        found = found.model_copy(update={"workloads": rows})
        seen = found.gate("integrity")
        work = seen.evidence.get("work", PROVED) if seen is not None else PROVED
        if found.status is Status.OK and work != PROVED:
            message = f"that its kernels do the work is {work}; a person has to look before it is promoted"
            return found.model_copy(update={"status": Status.SUSPICIOUS, "message": message})
        if found.status is Status.OK and seen is not None and "unasked" in seen.evidence:
            message = (
                f"a call takes too long without a device at {seen.evidence['unasked']}, as long as public sizes are"
            )
            message += "; a person has to look before it is promoted"
            return found.model_copy(update={"status": Status.SUSPICIOUS, "message": message})
        if found.status is Status.OK and any(w.detail.get("clock") == OWN_CLOCK for w in found.workloads):
            message = "its time was told by its own process alone; a person has to look before it is promoted"
            return found.model_copy(update={"status": Status.SUSPICIOUS, "message": message})
        return found

    @property
    def key(self) -> str:
        """Names the configuration that verdicts depend on. A seed that was drawn is another each time, on purpose."""
        seed = "drawn" if self._seed is None else self._seed
        return f"raw level={self.level} accept={self.accept} seed={seed} timeout={self._timeout:g}"

    def close(self) -> None:
        """Ends the workers."""
        if self._own_pool:
            self._pool.close()

    def __enter__(self) -> RawEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _result(gate: str, passed: bool, message: str, evidence: dict[str, Any], began: float) -> GateResult:
    seconds = time.monotonic() - began
    return GateResult(gate=gate, passed=passed, message=message, evidence=evidence, seconds=seconds)


_Gate: TypeAlias = "Callable[[_Case, WorkerPool], dict[str, Any]]"


# Gates --------------------------------------------------------------------------------------------


def _parse(case: _Case, pool: WorkerPool) -> dict[str, Any]:
    try:
        tree = ast.parse(case.text.encode())  # as a file is read: it may begin with a mark of the byte order
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        message = f"{f'line {line}: ' if line else ''}{type(error).__name__}: {getattr(error, 'msg', error)}"
        raise Rejected(Status.PARSE_ERROR, message, {"line": line}) from None
    encoding, _ = tokenize.detect_encoding(BytesIO(case.text.encode()).readline)
    if encoding not in ("utf-8", "utf-8-sig"):
        message = f"the file says that it is {encoding}; it has to be UTF-8, so that what people read is what runs"
        raise Rejected(Status.PARSE_ERROR, message, {"line": 1})
    return {"tripwires": tripwires(tree, case.text)}


def _correctness(case: _Case, pool: WorkerPool) -> dict[str, Any]:
    """Every call of a random plan in one process, each output judged; what is wrong there is tried in a fresh one."""
    _plan(case)
    case.facts |= {"odd": [], "late": [], "children": 0, "threads": [], "at work": 0}
    case.facts |= {"aten": {}, "launches": 0, "state": ""}
    _play(case, pool)
    cases = [call.row for call in case.calls if call.made]
    wrong = [call for call in case.calls if call.reasons]
    if rules.breaches({key: case.facts[key] for key in ("odd", "late")}):
        return {"cases": cases, "level": case.level}  # the next gate says so
    if not wrong:
        return {"cases": cases, "level": case.level}
    for call in wrong:
        call.row["reasons"] = call.reasons
    # A buffer that is handed out twice is wrong, and no trick: what it overwrites lies in plain sight.
    first = next((call for call in wrong if not call.reused), wrong[0])
    where = f"{first.workload.name} ({first.distribution}): {first.reasons[0]}"
    # Where the first call of all was wrong, that is already the answer of a fresh process.
    # A race shows where chance has it, and is no state that is kept.
    raced = any(_RACE in reason for reason in first.reasons)
    if first is not case.calls[0] and not first.reused and not raced and not _alone(case, pool, first):
        case.facts["state"] = where
        return {"cases": cases, "level": case.level}
    raise Rejected(first.fault, f"{len(wrong)} of {len(cases)} calls; {where}", {"cases": cases})


def _integrity(case: _Case, pool: WorkerPool) -> dict[str, Any]:
    """What was seen of the process while it ran, by the rules."""
    facts = case.facts
    facts |= {"level": case.level, "calls": len(case.calls), "torch": case.target.torch, "rules": rules.applied()}
    facts["threads"] = [facts["threads"][0], facts["threads"][-1]]
    found = rules.breaches(facts)
    if not found and case.target.torch == "glue":
        if "work" not in facts:
            facts["work"], played = _whose_work(case, pool)
            facts["ghost"] = "right" if "right" in (facts["ghost"], played) else "wrong"
        if facts["work"] != PROVED and facts["ghost"] != "right":
            facts["ghost"] = _without_kernels(case, pool)
        found = rules.breaches(facts)
    if found:
        raise Rejected(found[0].rule.status, found[0].seen, {**facts, **rules.told(found)})
    if case.ahead and facts.get("work") == PROVED:
        fine, facts["compiled"] = ahead.taken(case, pool)
        if not fine:
            raise Rejected(Status.COMPILE_ERROR, facts["compiled"], facts)
    return facts


# Playing ------------------------------------------------------------------------------------------


def _play(case: _Case, pool: WorkerPool) -> None:
    with ExitStack() as stack:
        keeps, glue = case.started is not None, case.target.torch == "glue"
        session = (case.open if keeps else stack).enter_context(_started(case, pool, recorded=glue and not keeps))
        if case.started is not None:
            case.session = session
            case.started()
        for call in case.calls:
            try:
                if session.charged > _CALLS_TIME * case.timeout:
                    raise Timeout(f"the calls took more than {_CALLS_TIME * case.timeout:g} s together")
                if call.long:
                    call.limit = long_limit(case)
                    if glue and not keeps and case.thorough and not case.early:
                        case.early = told_early(case, pool)
                call.reasons, call.made = _one(case, session, call, case.facts), True
            except Timeout:
                if not call.long or keeps:
                    raise
                case.facts["unasked"] = call.workload.name  # the interpreter is slow, and no fault of the kernel's
                break
            # Right numbers have been handed over: what is written now is seen before the next call.
            if call.reasons or call is case.calls[-1]:
                before = session.threads()
                case.facts["late"] += _later(case, session)
                spent = [now - before.get(thread, 0) for thread, now in session.threads().items()]
                case.facts["at work"] = sum(ns > _AT_WORK_NS for ns in spent)
            threads, children = session.family()
            case.facts["threads"].append(threads)
            case.facts["children"] = max(case.facts["children"], children)
            if case.facts["odd"] or case.facts["late"]:  # nothing that comes after it could clear it
                break
            if sum(bool(call.reasons) for call in case.calls) == _ENOUGH:
                break
        if glue and not keeps and not any(call.reasons for call in case.calls):
            case.told = _told(case, session)
            case.facts["ghost"] = _ghost(case, session)


def _alone(case: _Case, pool: WorkerPool, call: _Call) -> list[str]:
    """What is wrong with the same call as the first one of a fresh process."""
    with _started(case, pool) as session:
        seen: dict[str, Any] = {"odd": [], "late": []}
        wrong = _one(case, session, replace(call, row=dict(call.row)), seen)
        return wrong + seen["odd"] + seen["late"] + _later(case, session)
