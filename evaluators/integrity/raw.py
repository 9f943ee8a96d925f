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
import math
import re
import secrets
import time
import tokenize
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from dsl.meaning import evaluate
from dsl.syntax import Program
from dsl.work import work
from evaluators.cpu import _BYTES, Output
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult
from evaluators.failures import Crash, TaskError, Timeout, Unavailable, WorkerFailure, gist, quoted
from evaluators.gates import Rejected, _contiguous
from evaluators.inputs import (
    DISTRIBUTIONS,
    FLOATS,
    Array,
    decode,
    draw_inputs,
    encode,
    extents,
    faint,
    far_out,
    generator,
    pairings,
    representable,
)
from evaluators.integrity import rules, sandbox
from evaluators.integrity.tripwires import tripwires
from evaluators.judge import environment
from evaluators.loading import complete, fits, seed_program
from evaluators.oracle import Answer, answers, output_dtypes
from evaluators.pool import Reply, Session, WorkerPool
from evaluators.target import Target, TargetError, Workload
from evaluators.tolerance import form, verdict

if TYPE_CHECKING:
    from dsl.hardware import Hardware

_ROOM = 1 << 20  # bytes of outputs beyond twice the widest dtype: a wrong shape is told, a flood is not read
_MOST = 8  # entries of a list that the child reports
_AXES = 64  # of an output; torch has no more
_AT_WORK_NS = 1_000_000  # a thread that computes longer while nothing is asked is at work
_ONE_BY_ONE = "; without a device the programs of a launch run one after another: one that waits for another never ends"
_ENOUGH = 4  # wrong calls, after which the others are not made
_CALLS_TIME = 3.0  # times the time of one call: what all calls together may take
_LONGER, _MUCH_LONGER = 8, 200  # times the longest of the checks: what one axis of a long call is; before a promotion
_FLOPS, _VALUES = 2e8, 1 << 22  # of a long call's right answer; so many times as much before a promotion:
_MORE = 4


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
        if self.promotable:
            return evaluation(Status.OK)
        weak = f"judged in a sandbox of level {self.level}, below {self.accept}: kept out of promotion"
        return evaluation(Status.OK, f"{weak} (--accept-sandbox {self.level} accepts it)")

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


@dataclass
class _Call:
    """One call of the plan: inputs that nobody else has seen, what came of it."""

    workload: Workload
    distribution: str
    inputs: Mapping[str, Array]
    row: dict[str, Any]
    reasons: list[str] = field(default_factory=list)
    made: bool = False
    reused: bool = False  # an output of a call before was overwritten
    answers: tuple[bytes, ...] = ()  # the outputs, as they were returned
    long: bool = False  # one axis is far longer than in any check


@dataclass
class _Case:
    """thorough: every check meets every distribution. facts: what `rules` judge by; it becomes the integrity gate's
    evidence. told: sizes with the steps of a call of them, or why there are none. open: what ends with the judgement.
    session: the process of the calls, where it is kept for more; started: is told when it is there."""

    text: str
    target: Target
    program: Program
    seed: int
    level: sandbox.Level
    timeout: float
    hardware: Hardware
    kind: str
    thorough: bool = False
    calls: list[_Call] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    results: list[WorkloadResult] = field(default_factory=list)
    told: list[tuple[Workload, dict[str, Any]]] | str = ""
    open: ExitStack = field(default_factory=ExitStack)
    session: Session | None = None
    started: Callable[[], None] | None = None


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
    if first is not case.calls[0] and not first.reused and not _alone(case, pool, first):
        case.facts["state"] = where
        return {"cases": cases, "level": case.level}
    raise Rejected(Status.INCORRECT, f"{len(wrong)} of {len(cases)} calls; {where}", {"cases": cases})


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
    return facts


# Playing ------------------------------------------------------------------------------------------


def _plan(case: _Case) -> None:
    """Each check with two distributions, or with all where it is to be thorough, some once more, and some at sizes that
    nobody has named, these with places far out, and one with faint rows (all, where it is to be thorough): in an order
    and number that the text cannot know. Then what is long."""
    rng = generator(case.seed, "raw", case.target.name, case.text)
    names = list(DISTRIBUTIONS)
    first = pairings(case.target.checks, rng)
    rounds = (0, 1, 2, 3) if case.thorough else (0, 2)
    pairs = [(w, names[(names.index(d) + more) % len(names)]) for more in rounds for w, d in first]
    extra = [pairs[int(i)] for i in rng.integers(len(pairs), size=int(rng.integers(1, 4)))]
    extra += [(_other_size(case, w, rng), d) for w, d in (pairs[int(i)] for i in rng.integers(len(pairs), size=2))]
    extra += [(w, "normal") for w in case.target.checks] if case.thorough else []
    checks = case.target.checks
    dim = checks if case.thorough else [checks[int(rng.integers(len(checks)))]]
    every = [
        *((w, d, "") for w, d in pairs),
        *((w, d, "far") for w, d in extra),
        *((w, "normal", "faint") for w in dim),
    ]
    for place in rng.permutation(len(every)):
        case.calls.append(_planned(case, *every[int(place)], rng))
    for workload in _long_sizes(case, rng):
        with suppress(TargetError):  # the target has no inputs of that size
            call = _planned(case, workload, names[int(rng.integers(len(names)))], "", rng)
            if not _bounded(case, call):
                call = _planned(case, workload, "normal", "", rng)
            case.calls.append(replace(call, long=True))


def _planned(case: _Case, workload: Workload, distribution: str, places: str, rng: np.random.Generator) -> _Call:
    """places: "far" or "faint" for what some of them are."""
    call = _drawn(case, workload, distribution, rng)
    call.row |= {"workload": workload.name, "distribution": distribution}
    if not places:
        return call
    dtypes = {t.name: t.dtype or "f32" for t in case.program.algorithm.inputs}
    change = far_out if places == "far" else faint
    inputs = {name: change(value, dtypes[name], rng) for name, value in call.inputs.items()}
    row = {**call.row, "places": "some far out" if places == "far" else "some rows tiny, zero or of one value"}
    changed = replace(call, inputs=inputs, row=row)
    return changed if places == "far" or _bounded(case, changed) else call


def _bounded(case: _Case, call: _Call) -> bool:
    """Whether the right answer is finite, and not so near to the end of its dtype that an honest one may not be."""
    defaults = {p.name: p.default for p in case.program.algorithm.params if p.default is not None}
    exact = evaluate(case.program, dict(call.inputs), {**defaults, **call.workload.params}, mode="exact")
    dtypes = output_dtypes(case.program.algorithm)
    floats = [(np.asarray(exact[name]), dtype) for name, dtype in dtypes.items() if dtype in FLOATS]
    with np.errstate(over="ignore"):
        return all(np.isfinite(representable(1.05 * value, dtype)).all() for value, dtype in floats)


def _other_size(case: _Case, workload: Workload, rng: np.random.Generator) -> Workload:
    """The check with its longer axes cut by a random part, in steps that keep their factors of 2 up to 8; the check
    itself where the target cannot be asked for that."""
    sizes = dict(workload.sizes)
    for axis, n in sizes.items():
        step = math.gcd(n, 8)
        most = n // (3 * step)
        if n >= 16 and most and _varies(case, axis):
            sizes[axis] = n - step * int(rng.integers(1, most + 1))
    other = Workload(sizes, workload.params)
    try:
        draw_inputs(case.target, case.program.algorithm, other, "normal", rng)
    except TargetError:
        return workload
    return other if _fits(case, other) else workload


def _varies(case: _Case, axis: str) -> bool:
    """An axis that is a power of two, or one number, wherever the target names it (attention's head dimension) is what
    kernels are written for, and stays."""
    lengths = {w.sizes[axis] for w in _named(case.target) if axis in w.sizes}
    return len(lengths) > 1 and any(length & (length - 1) for length in lengths)


def _named(target: Target) -> tuple[Workload, ...]:
    return (*target.checks, *target.workloads, *target.hidden)


def _fits(case: _Case, workload: Workload) -> bool:
    try:
        fits(case.target, case.program.algorithm, workload)
    except TargetError:
        return False
    return True


def _long_sizes(case: _Case, rng: np.random.Generator) -> list[Workload]:
    """Sizes with one axis about as long as a public or hidden one and the others as short as any check has them: what
    is only right where everything is short shows, and the interpreter bears it. Of one axis, and no more than _LONGER
    times the checks; of all where it is to be thorough. Axes that follow from others stay, and those that are
    of one length wherever the target names them go together."""
    target, named = case.target, _named(case.target)
    tied = {name for a in case.program.algorithm.axes for name in (a.name, a.fine)}
    base = target.checks[int(rng.integers(len(target.checks)))]
    free = [axis for axis in base.sizes if axis not in tied and _varies(case, axis)]
    short = {axis: min(w.sizes[axis] for w in target.checks) for axis in free}
    groups = {tuple(b for b in free if all(w.sizes[a] == w.sizes[b] for w in named)): None for a in free}
    found: list[Workload] = []
    for group in groups:
        lengths = [w.sizes[group[0]] for w in named]
        known = max(w.sizes[group[0]] for w in target.checks)
        most = min(max(lengths), (_MUCH_LONGER if case.thorough else _LONGER) * known)
        fitting = sorted({n for n in lengths if known < n <= most} or {most})
        step = math.gcd(*lengths, 64)
        n = ((fitting[-1] if case.thorough else int(rng.choice(fitting))) // step - int(rng.integers(4))) * step
        workload = Workload({**base.sizes, **short, **dict.fromkeys(group, n)}, base.params)
        while n > known and _takes_long(case, workload):
            n = n // (2 * step) * step
            workload = Workload({**workload.sizes, **dict.fromkeys(group, n)}, base.params)
        if n > known and _fits(case, workload):
            found.append(workload)
    return found if case.thorough or not found else [found[int(rng.integers(len(found)))]]


def _takes_long(case: _Case, workload: Workload) -> bool:
    """Whether the right answer takes much time or memory."""
    algorithm = case.program.algorithm
    sizes = extents(algorithm, workload)
    every = (*algorithm.inputs, *algorithm.outputs, *(t for s in algorithm.statements for t in s.targets))
    values = sum(math.prod(sizes[a] for a in t.axes or ()) for t in every)
    more = _MORE if case.thorough else 1
    flops = work(case.program, workload.sizes, workload.params).total_flops
    return values > more * _VALUES or flops > more * _FLOPS


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


def _without_kernels(case: _Case, pool: WorkerPool) -> str:
    """ "right" where calls in a fresh process in which no kernel runs are right all the same, else "wrong"."""
    kinds = {call.distribution: call for call in case.calls}
    for call in list(kinds.values())[:2]:
        with _started(case, pool) as session:
            copy = replace(call, row=dict(call.row))
            try:
                if _one(case, session, copy, {"odd": [], "late": []}, ghost=True):
                    return "wrong"
            except WorkerFailure as failure:
                if isinstance(failure, Unavailable):
                    raise
                return "wrong"  # it cannot do without them
    return "right"


PROVED = "proved"
OWN_CLOCK = "its own process"  # who told a candidate's time, where nobody else could


def _whose_work(case: _Case, pool: WorkerPool) -> tuple[str, str]:
    """(PROVED, and whether it is "right" when no kernel runs) where the steps that a call consists of, played in a
    process without the candidate, give right answers on inputs that were drawn afterwards, and on those of judged calls
    the very bits that the candidate's process returned; else why that is open. See `tape`."""
    found = _played(case, pool, case.told)
    if found[0] == PROVED:
        return found
    try:  # what calls before have made and kept is in no step: a fresh process tells from its first call on
        with _started(case, pool, recorded=True) as session:
            told = _told(case, session)
    except Rejected as no:
        told = f"not proved: {no.message}"
    again = _played(case, pool, told)
    return again if again[0] == PROVED else found


def _told(case: _Case, session: Session) -> list[tuple[Workload, dict[str, Any]]] | str:
    """The steps of a call at each size whose work is to be proved, or why there are none."""
    rng = generator(case.seed, "tape", case.target.name, case.text)
    try:
        sizes = _to_prove(case, rng)
        return [(size, _taped(case, session, *_asked(case, _drawn(case, size, "normal", rng)))) for size in sizes]
    except Unavailable:
        raise
    except (_NotTaped, WorkerFailure) as no:
        return f"not proved: {no}"


def _played(case: _Case, pool: WorkerPool, told: list[tuple[Workload, dict[str, Any]]] | str) -> tuple[str, str]:
    if isinstance(told, str):
        return told[:300], ""
    rng = generator(case.seed, "played", case.target.name, case.text)
    seen: dict[str, Any] = {"odd": [], "late": []}
    ghost = "wrong"
    try:
        with pool.session(case.kind) as session:
            for workload, tape in told:
                _load_tape(case, session, tape)
                wrong = _one(case, session, _drawn(case, workload, "large_logits", rng), seen)
                if wrong:
                    return _played_wrong(wrong[0]), ""
                judged = [call for call in case.calls if call.workload.name == workload.name]
                for call in judged if case.thorough else judged[-1:]:
                    if tuple(o.data for o in _returned(case, session, call).outputs) != call.answers:
                        return _OTHER_BITS, ""
                if not _one(case, session, _drawn(case, workload, "normal", rng), seen, ghost=True):
                    ghost = "right"
        return PROVED, ghost
    except _NotTaped as no:
        return f"not proved: {no}"[:300], ""
    except (Rejected, WorkerFailure) as failure:
        if isinstance(failure, Unavailable):
            raise
        return f"not proved: {failure.message}"[:300], ""


_OTHER_BITS = (
    "not proved: on a judged call's inputs its steps give other bits than it returned, so that came by another way"
)


def _played_wrong(reason: str) -> str:
    if reason.startswith("it raised"):
        return f"not proved: played again, {reason}"[:300]
    more = (
        "something beside its glue and kernels works too (NumPy, memory by address), or they need what was there before"
    )
    return f"not proved: played again it is wrong, {reason[:120]}; {more}"


def _ghost(case: _Case, session: Session) -> str:
    """Whether one more call in the candidate's own process is "right" or "wrong" when no kernel runs."""
    rng = generator(case.seed, "ghost", case.target.name, case.text)
    call = _drawn(case, _to_prove(case, rng)[0], "normal", rng)
    try:
        return "wrong" if _one(case, session, call, {"odd": [], "late": []}, ghost=True) else "right"
    except Unavailable:
        raise
    except (Rejected, WorkerFailure):
        return "wrong"  # it cannot do without them


def _to_prove(case: _Case, rng: np.random.Generator) -> list[Workload]:
    """Sizes of which the work is to be proved: one of the smaller half and one of the larger, or all where it is to be
    thorough."""
    calls = sorted(case.calls, key=lambda call: sum(x.size for x in call.inputs.values()))
    every = list(dict.fromkeys(call.workload.name for call in calls if case.thorough or not call.long))
    if not case.thorough and len(every) > 1:
        half = len(every) // 2
        every = [every[int(rng.integers(half))], every[half + int(rng.integers(len(every) - half))]]
    named = {call.workload.name: call.workload for call in calls}
    return [named[name] for name in every]


class _NotTaped(Exception):
    pass


def _taped(case: _Case, session: Session, asked: dict[str, Any], blobs: Sequence[bytes]) -> dict[str, Any]:
    """The steps of a call, as the candidate's process tells them."""
    try:
        reply = session.call("raw_tape", asked, blobs, case.timeout)
    except TaskError as error:
        raise _NotTaped(_raised(error.message)) from None
    tape = reply.result.get("tape")
    if not isinstance(tape, dict):
        raise _NotTaped(quoted(str(reply.result.get("missing")), 200))
    return tape


def _drawn(case: _Case, workload: Workload, distribution: str, rng: np.random.Generator) -> _Call:
    inputs = draw_inputs(case.target, case.program.algorithm, workload, distribution, rng)
    return _Call(workload, distribution, inputs, {})


def _asked(case: _Case, call: _Call) -> tuple[dict[str, Any], list[bytes]]:
    """{inputs: their form, params} and the inputs' bytes."""
    algorithm = case.program.algorithm
    rows, blobs = [], []
    for tensor in algorithm.inputs:
        dtype, value = tensor.dtype or "f32", call.inputs[tensor.name]
        rows.append({"name": tensor.name, "dtype": dtype, "shape": list(value.shape)})
        blobs.append(encode(value, dtype))
    return {"inputs": rows, "params": _params(case, call.workload)}, blobs


def _params(case: _Case, workload: Workload) -> dict[str, Any]:
    defaults = {p.name: p.default for p in case.program.algorithm.params if p.default is not None}
    return {**defaults, **workload.params}


def _load_tape(case: _Case, session: Session, tape: dict[str, Any]) -> None:
    """From now on the process plays it. Raises _NotTaped."""
    asked = {"tape": tape, "library": case.target.torch == "any"}
    reply = session.call("raw_play", asked, (), case.timeout)
    if "launches" not in reply.result:
        raise _NotTaped(quoted(str(reply.result.get("missing")), 200))


class _started:
    """A fresh process with the candidate loaded. recorded: the steps of its calls will be asked for."""

    def __init__(self, case: _Case, pool: WorkerPool, recorded: bool = False) -> None:
        self._case, self._pool, self._stack = case, pool, ExitStack()
        self._asked = {"source": case.text, "recorded": recorded}

    def __enter__(self) -> Session:
        with ExitStack() as opening:
            session = opening.enter_context(self._pool.session(self._case.kind))
            try:
                session.call("raw_load", self._asked, (), self._case.timeout)
            except TaskError as error:
                said = _said(error.message)
                raise Rejected(Status.COMPILE_ERROR, quoted(said[0]), {"error": "\n".join(said)}) from None
            self._stack = opening.pop_all()
        return session

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _one(case: _Case, session: Session, call: _Call, seen: dict[str, Any], ghost: bool = False) -> list[str]:
    """What is wrong with one call's outputs; what else was seen goes to `seen`. ghost: no kernel runs."""
    try:
        facts = _returned(case, session, call, ghost)
    except TaskError as error:
        if _NOT_HERE in error.message and case.started is None:
            message = f"it cannot be judged without its device: {gist(error.message)[:200]}"
            raise Rejected(Status.NOT_LOWERED, message, {"error": quoted(error.message)}) from None
        return [_raised(error.message)]
    call.answers = tuple(output.data for output in facts.outputs)
    seen["odd"] += facts.odd
    seen["late"] += facts.late
    seen["aten"], seen["launches"] = facts.calls, facts.launches
    if facts.odd:
        return list(facts.odd)
    reasons = [f"input {name} was written to" for name in facts.mutated]
    reasons += [f"something was written outside of {name}" for name in facts.strayed]
    call.reused = bool(facts.reused)
    reasons += [f"output {i} of a call before was overwritten; outputs have to be new tensors" for i in facts.reused]
    return reasons + _numbers(case, call, facts.outputs)


_NOT_HERE = "not supported in interpreter mode"  # by Triton's own words: inline assembly


def _returned(case: _Case, session: Session, call: _Call, ghost: bool = False) -> _Facts:
    """What one call returns. Raises TaskError where it raises."""
    algorithm = case.program.algorithm
    asked, blobs = _asked(case, call)
    sizes = extents(algorithm, call.workload)
    most = _ROOM + 16 * sum(math.prod(sizes[a] for a in t.axes or ()) for t in algorithm.outputs)
    asked |= {"inplace": sorted(case.target.inplace.values()), "ghost": ghost, "most": most}
    reply = session.call("raw_run", asked, blobs, case.timeout, most)
    try:
        return _Facts.read(reply)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        # Only a candidate that meddles with its process can bring this about.
        raise Crash("the candidate's process answered nonsense", reply.log) from None


def _later(case: _Case, session: Session) -> list[int]:
    """Outputs of the last call that have changed since it returned."""
    reply = session.call("raw_look", {}, (), case.timeout)
    try:
        return [_whole(i) for i in reply.result["late"][:_MOST]]
    except (LookupError, TypeError, ValueError, ArithmeticError):
        raise Crash("the candidate's process answered nonsense", reply.log) from None


def _raised(message: str) -> str:
    """What went wrong in a call, in a line. An exception's own words are the candidate's, and are quoted as such."""
    line = gist("\n".join(_said(message)))
    kind, colon, words = line.partition(": ")
    if not (colon and kind.isidentifier()):
        return quoted(line)
    forbidden = " (the sandbox: no sockets, so no asyncio either; no processes, no files but in its own folder)"
    return f"it raised {kind[:80]}: {quoted(words)}{forbidden if kind == 'PermissionError' else ''}"


def _said(message: str) -> list[str]:
    """The lines of a message that the candidate may have made up, of a size for people."""
    return [line[:400] for line in message[:4000].splitlines()[:12]] or ["it raised an exception"]


def _numbers(case: _Case, call: _Call, outputs: Sequence[Output]) -> list[str]:
    wanted = right(case.program, call.inputs, _params(case, call.workload))
    if len(outputs) != len(wanted):
        return [f"{len(outputs)} outputs, declared {len(wanted)}"]
    reasons: list[str] = []
    figures: dict[str, Any] = {}
    for (name, answer), output in zip(wanted.items(), outputs, strict=True):
        wrong = list(form(output.dtype, output.shape, answer.dtype, answer.oracle.shape))
        if not _contiguous(output.shape, output.strides):
            wrong.append(f"strides {list(output.strides)}, declared row-major")
        if output.alias != case.target.inplace.get(name):
            if output.alias is None:
                wrong.append(
                    f"it is a new tensor; the target wants it in the memory of input {case.target.inplace[name]}"
                )
            else:
                wrong.append(f"it is the memory of input {output.alias}")
        if not wrong:
            found = verdict(decode(output.data, answer.dtype, output.shape), answer.oracle, answer.honest, answer.dtype)
            figures[name] = found.evidence
            wrong += found.reasons
            if found.reasons and output.unwritten:
                wrong.append(f"{output.unwritten} elements were never written")
        reasons += [f"{name}: {w}" for w in wrong]
    call.row["outputs"] = figures
    return reasons


def right(program: Program, inputs: Mapping[str, Array], params: Mapping[str, Any]) -> dict[str, Answer]:
    """The exact value in float64, and beside it the honest low-precision one as the yardstick of its error.

    A raw kernel knows nothing of the roundings that a program names; it may come nearer to the truth than those.
    """
    exact = evaluate(program, dict(inputs), dict(params), mode="exact")
    named = answers(program, inputs, params)
    return {n: replace(a, oracle=np.asarray(exact[n])) for n, a in named.items()}


@dataclass(frozen=True)
class _Facts:
    outputs: tuple[Output, ...] = ()
    odd: tuple[str, ...] = ()
    mutated: tuple[str, ...] = ()
    strayed: tuple[str, ...] = ()
    late: tuple[int, ...] = ()
    reused: tuple[int, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)
    launches: int = 0

    @classmethod
    def read(cls, reply: Reply) -> _Facts:
        """Raises LookupError, TypeError, ValueError or ArithmeticError for what is no such reply."""
        result = reply.result
        if odd := result["odd"]:
            return cls(odd=tuple(quoted(str(o), 200) for o in odd[:_MOST]))
        outputs = []
        for row, data in zip(result["outputs"], reply.blobs, strict=True):
            dtype, shape, strides = (
                _name(row["dtype"]),
                tuple(map(_whole, row["shape"])),
                tuple(map(_whole, row["strides"])),
            )
            if len(shape) != len(strides) or len(shape) > _AXES or min(shape, default=0) < 0:
                raise ValueError(f"no shape: {len(shape)} axes, {len(strides)} strides")
            if row.get("withheld"):
                data = b""  # larger than anything that could be right
                dtype = f"{dtype} of another size"
            elif dtype in _BYTES and len(data) != math.prod(shape) * _BYTES[dtype]:
                raise ValueError(f"{len(data)} bytes for {dtype}{list(shape)}")
            alias = None if row["alias"] is None else _name(row["alias"])
            outputs.append(Output(dtype, shape, strides, data, _whole(row["unwritten"]), alias))
        mutated, strayed = (tuple(_name(n) for n in result[key][:_MOST]) for key in ("mutated", "strayed"))
        late, reused = (tuple(_whole(i) for i in result[key][:_MOST]) for key in ("late", "reused"))
        calls = {_name(name): _whole(n) for name, n in list(dict(result["calls"]).items())[:_MOST]}
        return cls(tuple(outputs), (), mutated, strayed, late, reused, calls, _whole(result["launches"]))


def _name(value: Any) -> str:
    """Of a dtype, a tensor ("output 3") or an operator. Raises ValueError: other words would stand in a brief."""
    name = str(value)
    if not _NAME.fullmatch(name):
        raise ValueError("no name")
    return name


_NAME = re.compile(r"[\w:.]{1,80}|output \d{1,9}", re.ASCII)


def _whole(value: Any) -> int:
    """A number that a count or a size can be. Raises ValueError: one of a thousand digits would stand in a verdict."""
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("a whole number of more than 64 bits")
    return number
