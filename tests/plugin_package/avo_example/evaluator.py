"""An evaluator of one's own: proves the meaning, then predicts the time from how the grid fills the chip.

It needs no compiler, so it is quick; avo's own judge compiles, runs the emitted code and knows far more.
"""

import math

import numpy as np
import torch

from avo import Evaluation, GateResult, Hardware, ProgramError, Status, Target, Workload, WorkloadResult, parse
from dsl.check import check
from dsl.meaning import evaluate
from dsl.schedule import resolve
from dsl.syntax import Program
from dsl.work import work
from evaluators.inputs import draw_inputs, generator
from evaluators.roofline import speed_of_light


class WavesEvaluator:
    """`penalty` is what one wave of thread blocks costs beyond its share of the work, as a fraction."""

    def __init__(self, penalty: float = 0.1) -> None:
        self.penalty = penalty

    def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        gates: list[GateResult] = []
        try:
            program = parse(text)
            gates.append(GateResult(gate="parse", passed=True))
        except ProgramError as error:
            return self._ended(target, gates, "parse", Status.PARSE_ERROR, str(error))
        errors = [d.render(text) for d in check(program, hardware) if d.severity == "error"]
        if errors:
            return self._ended(target, gates, "check", Status.CHECK_ERROR, "\n".join(errors))
        gates.append(GateResult(gate="check", passed=True))
        far = max(self._distance(program, target, w) for w in target.tiny)
        if not far <= 1e-10:  # a NaN is not small either
            return self._ended(target, gates, "meaning", Status.MEANING_ERROR, f"{far:.1e} off the reference")
        gates.append(GateResult(gate="meaning", passed=True, evidence={"relative_error": far}))
        results = tuple(self._time(program, w, target, hardware) for w in target.workloads)
        gates.append(GateResult(gate="prediction", passed=True, evidence={"penalty": self.penalty}))
        return Evaluation(status=Status.OK, mode="predicted", unit=target.unit, gates=tuple(gates), workloads=results)

    def close(self) -> None:
        """Nothing is held open."""

    def _ended(self, target: Target, gates: list[GateResult], gate: str, status: Status, why: str) -> Evaluation:
        ended = GateResult(gate=gate, passed=False, message=why)
        return Evaluation(status=status, unit=target.unit, gates=(*gates, ended), message=why.splitlines()[0])

    def _distance(self, program: Program, target: Target, workload: Workload) -> float:
        inputs = draw_inputs(target, program.algorithm, workload, "normal", generator(0, workload.name))
        got = evaluate(program, inputs, dict(workload.params), "exact")
        want = target.reference(*(torch.as_tensor(inputs[t.name]) for t in program.algorithm.inputs), **workload.params)
        (name,) = got
        reference = want.double().numpy()
        if got[name].shape != reference.shape:
            return math.inf
        return float(np.abs(got[name] - reference).max() / np.abs(reference).max())

    def _time(self, program: Program, workload: Workload, target: Target, hardware: Hardware) -> WorkloadResult:
        job = work(program, workload.sizes, workload.params)
        floor = speed_of_light(job, hardware)
        schedule = resolve(program, 0, hardware.arch, hardware.name)
        blocks = 1
        for axis in schedule.grid:
            length = schedule.tile.get(axis, 1)
            blocks *= -(-workload.sizes[axis] // length) if isinstance(length, int) else 1
        waves = -(-blocks // hardware.sms)
        seconds = floor.floor_s * (1 + self.penalty) * waves * hardware.sms / blocks + waves * 1e-8
        return WorkloadResult(
            workload=workload.name,
            work=job.bytes_in + job.bytes_out,
            floor_s=floor.floor_s,
            bottleneck=floor.bottleneck,
            predicted_s=seconds,
            limiter="waves",
            detail={"blocks": blocks, "waves": waves},
        )
