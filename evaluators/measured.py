"""The judge of a machine with the chip in it: the same gates, correctness and time from the device itself.

A candidate within reach of the incumbent, after its first look, races against it in pairs of segments: the clearly
slower one is dropped after few, the close one gets more. A run's winner is measured again before it is called one.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dsl.lowering.lowered import Lowered
from evaluators import gates, racing, timing
from evaluators.evaluation import Evaluation, GateResult, Status
from evaluators.failures import Unavailable, WorkerFailure
from evaluators.gates import Bench, Case, Evidence, Gate, Rejected
from evaluators.measuring import RUN_S, Measuring, Timed
from evaluators.racing import Rules, Standing
from evaluators.target import Target
from evaluators.timing import SUSTAINED, NoiseFloor, Regime, Sample

if TYPE_CHECKING:
    from dsl.hardware import Hardware

__all__ = ["RUN_S", "MeasuredEvaluator"]

FIRST_SEGMENTS = 5  # of the first program, on each size
HIDDEN_ROUNDS = 4  # of the winner on each hidden size
PROMOTIONS_FIRST = -1  # a winner's place among those that wait for a device
# Log ratio of a better one from which on its seconds are those of segments of its own, back to back: beside a program
# that draws much less power it runs at a higher clock than it can keep (2.81x the seed in pairs, 2.36x by itself).
ALONE_ABOVE = 0.1
LOOK_DEVIATION = 0.01  # of a short look's log: 23 on an H200 differed by 0.9% from what their races showed
PAIR_DEVIATION = 0.03  # of a pair's log on one size, of two kernels: products of 4096 on an H200, 2 to 6%


@dataclass
class Champion:
    """The incumbent that candidates race against: its source, and seconds by workload: those that are on record, and
    those of short looks since the start, by device, which other short looks are held against."""

    name: str
    lowered: Lowered
    seconds: Mapping[str, float]
    looks: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Adopted:
    """The best of a run that is taken up again, and what is on record of it."""

    text: str
    seconds: Mapping[str, float]


class MeasuredEvaluator(Measuring):
    """Judges programs on the devices of this machine; implements `evaluators.protocol.Evaluator`.

    hardware: the chip that has to be here (NoDevice where it is not). jobs: candidates under way at once; the devices
    are what they wait for. compilers: compile workers; as many as cores if None. regime, rules: how times are taken
    and how many. compile_timeout: seconds for one kernel; run_s: what a candidate's runs on the device may take beyond
    what is expected of them. instead: devices, slots, pool, simulate, for tests and simulations: see `Measuring`.
    """

    def __init__(
        self,
        hardware: Hardware,
        jobs: int = 2,
        seed: int = 0,
        *,
        regime: Regime | None = None,
        rules: Rules | None = None,
        compilers: int | None = None,
        compile_timeout: float = 120.0,
        run_s: float = RUN_S,
        **instead: Any,
    ) -> None:
        super().__init__(
            hardware,
            jobs,
            seed,
            regime=regime,
            compilers=compilers,
            compile_timeout=compile_timeout,
            run_s=run_s,
            **instead,
        )
        self.rules = rules or Rules()
        self._champions: dict[str, Champion] = {}
        self._adopted: dict[str, Adopted] = {}
        self._racing = threading.Lock()

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

    def _gates(self, hardware: Hardware) -> Sequence[tuple[str, Gate]]:
        return (
            ("parse", gates.parse_gate),
            ("check", gates.check_gate),
            ("meaning", gates.meaning_gate),
            ("compile", self._compile_gate),
            ("prediction", gates.prediction_gate),
            ("correctness", self._look_gate),
            ("timing", self._timing_gate),
            ("floor", gates.floor_gate),
        )

    # -- racing --------------------------------------------------------------------------------------------------

    def _timing_gate(self, case: Case, bench: Bench) -> Evidence:
        """Seconds for each public size in the stated regime, against the incumbent as far as it is worth it."""
        champion = self._champions.get(case.target.name)
        if champion is None:
            with self._racing:  # the first program sets the noise floor and is the first incumbent; others wait for it
                champion = self._champions.get(case.target.name) or self._take_up(case, bench)
                if champion is None:
                    return self._first(case)
        timed = Timed()
        self._read(case, timed, case.screen)
        look = champion.looks.get(_device(case), {})
        ratio = _geometric(timing.median(timed.own[n]) / s for n, s in look.items() if n in timed.own)
        evidence: Evidence = {"versus": champion.name, "regime": self.regime.name, "verdict": "slower", "pairs": 0}
        standing = None
        if len(timed.own) < len(case.target.workloads):
            evidence["timed"] = (
                f"{len(timed.own)} of {len(case.target.workloads)} sizes: {ratio:.3g}x the incumbent's time"
            )
        elif not ratio > self.rules.drop_above:
            standing = self._race(case, champion, timed, ratio)
            evidence |= {"verdict": standing.outcome, "pairs": standing.pairs}
            if standing.outcome == "better":
                self._insist_hidden(case, bench)
                if standing.mean < -ALONE_ABOVE:
                    alone = self._segments(case, case.target.workloads, "A" * FIRST_SEGMENTS, None, timed)
                    timed.alone = alone
        self._settle(case, timed, champion, standing)
        return evidence

    def _insist_hidden(self, case: Case, bench: Bench) -> None:
        """Nothing becomes the incumbent that is wrong where nobody sees; what exactly is wrong stays hidden too."""
        hidden = Case(
            text=case.text,
            target=replace(case.target, workloads=case.target.hidden, hidden=case.target.workloads),
            wanted=case.wanted,
            hardware=case.hardware,
            ticket=case.ticket,
        )
        if not case.target.hidden:
            return
        try:
            self._compile(hidden, bench)
            self._fresh_gate(hidden, bench, hidden.target.workloads)
        except Rejected as no:
            raise Rejected(no.status, f"on sizes or inputs that are not shown it fails: {no.status}", {}) from None
        finally:
            self._device_s[id(case)] += self._device_s.pop(id(hidden), 0.0)

    def _first(self, case: Case) -> Evidence:
        """A/A for the noise floor; this program is the incumbent, so its seconds are worth more than one look."""
        timed = Timed()
        self._read(case, timed, case.screen)
        found = self._segments(case, case.target.workloads, "A" * FIRST_SEGMENTS, None, timed)
        self._measure_noise(case, timed)  # after it: the card has come to this program's own clock, and drifts no more
        timed.own = {name: [*samples, *found[name]] for name, samples in timed.own.items()}
        self._settle(case, timed, None, None)
        return {"verdict": "first", "pairs": self.rules.most, "regime": self.regime.name}

    def _take_up(self, case: Case, bench: Bench) -> Champion | None:
        """The incumbent of an earlier session, where there is one: compiled again, and looked at as it runs today."""
        adopted = self._adopted.get(case.target.name)
        if adopted is None:
            return None
        before = Case(
            text=adopted.text, target=case.target, wanted=case.wanted, hardware=case.hardware, ticket=case.ticket
        )
        try:
            self._compile(before, bench)
            self._look_gate(before, bench)
            timed = Timed()
            self._read(before, timed, before.screen)
            self._segments(before, case.target.workloads, "A" * FIRST_SEGMENTS, None, Timed())  # to its own clock
            self._measure_noise(before, timed)
        except Rejected as no:
            del self._adopted[case.target.name]
            self.warnings.append(f"the best program of the session before is not accepted now: {no.message}")
            return None
        assert before.lowered is not None
        look = {name: timing.median(samples) for name, samples in timed.own.items()}
        seconds = {name: adopted.seconds.get(name, look[name]) for name in look}
        found = Champion(before.name, before.lowered, seconds, {_device(before): look})
        self._champions[case.target.name] = found
        return found

    def _compile(self, case: Case, bench: Bench) -> None:
        for gate in (gates.parse_gate, gates.check_gate, self._compile_gate, gates.prediction_gate):
            gate(case, bench)

    def _measure_noise(self, case: Case, timed: Timed) -> None:
        """A program against itself, on the cheapest size of each setting of params."""
        order = "ABBA" * ((self.rules.most + 1) // 2)
        found = self._segments(case, self._cheapest(case), order, case.lowered, timed)
        self.noise = timing.noise_floor([timing.in_pairs(samples) for samples in found.values()])

    def _hopeless(self, case: Case) -> dict[str, float]:
        champion = self._champions.get(case.target.name)
        return {n: self.rules.hopeless_above * s for n, s in champion.seconds.items()} if champion else {}

    def _race(self, case: Case, champion: Champion, timed: Timed, looked: float) -> Standing:
        """In pairs over all sizes, until the verdict is clear. looked: its time over the incumbent's at their looks.

        A visit loads and settles both programs, so it holds two pairs, over which a drift cancels; the first holds one
        where the look says that one may be enough to drop it.
        """
        assert self.noise is not None
        count = len(case.target.workloads)
        mean = NoiseFloor(self.noise.deviation / math.sqrt(count), self.noise.bias, self.noise.pairs)
        values: list[float] = []
        while True:
            if values and self._outrun(case, champion, timed):
                return Standing("slower", sum(values) / len(values), math.inf, len(values))
            first = len(values)
            more = 1 if first % 2 or (not first and looked > 1) else 2
            more = max(1, min(more, self.rules.most - first))
            order = "".join("BA" if place % 2 else "AB" for place in range(first, first + more))
            found = self._segments(case, case.target.workloads, order, champion.lowered, timed)
            logs = []
            for name, samples in found.items():
                timed.pairs.setdefault(name, []).extend(samples)
                logs.append(timing.in_pairs(samples))
            values += [sum(pair) / len(pair) for pair in zip(*logs, strict=True)]
            standing = racing.standing(values, mean, self.rules)
            if standing.outcome != "open":
                return standing

    def _outrun(self, case: Case, champion: Champion, timed: Timed) -> bool:
        """Whether another has become the incumbent since the race began that this one, by its look, cannot reach."""
        now = self._champions.get(case.target.name, champion)
        look = now.looks.get(_device(case), {}) if now is not champion else {}
        ratio = _geometric(timing.median(timed.own[n]) / s for n, s in look.items() if n in timed.own)
        return ratio > self.rules.drop_above

    def _settle(self, case: Case, timed: Timed, champion: Champion | None, standing: Standing | None) -> None:
        """Puts the measured seconds beside the predicted ones, and makes a better program the incumbent."""
        results = []
        noise = self.noise or NoiseFloor(0.0, 0.0, 0)
        look = champion.looks.get(_device(case), {}) if champion else {}
        for row in case.results:
            name = row.workload
            if name not in timed.own:  # too slow on others to be worth it: no figure is claimed
                results.append(row)
                continue
            own, pairs = timed.own[name], timed.pairs.get(name, [])
            detail: dict[str, Any] = {"regime": self.regime.name, "graphs": timed.graphs.get(name, False)}
            detail |= {"launch_bound": timed.bound[name]} if name in timed.bound else {}
            detail["samples"] = [_brief(s) for s in own]
            logs = timing.in_pairs(pairs)
            if champion is not None and logs:
                # Paired with the incumbent, the drift of clocks and heat since its own measurement cancels.
                ratio = timing.bootstrap(logs, seed=self._bench.seed)
                seconds = champion.seconds[name] * ratio.value
                if alone := timed.alone.get(name):
                    seconds = timing.median(alone)
                    detail["alone"] = [_brief(s) for s in alone]
                detail["versus"] = {
                    "digest": champion.name,
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "samples": [{"arm": s.arm, **_brief(s)} for s in pairs],
                }
                # The noise floor is of a program beside itself; what ran before sets the clock, which few pairs keep.
                each = noise.deviation if len(logs) >= self.rules.least else max(noise.deviation, PAIR_DEVIATION)
                half = max(math.log(ratio.high / ratio.value), 2 * each / math.sqrt(len(logs)))
            else:
                # One short look: held against the incumbent's, so that a session's drift is not the candidate's.
                seconds = timing.median(own)
                if champion is not None and name in look:
                    seconds *= champion.seconds[name] / look[name]
                spread = timing.spread([math.log(x.seconds) for x in own]) if len(own) > 2 else LOOK_DEVIATION
                half = 2 * max(noise.deviation, spread / math.sqrt(len(own)))
            detail["interval_s"] = [seconds * math.exp(-half), seconds * math.exp(half)]
            results.append(row.model_copy(update={"measured_s": seconds, "detail": {**row.detail, **detail}}))
        case.results = tuple(results)
        self._note_overclock(case)
        if champion is not None and timed.pairs and _device(case) not in champion.looks:
            champion.looks[_device(case)] = {n: timing.median(s, arm=1) for n, s in timed.pairs.items()}
        if champion is None or (standing is not None and standing.outcome == "better"):
            self._succeed(case, timed)

    def _succeed(self, case: Case, timed: Timed) -> None:
        """The new incumbent, unless one that is faster still has come in the meantime."""
        seconds = {r.workload: r.measured_s for r in case.results if r.measured_s is not None}
        with self._racing if self._champions.get(case.target.name) else contextlib.nullcontext():
            before = self._champions.get(case.target.name)
            if before is not None and _geometric(s / before.seconds[n] for n, s in seconds.items()) >= 1:
                return
            look = {name: samples[0].seconds for name, samples in timed.own.items()}
            assert case.lowered is not None
            self._champions[case.target.name] = Champion(case.name, case.lowered, seconds, {_device(case): look})

    # -- winners -------------------------------------------------------------------------------------------------

    def promote(self, text: str, target: Target, hardware: Hardware, versus: str | None = None) -> Evaluation:
        """A winner again: verified on fresh inputs at every public and hidden size, and timed against `versus` (the
        seed program, if None) in the sustained regime. These are the figures to publish.

        OK where it is right everywhere and not slower than `versus` beyond the noise. The hidden sizes are the rows
        with `detail["hidden"]`.
        """
        job, wanted = self._prepare(target)
        every = replace(job, workloads=(*job.workloads, *job.hidden), hidden=())
        bench = replace(self._bench, seed=self._another_seed())
        found: list[GateResult] = []
        case = Case(text=text, target=every, wanted=wanted, hardware=hardware, ticket=PROMOTIONS_FIRST)
        other = Case(text=versus or job.seed, target=every, wanted=wanted, hardware=hardware)

        def evaluation(status: Status, message: str = "", *, regime: Regime = SUSTAINED) -> Evaluation:
            return Evaluation(
                status=status,
                mode="measured",
                unit=job.unit,
                gates=tuple(found),
                workloads=case.results if all(r.measured_s for r in case.results) else (),
                environment={**self._environment(case), "regime": regime.facts()},
                source=case.lowered.source if case.lowered else "",
                message=message,
            )

        steps: tuple[tuple[str, Gate], ...] = (
            ("parse", gates.parse_gate),
            ("check", gates.check_gate),
            ("meaning", gates.compared_gate),
            ("compile", self._compile_gate),
            ("prediction", gates.prediction_gate),
            ("correctness", lambda case, bench: self._fresh_gate(case, bench, [*every.workloads, *every.checks])),
            ("timing", lambda case, bench: self._final_gate(case, other, bench, {w.name for w in job.hidden})),
            ("floor", gates.floor_gate),
        )
        for name, gate in steps:
            began = time.monotonic()
            try:
                passed, message, evidence = True, "", gate(case, bench)
            except Rejected as no:
                passed, message, evidence, status = False, no.message, no.evidence, no.status
            except Unavailable as failure:
                return evaluation(Status.UNAVAILABLE, f"{name}: {failure.message}")
            except WorkerFailure as failure:
                passed, message, evidence, status = False, failure.message, {}, failure.status or Status.CRASH
            seconds = time.monotonic() - began
            found.append(GateResult(gate=name, passed=passed, message=message, evidence=evidence, seconds=seconds))
            if not passed:
                return evaluation(status, message)
        return evaluation(Status.OK)

    def _final_gate(self, case: Case, other: Case, bench: Bench, hidden: set[str]) -> Evidence:
        """Best and seed in turns at every size, in the sustained regime; the pairs decide."""
        self._compile(other, bench)
        timed, rows, logs = Timed(), [], []
        for row in case.results:
            rounds = HIDDEN_ROUNDS if row.workload in hidden else SUSTAINED.rounds
            workload = next(w for w in case.target.workloads if w.name == row.workload)
            found = self._segments(case, [workload], "ABBA" * rounds, other.lowered, timed, SUSTAINED)[row.workload]
            pairs = timing.paired(found)
            logs += [pairs] if row.workload not in hidden else []
            ratio = timing.bootstrap(pairs, seed=bench.seed)
            ours, theirs = timing.median(found, 0), timing.median(found, 1)
            states = [timing.mean_state([s for s in found if s.arm == i]).model_dump(mode="json") for i in (0, 1)]
            detail = {
                "regime": SUSTAINED.name,
                "rounds": rounds,
                "hidden": row.workload in hidden,
                "graphs": timed.graphs[row.workload],
                "interval_s": [theirs * ratio.low, theirs * ratio.high],
                "versus": {
                    "digest": other.name,
                    "seconds": theirs,
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "states": states,
                    "samples": [{"arm": s.arm, **_brief(s)} for s in found],
                },
            }
            detail |= {"launch_bound": timed.bound[row.workload]} if row.workload in timed.bound else {}
            rows.append(row.model_copy(update={"measured_s": ours, "detail": {**row.detail, **detail}}))
        case.results = tuple(rows)
        self._note_overclock(case)
        # One value a round, over the public sizes: what the verdict of a race is, with more and longer segments.
        means = [sum(values) / len(values) for values in zip(*logs, strict=True)]
        whole = timing.bootstrap(means, seed=bench.seed)
        evidence: Evidence = {"versus": other.name, "regime": SUSTAINED.name, "blocks": len(means)}
        evidence |= {"ratio": whole.value, "low": whole.low, "high": whole.high}
        evidence["verdict"] = "better" if whole.high < 1 else "slower" if whole.low > 1 else "within noise"
        if case.name == other.name:
            evidence["verdict"] = "within noise"  # a program is not better than itself, whatever twelve rounds say
        if evidence["verdict"] == "slower":
            message = f"measured again it takes {whole.value:.3f} of the seed program's time: it was lucky"
            raise Rejected(Status.SUSPICIOUS, message, evidence)
        return evidence


def _brief(s: Sample) -> dict[str, Any]:
    brief = {"seconds": float(f"{s.seconds:.6g}"), "calls": s.calls, "sm_mhz": s.sm_mhz, "watts": s.watts}
    return {**brief, **({"throttles": list(s.throttles)} if s.throttles else {})}


def _geometric(ratios: Any) -> float:
    logs = [math.log(r) for r in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _device(case: Case) -> str:
    return case.slot.facts.uuid if case.slot is not None else ""
