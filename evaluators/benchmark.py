"""Programs beside what people use today: every workload, all arms in one run, one regime, paired ratios.

The device's worker runs and times (`evaluators.benchmark_tasks`); this is the parent: it lowers programs, judges
outputs as the correctness gate does, and computes every figure of the table from the raw samples that it keeps.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluators import errors
from evaluators.benchmark_result import Arm, Benchmark, Kind, Outcome, Row, speed_between
from evaluators.compiler import Compiler
from evaluators.device import DeviceFacts, Lease, local_devices, mask_for, matching
from evaluators.failures import Crash, OutOfMemory, TaskError, Timeout, WorkerFailure
from evaluators.gates import _params
from evaluators.inputs import extents, generator
from evaluators.installed import version
from evaluators.pool import Reply, WorkerPool
from evaluators.process import cores
from evaluators.timing import Measurement, Regime

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from dsl.lowering.lowered import Launch, Lowered
    from dsl.syntax import Program
    from evaluators.target import Target, Workload

ARM_S = 180.0  # what one arm may take on one workload: torch.compile's search is slow
ROUNDS = 12
GROSS = 5e-2  # relative L2 from which on a library's answer is another one
ARM_MARK = "avo arm: "  # the worker's log says which arm is under way


@dataclass(frozen=True)
class Entry:
    """An arm before it runs. lowered: of a program, with the program; module: of a person's own function."""

    arm: Arm
    lowered: tuple[Lowered, Program] | None = None
    module: str = ""

    def payload(self) -> dict[str, str]:
        found = {"name": self.arm.name, "kind": self.arm.kind}
        if self.lowered is not None:
            found |= {"source": self.lowered[0].source, "entry": self.lowered[0].entry}
        if self.arm.kind == "function":
            found |= {"module": self.module}
        return found


def program_entry(name: str, text: str, program: Program, target: Target, hardware: Hardware) -> Entry:
    """A program of the language as an arm. Raises ProgramError where it is not legal on this chip at these sizes."""
    from dsl.check import check
    from dsl.diagnostics import ProgramError
    from dsl.knobs import fill
    from dsl.lowering import lower
    from dsl.printer import digest, print_program

    for workload in target.workloads:
        sizes = extents(program.algorithm, workload)
        wrong = [d for d in check(program, hardware, sizes) if d.severity == "error"]
        if wrong:
            raise ProgramError(wrong, text, name)
    filled = fill(program, hardware, extents(program.algorithm, target.workloads[0]))
    lowered = lower(filled, hardware)
    arm = Arm(name=name, kind="program", program=print_program(filled), digest=digest(filled))
    return Entry(arm, (lowered, filled))


class Bench:
    """One device with its worker, warm for several tables. Close it, or use `with`.

    devices, simulate: what to use instead of what is found, for tests. Raises NoDevice where the chip is not here,
    Unavailable where another run holds the device.
    """

    def __init__(
        self, hardware: Hardware, *, devices: Sequence[DeviceFacts] | None = None, simulate: bool = False
    ) -> None:
        from evaluators.slots import DEVICE_MEMORY

        self.hardware = hardware
        self.facts = (list(devices) if devices is not None else matching(local_devices(), hardware))[0]
        self._cache = Path(tempfile.mkdtemp(prefix="avo-compiled-"))
        self._lease = Lease(self.facts.uuid)
        settings = {"TORCHINDUCTOR_COMPILE_THREADS": str(min(32, cores())), "TRITON_CACHE_DIR": str(self._cache)}
        settings["TORCHINDUCTOR_CACHE_DIR"] = str(self._cache / "inductor")
        if simulate:
            settings |= {"TRITON_INTERPRET": "1"}
        else:
            settings |= mask_for(self.facts)
            self._lease.take(wait_s=60.0)
        self._pool = WorkerPool(1, memory_bytes=DEVICE_MEMORY, settings=settings)
        self._pool.warm(("device",))
        self._compilers = 0 if simulate else max(1, cores() - 2)
        self._compiling: WorkerPool | None = None
        self._device: dict[str, Any] = {}
        self._ceilings: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()
        if self._compiling is not None:
            self._compiling.close()
        self._lease.release()
        shutil.rmtree(self._cache, ignore_errors=True)

    def run(
        self,
        target: Target,
        entries: Sequence[Entry],
        *,
        rounds: int = ROUNDS,
        regime: Regime | None = None,
        seed: int = 0,
        watch: Callable[[Benchmark], None] | None = None,
    ) -> Benchmark:
        """Measures all entries on each public workload of the target.

        watch: called after each workload with all that is known by then, so that nothing is lost where it is stopped.
        """
        from dsl.parser import parse

        regime = regime or Regime()
        program = parse(target.seed)
        self.compile((target, entries))
        if not self._device:
            told = self._pool.call("device_facts", {}, timeout=180.0).result
            self._device = {**self.facts.model_dump(mode="json"), **told}
        ceilings = self._sustained(_dtypes(program), regime, rounds)
        found = Benchmark(
            target=target.name,
            hardware=self.hardware.name,
            unit=target.unit,
            date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            device=self._device,
            versions=_versions(self._device),
            regime=regime,
            rounds=rounds,
            ceilings=ceilings,
            arms=tuple(e.arm for e in entries),
            rows=(),
            warnings=tuple(self.facts.warnings()),
        )
        for workload in target.workloads:
            row = _row(self._pool, target, self.hardware, program, workload, entries, ceilings, regime, rounds, seed)
            found = found.model_copy(update={"rows": (*found.rows, row)})
            if watch is not None:
                watch(found)
        return found

    def compile(self, *tables: tuple[Target, Sequence[Entry]]) -> None:
        """Fills the worker's cache with every program at every size on all cores. What fails here fails there."""
        wanted: dict[str, tuple[str, str, Launch]] = {}
        for target, entry in ((t, e) for t, entries in tables for e in entries):
            if entry.lowered is None or not self._compilers:
                continue
            algorithm = entry.lowered[1].algorithm
            for workload in target.workloads:
                for kernel in entry.lowered[0].kernels:
                    with contextlib.suppress(Exception):
                        sizes, params = extents(algorithm, workload), _params(entry.lowered[1], workload)
                        launch = kernel.specialise(sizes, params)
                        key = repr((entry.arm.name, kernel.name, launch))
                        wanted[key] = (entry.lowered[0].source, kernel.name, launch)
        if not wanted:
            return
        if self._compiling is None:
            self._compiling = WorkerPool(self._compilers, settings={"TRITON_CACHE_DIR": str(self._cache)})
        compiler = Compiler(self._compiling)

        def build(one: tuple[str, str, Launch]) -> None:
            with contextlib.suppress(WorkerFailure):
                compiler.compile(*one, self.hardware)

        with ThreadPoolExecutor(max_workers=self._compilers) as threads:
            list(threads.map(build, wanted.values()))

    def _sustained(self, dtypes: Sequence[str], regime: Regime, rounds: int) -> dict[str, Any]:
        """What the card sustains, found once for each dtype."""
        key = ",".join(dtypes)
        if key not in self._ceilings:
            asked = {"dtypes": list(dtypes), "regime": regime.facts(), "rounds": min(rounds, 4)}
            self._ceilings[key] = self._pool.call("ceilings", asked, timeout=180.0).result
        return self._ceilings[key]


def _row(
    pool: WorkerPool,
    target: Target,
    hardware: Hardware,
    program: Program,
    workload: Workload,
    entries: Sequence[Entry],
    ceilings: Mapping[str, Any],
    regime: Regime,
    rounds: int,
    seed: int,
) -> Row:
    from dsl.work import work
    from evaluators.device_jobs import job
    from evaluators.roofline import speed_of_light

    amount = work(program, extents(program.algorithm, workload), workload.params)
    moved = amount.bytes_in + amount.bytes_out
    floor = speed_of_light(amount, hardware)
    rng = generator(seed, "bench", target.name, workload.name)
    asked = job(target, program, workload, "normal", int(rng.integers(2**62)), rng)
    reply, lost = _compared(
        pool,
        {
            "job": asked,
            "target": target.name,
            "bytes": int(moved),
            "regime": regime.facts(),
            "rounds": rounds,
            "arms": [e.payload() for e in entries],
        },
        len(entries),
    )
    counted = sum(amount.flops.values()) if target.unit == "TFLOP/s" else moved
    ceiling = _ceiling(amount.flops, moved, ceilings)
    told = reply.result if reply is not None else {"rows": [], "measurement": None}
    measurement = None if told["measurement"] is None else Measurement.model_validate(told["measurement"])
    wrong = {r["name"]: _wrong(r, asked) for r in told["rows"]}
    kinds = {e.arm.name: e.arm.kind for e in entries}
    best = _best(measurement, kinds, wrong)
    outcomes = []
    for entry in entries:
        name = entry.arm.name
        row: dict[str, Any] = next((r for r in told["rows"] if r["name"] == name), {})
        reason = lost.get(name) or row.get("reason") or wrong.get(name, "")
        if measurement is None or name not in measurement.names:
            outcomes.append(Outcome(arm=name, reason=reason or "it was not measured"))
            continue
        seconds = measurement.seconds(name)
        scale = 1e-12 if target.unit == "TFLOP/s" else 1e-9
        outcomes.append(
            Outcome(
                arm=name,
                seconds=seconds,
                rate=counted * scale / seconds,
                speed=speed_between(measurement, name, best),
                of_floor=floor.floor_s / seconds,
                of_ceiling=None if ceiling is None else ceiling / seconds,
                state=measurement.clocks(name),
                error=_error(row),
                reason=reason,
            )
        )
    return Row(
        workload=workload.name,
        work=counted,
        floor_s=floor.floor_s,
        bottleneck=floor.bottleneck,
        ceiling_s=ceiling,
        best_baseline=best,
        outcomes=tuple(outcomes),
        measurement=measurement,
        trouble=measurement.trouble if measurement is not None else None,
    )


def _compared(pool: WorkerPool, payload: dict[str, Any], count: int) -> tuple[Reply | None, dict[str, str]]:
    """The worker's reply, and the arms that took it down: each is left out and the rest is measured without it."""
    lost: dict[str, str] = {}
    while payload["arms"]:
        try:
            return pool.call("compare", payload, timeout=120.0 + ARM_S * count), lost
        except (Crash, Timeout, OutOfMemory, TaskError) as failure:
            begun = [x.removeprefix(ARM_MARK) for x in failure.log.splitlines() if x.startswith(ARM_MARK)]
            blamed = begun[-1] if begun else payload["arms"][0]["name"]
            lost[blamed] = f"{type(failure).__name__}: {failure.message}"
            payload = {**payload, "arms": [a for a in payload["arms"] if a["name"] != blamed]}
    return None, lost


def _wrong(row: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Why the answer of an arm is wrong, before its time was taken or in the last call of it; "" where it is right.

    Programs are held to the judge's tolerance. Libraries round in places of their own: they are told their error, and
    left out only where it is gross, for a table that drops its strongest baseline flatters.
    """
    for name, when in (("figures", ""), ("again", "after it was timed: ")):
        for f in row.get(name, ()):
            if "form" in f:
                return f"{when}{f['form']}"
            if row["kind"] == "program":
                reasons = errors.judge(f, asked["outputs"][f["output"]]["dtype"]).reasons
                if reasons:
                    return f"wrong answer: {when}{reasons[0]}"
            elif "nonfinite" in f or f.get("different") or f.get("l2", [0.0])[0] > GROSS:
                return f"wrong answer: {when}{_said(f)}"
    return ""


def _said(f: Mapping[str, Any]) -> str:
    if "nonfinite" in f:
        return f"{f['nonfinite']} where the right answer has none, or the other way round"
    if f.get("different"):
        return f"{f['different']} of {f['of']} differ"
    return f"relative L2 {f['l2'][0]:.3g}"


def _error(row: Mapping[str, Any]) -> tuple[float, float] | None:
    found = [f["l2"] for f in row.get("figures", ()) if "l2" in f]
    return (max(x for x, _ in found), max(y for _, y in found)) if found else None


def _best(measurement: Measurement | None, kinds: Mapping[str, Kind], wrong: Mapping[str, str]) -> str | None:
    """The fastest baseline with a right answer."""
    if measurement is None:
        return None
    good = [n for n in measurement.names if kinds[n] in ("baseline", "function") and not wrong.get(n)]
    return min(good, key=measurement.seconds, default=None)


def _ceiling(flops: Mapping[str, float], moved: float, ceilings: Mapping[str, Any]) -> float | None:
    """Seconds at what this card sustains in a square product and in a copy; None where a dtype was not measured."""
    times = [moved / ceilings["bytes_per_s"]]
    for dtype, count in flops.items():
        if dtype not in ceilings["flops"]:
            return None
        times.append(count / ceilings["flops"][dtype])
    return float(max(times))


def _dtypes(program: Program) -> list[str]:
    floats = ("f16", "bf16", "e4m3", "e5m2")
    return list(dict.fromkeys(t.dtype for t in program.algorithm.inputs if t.dtype in floats))


def _versions(device: Mapping[str, Any]) -> dict[str, str]:
    packages = {name: version(name) for name in ("avo-kernels", "torch", "triton", "sageattention")}
    found = {"python": platform.python_version()} | {name: v for name, v in packages.items() if v}
    runtime = "rocm" if device.get("vendor") == "amd" else "cuda"
    more = {"driver": device.get("driver"), runtime: device.get("runtime"), "cudnn": device.get("cudnn")}
    return found | {name: str(value) for name, value in more.items() if value}
