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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from dsl.syntax import Algorithm
from dsl.work import work
from evaluators.device import DeviceFacts, Lease, NoDevice, local_devices, matching
from evaluators.evaluation import Status, WorkloadResult
from evaluators.failures import Unavailable, WorkerFailure
from evaluators.gates import Rejected
from evaluators.inputs import extents, generator
from evaluators.integrity import calls, proving, rules, sandbox
from evaluators.integrity.calls import _Case
from evaluators.integrity.raw import RawEvaluator, _Gate
from evaluators.integrity.timed_calls import Sized, Spare, median
from evaluators.integrity.timed_inputs import TimedInputs
from evaluators.pool import WorkerPool
from evaluators.roofline import MEMORY, Floor, speed_of_light
from evaluators.target import Workload

if TYPE_CHECKING:
    from dsl.hardware import Hardware

REGIME = {"name": "cold calls", "calls": "one at a time, L2 flushed, new inputs before each"}
ROUNDS = 8  # timed calls of a size, each on its own inputs
MOST_BYTES = 512 << 20  # of inputs: larger public sizes are left out
_CLOCK = "a process of the judge"
_WAITS = "a process of the judge, the least: the device waits for its host"
RESIDENT = 24 << 30  # of memory: a device's libraries alone map several GiB


class RawDeviceEvaluator(RawEvaluator):
    """Raw Python on the device of this machine that is the chip. sizes: how many of the public ones are timed, the
    first that fit. simulate: no device; the same on the CPU, for tests.

    Raises NoDevice where the chip is not here.
    """

    _mode = "measured"
    _processes = 2  # the steps are told by the first

    @property
    def _kind(self) -> str:
        return f"{super()._kind}-device"

    def __init__(
        self,
        hardware: Hardware,
        jobs: int = 1,
        seed: int | None = None,
        *,
        accept: sandbox.Level = "full",
        run_timeout: float = 120.0,
        sizes: int = 2,
        rounds: int = ROUNDS,
        simulate: bool = False,
        pool: WorkerPool | None = None,
    ) -> None:
        self._hardware, self._sizes, self._rounds, self._simulate = hardware, sizes, rounds, simulate
        if hardware.vendor != "nvidia" and not simulate:
            raise NoDevice(
                f"raw Python is not timed on {hardware.title}: what keeps a candidate from the clock is for NVIDIA's "
                "devices alone. --hw cpu judges whether it is right"
            )
        self._compiles = not simulate  # the interpreter compiles nothing
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
            self._spare = Spare(case, pool)
            case.started = self._spare.start
            drawing = ThreadPoolExecutor(1, "avo drawing")  # while the candidate's process is at work
            case.open.callback(drawing.shutdown, wait=False, cancel_futures=True)
            self._ahead = {w.name: drawing.submit(self._draw, case, w) for w in self._chosen(case)}
            if self._lease is not None:
                self._lease.take(wait_s=60.0)
            found = gate(case, pool)
            return {**found, "on": "device"}

        return run

    def _more(self) -> dict[str, Any]:
        facts: DeviceFacts | None = self._facts
        return {"device": facts.model_dump(mode="json") if facts else {"name": "simulated"}, "regime": REGIME}

    def _again(self, seed: int | None) -> RawEvaluator:
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
        case.facts["timed wrong"] = ""
        assert case.session is not None
        pool.settled()
        for workload in self._chosen(case):
            size = Sized(case, workload, *self._ahead[workload.name].result(), case.session, self._rounds)
            if self._compiles:
                size.told = self._spare.compile
            row = size.measure()
            rows.append(row)
            if row["wrong"]:
                case.facts["timed wrong"] = row["wrong"]
                break
            case.facts["parent_s"], case.facts["told_s"] = row["parent_s"], row["many_s"]
            row["played"] = self._played(case, size)
            if row["played"]["work"] != proving.PROVED:
                # Steps that were laid down before the recording (a graph) are seen from a process's first call on.
                with calls._started(case, pool, recorded=True) as fresh:
                    size.record(fresh)
                again = self._played(case, size)
                row["played"] = again if again["work"] == proving.PROVED else row["played"]
            case.results.append(_result(case, workload, row))
            if rules.breaches({key: case.facts[key] for key in ("parent_s", "told_s")}):
                break
        samples = [s for row in rows for s in row["samples"]]
        case.facts["clocks"] = [[s["event_s"], s["wall_s"]] for s in samples]
        case.facts["tails"] = [[s["event_s"], s["tail_s"]] for s in samples]
        plays = [(median(row), row["played"]) for row in rows if "played" in row]
        # Where the device waits for its host, two processes' times have no bound of one another: no verdict on them.
        case.facts["played"] = [[told, None if p.get("waits") else p.get("seconds")] for told, p in plays]
        if plays:
            case.facts["work"] = next((p["work"] for _, p in plays if p["work"] != proving.PROVED), proving.PROVED)
            case.facts["ghost"] = "right" if any(p.get("ghost") == "right" for _, p in plays) else "wrong"
        return {"regime": REGIME, "workloads": rows}

    def _draw(self, case: _Case, workload: Workload) -> tuple[np.random.Generator, TimedInputs]:
        rng = generator(case.seed, "timed", case.target.name, case.text, workload.name)
        return rng, TimedInputs(case.target, case.program.algorithm, workload, rng)

    def _played(self, case: _Case, size: Sized) -> dict[str, Any]:
        """The steps of a call, timed in a process where the candidate has never been: {seconds, work, ghost}, or {work}
        where that cannot be."""
        if size.why:
            return {"work": size.why}
        try:
            clean = self._spare.taken()
            proving._load_tape(case, clean, size.tape)
            row = size.again(clean, (self._rounds + 1) // 2)
            if row["wrong"]:
                return {"work": proving._played_wrong(row["wrong"])}
            # Steps of several streams are played one after the other; a simulated device has no time of its own.
            alone = size.tape.get("streams") in (0, 1) and not self._simulate
            found = {"work": proving.PROVED, "ghost": row["ghost"], "samples": row["samples"], "waits": row["waits"]}
            return found | ({"seconds": _seconds(row)} if alone else {})
        except proving._NotTaped as no:
            return {"work": f"not proved: {no}"[:300]}
        except (Rejected, WorkerFailure) as failure:
            if isinstance(failure, Unavailable):
                raise
            return {"work": f"not proved: {failure.message}"[:300]}

    def _chosen(self, case: _Case) -> list[Workload]:
        fits = [w for w in case.target.workloads if _size(case.program.algorithm, w) <= MOST_BYTES]
        return fits[: self._sizes]


def _seconds(row: Mapping[str, Any]) -> float:
    """Of a played call: the median, or where it is its host's time, which varies upwards, the least."""
    return min(s["event_s"] for s in row["samples"]) if row["waits"] else median(row)


def _size(algorithm: Algorithm, workload: Workload) -> int:
    sizes = extents(algorithm, workload)
    return sum(4 * int(np.prod([sizes[a] for a in t.axes or ()])) for t in algorithm.inputs)


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
        measured_s=row["played"]["seconds"] if played else statistics.median(times),
        detail={
            "interval_s": [times[0], times[-1]],
            "clock_outside_s": row["parent_s"],
            "clock": (_WAITS if row["played"]["waits"] else _CLOCK)
            if played
            else "simulated"
            if case.facts["holds"] == "nothing"
            else proving.OWN_CLOCK,
            "told_s": median(row),
            "least_s": _least(case, workload, floor) if floor else 0.0,
        },
    )


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
