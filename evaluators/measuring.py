"""Visits to a device: what a judge that measures has compiled, run and timed, before it decides anything.

Compile workers on all cores fill the cache that the device's worker launches from, so that neither waits for the other.
A candidate gets one look on the device (errors, then each size timed once). One that faults costs itself and its
worker: a spare one, its device checked, takes the next call.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dsl.lowering.lowered import Launch, Lowered
from evaluators import errors, gates, timing
from evaluators.building import Builders
from evaluators.compile_cache import CompileCache
from evaluators.device import DeviceFacts, NoDevice, local_devices, matching
from evaluators.device_jobs import arm, correct, job
from evaluators.evaluation import Status
from evaluators.failures import Crash, TaskError, Unavailable, WorkerFailure
from evaluators.gates import Bench, Case, Evidence, Rejected
from evaluators.inputs import extents, generator, pairings
from evaluators.judge import LocalEvaluator
from evaluators.pool import WorkerPool
from evaluators.process import cores
from evaluators.slots import Queue, Slot
from evaluators.target import Workload
from evaluators.timing import RACING, NoiseFloor, Regime, Sample

if TYPE_CHECKING:
    from dsl.hardware import Hardware

RUN_S = 4.0  # what a candidate's runs may take beyond what is expected of them: more is a hang
SWITCH_S = 1e-3  # threads that parse and propose hand over so often, or a device's answer waits for each of them
EPOCH = 24  # candidates that are timed on the same inputs, before new ones are drawn


@dataclass
class Timed:
    """What one candidate's timing left: samples of its own and paired ones, by workload."""

    own: dict[str, list[Sample]] = field(default_factory=dict)
    pairs: dict[str, list[Sample]] = field(default_factory=dict)
    graphs: dict[str, bool] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)  # sizes whose times may be those of launches, in words
    alone: dict[str, list[Sample]] = field(default_factory=dict)


class Measuring(LocalEvaluator):
    """The devices of this machine and how to use them. See `evaluators.measured.MeasuredEvaluator`.

    devices: what to use instead of what is found; slots, pool: instead of real ones, with `simulate`.
    """

    # The visit that checks a candidate times it too: the worker's task, what it is told besides, the file that has it.
    look_task, look_rule, look_file = "screen", dict[str, Any](), None

    def __init__(
        self,
        hardware: Hardware,
        jobs: int = 2,
        seed: int = 0,
        *,
        regime: Regime | None = None,
        devices: Sequence[DeviceFacts] | None = None,
        slots: Sequence[Slot] | None = None,
        pool: WorkerPool | None = None,
        compilers: int | None = None,
        simulate: bool = False,
        compile_timeout: float = 120.0,
        run_s: float = RUN_S,
    ) -> None:
        found = [s.facts for s in slots] if slots is not None else list(devices or ())
        found = found or matching(local_devices(), hardware)
        if not found:
            raise NoDevice(f"no {hardware.name} is here")
        self._cache = CompileCache()
        self.compilers = compilers or max(1, min(cores(), 64))
        pool = pool or WorkerPool(self.compilers, settings={"TRITON_CACHE_DIR": str(self._cache.folder)})
        super().__init__(jobs, seed, compile_timeout=compile_timeout, pool=pool)
        self._own_pool = True
        self.chip = hardware
        self.regime = regime or RACING
        self._run_s = run_s
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_S, self._switch_s))
        self.warnings = [w for f in found for w in f.warnings()]
        self.slots = list(slots) if slots is not None else self._leased(found, simulate)
        self._queue = Queue(self.slots)
        self._builders = Builders(self.compilers)
        self.noise: NoiseFloor | None = None
        self._lock_counts = threading.Lock()
        self._counts: dict[str, int] = {}
        self._device_s: defaultdict[int, float] = defaultdict(float)

    def _leased(self, found: Sequence[DeviceFacts], simulate: bool) -> list[Slot]:
        """A slot for each device that no other run of avo has. Raises Unavailable where all are taken."""
        free: list[Slot] = []
        taken: Unavailable | None = None
        for facts in found:
            slot = Slot(facts, self._cache.folder, simulate=simulate, tasks=self.look_file)
            try:
                slot.lease()
                free.append(slot)
            except Unavailable as failure:
                taken = failure
                self.warnings.append(f"device {facts.index}, {facts.name}, is left out: {failure.message}")
        if not free and taken is not None:
            super().close()
            self._cache.close()
            raise taken
        return free

    def close(self) -> None:
        sys.setswitchinterval(self._switch_s)
        self._builders.close()
        for slot in self.slots:
            slot.close()
        super().close()
        self._cache.close()

    def _times(self, hardware: Hardware) -> Literal["predicted", "measured", "none"]:
        return "measured"

    def _warm(self, hardware: Hardware) -> None:
        with contextlib.suppress(Unavailable):
            self._pool.warm(("compile",))
            for slot in self.slots:
                slot.warm()

    def _environment(self, case: Case) -> dict[str, Any]:
        from evaluators.judge import environment

        device = case.slot or self.slots[0]
        return {
            **environment(case.hardware),
            "device": {**device.facts.model_dump(mode="json"), **device.worker},
            "device_s": round(self._device_s.pop(id(case), 0.0), 4),
            "busy_share": self.busy_share,
            "device_parts_s": self.parts_s,
            "device_faults": sum(s.faults for s in self.slots),
            "compiled_on_device": sum(s.misses for s in self.slots),
            "regime": self.regime.facts(),
            "heated": [h for s in self.slots for h in s.heats[:1]],
            "noise_floor": self.noise.facts() if self.noise else None,
            "warnings": list(self.warnings),
        }

    @property
    def busy_share(self) -> float:
        """Of the time since the first candidate came to them that the devices were at work on candidates."""
        return round(sum(s.share for s in self.slots) / len(self.slots), 3)

    @property
    def parts_s(self) -> dict[str, float]:
        """What the devices' workers spent their time on so far, in seconds."""
        names = sorted({name for s in self.slots for name in s.parts})
        return {name: round(sum(s.parts.get(name, 0.0) for s in self.slots), 2) for name in names}

    def _compile_gate(self, case: Case, bench: Bench) -> Evidence:
        """As everywhere, and the sizes that correctness will run beside it, so that the device only launches."""
        self._cache.used()
        lowered = gates.lower_step(case)
        gates.insist_room(case, lowered)
        if case.ticket is None:
            case.ticket = self._queue.ticket()
        timed = self._specialised(case, lowered, case.target.workloads)
        checks = self._specialised(case, lowered, case.target.checks)
        facts = [self._build(case, 0, *timed[key], bench.compiler.compile) for key in timed]
        rest = [self._build(case, 1, *checks[key], bench.compiler.fill) for key in checks if key not in timed]
        try:
            self._await(facts)
            evidence = gates.compile_gate(case, bench)
            self._await(rest)
        finally:
            for future in rest:
                future.cancel()
        return evidence

    def _specialised(
        self, case: Case, lowered: Lowered, workloads: Sequence[Workload]
    ) -> dict[str, tuple[str, Launch]]:
        """What has to be compiled for these sizes, each once: those that differ in the number of programs share one."""
        distinct: dict[str, tuple[str, Launch]] = {}
        for workload in workloads:
            sizes, params = extents(case.sure.algorithm, workload), gates._params(case.sure, workload)
            for kernel in lowered.kernels:
                x = kernel.specialise(sizes, params)
                same = (x.signature, x.constexprs, x.divisible, x.small, x.options)
                distinct[repr((kernel.name, same))] = (kernel.name, x)
        return distinct

    def _build(self, case: Case, after: int, name: str, launch: Launch, how: Callable[..., object]) -> Future[None]:
        """In its turn; what is wrong with the kernel the gate or the run will say."""
        assert case.lowered is not None and case.ticket is not None
        source = case.lowered.source

        def build() -> None:
            with contextlib.suppress(WorkerFailure):
                how(source, name, launch, case.hardware)

        return self._builders.submit((case.ticket, after), build)

    def _await(self, futures: Sequence[Future[None]]) -> None:
        for future in futures:
            try:
                future.result()
            except CancelledError:
                raise Unavailable("the judge was closed while it compiled") from None

    def _look_gate(self, case: Case, bench: Bench) -> Evidence:
        """The emitted source on the device: small sizes with tails, and the cheapest public size of each setting of
        params. The same visit times every public size once, for most candidates need no other.
        """
        rng = generator(bench.seed, "device correctness", case.target.name, case.name)
        checks = [
            job(case.target, case.sure, w, d, int(rng.integers(2**62)), rng)
            for w, d in pairings(case.target.checks, rng)
        ]
        cheap = self._cheapest(case)
        rest = [w for w in case.target.workloads if w not in cheap]
        timed = {w.name: self._timing_job(case, w) for w in (*cheap, *rest)}
        checks += [timed[w.name] for w in cheap]  # at exactly the sizes that are timed
        payload: dict[str, Any] = {"arm": arm(case.lowered), "checks": checks, "timed": list(timed.values())}
        payload |= {
            "pick": int(rng.integers(2**31)),
            "hopeless": self._hopeless(case),
            "few": len(cheap),
            **self.look_rule,
        }
        expected = sum(r.predicted_s or 0.0 for r in case.results)
        allowed = self._run_s + 0.1 * len(checks) + 20 * expected
        result, log = self._ask(case, self.look_task, payload, [*checks, *timed.values()], allowed)
        try:
            evidence = correct(checks, result["rows"])
            case.screen = list(zip(timed.values(), result["timed"], strict=False))
        except (KeyError, TypeError, ValueError, IndexError):
            raise Crash("the device's worker answered nonsense", log) from None
        return evidence

    def _hopeless(self, case: Case) -> dict[str, float]:
        """Seconds by workload above which the few cheapest sizes are all that is timed; empty: no such limit."""
        return {}

    def _cheapest(self, case: Case) -> list[Workload]:
        """One public size of each setting of params: the one that takes least by prediction."""
        expected = {r.workload: r.predicted_s or 0.0 for r in case.results}
        kinds: dict[str, Workload] = {}
        for workload in sorted(case.target.workloads, key=lambda w: expected.get(w.name, 0.0)):
            kinds.setdefault(repr(sorted(workload.params.items())), workload)
        return list(kinds.values())

    def _fresh_gate(self, case: Case, bench: Bench, workloads: Sequence[Workload]) -> Evidence:
        """Right on inputs that it has not met, at these sizes; nothing is timed."""
        rng = generator(bench.seed, "fresh", case.target.name, case.name)
        jobs = [job(case.target, case.sure, w, d, int(rng.integers(2**62)), rng) for w, d in pairings(workloads, rng)]
        expected = sum(r.predicted_s or 0.0 for r in case.results)
        allowed = self._run_s + 0.5 * len(jobs) + 50 * expected
        result, log = self._ask(case, "verify", {"arm": arm(case.lowered), "jobs": jobs}, jobs, allowed)
        try:
            return correct(jobs, result["rows"])
        except (KeyError, TypeError, ValueError, IndexError):
            raise Crash("the device's worker answered nonsense", log) from None

    def _segments(
        self,
        case: Case,
        workloads: Sequence[Workload],
        order: str,
        other: Lowered | None,
        timed: Timed,
        regime: Regime | None = None,
    ) -> dict[str, list[Sample]]:
        """Segments on the device, by workload; the outputs of the first arm are judged again."""
        regime = regime or self.regime
        jobs = [self._timing_job(case, w) for w in workloads]
        arms = [arm(lowered) for lowered in (case.lowered, other) if lowered is not None]
        payload: dict[str, Any] = {"arms": arms, "jobs": jobs, "order": order}
        payload |= {"untimed_s": regime.untimed_s, "timed_s": regime.timed_s}
        names = {w.name for w in workloads}
        expected = sum(r.predicted_s or 0.0 for r in case.results if r.workload in names)
        segment = regime.untimed_s + regime.timed_s
        allowed = self._run_s + len(order) * (2 * segment * len(jobs) + 10 * expected)
        result, log = self._ask(case, "race", payload, jobs, allowed)
        try:
            return self._read(case, timed, list(zip(jobs, result["timed"], strict=True)), own=False)
        except (KeyError, TypeError, ValueError, IndexError):
            raise Crash("the device's worker answered nonsense", log) from None

    def _read(self, case: Case, timed: Timed, answers: Any, own: bool = True) -> dict[str, list[Sample]]:
        """Samples by workload, once their outputs and clocks are found to be right. Raises Rejected."""
        found: dict[str, list[Sample]] = {}
        for asked, answer in answers:
            name = asked["workload"]
            samples = [Sample(**s) for s in answer["samples"]]
            reasons = [f"input {i} was written to" for i in answer["mutated"]]
            for f in answer["figures"]:
                reasons += errors.judge(f, asked["outputs"][f["output"]]["dtype"]).reasons
            if reasons:
                raise Rejected(Status.INCORRECT, f"{name}: a timed output is wrong: {reasons[0]}", {})
            if why := timing.suspicious([s for s in samples if s.arm == 0]):
                evidence = {"samples": [s.model_dump() for s in samples]}
                raise Rejected(Status.SUSPICIOUS, f"{name}: {why}", evidence)
            self._note_throttles(samples)
            timed.graphs[name] = bool(answer["graphs"])
            if said := answer.get("launch_bound"):
                timed.bound[name] = str(said)
            found[name] = samples
            if own:
                timed.own[name] = samples
        return found

    # -- small parts ---------------------------------------------------------------------------------------------

    def _ask(
        self, case: Case, task: str, payload: dict[str, Any], jobs: Sequence[Mapping[str, Any]], seconds: float
    ) -> tuple[dict[str, Any], str]:
        """Runs a task on the next free device; the seconds that it is held count as the candidate's."""
        if case.ticket is None:
            case.ticket = self._queue.ticket()
        with self._queue.device(case.ticket) as slot:
            before = slot.busy_s
            try:
                reply = slot.run(task, payload, jobs, seconds)
            except TaskError as failure:
                message = failure.message.splitlines()[-1]
                raise Rejected(Status.INCORRECT, message, {"cases": [{"reasons": [failure.message]}]}) from None
            finally:
                case.slot = slot
                self._device_s[id(case)] += slot.busy_s - before
        return reply.result, reply.log

    def _note_throttles(self, samples: Sequence[Sample]) -> None:
        """What holds clocks down beside the power limit, which is the card as it is, is told once."""
        for reason in sorted({t for s in samples for t in s.throttles} - {"power cap"}):
            told = f"the device was throttled while it timed: {reason}"
            if told not in self.warnings:
                self.warnings.append(told)

    def _note_overclock(self, case: Case) -> None:
        highest = (case.slot or self.slots[0]).facts.max_sm_mhz
        case.overclock = highest * 1e6 / case.hardware.clock_hz if highest else 1.0

    def _epoch(self, case: Case) -> int:
        """Which inputs this candidate is timed on: new ones every so often, the same within one candidate."""
        with self._lock_counts:
            place = self._counts.setdefault(case.name, len(self._counts))
            return place // EPOCH

    def _timing_job(self, case: Case, workload: Workload) -> dict[str, Any]:
        rng = generator(self._bench.seed, "timing", case.target.name, workload.name, self._epoch(case))
        return job(case.target, case.sure, workload, "normal", int(rng.integers(2**62)), rng, rotate=True)
