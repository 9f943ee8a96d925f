"""Raw Python on a device: judged as on the CPU, then timed on public sizes with new bytes before every timed call.

Four clocks: the device's events, the host's, and how long the device works on after the end, in the candidate's
process, which it could change, and the parent's, which it cannot. Of timed answers, rows that the parent draws after
the inputs have been sent are copied right after the clocks have stopped, and judged: of every call, or where the right
answer takes long of some that nobody can know. So time can be forged only downwards of what the parent's own clock
leaves room for, and an answer cannot be late, kept or made up.

One call at a time on a flushed L2 is another regime than the sustained one of `evaluators.measured`: the two are never
compared. The sandbox is of level `process`, for Triton has to start its assembler.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dsl.syntax import Algorithm
from dsl.work import work
from evaluators.device import DeviceFacts, Lease, local_devices, matching
from evaluators.evaluation import Status, WorkloadResult
from evaluators.failures import Crash, TaskError, Unavailable, WorkerFailure
from evaluators.gates import Rejected
from evaluators.inputs import decode, extents, generator
from evaluators.integrity import raw, rules
from evaluators.integrity.raw import RawEvaluator, _Case, _Gate, _said, _started, right
from evaluators.integrity.timed_inputs import TimedInputs
from evaluators.pool import Session, WorkerPool
from evaluators.roofline import MEMORY, Floor, speed_of_light
from evaluators.target import Workload
from evaluators.tolerance import form, verdict

if TYPE_CHECKING:
    from dsl.hardware import Hardware

REGIME = {"name": "cold calls", "calls": "one at a time, L2 flushed, new inputs before each"}
ROUNDS = 8  # timed calls of a size, each on its own inputs
MANY = 100  # calls in one go, for the clock outside
_WARM = 2  # turns that load and compile
_JUDGING, _HOST_FLOPS = 2.0, 20e9  # seconds for the right answers of a size, at what a host may compute
ROWS = 16  # of an output's first axis whose right answer is computed
MOST_BYTES = 512 << 20  # of inputs: larger public sizes are left out
RESIDENT = 24 << 30  # of memory: a device's libraries alone map several GiB


class RawDeviceEvaluator(RawEvaluator):
    """Raw Python on the device of this machine that is the chip. sizes: how many of the public ones are timed, the
    first that fit. simulate: no device; the same on the CPU, for tests.

    Raises NoDevice where the chip is not here.
    """

    _mode = "measured"

    @property
    def _kind(self) -> str:
        return f"{super()._kind}-device"

    def __init__(
        self,
        hardware: Hardware,
        jobs: int = 1,
        seed: int | None = None,
        *,
        accept: raw.sandbox.Level = "full",
        run_timeout: float = 120.0,
        sizes: int = 2,
        rounds: int = ROUNDS,
        simulate: bool = False,
        pool: WorkerPool | None = None,
    ) -> None:
        self._hardware, self._sizes, self._rounds, self._simulate = hardware, sizes, rounds, simulate
        self._facts = None if simulate else matching(local_devices(), hardware)[0]
        self._lease = None if self._facts is None else Lease(self._facts.uuid)
        own = pool is None
        super().__init__(
            jobs, seed, level="process", accept=accept, run_timeout=run_timeout, pool=pool or self._workers()
        )
        self._own_pool = own

    def _workers(self) -> WorkerPool:
        settings = {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
        if self._facts is not None:
            settings = {"CUDA_VISIBLE_DEVICES": self._facts.uuid}
        return WorkerPool(1, memory_bytes=RESIDENT, settings=settings)

    def _gates(self) -> Sequence[tuple[str, _Gate]]:
        parse, correctness, integrity = super()._gates()
        return parse, ("correctness", self._on_device(correctness[1])), ("timing", self._time), integrity, _FLOOR

    def _on_device(self, gate: _Gate) -> _Gate:
        def run(case: _Case, pool: WorkerPool) -> dict[str, Any]:
            if self._lease is not None:
                self._lease.take(wait_s=60.0)
            found = gate(case, pool)
            return {**found, "on": "device"}

        return run

    def _more(self) -> dict[str, Any]:
        facts: DeviceFacts | None = self._facts
        return {"device": facts.model_dump(mode="json") if facts else {"name": "simulated"}, "regime": REGIME}

    def _again(self, seed: int) -> RawEvaluator:
        return RawDeviceEvaluator(
            self._hardware,
            seed=seed,
            accept=self.accept,
            run_timeout=self._timeout,
            sizes=self._sizes,
            rounds=self._rounds,
            simulate=self._simulate,
            pool=self._pool,
        )

    @property
    def key(self) -> str:
        return f"device {super().key} sizes={self._sizes} rounds={self._rounds} of {self._hardware.name}"

    def close(self) -> None:
        super().close()
        if self._lease is not None:
            self._lease.release()

    # Timing -------------------------------------------------------------------------------------------

    def _time(self, case: _Case, pool: WorkerPool) -> dict[str, Any]:
        if rules.breaches({key: case.facts[key] for key in ("odd", "late", "state")}):
            return {"workloads": []}  # the next gate says so
        rows: list[dict[str, Any]] = []
        clocks: list[list[float]] = []
        tails: list[list[float]] = []
        case.facts["timed wrong"] = ""
        with _started(case, pool) as session:
            for workload in self._chosen(case):
                rng = generator(case.seed, "timed", case.target.name, case.text, workload.name)
                row = _Size(case, workload, rng, session, self._rounds).measure()
                rows.append(row)
                clocks += [[s["event_s"], s["wall_s"]] for s in row["samples"]]
                tails += [[s["event_s"], s["tail_s"]] for s in row["samples"]]
                if row["wrong"]:
                    case.facts["timed wrong"] = row["wrong"]
                    break
                case.facts["parent_s"], case.facts["told_s"] = row["parent_s"], row["many_s"]
                played = self._played(case, pool, session, workload)
                case.facts.setdefault("played", []).append([_median(row), played.get("seconds")])
                row["played"] = played
                case.results.append(_result(case, workload, row))
                if rules.breaches({key: case.facts[key] for key in ("parent_s", "told_s")}):
                    break
        case.facts |= {"clocks": clocks, "tails": tails}
        plays = [row["played"] for row in rows if "played" in row]
        if plays:
            case.facts["work"] = next((p["work"] for p in plays if p["work"] != raw.PROVED), raw.PROVED)
            case.facts["ghost"] = "right" if any(p.get("ghost") == "right" for p in plays) else "wrong"
        return {"regime": REGIME, "workloads": rows}

    def _played(self, case: _Case, pool: WorkerPool, session: Session, workload: Workload) -> dict[str, Any]:
        """The steps of a call, timed in a process where the candidate has never been: {seconds, work, ghost}, or {work}
        where that cannot be."""
        rng = generator(case.seed, "played", case.target.name, case.text, workload.name)
        try:
            tape = _Size(case, workload, rng, session, 0).tape()
            with _started(case, pool, tape) as clean:
                size = _Size(case, workload, rng, clean, max(2, self._rounds // 2))
                row = size.measure(outside=False)
                if row["wrong"]:
                    return {"work": f"not proved: played again it is wrong, {row['wrong']}"[:300]}
                found = {"work": raw.PROVED, "ghost": size.ghost(), "samples": row["samples"]}
                # Steps of several streams are played one after the other; a simulated device has no time of its own.
                alone = int(tape.get("streams", 2)) <= 1 and not self._simulate
                return found | ({"seconds": _median(row)} if alone else {})
        except raw._NotTaped as no:
            return {"work": f"not proved: {no}"[:300]}
        except (Rejected, WorkerFailure) as failure:
            if isinstance(failure, Unavailable):
                raise
            return {"work": f"not proved: {failure.message}"[:300]}

    def _chosen(self, case: _Case) -> list[Workload]:
        fits = [w for w in case.target.workloads if _size(case.program.algorithm, w) <= MOST_BYTES]
        return fits[: self._sizes]


def _size(algorithm: Algorithm, workload: Workload) -> int:
    sizes = extents(algorithm, workload)
    return sum(4 * int(np.prod([sizes[a] for a in t.axes or ()])) for t in algorithm.inputs)


class _Size:
    """One public size of one candidate, in one process."""

    def __init__(
        self, case: _Case, workload: Workload, rng: np.random.Generator, session: Session, rounds: int
    ) -> None:
        self._case, self._workload, self._rng, self._session = case, workload, rng, session
        self._rounds, self._span = rounds, ROWS
        algorithm = case.program.algorithm
        defaults = {p.name: p.default for p in algorithm.params if p.default is not None}
        self._params = {**defaults, **workload.params}
        self._inputs = TimedInputs(case.target, algorithm, workload, rng)
        self._axis = self._inputs.axis

    def tape(self) -> dict[str, Any]:
        """The steps of a call at this size. Raises `raw._NotTaped`."""
        forms, values = self._inputs.renew()
        asked = {"inputs": forms, "params": self._params}
        return raw._taped(self._case, self._session, asked, values)

    def ghost(self) -> str:
        """ "right" where the answer is right although no kernel runs, else "wrong"."""
        self._put()
        return "wrong" if self._go(1, cold=False, ghost=True)[1] else "right"

    def measure(self, outside: bool = True) -> dict[str, Any]:
        """outside: by the parent's clock too."""
        samples, wrong = [], ""
        self._span, judged = self._judged()
        for turn in range(self._rounds + _WARM):
            self._put()
            sample, reasons = self._go(1, cold=True, judge=turn in judged)
            if reasons and turn == 0:
                where = f"{self._workload.name}: {reasons[0]}"
                raise Rejected(Status.INCORRECT, f"at a timed size, {where}", {"workload": self._workload.name})
            if reasons:
                wrong = f"{self._workload.name}: {reasons[0]}"
                break
            if turn >= _WARM:
                samples.append(sample)
        found: dict[str, Any] = {"workload": self._workload.name, "samples": samples, "wrong": wrong}
        found["judged"] = len([turn for turn in judged if turn >= _WARM])
        if not wrong and outside:
            found |= self._outside()
        return found

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
        return rows, {0, *(_WARM + int(i) for i in self._rng.permutation(self._rounds)[:few])}

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
        """New inputs in the child's memory."""
        forms, values = self._inputs.renew()
        self._call("raw_put", {"inputs": forms}, values)

    def _go(
        self, calls: int, cold: bool, judge: bool = True, ghost: bool = False
    ) -> tuple[dict[str, float], list[str]]:
        outputs = self._case.program.algorithm.outputs
        first = {t.name: (t.axes or ())[:1] for t in outputs}
        sizes = extents(self._case.program.algorithm, self._workload)
        longest = sizes[self._axis] if self._axis else 0
        begin = int(self._rng.integers(max(1, longest - self._span + 1))) if self._axis else 0
        take = []
        for t in outputs:
            leads = first[t.name] == (self._axis,)
            rows = sizes[first[t.name][0]] if first[t.name] else 1
            take.append([begin, min(begin + self._span, longest)] if leads and self._axis else [0, rows])
        asked = {"params": self._params, "calls": calls, "cold": cold, "take": take, "ghost": ghost}
        reply = self._call("raw_time", asked, ())
        try:
            if reply.result["odd"]:
                return {"event_s": 0.0, "wall_s": 0.0, "tail_s": 0.0}, [str(reply.result["odd"][0])[:200]]
            names = {"seconds": "event_s", "wall_s": "wall_s", "tail_s": "tail_s"}
            sample = {ours: float(reply.result[theirs]) for theirs, ours in names.items()}
            if not all(np.isfinite(v) and v >= 0 for v in sample.values()) or not sample["event_s"]:
                raise ValueError("no times")
            self._case.facts["holds"] = str(reply.result["holds"])[:200]
            reasons = self._judge(begin, longest, reply) if judge else []
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            raise Crash("the candidate's process answered nonsense", reply.log) from None
        return sample, reasons

    def _call(self, task: str, payload: dict[str, Any], blobs: Sequence[bytes]) -> Any:
        try:
            return self._session.call(task, payload, blobs, self._case.timeout)
        except TaskError as error:
            said = _said(error.message)[-1]
            raise Rejected(Status.INCORRECT, f"at a timed size, {self._workload.name}: {said}", {}) from None

    def _judge(self, begin: int, longest: int, reply: Any) -> list[str]:
        algorithm = self._case.program.algorithm
        cut = self._inputs.part(slice(begin, min(begin + self._span, longest)))
        wanted = right(self._case.program, cut, self._params)
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


def _result(case: _Case, workload: Workload, row: Mapping[str, Any]) -> WorkloadResult:
    needed = work(case.program, workload.sizes, workload.params)
    floor = speed_of_light(needed, case.hardware) if case.hardware.claims_speed else None
    played = "seconds" in row["played"]
    times = sorted(s["event_s"] for s in (row["played"] if played else row)["samples"])
    return WorkloadResult(
        workload=workload.name,
        work=needed.total_flops if case.target.unit == "TFLOP/s" else needed.bytes,
        floor_s=floor.floor_s if floor else 0.0,
        bottleneck=floor.bottleneck if floor else "",
        measured_s=statistics.median(times),
        detail={
            "interval_s": [times[0], times[-1]],
            "clock_outside_s": row["parent_s"],
            "clock": "a process of the judge" if played else "its own process",
            "told_s": _median(row),
            "least_s": _least(case, workload, floor) if floor else 0.0,
        },
    )


def _median(row: Mapping[str, Any]) -> float:
    return statistics.median(s["event_s"] for s in row["samples"])


def _least(case: _Case, workload: Workload, floor: Floor) -> float:
    """Seconds that one call has to take: as the floor, but that its outputs may still lie in the L2 at its end."""
    sizes = extents(case.program.algorithm, workload)
    width = {"f64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2}
    outputs = case.program.algorithm.outputs
    kept = sum(width.get(t.dtype or "f32", 1) * math.prod(sizes[a] for a in t.axes or ()) for t in outputs)
    saved = min(kept, case.hardware.l2_bytes) / case.hardware.hbm_bytes_per_s
    return max(seconds - saved if pipe == MEMORY else seconds for pipe, seconds in floor.times.items())


def _floor(case: _Case, pool: WorkerPool) -> dict[str, Any]:
    """Nothing is faster than light: if it seems so, a person has to look."""
    rows = [{"workload": r.workload, "seconds": r.measured_s, "floor_s": r.detail["least_s"]} for r in case.results]
    for row in rows:
        if row["seconds"] is not None and row["seconds"] < row["floor_s"]:
            message = f"faster than the speed of light: {row['workload']} {row['seconds']:.3g} s"
            message += f", at least {row['floor_s']:.3g} s"
            raise Rejected(Status.SUSPICIOUS, message, {"workloads": rows, "rule": "speed of light"})
    return {"workloads": rows}


_FLOOR: tuple[str, _Gate] = ("floor", _floor)
