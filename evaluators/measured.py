"""The judge of a machine with the chip in it: the same gates, correctness and time from the device itself.

Compile workers on all cores fill the cache that the device's worker launches from, so that neither waits for the other.
A candidate gets one look on the device (errors, then each size timed once); what is within reach of the incumbent races
against it. One that faults costs itself and its worker: a spare one, its device checked, takes the next call.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dsl.lowering.lowered import Launch, Lowered
from evaluators import errors, gates, racing, timing
from evaluators.device import DeviceFacts, NoDevice, local_devices, matching
from evaluators.device_jobs import arm, correct, job
from evaluators.evaluation import Evaluation, Status
from evaluators.failures import Crash, TaskError, Unavailable, WorkerFailure
from evaluators.gates import Bench, Case, Evidence, Gate, Rejected
from evaluators.inputs import extents, generator, pairings
from evaluators.judge import LocalEvaluator
from evaluators.pool import WorkerPool
from evaluators.racing import Rules, Standing
from evaluators.slots import Queue, Slot
from evaluators.target import Target, Workload
from evaluators.timing import RACING, NoiseFloor, Regime, Sample

if TYPE_CHECKING:
    from dsl.hardware import Hardware

RUN_S = 4.0  # what a candidate's runs may take beyond what is expected of them: more is a hang
EPOCH = 24  # candidates that are timed on the same inputs, before new ones are drawn
LOOK_DEVIATION = 0.01  # of a short look's log: what two of the same program differ by


@dataclass(frozen=True)
class Champion:
    """The incumbent that candidates race against: its source, and seconds by workload: those that are on record, and
    those of the short look in this session, which other short looks are held against."""

    name: str
    lowered: Lowered
    seconds: Mapping[str, float]
    screen: Mapping[str, float]


@dataclass(frozen=True)
class Adopted:
    """The best of a run that is taken up again, and what is on record of it."""

    text: str
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
    are what they wait for. compilers: compile workers; all cores but two if None. regime, rules: how times are taken
    and how many. devices: what to use instead of what is found; slots, pool: instead of real ones; these for tests and
    simulations, with `simulate`.
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
        self._cache = Path(tempfile.mkdtemp(prefix="avo-compiled-"))
        cores = os.cpu_count() or 2
        self.compilers = compilers or max(1, min(cores if simulate else cores - 2, 64))
        pool = pool or WorkerPool(self.compilers, settings={"TRITON_CACHE_DIR": str(self._cache)})
        super().__init__(jobs, seed, compile_timeout=compile_timeout, pool=pool)
        self._own_pool = True
        self.chip = hardware
        self.regime = regime or RACING
        self.rules = rules or Rules()
        self._run_s = run_s
        self.slots = list(slots) if slots is not None else [Slot(f, self._cache, simulate=simulate) for f in found]
        self._queue = Queue(self.slots)
        self._threads = ThreadPoolExecutor(max_workers=self.compilers, thread_name_prefix="avo-compile")
        self.warnings = [w for f in found for w in f.warnings()]
        self.noise: NoiseFloor | None = None
        self._champions: dict[str, Champion] = {}
        self._adopted: dict[str, Adopted] = {}
        self._racing = threading.Lock()
        self._lock_counts = threading.Lock()
        self._counts: dict[str, int] = {}
        self._device_s: defaultdict[int, float] = defaultdict(float)

    def described(self) -> str:
        """For people: the devices and the regime."""
        names = ", ".join(f"{s.facts.name} ({s.facts.uuid[:12]})" for s in self.slots)
        r = self.regime
        how = f"{r.untimed_s * 1e3:g} ms untimed, {r.timed_s * 1e3:g} ms timed, arms in turns"
        return f"{names}; {r.name}: kept under load, {how}"

    def adopt(self, text: str, target: Target, evaluation: Evaluation) -> None:
        """Makes a program of an earlier session the incumbent: candidates race against it, and their seconds follow
        from those that are on record of it, so that one run's figures stay comparable."""
        seconds = {w.workload: w.measured_s for w in evaluation.workloads if w.measured_s}
        if evaluation.mode == "measured" and evaluation.status is Status.OK and seconds:
            self._adopted[self._prepare(target)[0].name] = Adopted(text, seconds)

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
            ("prediction", gates.prediction_gate),
            ("correctness", self._correctness_gate),
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

    # -- gates ---------------------------------------------------------------------------------------------------

    def _compile_gate(self, case: Case, bench: Bench) -> Evidence:
        """As everywhere; then the sizes that correctness will run, so that the device only launches."""
        lowered = gates.lower_step(case)
        gates.insist_room(case, lowered)
        self._build(case, bench, case.target.workloads)
        evidence = gates.compile_gate(case, bench)
        self._build(case, bench, case.target.checks)
        return evidence

    def _build(self, case: Case, bench: Bench, workloads: Sequence[Workload]) -> None:
        """All at once, each specialisation once; what is wrong with one of them the gate or the run will say."""
        assert case.lowered is not None
        lowered = case.lowered
        distinct: dict[str, tuple[str, Launch]] = {}
        for workload in workloads:
            sizes, params = extents(case.sure.algorithm, workload), gates._params(case.sure, workload)
            for kernel in lowered.kernels:
                x = kernel.specialise(sizes, params)
                distinct[repr((kernel.name, x))] = (kernel.name, x)

        def build(name: str, launch: Launch) -> None:
            with contextlib.suppress(WorkerFailure):
                bench.compiler.compile(lowered.source, name, launch, case.hardware)

        list(self._threads.map(lambda pair: build(*pair), distinct.values()))

    def _correctness_gate(self, case: Case, bench: Bench) -> Evidence:
        """The emitted source on the device: small sizes with tails, and one public size of each setting of params.

        The same visit times every public size once, for most candidates need no other.
        """
        rng = generator(bench.seed, "device correctness", case.target.name, case.name)
        pairs = pairings(case.target.checks, rng)
        kinds: dict[str, Workload] = {}
        for workload in sorted(case.target.workloads, key=lambda w: rng.random()):
            kinds.setdefault(repr(sorted(workload.params.items())), workload)
        checks = [job(case.target, case.sure, w, d, int(rng.integers(2**62)), rng) for w, d in pairs]
        timed = {w.name: self._timing_job(case, w) for w in case.target.workloads}
        checks += [timed[w.name] for w in kinds.values()]  # at exactly the sizes that are timed
        payload: dict[str, Any] = {"arm": arm(case.lowered), "checks": checks, "timed": list(timed.values())}
        payload["pick"] = int(rng.integers(2**31))
        expected = sum(r.predicted_s or 0.0 for r in case.results)
        allowed = self._run_s + 0.1 * len(checks) + 20 * expected
        result, log = self._ask(case, "screen", payload, [*checks, *timed.values()], allowed)
        try:
            evidence = correct(checks, result["rows"])
            case.screen = list(zip(timed.values(), result["timed"], strict=True))
        except (KeyError, TypeError, ValueError, IndexError):
            raise Crash("the device's worker answered nonsense", log) from None
        return evidence

    def _timing_gate(self, case: Case, bench: Bench) -> Evidence:
        """Seconds for each public size in the stated regime, against the incumbent as far as it is worth it."""
        assert case.lowered is not None
        champion = self._champions.get(case.target.name)
        if champion is None:
            with self._racing:  # the first program sets the noise floor and is the first incumbent; others wait for it
                champion = self._champions.get(case.target.name) or self._take_up(case, bench)
                if champion is None:
                    return self._first(case)
        timed = _Timed(versus=champion)
        self._read(case, timed, case.screen)
        ratio = _geometric(timing.median(timed.own[n]) / s for n, s in champion.screen.items() if n in timed.own)
        evidence: Evidence = {"versus": champion.name, "regime": self.regime.name}
        if ratio > self.rules.drop_above:
            evidence |= {"verdict": "slower", "blocks": 0}
        else:
            timed.standing = self._race(case, champion, timed)
            evidence |= {"verdict": timed.standing.outcome, "blocks": timed.standing.blocks}
        self._settle(case, timed)
        return evidence

    def _first(self, case: Case) -> Evidence:
        """A/A for the noise floor; this program is the incumbent."""
        timed = _Timed()
        self._read(case, timed, case.screen)
        self._measure_noise(case, timed)
        self._settle(case, timed)
        return {"verdict": "first", "blocks": self.rules.most, "regime": self.regime.name}

    def _take_up(self, case: Case, bench: Bench) -> Champion | None:
        """The incumbent of an earlier session, where there is one: compiled again, and looked at as it runs today."""
        adopted = self._adopted.get(case.target.name)
        if adopted is None:
            return None
        before = Case(text=adopted.text, target=case.target, wanted=case.wanted, hardware=case.hardware)
        try:
            for gate in (gates.parse_gate, gates.check_gate, self._compile_gate, gates.prediction_gate):
                gate(before, bench)
            self._correctness_gate(before, bench)
            timed = _Timed()
            self._read(before, timed, before.screen)
            self._measure_noise(before, timed)
        except Rejected as no:
            raise Unavailable(
                f"the best program of the earlier session is not accepted any more: {no.message}"
            ) from None
        assert before.lowered is not None
        screen = {name: timing.median(samples) for name, samples in timed.own.items()}
        seconds = {name: adopted.seconds.get(name, screen[name]) for name in screen}
        self._champions[case.target.name] = found = Champion(before.name, before.lowered, seconds, screen)
        return found

    def _measure_noise(self, case: Case, timed: _Timed) -> None:
        kinds: dict[str, Workload] = {}
        expected = {r.workload: r.predicted_s or 0.0 for r in case.results}
        for workload in sorted(case.target.workloads, key=lambda w: expected.get(w.name, 0.0)):
            kinds.setdefault(repr(sorted(workload.params.items())), workload)
        found = self._segments(case, list(kinds.values()), "ABBA" * self.rules.most, case.lowered, timed)
        self.noise = timing.noise_floor([timing.paired(samples) for samples in found.values()])

    def _race(self, case: Case, champion: Champion, timed: _Timed) -> Standing:
        assert self.noise is not None
        count = len(case.target.workloads)
        mean = NoiseFloor(self.noise.deviation / math.sqrt(count), self.noise.bias, self.noise.blocks)
        values: list[float] = []
        while True:
            found = self._segments(case, case.target.workloads, "ABBA", champion.lowered, timed)
            logs = []
            for name, samples in found.items():
                timed.blocks.setdefault(name, []).extend(samples)
                logs += timing.paired(samples)
            values.append(sum(logs) / len(logs))
            standing = racing.standing(values, mean, self.rules)
            if standing.outcome != "open":
                return standing

    def _segments(
        self, case: Case, workloads: Sequence[Workload], order: str, other: Lowered | None, timed: _Timed
    ) -> dict[str, list[Sample]]:
        """Segments on the device, by workload; the outputs of the first arm are judged again."""
        jobs = [self._timing_job(case, w) for w in workloads]
        payload: dict[str, Any] = {"arms": [arm(case.lowered), arm(other)], "jobs": jobs, "order": order}
        payload |= {"untimed_s": self.regime.untimed_s, "timed_s": self.regime.timed_s}
        names = {w.name for w in workloads}
        expected = sum(r.predicted_s or 0.0 for r in case.results if r.workload in names)
        segment = self.regime.untimed_s + self.regime.timed_s
        allowed = self._run_s + len(order) * (2 * segment * len(jobs) + 10 * expected)
        result, log = self._ask(case, "race", payload, jobs, allowed)
        try:
            return self._read(case, timed, list(zip(jobs, result["timed"], strict=True)), own=False)
        except (KeyError, TypeError, ValueError, IndexError):
            raise Crash("the device's worker answered nonsense", log) from None

    def _read(self, case: Case, timed: _Timed, answers: Any, own: bool = True) -> dict[str, list[Sample]]:
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
            timed.graphs[name] = bool(answer["graphs"])
            found[name] = samples
            if own:
                timed.own[name] = samples
        return found

    def _settle(self, case: Case, timed: _Timed) -> None:
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
                # One short look: held against the incumbent's, so that a session's drift is not the candidate's.
                seconds = timing.median(own)
                if timed.versus is not None and row.workload in timed.versus.screen:
                    seconds *= timed.versus.seconds[row.workload] / timed.versus.screen[row.workload]
                half = 2 * max(noise.deviation, LOOK_DEVIATION)
            detail["interval_s"] = [seconds * math.exp(-half), seconds * math.exp(half)]
            results.append(row.model_copy(update={"measured_s": seconds, "detail": {**row.detail, **detail}}))
        case.results = tuple(results)
        highest = self.slots[0].facts.max_sm_mhz
        case.overclock = highest * 1e6 / case.hardware.clock_hz if highest else 1.0
        outcome = timed.standing.outcome if timed.standing else None
        if timed.versus is None or outcome == "better":
            seconds_by = {r.workload: r.measured_s for r in results if r.measured_s is not None}
            self._champions[case.target.name] = Champion(
                case.name,
                case.lowered,  # type: ignore[arg-type]
                seconds_by,
                {name: timing.median(samples) for name, samples in timed.own.items()},
            )

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
                self._device_s[id(case)] += slot.busy_s - before
        return reply.result, reply.log

    def _epoch(self, case: Case) -> int:
        """Which inputs this candidate is timed on: new ones every so often, the same within one candidate."""
        with self._lock_counts:
            place = self._counts.setdefault(case.name, len(self._counts))
            return place // EPOCH

    def _timing_job(self, case: Case, workload: Workload) -> dict[str, Any]:
        rng = generator(self._bench.seed, "timing", case.target.name, workload.name, self._epoch(case))
        return job(case.target, case.sure, workload, "normal", int(rng.integers(2**62)), rng, rotate=True)


def _brief(s: Sample) -> dict[str, Any]:
    brief = {"seconds": float(f"{s.seconds:.6g}"), "calls": s.calls, "sm_mhz": s.sm_mhz, "watts": s.watts}
    return {**brief, **({"throttles": list(s.throttles)} if s.throttles else {})}


def _geometric(ratios: Any) -> float:
    logs = [math.log(r) for r in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0
