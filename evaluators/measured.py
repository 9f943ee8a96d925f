"""The judge of a machine with the chip in it: the same gates, correctness and time from the device itself.

Compile workers on all cores fill the cache that the device's worker launches from, so that neither waits for the other.
A candidate that faults costs itself and its worker: a spare one, its device checked, takes the next call.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dsl.lowering.lowered import Lowered
from dsl.syntax import Program
from evaluators import errors, gates, racing, timing
from evaluators.device import DeviceFacts, Lease, NoDevice, local_devices, matching
from evaluators.evaluation import Status
from evaluators.failures import Crash, TaskError, Unavailable, WorkerFailure
from evaluators.gates import Bench, Case, Evidence, Gate, Rejected
from evaluators.inputs import extents, generator, indexed_axes, input_shapes, pairings
from evaluators.judge import LocalEvaluator
from evaluators.oracle import output_dtypes
from evaluators.pool import Reply, WorkerPool
from evaluators.racing import Rules, Standing
from evaluators.slices import slices
from evaluators.target import Target, Workload
from evaluators.timing import NoiseFloor, Regime, Sample

if TYPE_CHECKING:
    from dsl.hardware import Hardware

DEVICE_MEMORY = 64 << 30  # resident memory of a device's worker: the libraries alone map several GiB
PREPARE_S = 600.0  # inputs and right answers: ours, never the candidate's
RUN_S = 6.0  # what a candidate's runs may take beyond what is expected of them: more is a hang
LOAD_S = 60.0  # a worker's first call compiles launchers
MISS_S = 4.0  # one kernel that the compile workers' cache did not have
EPOCH = 24  # candidates that are timed on the same inputs, before new ones are drawn
_FAULT = "avo device fault: "


class Slot:
    """One device: its lease, its workers (one at work and a spare), and how busy it has been.

    simulate: no device at all; the worker runs on the CPU in the interpreter, for tests.
    """

    def __init__(
        self, facts: DeviceFacts, cache: Path, *, simulate: bool = False, extra: Mapping[str, str] | None = None
    ) -> None:
        self.facts = facts
        visible = {"HIP_VISIBLE_DEVICES": str(facts.index)} if facts.vendor == "amd" else {}
        visible = visible or {"CUDA_VISIBLE_DEVICES": facts.uuid}
        settings = {**visible, "TRITON_CACHE_DIR": str(cache), **(extra or {})}
        if simulate:
            settings |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
        self._pool = WorkerPool(1 if simulate else 2, memory_bytes=DEVICE_MEMORY, settings=settings)
        self._lease = Lease(facts.uuid)
        self._lock = threading.Lock()
        self._simulated = simulate
        self.busy_s = 0.0
        self.since: float | None = None
        self.faults = 0
        self.misses = 0
        self.worker: dict[str, Any] = {}
        self._extra_s = LOAD_S

    def warm(self) -> None:
        self._pool.warm(("device",))

    def run(self, task: str, payload: dict[str, Any], jobs: Sequence[Mapping[str, Any]], seconds: float) -> Reply:
        """Prepares the jobs, then runs the task on them, on one worker with nothing in between.

        seconds: what the candidate may take. Raises what the pool raises; what fails while preparing is Unavailable.
        """
        with self._lock:
            if not self._simulated:
                self._lease.take(wait_s=60.0)
            if not self.worker:
                self.worker = self._call("device_facts", {}, 60.0).result
            if self.since is None:
                self.since = time.monotonic()
            try:
                self._call("prepare", {"jobs": list(jobs)}, PREPARE_S)
            except Unavailable:
                raise
            except WorkerFailure as failure:
                raise Unavailable(f"inputs and right answers: {failure.message}", failure.log) from None
            seconds += self._extra_s
            try:
                reply = self._call(task, payload, seconds)
                self._extra_s = MISS_S * int(reply.result.get("compilations", {}).get("miss", 0))
                return reply
            except Crash as crash:
                self.faults += 1
                said = [line for line in crash.log.splitlines() if line.startswith(_FAULT)]
                raise Crash(said[-1].removeprefix(_FAULT) if said else crash.message, crash.log) from None
            except (TaskError, Unavailable):
                raise
            except WorkerFailure:
                self.faults += 1
                raise

    def _call(self, task: str, payload: dict[str, Any], seconds: float) -> Reply:
        began = time.monotonic()
        try:
            reply = self._pool.call(task, payload, timeout=seconds)
        finally:
            self.busy_s += time.monotonic() - began
        if isinstance(found := reply.result.get("compilations"), dict):
            self.misses += int(found.get("miss", 0))
        return reply

    @property
    def share(self) -> float:
        """Of the time since its first use that the device's worker was at work."""
        return 0.0 if self.since is None else min(1.0, self.busy_s / max(1e-9, time.monotonic() - self.since))

    def close(self) -> None:
        self._pool.close()
        self._lease.release()


@dataclass(frozen=True)
class Champion:
    """The incumbent that candidates race against: its source, and seconds by workload."""

    name: str
    lowered: Lowered
    seconds: Mapping[str, float]


@dataclass
class _Timed:
    """What one candidate's timing left: samples of its own and paired blocks, by workload."""

    own: dict[str, list[Sample]] = field(default_factory=dict)
    blocks: dict[str, list[Sample]] = field(default_factory=dict)
    graphs: dict[str, bool] = field(default_factory=dict)
    versus: Champion | None = None
    standing: Standing | None = None


class MeasuredEvaluator(LocalEvaluator):
    """Judges programs on the devices of this machine; implements `evaluators.protocol.Evaluator`.

    hardware: the chip that has to be here (NoDevice where it is not). jobs: candidates under way at once; the devices
    are what they wait for. regime, rules: how times are taken and how many. devices: what to use instead of what is
    found, for tests, with `simulate`.
    """

    def __init__(
        self,
        hardware: Hardware,
        jobs: int = 2,
        seed: int = 0,
        *,
        regime: Regime | None = None,
        rules: Rules | None = None,
        devices: Sequence[DeviceFacts] | None = None,
        simulate: bool = False,
        compile_timeout: float = 120.0,
        run_s: float = RUN_S,
    ) -> None:
        found = list(devices) if devices is not None else matching(local_devices(), hardware)
        if not found:
            raise NoDevice(f"no {hardware.name} is here")
        self._cache = Path(tempfile.mkdtemp(prefix="avo-compiled-"))
        cores = os.cpu_count() or 2
        self.compilers = max(1, min(cores if simulate else cores - 2, 64))
        pool = WorkerPool(self.compilers, settings={"TRITON_CACHE_DIR": str(self._cache)})
        super().__init__(jobs, seed, compile_timeout=compile_timeout, pool=pool)
        self._own_pool = True
        self.chip = hardware
        self.regime = regime or Regime()
        self.rules = rules or Rules()
        self._run_s = run_s
        self.slots = [Slot(f, self._cache, simulate=simulate) for f in found]
        self._free = list(self.slots)
        self._turn = threading.Condition()
        self._threads = ThreadPoolExecutor(max_workers=self.compilers, thread_name_prefix="avo-compile")
        self.warnings = [w for f in found for w in f.warnings()]
        self.noise: NoiseFloor | None = None
        self._champions: dict[str, Champion] = {}
        self._racing = threading.Lock()
        self._counts: dict[str, int] = {}
        self._device_s: dict[int, float] = {}

    def described(self) -> str:
        """For people: the devices and the regime."""
        names = ", ".join(f"{s.facts.name} ({s.facts.uuid[:12]})" for s in self.slots)
        r = self.regime
        return f"{names}; {r.name}: {r.untimed_s * 1e3:g} ms untimed, {r.timed_s * 1e3:g} ms timed, arms in turns"

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for slot in self.slots:
            slot.close()
        super().close()
        shutil.rmtree(self._cache, ignore_errors=True)

    # -- what the judge asks -------------------------------------------------------------------------------------

    def _times(self, hardware: Hardware) -> Literal["predicted", "measured", "none"]:
        return "measured"

    def _gates(self, hardware: Hardware) -> Sequence[tuple[str, Gate]]:
        return (
            ("parse", gates.parse_gate),
            ("check", gates.check_gate),
            ("meaning", gates.meaning_gate),
            ("compile", self._compile_gate),
            ("correctness", self._correctness_gate),
            ("prediction", gates.prediction_gate),
            ("timing", self._timing_gate),
            ("floor", gates.floor_gate),
        )

    def _warm(self, hardware: Hardware) -> None:
        with contextlib.suppress(Unavailable):
            self._pool.warm(("compile",))
            for slot in self.slots:
                slot.warm()

    def _environment(self, case: Case) -> dict[str, Any]:
        from evaluators.judge import environment

        device = self.slots[0]
        return {
            **environment(case.hardware),
            "device": {**device.facts.model_dump(mode="json"), **device.worker},
            "device_s": round(self._device_s.pop(id(case), 0.0), 4),
            "busy_share": round(sum(s.share for s in self.slots) / len(self.slots), 3),
            "device_faults": sum(s.faults for s in self.slots),
            "compiled_on_device": sum(s.misses for s in self.slots),
            "regime": self.regime.facts(),
            "noise_floor": self.noise.facts() if self.noise else None,
            "warnings": list(self.warnings),
        }

    # -- gates ---------------------------------------------------------------------------------------------------

    def _compile_gate(self, case: Case, bench: Bench) -> Evidence:
        """As everywhere; and every size that correctness will run, all at once, so that the device only launches."""
        lowered = gates.lower_step(case)
        gates.insist_room(case, lowered)
        wanted = []
        for workload in (*case.target.workloads, *case.target.checks):
            sizes, params = extents(case.sure.algorithm, workload), gates._params(case.sure, workload)
            wanted += [(kernel.name, kernel.specialise(sizes, params)) for kernel in lowered.kernels]

        def build(name: str, launch: Any) -> None:
            with contextlib.suppress(WorkerFailure):  # the gate itself, or the run, will say what is wrong
                bench.compiler.compile(lowered.source, name, launch, case.hardware)

        distinct = {repr((n, x.signature, x.constexprs, x.divisible, x.options)): (n, x) for n, x in wanted}
        list(self._threads.map(lambda pair: build(*pair), distinct.values()))
        return gates.compile_gate(case, bench)

    def _correctness_gate(self, case: Case, bench: Bench) -> Evidence:
        """The emitted source on the device: small sizes with tails, and one public size of each setting of params."""
        rng = generator(bench.seed, "device correctness", case.target.name, case.name)
        pairs = pairings(case.target.checks, rng)
        kinds: dict[str, Workload] = {}
        for workload in sorted(case.target.workloads, key=lambda w: rng.random()):
            kinds.setdefault(repr(sorted(workload.params.items())), workload)
        jobs = [job(case.target, case.sure, w, d, int(rng.integers(2**62)), rng) for w, d in pairs]
        jobs += [self._timing_job(case, w) for w in kinds.values()]  # at exactly the sizes that are timed
        arm = _arm(case.lowered)
        with self._device(case) as slot:
            try:
                reply = slot.run("verify", {"arm": arm, "jobs": jobs}, jobs, self._run_s + 0.4 * len(jobs))
            except TaskError as failure:
                message = failure.message.splitlines()[-1]
                raise Rejected(Status.INCORRECT, message, {"cases": [{"reasons": [failure.message]}]}) from None
        try:
            return self._correct(jobs, reply.result["rows"])
        except (KeyError, TypeError, ValueError, IndexError):
            raise Crash("the device's worker answered nonsense", reply.log) from None

    def _correct(self, jobs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Evidence:
        cases: list[Evidence] = []
        for asked, row in zip(jobs, rows, strict=True):
            seen: Evidence = {"workload": asked["workload"], "distribution": asked["distribution"]}
            seen["slices"] = f"{len(asked['slices'])} of {asked['of']}"
            reasons = [f"input {name} was written to" for name in row["mutated"]]
            reasons += [f"something was written outside of {name}" for name in row["strayed"]]
            if row["count"] != len(asked["outputs"]):
                reasons.append(f"{row['count']} outputs, declared {len(asked['outputs'])}")
            if not row["repeatable"]:
                seen["repeatable"] = False
            seen["outputs"] = {}
            for t, output in zip(asked["outputs"], row["outputs"], strict=False):
                reasons += [f"{t['name']}: {why}" for why in _wrong(t, output, asked, seen["outputs"])]
            if reasons:
                seen["reasons"] = reasons
            cases.append(seen)
        if wrong := [seen for seen in cases if "reasons" in seen]:
            first = wrong[0]
            message = (
                f"{len(wrong)} of {len(cases)} checks; {first['workload']} ({first['distribution']}): "
                f"{first['reasons'][0]}"
            )
            raise Rejected(Status.INCORRECT, message, {"cases": cases, "on": "device"})
        return {"cases": cases, "on": "device"}

    def _timing_gate(self, case: Case, bench: Bench) -> Evidence:
        """Seconds for each public size in the stated regime, against the incumbent as far as it is worth it."""
        assert case.lowered is not None
        champion = self._champions.get(case.target.name)
        if champion is None:
            with self._racing:  # the first program sets the noise floor and is the first incumbent; others wait for it
                champion = self._champions.get(case.target.name)
                if champion is None:
                    return self._first(case)
        timed = _Timed(versus=champion)
        self._screen(case, timed)
        ratio = _geometric(timing.median(timed.own[n]) / s for n, s in champion.seconds.items() if n in timed.own)
        evidence: Evidence = {"versus": champion.name, "regime": self.regime.name}
        if ratio > self.rules.drop_above:
            evidence |= {"verdict": "slower", "blocks": 0}
        else:
            timed.standing = self._race(case, champion, timed)
            evidence |= {"verdict": timed.standing.outcome, "blocks": timed.standing.blocks}
        self._settle(case, timed, bench)
        return evidence

    def _first(self, case: Case) -> Evidence:
        timed = _Timed()
        self._screen(case, timed)
        kinds: dict[str, Workload] = {}
        for workload in case.target.workloads:
            kinds.setdefault(repr(sorted(workload.params.items())), workload)
        itself = Champion(case.name, case.lowered, {})  # type: ignore[arg-type]
        logs = []
        for workload in kinds.values():
            samples = self._sample(case, workload, "ABBA" * self.rules.most, itself, timed)
            logs.append(timing.paired(samples))
            timed.own[workload.name] += samples
        self.noise = timing.noise_floor(logs)
        self._settle(case, timed, None)
        return {"verdict": "first", "blocks": self.rules.most, "regime": self.regime.name}

    def _screen(self, case: Case, timed: _Timed) -> None:
        for workload in case.target.workloads:
            timed.own[workload.name] = self._sample(case, workload, "A", None, timed)

    def _race(self, case: Case, champion: Champion, timed: _Timed) -> Standing:
        assert self.noise is not None
        count = len(case.target.workloads)
        mean = NoiseFloor(self.noise.deviation / math.sqrt(count), self.noise.bias, self.noise.blocks)
        values: list[float] = []
        while True:
            logs = []
            for workload in case.target.workloads:
                samples = self._sample(case, workload, "ABBA", champion, timed)
                timed.blocks.setdefault(workload.name, []).extend(samples)
                logs += timing.paired(samples)
            values.append(sum(logs) / len(logs))
            found = racing.standing(values, mean, self.rules)
            if found.outcome != "open":
                return found

    def _sample(
        self, case: Case, workload: Workload, order: str, other: Champion | None, timed: _Timed
    ) -> list[Sample]:
        """Segments on the device; the outputs of both arms are judged again. Raises Rejected, WorkerFailure."""
        work = self._timing_job(case, workload)
        arms = [_arm(case.lowered)] + ([_arm(other.lowered)] if other is not None else [])
        payload: dict[str, Any] = {"arms": arms, "job": work, "order": order}
        payload |= {"untimed_s": self.regime.untimed_s, "timed_s": self.regime.timed_s}
        predicted = next((r.predicted_s or 0.0 for r in case.results if r.workload == workload.name), 0.0)
        allowed = self._run_s + len(order) * (0.5 + 50 * predicted)
        with self._device(case) as slot:
            try:
                reply = slot.run("time", payload, [work], allowed)
            except TaskError as failure:
                raise Rejected(Status.INCORRECT, f"{workload.name}: {failure.message}", {}) from None
        try:
            samples = [Sample(**s) for s in reply.result["samples"]]
            timed.graphs[workload.name] = bool(reply.result["graphs"])
            reasons = [f"input {name} was written to" for name in reply.result["mutated"]]
            for f in reply.result["rechecks"][0]["figures"]:
                reasons += errors.judge(f, work["outputs"][f["output"]]["dtype"]).reasons
        except (KeyError, TypeError, ValueError, IndexError):
            raise Crash("the device's worker answered nonsense", reply.log) from None
        if reasons:
            raise Rejected(Status.INCORRECT, f"{workload.name}: a timed output is wrong: {reasons[0]}", {})
        if why := timing.suspicious([s for s in samples if s.arm == 0]):
            raise Rejected(Status.SUSPICIOUS, f"{workload.name}: {why}", {"samples": [s.model_dump() for s in samples]})
        return samples

    def _settle(self, case: Case, timed: _Timed, bench: Bench | None) -> None:
        """Puts the measured seconds beside the predicted ones, and makes a better program the incumbent."""
        results = []
        noise = self.noise or NoiseFloor(0.0, 0.0, 0)
        for row in case.results:
            own = timed.own[row.workload]
            blocks = timed.blocks.get(row.workload, [])
            detail: dict[str, Any] = {"regime": self.regime.name, "graphs": timed.graphs.get(row.workload, False)}
            detail["samples"] = [_brief(s) for s in own]
            logs = timing.paired(blocks)
            if timed.versus is not None and logs:
                # Paired with the incumbent, the drift of clocks and heat since its own measurement cancels.
                ratio = timing.bootstrap(logs, seed=self._bench.seed)
                seconds = timed.versus.seconds[row.workload] * ratio.value
                detail["versus"] = {
                    "digest": timed.versus.name,
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "samples": [{"arm": s.arm, **_brief(s)} for s in blocks],
                }
                half = max(math.log(ratio.high / ratio.value), 2 * noise.deviation / math.sqrt(len(logs)))
            else:
                seconds = timing.median(own)
                half = 2 * max(noise.deviation, timing.spread([math.log(s.seconds) for s in own]))
                half = half / math.sqrt(len(own)) if len(own) > 1 else half
            detail["interval_s"] = [seconds * math.exp(-half), seconds * math.exp(half)]
            results.append(row.model_copy(update={"measured_s": seconds, "detail": {**row.detail, **detail}}))
        case.results = tuple(results)
        highest = self.slots[0].facts.max_sm_mhz
        case.overclock = highest * 1e6 / case.hardware.clock_hz if highest else 1.0
        outcome = timed.standing.outcome if timed.standing else None
        if timed.versus is None or outcome == "better":
            seconds_by = {r.workload: r.measured_s for r in results if r.measured_s is not None}
            self._champions[case.target.name] = Champion(case.name, case.lowered, seconds_by)  # type: ignore[arg-type]

    # -- small parts ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _device(self, case: Case) -> Any:
        """A free device; the seconds that it is held count as the candidate's."""
        with self._turn:
            while not self._free:
                self._turn.wait()
            slot = self._free.pop()
        before = slot.busy_s
        try:
            yield slot
        finally:
            self._device_s[id(case)] = self._device_s.get(id(case), 0.0) + slot.busy_s - before
            with self._turn:
                self._free.append(slot)
                self._turn.notify()

    def _epoch(self, case: Case) -> int:
        """Which inputs this candidate is timed on: new ones every so often, the same within one candidate."""
        with self._turn:
            place = self._counts.setdefault(case.name, len(self._counts))
            return place // EPOCH

    def _timing_job(self, case: Case, workload: Workload) -> dict[str, Any]:
        rng = generator(self._bench.seed, "timing", case.target.name, workload.name, self._epoch(case))
        return job(case.target, case.sure, workload, "normal", int(rng.integers(2**62)), rng, rotate=True)


def job(
    target: Target, program: Program, workload: Workload, distribution: str, seed: int, rng: Any, rotate: bool = False
) -> dict[str, Any]:
    """All that a device's worker needs to make inputs and right answers by itself; JSON.

    Raises Unavailable where the target's functions cannot be found again in another process.
    """
    algorithm = program.algorithm
    sizes = extents(algorithm, workload)
    shapes, dtypes, axes = input_shapes(algorithm, workload), output_dtypes(algorithm), indexed_axes(algorithm)
    cuts, total = slices(algorithm, sizes, rng)
    return {
        "workload": workload.name,
        "distribution": distribution,
        "seed": seed,
        "rotate": rotate,
        "sizes": dict(sizes),
        "given": list(workload.sizes),
        "params": gates._params(program, workload),
        "inputs": [
            {
                "name": t.name,
                "dtype": t.dtype or "f32",
                "axes": list(t.axes or ()),
                "shape": list(shapes[t.name]),
                "index": min((sizes[a] for a in axes[t.name]), default=None) if t.name in axes else None,
            }
            for t in algorithm.inputs
        ],
        "outputs": [
            {
                "name": t.name,
                "dtype": dtypes[t.name],
                "axes": list(t.axes or ()),
                "shape": [sizes[a] for a in t.axes or ()],
            }
            for t in algorithm.outputs
        ],
        "slices": cuts,
        "of": total,
        "reference": _where(target, target.reference),
        "make_inputs": _where(target, target.make_inputs) if target.make_inputs is not None else None,
    }


def _where(target: Target, function: Any) -> dict[str, str]:
    name = getattr(function, "__qualname__", "")
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        file = None
    if not file or not name or "<" in name:
        raise Unavailable(
            f"target {target.name}: its function {name or function!r} cannot be found again in another process; "
            "define it at the top of a file"
        )
    return {"module": function.__module__, "file": file, "name": name}


def _arm(lowered: Lowered | None) -> dict[str, str]:
    assert lowered is not None
    return {"source": lowered.source, "entry": lowered.entry}


def _wrong(t: Mapping[str, Any], output: Mapping[str, Any], asked: Mapping[str, Any], evidence: Evidence) -> list[str]:
    """What is wrong with one output; the worst slice's figures go into `evidence`."""
    from evaluators.tolerance import form

    reasons = list(form(output["dtype"], tuple(output["shape"]), t["dtype"], tuple(t["shape"])))
    if not output["contiguous"]:
        reasons.append("its strides are not row-major")
    if output["alias"] is not None:
        reasons.append(f"it is the memory of input {asked['inputs'][output['alias']]['name']}")
    if reasons:
        return reasons
    verdicts = [(errors.judge(f, t["dtype"]), f["slice"]) for f in output["figures"]]
    if not verdicts:
        raise ValueError("no figures")
    worst, place = next(((v, s) for v, s in verdicts if not v.passed), verdicts[0])
    evidence[t["name"]] = {**worst.evidence, **({"slice": place} if place else {})}
    found = list(worst.reasons)
    if found and output["unwritten"]:
        found.append(f"{output['unwritten']} elements were never written")
    return found


def _brief(s: Sample) -> dict[str, Any]:
    brief = {"seconds": float(f"{s.seconds:.6g}"), "calls": s.calls, "sm_mhz": s.sm_mhz, "watts": s.watts}
    return {**brief, **({"throttles": list(s.throttles)} if s.throttles else {})}


def _geometric(ratios: Any) -> float:
    logs = [math.log(r) for r in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0
