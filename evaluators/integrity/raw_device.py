"""Raw Python on a device: judged as on the CPU, then timed on public sizes with new bytes before every timed call.

Three clocks: the device's events and the host's in the candidate's process, which it could change, and the parent's,
which it cannot. Every timed call's answer is looked at, in rows that the parent draws after the inputs have been sent,
by a copy made right after the clocks have stopped. So time can be forged only downwards of what the parent's own clock
leaves room for, and an answer cannot be late, kept or made up.

One call at a time on a flushed L2 is another regime than the sustained one of `evaluators.measured`: the two are never
compared. The sandbox is of level `process`, for Triton has to start its assembler.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dsl.syntax import Algorithm, Binary, Call, Expr, Name, Read, Unary
from dsl.work import work
from evaluators.device import DeviceFacts, Lease, local_devices, matching
from evaluators.evaluation import Status, WorkloadResult
from evaluators.failures import Crash, TaskError
from evaluators.gates import Rejected
from evaluators.inputs import Array, decode, draw_inputs, encode, extents, generator
from evaluators.integrity import raw, rules
from evaluators.integrity.raw import RawEvaluator, _Case, _Gate, _said, _started, right
from evaluators.pool import Session, WorkerPool
from evaluators.roofline import speed_of_light
from evaluators.target import Workload
from evaluators.tolerance import form, verdict

if TYPE_CHECKING:
    from dsl.hardware import Hardware

REGIME = {"name": "cold calls", "calls": "one at a time, L2 flushed, new inputs before each"}
ROUNDS = 8  # timed calls of a size, each on its own inputs
MANY = 100  # calls in one go, for the clock outside
ROWS = 16  # of an output's first axis whose right answer is computed
MOST_BYTES = 512 << 20  # of inputs: larger public sizes are left out
MEMORY = 24 << 30  # resident: a device's libraries alone map several GiB


class RawDeviceEvaluator(RawEvaluator):
    """Raw Python on the device of this machine that is the chip. sizes: how many of the public ones are timed, the
    first that fit. simulate: no device; the same on the CPU, for tests.

    Raises NoDevice where the chip is not here.
    """

    _mode = "measured"

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
        return WorkerPool(1, memory_bytes=MEMORY, settings=settings)

    def _gates(self) -> Sequence[tuple[str, _Gate]]:
        parse, correctness, integrity = super()._gates()
        return parse, ("correctness", self._on_device(correctness[1])), ("timing", self._time), integrity, _FLOOR

    def _on_device(self, gate: _Gate) -> _Gate:
        def run(case: _Case, pool: WorkerPool) -> dict[str, Any]:
            case.on_device = True
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
        case.facts["timed wrong"] = ""
        with _started(case, pool) as session:
            for workload in self._chosen(case):
                rng = generator(case.seed, "timed", case.target.name, case.text, workload.name)
                row = _Size(case, workload, rng, session, self._rounds).measure()
                rows.append(row)
                clocks += [[s["event_s"], s["wall_s"]] for s in row["samples"]]
                if row["wrong"]:
                    case.facts["timed wrong"] = row["wrong"]
                    break
                case.facts["parent_s"], case.facts["told_s"] = row["parent_s"], row["many_s"]
                case.results.append(_result(case, workload, row))
                if rules.breaches({key: case.facts[key] for key in ("parent_s", "told_s")}):
                    break
        case.facts["clocks"] = clocks
        return {"regime": REGIME, "workloads": rows}

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
        self._rounds = rounds
        algorithm = case.program.algorithm
        defaults = {p.name: p.default for p in algorithm.params if p.default is not None}
        self._params = {**defaults, **workload.params}
        self._axis = _cut_axis(algorithm)
        self._base = draw_inputs(case.target, algorithm, workload, "normal", rng)
        self._rows: list[dict[str, Any]] = [
            {"name": t.name, "dtype": t.dtype or "f32", "shape": list(self._base[t.name].shape)}
            for t in algorithm.inputs
        ]
        self._bytes = {
            r["name"]: np.frombuffer(encode(self._base[r["name"]], r["dtype"]), np.uint8) for r in self._rows
        }

    def measure(self) -> dict[str, Any]:
        samples, wrong = [], ""
        for turn in range(self._rounds + 2):  # the first two load and compile
            inputs = self._put()
            sample, reasons = self._go(inputs, 1, cold=True)
            if reasons and turn == 0:
                where = f"{self._workload.name}: {reasons[0]}"
                raise Rejected(Status.INCORRECT, f"at a timed size, {where}", {"workload": self._workload.name})
            if reasons:
                wrong = f"{self._workload.name}: {reasons[0]}"
                break
            if turn >= 2:
                samples.append(sample)
        found: dict[str, Any] = {"workload": self._workload.name, "samples": samples, "wrong": wrong}
        if not wrong:
            found |= self._outside()
        return found

    def _outside(self) -> dict[str, Any]:
        """Seconds a call by the parent's clock: many calls, less what one costs to ask for."""
        inputs = self._put()

        def asked(calls: int) -> tuple[float, float]:
            began = time.monotonic()
            sample, _ = self._go(inputs, calls, cold=False, judge=False)
            return time.monotonic() - began, sample["event_s"]

        one = min(asked(1)[0] for _ in range(3))
        many, told = min(asked(MANY + 1) for _ in range(2))
        return {"parent_s": max(0.0, many - one) / MANY, "many_s": told}

    def _put(self) -> dict[str, Array]:
        """New inputs in the child's memory: the rows of the drawn ones in another order, some with another sign."""
        values: dict[str, Array] = {}
        blobs = []
        for row in self._rows:
            name, shape = row["name"], row["shape"]
            array = self._bytes[name]
            order = self._rng.permutation(shape[0]) if shape else np.zeros(1, int)
            picked = array.reshape(shape[0], -1)[order] if shape else array
            base = self._base[name][order] if shape else self._base[name]
            if row["dtype"] in ("bf16", "f16", "f32") and shape:
                width = {"bf16": "<u2", "f16": "<u2", "f32": "<u4"}[row["dtype"]]
                turned = self._rng.random(shape[0]) < 0.5
                bits = np.ascontiguousarray(picked).view(width)
                bits[turned] ^= np.array(1 << (8 * np.dtype(width).itemsize - 1), width)
                picked = bits.view(np.uint8)
                sign = np.where(turned, -1.0, 1.0).reshape(-1, *[1] * (base.ndim - 1))
                base = base * sign
            values[name] = base
            blobs.append(np.ascontiguousarray(picked).tobytes())
        self._call("raw_put", {"inputs": self._rows}, blobs)
        return values

    def _go(
        self, inputs: Mapping[str, Array], calls: int, cold: bool, judge: bool = True
    ) -> tuple[dict[str, float], list[str]]:
        outputs = self._case.program.algorithm.outputs
        first = {t.name: (t.axes or ())[:1] for t in outputs}
        sizes = extents(self._case.program.algorithm, self._workload)
        longest = sizes[self._axis] if self._axis else 0
        begin = int(self._rng.integers(max(1, longest - ROWS + 1))) if self._axis else 0
        take = []
        for t in outputs:
            leads = first[t.name] == (self._axis,)
            rows = sizes[first[t.name][0]] if first[t.name] else 1
            take.append([begin, min(begin + ROWS, longest)] if leads and self._axis else [0, rows])
        reply = self._call("raw_time", {"params": self._params, "calls": calls, "cold": cold, "take": take}, ())
        try:
            if reply.result["odd"]:
                return {"event_s": 0.0, "wall_s": 0.0}, [str(reply.result["odd"][0])[:200]]
            sample = {"event_s": float(reply.result["seconds"]), "wall_s": float(reply.result["wall_s"])}
            if not all(np.isfinite(v) and v > 0 for v in sample.values()):
                raise ValueError("no times")
            reasons = self._judge(inputs, begin, longest, reply) if judge else []
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            raise Crash("the candidate's process answered nonsense", reply.log) from None
        return sample, reasons

    def _call(self, task: str, payload: dict[str, Any], blobs: Sequence[bytes]) -> Any:
        try:
            return self._session.call(task, payload, blobs, self._case.timeout)
        except TaskError as error:
            said = _said(error.message)[-1]
            raise Rejected(Status.INCORRECT, f"at a timed size, {self._workload.name}: {said}", {}) from None

    def _judge(self, inputs: Mapping[str, Array], begin: int, longest: int, reply: Any) -> list[str]:
        algorithm = self._case.program.algorithm
        cut = dict(inputs)
        if self._axis:
            span = slice(begin, min(begin + ROWS, longest))
            for t in algorithm.inputs:
                for place, axis in enumerate(t.axes or ()):
                    if axis == self._axis:
                        cut[t.name] = cut[t.name][(slice(None),) * place + (span,)]
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


def _cut_axis(algorithm: Algorithm) -> str | None:
    """An axis that leads every output and can be judged in part; None where the whole answer has to be computed."""
    leading = {(t.axes or (None,))[0] for t in algorithm.outputs}
    if len(leading) != 1:
        return None
    (axis,) = leading
    tied = {a.name for a in algorithm.axes} | {a.fine for a in algorithm.axes}
    axes = {t.name: t.axes or () for t in algorithm.inputs}
    for statement in algorithm.statements:
        axes |= {t.name: t.axes or () for t in statement.targets}
        tied |= set(_tied(statement.value, axes))
    return axis if axis is not None and axis not in tied else None


def _tied(expr: Expr, axes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Axes that are reduced, read as a position, or indexed by anything but their own position; extents too."""
    match expr:
        case Name(id=name):
            yield from () if name in axes else (name, name.lower())
        case Read(tensor=tensor, indices=indices):
            for index, axis in zip(indices, axes.get(tensor, ()), strict=False):
                if not (isinstance(index, Name) and index.id == axis):
                    yield axis
                    yield from _tied(index, axes)
        case Call():
            yield from (name for a in expr.axes or () for name in (a.axis, a.within) if name)
            for part in (*expr.args, *(value for _, value in expr.keywords)):
                yield from _tied(part, axes)
        case Unary(operand=operand):
            yield from _tied(operand, axes)
        case Binary(left=left, right=right_):
            yield from _tied(left, axes)
            yield from _tied(right_, axes)


def _result(case: _Case, workload: Workload, row: Mapping[str, Any]) -> WorkloadResult:
    needed = work(case.program, workload.sizes, workload.params)
    floor = speed_of_light(needed, case.hardware) if case.hardware.claims_speed else None
    times = sorted(s["event_s"] for s in row["samples"])
    return WorkloadResult(
        workload=workload.name,
        work=needed.total_flops if case.target.unit == "TFLOP/s" else needed.bytes,
        floor_s=floor.floor_s if floor else 0.0,
        bottleneck=floor.bottleneck if floor else "",
        measured_s=statistics.median(times),
        detail={"interval_s": [times[0], times[-1]], "clock_outside_s": row["parent_s"]},
    )


def _floor(case: _Case, pool: WorkerPool) -> dict[str, Any]:
    """Nothing is faster than light: if it seems so, a person has to look."""
    rows = [{"workload": r.workload, "seconds": r.measured_s, "floor_s": r.floor_s} for r in case.results]
    for r in case.results:
        if r.measured_s is not None and r.measured_s < r.floor_s:
            message = f"faster than the speed of light: {r.workload} {r.measured_s:.3g} s, floor {r.floor_s:.3g} s"
            raise Rejected(Status.SUSPICIOUS, message, {"workloads": rows, "rule": "speed of light"})
    return {"workloads": rows}


_FLOOR: tuple[str, _Gate] = ("floor", _floor)
