"""The judge that trusts nobody: every gate in order, the first that fails ends it, each leaves evidence.

Everything wrong with a candidate is a status. What is wrong with the harness is UNAVAILABLE and never the candidate's
fault; what is wrong with the target is a TargetError for the person. Parse, check and meaning run in this process;
compilation and the emitted source run in workers, for they are the compiler's word and the candidate's.
"""

from __future__ import annotations

import contextlib
import platform
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from dsl.printer import LANGUAGE_VERSION
from evaluators import gates
from evaluators.compiler import Compiler
from evaluators.evaluation import Evaluation, GateResult, Status
from evaluators.failures import Unavailable, WorkerFailure
from evaluators.gates import Bench, Case, Evidence, Gate, Rejected
from evaluators.inputs import generator
from evaluators.installed import version
from evaluators.loading import complete, seed_program
from evaluators.pool import WorkerPool
from evaluators.sizes import unasked
from evaluators.target import Target, TargetError

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from dsl.syntax import Program

Mode = Literal["auto", "none"]

_TO_CORRECTNESS: tuple[tuple[str, Gate], ...] = (
    ("parse", gates.parse_gate),
    ("check", gates.check_gate),
    ("meaning", gates.meaning_gate),
    ("compile", gates.compile_gate),
    ("correctness", gates.correctness_gate),
)
_TO_FLOOR: tuple[tuple[str, Gate], ...] = (
    ("prediction", gates.prediction_gate),
    ("floor", gates.floor_gate),
)
_TO_PREDICTION: tuple[tuple[str, Gate], ...] = (
    ("parse", gates.parse_gate),
    ("check", gates.check_gate),
    ("compile", gates.compile_gate),
    ("prediction", gates.prediction_gate),
)


class LocalEvaluator:
    """Judges programs on this machine; implements `evaluators.protocol.Evaluator`.

    jobs: candidates judged at once, so as many workers of each kind. seed: of the run; with the program's digest it
    fixes the inputs, so the same candidate is judged on the same numbers again, and nobody else knows them. mode:
    "auto" predicts times for a chip and makes no speed claim for the host; "none" stops after correctness.
    compile_timeout, run_timeout: seconds for one kernel's compilation and for one check's run.

    Times are predicted, not measured: this class uses no device.
    """

    def __init__(
        self,
        jobs: int = 2,
        seed: int = 0,
        mode: Mode = "auto",
        *,
        compile_timeout: float = 120.0,
        run_timeout: float = 120.0,
        pool: WorkerPool | None = None,
    ) -> None:
        if mode not in ("auto", "none"):
            raise ValueError(f"mode is auto or none, not {mode!r}")
        self._own_pool = pool is None
        self._pool = pool or WorkerPool(jobs)
        self._mode = mode
        compiler = Compiler(self._pool, timeout=compile_timeout)
        self._bench = Bench(self._pool, compiler, seed, run_timeout)
        self._ready: dict[int, tuple[Target, Target, Program]] = {}  # id -> (the given one, completed, its program)
        self._lock = threading.Lock()

    def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        """Facts about one candidate. Raises TargetError where the target is wrong, and for nothing else."""
        return self._through(self._gates(hardware), self._times(hardware), text, target, hardware)

    def preview(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        """What the compiler and the prediction say of a candidate, and nothing else: no device, no run, no meaning.

        Only for choosing what to judge: a verdict is what `evaluate` gives.
        """
        return self._through(_TO_PREDICTION, "predicted", text, target, hardware)

    def _through(
        self,
        gates_in_order: Sequence[tuple[str, Gate]],
        times: Literal["predicted", "measured", "none"],
        text: str,
        target: Target,
        hardware: Hardware,
    ) -> Evaluation:
        job, wanted = self._prepare(target)
        case = Case(text=text, target=job, wanted=wanted, hardware=hardware)
        found: list[GateResult] = []

        def evaluation(status: Status, message: str = "") -> Evaluation:
            return Evaluation(
                status=status,
                mode=times,
                unit=job.unit,
                gates=tuple(found),
                workloads=case.results,
                environment=self._environment(case),
                source=case.lowered.source if case.lowered else "",
                message=message,
            )

        for name, gate in gates_in_order:
            if name == "meaning":
                self._warm(hardware)
            began = time.monotonic()

            def result(
                passed: bool, message: str, evidence: Evidence, gate: str = name, began: float = began
            ) -> GateResult:
                seconds = time.monotonic() - began
                return GateResult(gate=gate, passed=passed, message=message, evidence=evidence, seconds=seconds)

            try:
                found.append(result(True, "", gate(case, self._bench)))
            except Rejected as no:
                found.append(result(False, no.message, no.evidence))
                return evaluation(no.status, no.message)
            except TargetError:
                raise
            except Unavailable as failure:
                return evaluation(Status.UNAVAILABLE, f"{name}: {failure.message}")
            except WorkerFailure as failure:
                status = failure.status or Status.CRASH
                found.append(result(False, failure.message, {}))
                return evaluation(status, f"{name}: {failure.message}")
            except (OSError, MemoryError, ImportError) as trouble:
                return evaluation(Status.UNAVAILABLE, f"{name}: {type(trouble).__name__}: {trouble}")
            except Exception as bug:
                # A bug of ours comes again with the same program: asking again, as for UNAVAILABLE, would end the run.
                where = traceback.extract_tb(bug.__traceback__)[-1]
                place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
                message = f"avo failed on this program, please report it: {type(bug).__name__}: {bug} ({place})"
                found.append(result(False, message, {"internal_error": message}))
                return evaluation(Status.NOT_LOWERED, f"{name}: {message}")
        return evaluation(Status.OK)

    def promote(self, text: str, target: Target, hardware: Hardware, versus: str | None = None) -> Evaluation:
        """A winner judged again before it is called one: on the hidden sizes and on inputs of another seed.

        The source is the one that won: the public and the hidden sizes change places, so the same axes stay exact.
        versus: a program to measure it against, where times are measured; predicted ones need none.
        """
        job, _ = self._prepare(target)
        if not job.hidden:
            raise TargetError(f"target {job.name} has no hidden workloads to promote a winner on")
        judge = LocalEvaluator(seed=self._another_seed(), mode=self._mode, pool=self._pool)
        found = judge.evaluate(text, replace(job, workloads=job.hidden, hidden=job.workloads), hardware)
        rows = tuple(w.model_copy(update={"detail": {**w.detail, "hidden": True}}) for w in found.workloads)
        found = found.model_copy(update={"workloads": rows})
        meaning = found.gate("meaning")
        sizes = unasked(meaning.evidence.get("sizes", ())) if meaning is not None else []
        if found.status is Status.OK and sizes:
            said = {"status": Status.SUSPICIOUS, "message": gates.NOT_COMPARED.format(sizes[0])}
            found = found.model_copy(update=said)
        return found

    def _another_seed(self) -> int:
        return int(generator(self._bench.seed, "promotion").integers(2**63))

    def close(self) -> None:
        """Ends the workers; calls in flight come back as UNAVAILABLE."""
        if self._own_pool:
            self._pool.close()

    def __enter__(self) -> LocalEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _times(self, hardware: Hardware) -> Literal["predicted", "measured", "none"]:
        """Where times come from."""
        return "predicted" if hardware.claims_speed and self._mode == "auto" else "none"

    def _gates(self, hardware: Hardware) -> Sequence[tuple[str, Gate]]:
        return (*_TO_CORRECTNESS, *(_TO_FLOOR if self._times(hardware) == "predicted" else ()))

    def _environment(self, case: Case) -> dict[str, Any]:
        return environment(case.hardware)

    def _prepare(self, target: Target) -> tuple[Target, Program]:
        with self._lock:
            known = self._ready.get(id(target))
            if known is None or known[0] is not target:
                job = complete(target)
                known = self._ready[id(target)] = (target, job, seed_program(job))
            return known[1], known[2]

    def _warm(self, hardware: Hardware) -> None:
        """Workers start while this process imports torch for the meaning."""
        kinds: Sequence[str] = ("compile", "interpret") if hardware.claims_speed else ("interpret",)
        with contextlib.suppress(Unavailable):  # the gate that needs them will say so
            self._pool.warm(kinds)


def environment(hardware: Hardware) -> dict[str, Any]:
    """What the facts depend on beside the candidate: versions, machine, chip."""
    packages = (("avo", "avo-kernels"), ("torch", "torch"), ("triton", "triton"), ("numpy", "numpy"))
    return {
        "versions": {name: version(package) for name, package in packages},
        "language": LANGUAGE_VERSION,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "chip": hardware.name,
        "arch": hardware.arch,
    }
