"""The timed calls of a raw candidate at one public size, in its own process and in one where it has never been."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsl.work import work
from evaluators.evaluation import Status
from evaluators.failures import Crash, TaskError, Unavailable, WorkerFailure
from evaluators.gates import Rejected
from evaluators.inputs import decode, extents
from evaluators.integrity import raw
from evaluators.integrity.raw import _Case, _said, right
from evaluators.integrity.timed_inputs import TimedInputs, placed
from evaluators.oracle import Answer
from evaluators.pool import Session, WorkerPool
from evaluators.target import Workload
from evaluators.tolerance import form, verdict

MANY = 100  # calls in one go, for the clock outside
ROWS = 16  # of an output's first axis whose right answer is computed
WARM = 2  # turns that load and compile
_JUDGING, _HOST_FLOPS = 2.0, 20e9  # seconds for the right answers of a size, at what a host may compute


def median(row: Mapping[str, Any]) -> float:
    """Seconds of a call, by the events of its process."""
    return statistics.median(s["event_s"] for s in row["samples"])


class Spare:
    """A process that is started while the candidate's is at work, and that never sees the candidate."""

    def __init__(self, case: _Case, pool: WorkerPool) -> None:
        self._case, self._pool = case, pool
        self._stack = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._open, name="avo spare worker", daemon=True)
        self._session: Session | None = None
        self._failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()
        self._case.open.callback(self._close)

    def _open(self) -> None:
        try:
            self._session = self._stack.enter_context(self._pool.session(self._case.kind))
        except Exception as error:
            self._failure = error

    def taken(self) -> Session:
        """Raises what went wrong when it was started."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._session is not None
        return self._session

    def _close(self) -> None:
        self._thread.join()
        self._stack.close()


@dataclass(frozen=True)
class _Test:
    """Inputs of a judged call, the rows that were looked at, their right answer."""

    forms: list[dict[str, Any]]
    values: list[bytes]
    begin: int
    wanted: Mapping[str, Answer]


class Sized:
    """One public size of one candidate, in one process."""

    def __init__(
        self,
        case: _Case,
        workload: Workload,
        rng: np.random.Generator,
        inputs: TimedInputs,
        session: Session,
        rounds: int,
    ) -> None:
        self._case, self._workload, self._rng, self._session = case, workload, rng, session
        self._rounds, self._span = rounds, ROWS
        algorithm = case.program.algorithm
        defaults = {p.name: p.default for p in algorithm.params if p.default is not None}
        self._params = {**defaults, **workload.params}
        self._inputs = inputs
        self._sent: tuple[list[dict[str, Any]], list[bytes]] = [], []
        self._tests: list[_Test] = []
        self.tape: dict[str, Any] = {}
        self.why = ""
        self._axis = self._inputs.axis

    def record(self, session: Session) -> None:
        """Has the steps of a call at this size told: `tape`, or why there is none."""
        forms, values = self._inputs.renew()
        self.tape, self.why = {}, ""
        try:
            self.tape = raw._taped(self._case, session, {"inputs": forms, "params": self._params}, values)
        except Unavailable:
            raise
        except (raw._NotTaped, WorkerFailure) as no:
            self.why = f"not proved: {no}"[:300]

    def measure(self) -> dict[str, Any]:
        """{samples, wrong: what is, judged, and the seconds of a call by the parent's clock}."""
        samples, wrong = [], ""
        self._span, judged = self._judged()
        for turn in range(self._rounds + WARM):
            self._put()
            sample, reasons = self._go(1, cold=True, judge=turn in judged)
            if reasons and turn == 0:
                where = f"{self._workload.name}: {reasons[0]}"
                raise Rejected(Status.INCORRECT, f"at a timed size, {where}", {"workload": self._workload.name})
            if reasons:
                wrong = f"{self._workload.name}: {reasons[0]}"
                break
            if turn == 0:  # all that is judged from now on is drawn after the steps have been handed over
                self._tests.clear()
                self.record(self._session)
            if turn >= WARM:
                samples.append(sample)
        found: dict[str, Any] = {"workload": self._workload.name, "samples": samples, "wrong": wrong}
        found["judged"] = len([turn for turn in judged if turn >= WARM])
        if not wrong:
            found |= self._outside()
        return found

    def again(self, session: Session, rounds: int) -> dict[str, Any]:
        """The same judged calls in another process: {samples, wrong, ghost: "right" where the answer is the same when
        no kernel runs, else "wrong"}."""
        samples: list[dict[str, float]] = []
        self._session = session
        for turn in range(rounds + WARM):
            test = self._tests[turn % len(self._tests)]
            self._call("raw_put", {"inputs": test.forms}, test.values)
            sample, reasons = self._go(1, cold=True, test=test)
            if reasons:
                return {"samples": samples, "wrong": f"{self._workload.name}: {reasons[0]}"}
            if turn >= WARM:
                samples.append(sample)
        self._put()  # what lies in memory from before is no answer to these
        answers = [self._asked(1, False, 0, ghost)[1].blobs for ghost in (True, False)]
        return {"samples": samples, "wrong": "", "ghost": "right" if answers[0] == answers[1] else "wrong"}

    def _judged(self) -> tuple[int, set[int]]:
        """(rows, turns) whose answers are judged: all turns, or the first and some that nobody can know where the right
        answer takes long."""
        sizes = dict(self._workload.sizes)
        length = sizes.get(self._axis or "", 1)
        if self._axis in sizes:
            sizes[self._axis] = 1
        row = 2 * work(self._case.program, sizes, self._workload.params).total_flops / _HOST_FLOPS
        rows = max(1, min(ROWS, length, int(_JUDGING / max(row, 1e-9))))
        few = max(1, min(self._rounds, int(_JUDGING / max(rows * row, 1e-9))))
        return rows, {0, *(WARM + int(i) for i in self._rng.permutation(self._rounds)[:few])}

    def _outside(self) -> dict[str, Any]:
        """Seconds a call by the parent's clock: many calls, less what one costs to ask for."""
        self._put()

        def asked(calls: int) -> tuple[float, float]:
            began = time.monotonic()
            sample, _ = self._go(calls, cold=False, judge=False)
            return time.monotonic() - began, sample["event_s"]

        one = min(asked(1)[0] for _ in range(3))
        many, told = min(asked(MANY + 1) for _ in range(2))
        return {"parent_s": max(0.0, many - one) / MANY, "many_s": told}

    def _put(self) -> None:
        """New inputs in the process's memory."""
        self._sent = self._inputs.renew()
        self._call("raw_put", {"inputs": self._sent[0]}, self._sent[1])

    def _go(
        self, calls: int, cold: bool, judge: bool = True, test: _Test | None = None
    ) -> tuple[dict[str, float], list[str]]:
        """(clocks of a call, what is wrong with its rows). test: its rows and right answer, instead of new ones."""
        longest = self._longest()
        begin = int(self._rng.integers(max(1, longest - self._span + 1))) if self._axis else 0
        begin = test.begin if test is not None else begin
        sample, reply = self._asked(calls, cold, begin)
        if isinstance(sample, str):
            return {"event_s": 0.0, "wall_s": 0.0, "tail_s": 0.0}, [sample]
        if not judge:
            return sample, []
        wanted = test.wanted if test is not None else self._right(begin)
        if test is None:
            self._tests.append(_Test(*self._sent, begin, wanted))
        try:
            return sample, self._judge(wanted, reply)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            raise Crash("the candidate's process answered nonsense", reply.log) from None

    def _asked(self, calls: int, cold: bool, begin: int, ghost: bool = False) -> tuple[Any, Any]:
        """(clocks, or what is odd; the reply)."""
        longest = self._longest()
        take: list[list[int] | None] = []
        for t in self._case.program.algorithm.outputs:
            place = (t.axes or ()).index(self._axis) if self._axis else None
            take.append(None if place is None else [place, begin, min(begin + self._span, longest)])
        asked = {"params": self._params, "calls": calls, "cold": cold, "take": take, "ghost": ghost}
        reply = self._call("raw_time", asked, ())
        try:
            if reply.result["odd"]:
                return str(reply.result["odd"][0])[:200], reply
            names = {"seconds": "event_s", "wall_s": "wall_s", "tail_s": "tail_s"}
            sample = {ours: float(reply.result[theirs]) for theirs, ours in names.items()}
            if not all(np.isfinite(v) and v >= 0 for v in sample.values()) or not sample["event_s"]:
                raise ValueError("no times")
            self._case.facts["holds"] = str(reply.result["holds"])[:200]
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            raise Crash("the candidate's process answered nonsense", reply.log) from None
        return sample, reply

    def _longest(self) -> int:
        return extents(self._case.program.algorithm, self._workload)[self._axis] if self._axis else 0

    def _call(self, task: str, payload: dict[str, Any], blobs: Sequence[bytes]) -> Any:
        try:
            return self._session.call(task, payload, blobs, self._case.timeout)
        except TaskError as error:
            said = _said(error.message)[-1]
            raise Rejected(Status.INCORRECT, f"at a timed size, {self._workload.name}: {said}", {}) from None

    def _right(self, begin: int) -> Mapping[str, Answer]:
        longest = self._longest()
        end = min(begin + self._span, longest)
        program, cut = self._case.program, dict(self._inputs.part(slice(begin, end)))
        if self._axis:
            program = placed(program, self._axis, longest)
            cut[program.algorithm.inputs[-1].name] = np.arange(begin, end)
        return right(program, cut, self._params)

    def _judge(self, wanted: Mapping[str, Answer], reply: Any) -> list[str]:
        algorithm = self._case.program.algorithm
        sizes = extents(algorithm, self._workload)
        if int(reply.result["count"]) != len(wanted):
            return [f"{int(reply.result['count'])} outputs, declared {len(wanted)}"]
        reasons = []
        rows = zip(wanted.items(), algorithm.outputs, reply.result["outputs"], reply.blobs, strict=True)
        for (name, answer), t, row, data in rows:
            whole = tuple(sizes[a] for a in t.axes or ())
            wrong = form(str(row["dtype"])[:40], tuple(map(int, row["shape"])), answer.dtype, whole)
            if wrong:
                reasons.append(f"{name}: {wrong[0]}")
                continue
            got = decode(data, answer.dtype, answer.oracle.shape)
            found = verdict(got, answer.oracle, answer.honest, answer.dtype)
            reasons += [f"{name}: {why}" for why in found.reasons]
        return reasons
