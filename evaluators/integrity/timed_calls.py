"""The timed calls of a raw candidate at one public size, in its own process and in one where it has never been."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dsl.work import work
from evaluators.evaluation import Status
from evaluators.failures import Crash, TaskError, Unavailable, WorkerFailure
from evaluators.gates import Rejected
from evaluators.inputs import Array, decode, extents
from evaluators.integrity import proving
from evaluators.integrity.calls import _ROOM, _Case, _fault, _raised, right
from evaluators.integrity.timed_inputs import TimedInputs
from evaluators.oracle import Answer
from evaluators.places import placed
from evaluators.pool import Session, WorkerPool
from evaluators.target import Workload
from evaluators.tolerance import form, verdict

MANY = 100  # calls in one go, for the clock outside
ROWS = 16  # places of an axis of the outputs whose right answer is computed
WARM = 2  # turns that load and compile
_CORES = 4  # of which one may compile while the candidate's process is timed
_JUDGING, _HOST_FLOPS = 1.0, 20e9  # seconds for the right answers of a size, at what a host may compute
_READING = 40e-9  # seconds, and for each value of an input that is needed whole


def median(row: Mapping[str, Any]) -> float:
    """Seconds of a call, by the events of its process."""
    return statistics.median(s["event_s"] for s in row["samples"])


class Spare:
    """A process that is started while the candidate's is at work, and that never sees the candidate. It compiles what a
    tape launches while the candidate's process is timed."""

    def __init__(self, case: _Case, pool: WorkerPool) -> None:
        self._case, self._pool = case, pool
        self._stack = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._open, name="avo spare worker", daemon=True)
        self._session: Session | None = None
        self._failure: Exception | None = None
        self._compiling: threading.Thread | None = None

    def start(self) -> None:
        self._thread.start()
        self._case.open.callback(self._close)

    def _open(self) -> None:
        try:
            self._session = self._stack.enter_context(self._pool.session(self._case.kind))
        except Exception as error:
            self._failure = error

    def compile(self, tape: Mapping[str, Any], forms: Sequence[Mapping[str, Any]]) -> None:
        """Beside what this process does next. On few cores the candidate's process would feel it, so it is left out."""
        if len(os.sched_getaffinity(0)) >= _CORES and self._compiling is None:
            asked = {"tape": tape, "library": self._case.target.torch == "any", "inputs": list(forms)}
            self._compiling = threading.Thread(target=self._compile, args=(asked,), name="avo compiles", daemon=True)
            self._compiling.start()

    def _compile(self, asked: dict[str, Any]) -> None:
        self._thread.join()
        if self._session is not None:
            with contextlib.suppress(WorkerFailure):  # whoever takes it next will see
                self._session.call("raw_compile", asked, (), self._case.timeout)

    def taken(self) -> Session:
        """Raises what went wrong when it was started."""
        if self._compiling is not None:
            self._compiling.join()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._session is not None
        return self._session

    def _close(self) -> None:
        if self._compiling is not None:
            self._compiling.join()
        self._thread.join()
        self._stack.close()


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
        self._rounds, self._rows = rounds, ROWS
        algorithm = case.program.algorithm
        defaults = {p.name: p.default for p in algorithm.params if p.default is not None}
        self._params = {**defaults, **workload.params}
        self._inputs, self._axis = inputs, inputs.axis
        self._know: list[Session] = []  # which have the values that inputs are made of
        self.tape: dict[str, Any] = {}
        self.why = ""
        self.told: Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], None] | None = None  # of steps, at once

    def record(self, session: Session) -> None:
        """Has the steps of a call at this size told: `tape`, or why there is none."""
        self.tape, self.why = {}, ""
        self._introduce(session)
        forms, values = self._inputs.renew()
        try:
            self.tape = proving._taped(self._case, session, {"inputs": forms, "params": self._params}, values)
        except Unavailable:
            raise
        except (proving._NotTaped, WorkerFailure) as no:
            self.why = f"not proved: {no}"[:300]
        else:
            if self.told is not None:
                self.told(self.tape, forms)

    def measure(self) -> dict[str, Any]:
        """{samples, wrong: what is, judged, and the seconds of a call by the parent's clock}. Raises Rejected for what
        is wrong in the first call, or with inputs of another distribution."""
        samples, wrong = [], ""
        self._introduce(self._session)
        self._rows, few = self._affordable()
        plan = self._plan(self._rounds, few)
        for turn, (distribution, judged, sampled) in enumerate(plan):
            self._put(distribution)
            sample, reasons = self._go(1, cold=True, judge=judged or turn == 0)
            if reasons and (turn == 0 or (distribution != "normal" and not self._normal())):
                where = f"{self._workload.name} ({distribution}): {reasons[0]}"
                raise Rejected(Status.INCORRECT, f"at a timed size, {where}", {"workload": self._workload.name})
            if reasons:
                wrong = f"{self._workload.name}: {reasons[0]}"
                break
            if turn == 0:  # all that is judged from now on is drawn after the steps have been handed over
                self.record(self._session)
            if sampled:
                samples.append(sample)
        found: dict[str, Any] = {"workload": self._workload.name, "samples": samples, "wrong": wrong}
        found["judged"] = sum(judged for _, judged, _ in plan)
        if not wrong:
            found |= self._outside()
        return found

    def again(self, session: Session, rounds: int) -> dict[str, Any]:
        """As many calls in another process: {samples, waits, wrong, ghost: "right" where the answer is the same when no
        kernel runs, else "wrong"}. waits: most of the calls had the device wait for their host, so that the samples are
        of calls before which it was not held: a host that waits for the device is one that waits for what holds it."""
        samples: list[dict[str, float]] = []
        self._session = session
        self._introduce(session)
        waits = False
        for distribution, judged, sampled in self._plan(rounds, self._affordable()[1]):
            self._put(distribution)
            sample, reasons = self._go(1, cold=True, judge=judged)
            if reasons:
                return {"samples": samples, "wrong": f"{self._workload.name}: {reasons[0]}"}
            if sampled and judged:  # one that nobody looked at may have done nothing
                samples.append(sample)
        queued = [s for s in samples if not s["host_s"]]
        if 2 * len(queued) > len(samples):  # a slow moment of the host
            samples = queued
        else:
            waits, count, samples = True, len(samples), []
            for _ in range(count):
                self._put("normal")
                sample, reasons = self._go(1, cold=True, judge=True, hold=False)
                if reasons:
                    return {"samples": samples, "wrong": f"{self._workload.name}: {reasons[0]}"}
                samples.append(sample)
        self._put("normal")  # what lies in memory from before is no answer to these
        places = self._places()
        answers = [self._asked(1, False, places, ghost)[1].blobs for ghost in (True, False)]
        ghost = "right" if answers[0] == answers[1] else "wrong"
        return {"samples": samples, "waits": waits, "wrong": "", "ghost": ghost}

    def _plan(self, rounds: int, few: int) -> list[tuple[str, bool, bool]]:
        """(distribution, whether the answer is judged, whether the call counts) of each turn: those that load and
        compile, then, in an order that nobody can know, those that count, of which `few` are judged, and one judged
        call of every other distribution."""
        chosen = {int(i) for i in self._rng.permutation(rounds)[:few]}
        turns = [("normal", i in chosen, True) for i in range(rounds)]
        turns += [(other, True, False) for other in self._inputs.distributions if other != "normal"]
        return [*([("normal", False, False)] * WARM), *(turns[int(i)] for i in self._rng.permutation(len(turns)))]

    def _normal(self) -> list[str]:
        """What is wrong by now with inputs as they were at first."""
        self._put("normal")
        return self._go(1, cold=True, judge=True)[1]

    def _affordable(self) -> tuple[int, int]:
        """(places, calls that count) whose answers are judged: all, or fewer where the right answer takes long."""
        sizes = dict(self._workload.sizes)
        length = sizes.get(self._axis or "", 1)
        if self._axis in sizes:
            sizes[self._axis] = 1
        place = 2 * work(self._case.program, sizes, self._workload.params).total_flops / _HOST_FLOPS
        rows = max(1, min(ROWS, length, int(_JUDGING / max(place, 1e-9))))
        call = rows * place + self._inputs.whole * _READING
        return rows, max(1, min(self._rounds, int(_JUDGING / max(call, 1e-9))))

    def _outside(self) -> dict[str, Any]:
        """Seconds a call by the parent's clock: many calls, less what one costs to ask for."""
        self._put("normal")

        def asked(calls: int) -> tuple[float, float]:
            began = time.monotonic()
            sample, _ = self._go(calls, cold=False, judge=False)
            return time.monotonic() - began, sample["event_s"]

        one = min(asked(1)[0] for _ in range(3))
        many, told = min(asked(MANY + 1) for _ in range(2))
        return {"parent_s": max(0.0, many - one) / MANY, "many_s": told}

    def _introduce(self, session: Session) -> None:
        """The values that inputs are made of, to a process that has not got them."""
        if session not in self._know:
            pools, values = self._inputs.pools()
            session.call("raw_pool", {"pools": pools}, values, self._case.timeout)
            self._know.append(session)

    def _put(self, distribution: str) -> None:
        """New inputs in the process's memory."""
        forms, values = self._inputs.renew(distribution)
        self._call("raw_put", {"inputs": forms}, values)

    def _places(self) -> Array:
        """Some of the axis, each drawn alone: what is left out in one piece is met as well as what is scattered."""
        longest = self._longest()
        if not longest:
            return np.arange(0)
        return np.sort(self._rng.choice(longest, size=min(self._rows, longest), replace=False))

    def _go(self, calls: int, cold: bool, judge: bool, hold: bool = True) -> tuple[dict[str, float], list[str]]:
        """(clocks of a call, what is wrong with some of its places)."""
        places = self._places()
        sample, reply = self._asked(calls, cold, places, hold=hold)
        if isinstance(sample, str):
            return {"event_s": 0.0, "wall_s": 0.0, "tail_s": 0.0, "host_s": 0.0}, [sample]
        if not judge:
            return sample, []
        wanted = self._right(places)
        try:
            return sample, self._judge(wanted, reply)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            raise Crash("the candidate's process answered nonsense", reply.log) from None

    def _asked(self, calls: int, cold: bool, places: Array, ghost: bool = False, hold: bool = True) -> tuple[Any, Any]:
        """(clocks, or what is odd; the reply)."""
        take: list[Any] = []
        for t in self._case.program.algorithm.outputs:
            take.append([(t.axes or ()).index(self._axis), places.tolist()] if self._axis else None)
        asked = {"params": self._params, "calls": calls, "cold": cold, "take": take, "ghost": ghost, "hold": hold}
        reply = self._call("raw_time", asked, (), self._most(len(places)))
        try:
            if reply.result["odd"]:
                return str(reply.result["odd"][0])[:200], reply
            names = {"seconds": "event_s", "wall_s": "wall_s", "tail_s": "tail_s", "host_s": "host_s"}
            sample = {ours: float(reply.result[theirs]) for theirs, ours in names.items()}
            if not all(np.isfinite(v) and v >= 0 for v in sample.values()) or not sample["event_s"]:
                raise ValueError("no times")
            self._case.facts["holds"] = str(reply.result["holds"])[:200]
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            raise Crash("the candidate's process answered nonsense", reply.log) from None
        return sample, reply

    def _longest(self) -> int:
        return extents(self._case.program.algorithm, self._workload)[self._axis] if self._axis else 0

    def _most(self, places: int) -> int:
        """Bytes of the outputs' places, of twice the widest dtype."""
        sizes = extents(self._case.program.algorithm, self._workload)
        if self._axis:
            sizes[self._axis] = places
        outputs = self._case.program.algorithm.outputs
        return _ROOM + 16 * sum(math.prod(sizes[a] for a in t.axes or ()) for t in outputs)

    def _call(self, task: str, payload: dict[str, Any], blobs: Sequence[bytes], most: int = 0) -> Any:
        try:
            return self._session.call(task, payload, blobs, self._case.timeout, most)
        except TaskError as error:
            said = _raised(error.message)
            raise Rejected(_fault(error.message), f"at a timed size, {self._workload.name}: {said}", {}) from None

    def _right(self, places: Array) -> Mapping[str, Answer]:
        program, cut = self._case.program, dict(self._inputs.part(places))
        if self._axis:
            program = placed(program, self._axis, self._longest())
            cut[program.algorithm.inputs[-1].name] = places
        return right(program, cut, self._params, representable=True)

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
