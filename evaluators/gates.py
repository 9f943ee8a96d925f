"""The gates of a judgement: each asks one question, leaves JSON evidence, and raises `Rejected` where it says no.

A gate reads what the ones before it left in the `Case`. Evidence is deterministic: it holds no times, no paths and no
figure finer than its noise. What the harness fails at is no `Rejected`: a `WorkerFailure` passes through to the judge.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dsl.check import check
from dsl.diagnostics import Diagnostic, ProgramError
from dsl.lowering.lowered import Launch, Lowered, Profile
from dsl.parser import parse
from dsl.printer import digest
from dsl.syntax import Program, Schedule
from dsl.wording import counted
from dsl.work import Work, work
from evaluators.contract import breaches
from evaluators.equivalence import Meaning, compare
from evaluators.evaluation import Status, WorkloadResult
from evaluators.failures import TaskError, Unavailable, WorkerFailure, gist
from evaluators.inputs import Array, decode, draw_inputs, encode, extents, generator, pairings
from evaluators.installed import version
from evaluators.machine import MachineCode, check_fits
from evaluators.oracle import answers
from evaluators.roofline import speed_of_light
from evaluators.sizes import compare_at_sizes, differs, unasked
from evaluators.target import Target, Workload
from evaluators.tolerance import form, verdict

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from evaluators.compiler import Compiler
    from evaluators.pool import WorkerPool
    from evaluators.slots import Slot

Evidence = dict[str, Any]
# Elements of one value that a thread may hold: four times its registers. Past it compilers take minutes, for nothing.
MOST_A_THREAD = 1024
NOT_COMPARED = "at {} its algorithm could not be compared with the target's own, which it is not: a person has to look"
EMULATED = (
    "Gluon has no interpreter of its own: the source ran in avo's emulator, each role a thread; layouts, registers and "
    "fences show on a device alone"
)
ZONE_BYTES = 4096  # a stray access within the guard zone of its own tensor; farther ones meet other allocations


class Rejected(Exception):
    """A gate says no. `status` is the candidate's, `message` one line for people, `evidence` what was found."""

    def __init__(self, status: Status, message: str, evidence: Evidence) -> None:
        super().__init__(message)
        self.status, self.message, self.evidence = status, message, evidence


@dataclass
class Bench:
    """What all judgements share: workers, the run's seed, and answers that do not depend on the schedule."""

    pool: WorkerPool
    compiler: Compiler
    seed: int
    run_timeout: float
    meanings: dict[tuple[object, ...], Meaning] = field(default_factory=dict)
    works: dict[tuple[object, ...], Work] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Case:
    """One candidate on its way through the gates."""

    text: str
    target: Target
    wanted: Program  # the target's seed program: interface, and work for the speed of light
    hardware: Hardware
    program: Program | None = None
    name: str = ""  # the program's digest
    lowered: Lowered | None = None
    launches: dict[str, list[tuple[Launch, MachineCode, Profile]]] = field(default_factory=dict)
    results: tuple[WorkloadResult, ...] = ()
    screen: Any = None  # what the first look on a device showed of its times
    slot: Slot | None = None  # the device that it was on last
    ticket: int | None = None  # its place among those that wait for a device
    overclock: float = 1.0  # the card's highest clock over the one that the chip's cited peaks imply

    @property
    def sure(self) -> Program:
        assert self.program is not None
        return self.program


Gate = Callable[[Case, Bench], Evidence]


def parse_gate(case: Case, bench: Bench) -> Evidence:
    try:
        program = parse(case.text)
    except ProgramError as error:
        raise _wrong(Status.PARSE_ERROR, error.diagnostics, case.text) from None
    case.program, case.name = program, digest(program)
    return {"digest": case.name, "algorithm": algorithm_digest(program)}


def check_gate(case: Case, bench: Bench) -> Evidence:
    """Legal on this chip at every public size, and within what the target leaves open."""
    program = case.sure
    found = breaches(case.wanted.algorithm, program.algorithm, case.target.opens)
    if not found:
        found = check(program, case.hardware)
    if not _errors(found):
        every = [extents(program.algorithm, w) for w in case.target.workloads]
        for sizes in {tuple(s.items()): s for s in every}.values():
            found += [d for d in check(program, case.hardware, sizes) if d not in found]
    if errors := _errors(found):
        unlowered = all(d.rule == "not-lowered" for d in errors)
        raise _wrong(Status.NOT_LOWERED if unlowered else Status.CHECK_ERROR, found, case.text)
    return {"diagnostics": [_diagnostic(d) for d in found]}


def meaning_gate(case: Case, bench: Bench) -> Evidence:
    """The algorithm computes what the reference does; asked once for an algorithm, whatever its schedules. One that is
    not the target's own is compared with that at every size, too."""
    bare = replace(case.sure, schedule=Schedule())
    target = case.target
    key: tuple[object, ...] = (target.name, target.reference, target.make_inputs, target.tiny[0].name, bare)
    with bench.lock:  # torch's first import takes seconds; several threads would all pay for it
        found = bench.meanings.get(key)
        if found is None:
            found = bench.meanings[key] = compare(target, bare, bench.seed)
    if found.passed and differs(case.wanted, bare):
        sizes = (*target.checks, *target.workloads, *target.hidden)
        key = (*key, *sorted(w.name for w in sizes))
        large = bench.meanings.get(key) or compare_at_sizes(target, case.wanted, bare, bench.seed)
        bench.meanings[key] = large
        found = Meaning(large.reasons, {**found.evidence, **large.evidence})
    if not found.passed:
        more = f" (and {len(found.reasons) - 1} more)" if len(found.reasons) > 1 else ""
        raise Rejected(
            Status.MEANING_ERROR, found.reasons[0] + more, {**found.evidence, "reasons": list(found.reasons)}
        )
    return found.evidence


def compared_gate(case: Case, bench: Bench) -> Evidence:
    """For a promotion: an algorithm that is not the target's own was compared with it at every size."""
    if not differs(case.wanted, replace(case.sure, schedule=Schedule())):
        return {}
    evidence = meaning_gate(case, bench)
    if sizes := unasked(evidence.get("sizes", ())):
        raise Rejected(Status.SUSPICIOUS, NOT_COMPARED.format(sizes[0]), evidence)
    return evidence


def lower_step(case: Case) -> Lowered:
    """One source for every size: what is checked is what is compiled."""
    from dsl.lowering import lower

    if case.lowered is not None:
        return case.lowered
    try:
        case.lowered = lower(case.sure, case.hardware, exact_sizes(case), triton=_triton())
    except ProgramError as error:
        unlowered = any(d.rule == "not-lowered" for d in error.diagnostics)
        status = Status.NOT_LOWERED if unlowered else Status.CHECK_ERROR
        raise _wrong(status, error.diagnostics, case.text) from None
    return case.lowered


@functools.lru_cache(maxsize=1)
def _triton() -> str:
    """The version that workers compile with; "" where there is none."""
    return version("triton") or ""


def insist_room(case: Case, lowered: Lowered) -> None:
    """Nothing is compiled whose values a block of threads could not hold."""
    for workload in case.target.workloads:
        sizes, params = extents(case.sure.algorithm, workload), _params(case.sure, workload)
        for kernel in lowered.kernels:
            widest = kernel.profile(sizes, params).widest
            warps = kernel.specialise(sizes, params).options["num_warps"]
            held = widest / (warps * case.hardware.warp_size)
            if case.hardware.claims_speed and held > MOST_A_THREAD:
                evidence = {"kernel": kernel.name, "workload": workload.name, "elements": widest}
                message = f"{kernel.name} holds a value of {held:,.0f} elements a thread; {MOST_A_THREAD:,} is the most"
                raise Rejected(Status.RESOURCE, f"{message}: use smaller tiles or more warps", {"widest": evidence})


def compile_gate(case: Case, bench: Bench) -> Evidence:
    """Machine code for every public size, each distinct specialisation once, within the chip's limits."""
    lowered = lower_step(case)
    insist_room(case, lowered)
    evidence: Evidence = {"kernels": [], "warnings": [_diagnostic(d) for d in lowered.warnings]}
    if not case.hardware.claims_speed:
        evidence["note"] = f"{case.hardware.name}: kernels run in the interpreter, nothing is compiled"
        return evidence
    seen: dict[tuple[object, ...], Evidence] = {}
    for workload in case.target.workloads:
        sizes, params = extents(case.sure.algorithm, workload), _params(case.sure, workload)
        rows = case.launches.setdefault(workload.name, [])
        for kernel in lowered.kernels:
            launch = kernel.specialise(sizes, params)
            try:
                machine = bench.compiler.compile(lowered.source, kernel.name, launch, case.hardware)
            except TaskError as error:
                evidence["error"] = error.message
                first = error.message.splitlines()[0] if error.message else "the compiler refused it"
                raise Rejected(Status.COMPILE_ERROR, f"{kernel.name}: {first}", evidence) from None
            rows.append((launch, machine, kernel.profile(sizes, params)))
            same = (tuple(launch.signature.items()), tuple(launch.constexprs.items()), launch.divisible, launch.small)
            key = (kernel.name, *same)
            if key in seen:
                seen[key]["workloads"].append(workload.name)
                continue
            seen[key] = {**_machine_facts(machine), "constexprs": launch.constexprs, "workloads": [workload.name]}
            evidence["kernels"].append(seen[key])
            if reasons := check_fits(machine, case.hardware):
                evidence["reasons"] = reasons
                raise Rejected(Status.RESOURCE, "; ".join(reasons), evidence)
    return evidence


def correctness_gate(case: Case, bench: Bench) -> Evidence:
    """The emitted source itself, run on inputs that the candidate cannot know, against the rounded meaning."""
    rng = generator(bench.seed, "correctness", case.target.name, case.name)
    cases: list[Evidence] = []
    for workload, distribution in pairings(case.target.checks, rng):
        row: Evidence = {"workload": workload.name, "distribution": distribution}
        cases.append(row)
        inputs = draw_inputs(case.target, case.sure.algorithm, workload, distribution, rng)
        try:
            reasons = _run(case, bench, workload, inputs, row)
        except Unavailable:
            raise
        except WorkerFailure as failure:
            said = _repeatable(failure.message)
            row["reasons"] = [said]
            # an error of its own in the run is as wrong as a wrong number
            status = failure.status or Status.INCORRECT
            raise Rejected(status, f"{workload.name}: {gist(said)}", {"cases": cases}) from None
        if reasons:
            row["reasons"] = reasons
    if wrong := [row for row in cases if "reasons" in row]:
        first = wrong[0]
        where = f"{first['workload']} ({first['distribution']})"
        message = f"{len(wrong)} of {counted(len(cases), 'check')}; {where}: {first['reasons'][0]}"
        raise Rejected(Status.INCORRECT, message, {"cases": cases})
    assert case.lowered is not None
    if case.lowered.language == "gluon":
        return {"cases": cases, "note": EMULATED}
    return {"cases": cases}


def _run(case: Case, bench: Bench, workload: Workload, inputs: Mapping[str, Array], row: Evidence) -> list[str]:
    """What is wrong with the outputs of one run; figures go into `row`."""
    from evaluators.cpu import Tensor, interpret

    assert case.lowered is not None
    algorithm, params = case.sure.algorithm, _params(case.sure, workload)
    tensors = [
        Tensor(t.name, t.dtype or "f32", inputs[t.name].shape, encode(inputs[t.name], t.dtype or "f32"))
        for t in algorithm.inputs
    ]
    wanted = answers(case.sure, inputs, params)
    run = interpret(
        bench.pool,
        case.lowered.source,
        case.lowered.entry,
        tensors,
        params,
        bench.run_timeout,
        case.lowered.language,
    )
    reasons = [f"input {name} was written to" for name in run.mutated]
    reasons += [f"something was written outside of {name}" for name in run.strayed]
    if len(run.outputs) != len(wanted):
        return [*reasons, f"{counted(len(run.outputs), 'output')}, declared {len(wanted)}"]
    row["outputs"] = {}
    for (name, answer), output in zip(wanted.items(), run.outputs, strict=True):
        wrong = list(form(output.dtype, output.shape, answer.dtype, answer.oracle.shape))
        if not _contiguous(output.shape, output.strides):
            wrong.append(f"strides {list(output.strides)}, declared row-major")
        if output.alias is not None:
            wrong.append(f"it is the memory of input {output.alias}")
        if not wrong:
            found = verdict(decode(output.data, answer.dtype, output.shape), answer.oracle, answer.honest, answer.dtype)
            row["outputs"][name] = found.evidence
            wrong += found.reasons
            if found.reasons and output.unwritten:
                wrong.append(f"{counted(output.unwritten, 'element')} never written")
        reasons += [f"{name}: {w}" for w in wrong]
    return reasons


def _repeatable(message: str) -> str:
    """Without a distance between two allocations: it differs from run to run, and evidence does not."""
    found = re.search(r", the first of them (\d+) bytes [a-z ]+", message)
    return message.replace(found[0], "") if found and int(found[1]) >= ZONE_BYTES else message


def _contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Row-major without gaps; where an axis has length 1 its stride says nothing."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def prediction_gate(case: Case, bench: Bench) -> Evidence:
    """Seconds for each public size, from the machine code and the work as the schedule cuts it."""
    from evaluators.prediction import predict

    results, rows = [], []
    for workload in case.target.workloads:
        needed = target_work(case, bench, workload)
        floor = speed_of_light(needed, case.hardware)
        predicted = predict(case.launches[workload.name], case.hardware, needed)
        results.append(
            WorkloadResult(
                workload=workload.name,
                work=needed.total_flops if case.target.unit == "TFLOP/s" else needed.bytes,
                floor_s=floor.floor_s,
                bottleneck=floor.bottleneck,
                predicted_s=predicted.seconds,
                limiter=predicted.limiter,
                detail={"parts": dict(predicted.parts), "floor": dict(floor.times)},
            )
        )
        rows.append({"workload": workload.name, "seconds": predicted.seconds, "limiter": predicted.limiter})
    case.results = tuple(results)
    return {"workloads": rows}


def floor_gate(case: Case, bench: Bench) -> Evidence:
    """Nothing is faster than light: if it seems so, the evaluation is wrong and a person has to look.

    Cited peaks are at the boost clock that they imply; a card that may clock higher is held against its own highest.
    """
    rows, beyond = [], []
    faster = max(1.0, case.overclock)
    for result in case.results:
        time = result.measured_s if result.measured_s is not None else result.predicted_s
        assert time is not None
        rows.append({"workload": result.workload, "seconds": time, "floor_s": result.floor_s})
        least = result.floor_s / faster
        if time < least:
            beyond.append(f"{result.workload}: {time:.3g} s, the speed of light is {least:.3g} s")
    if beyond:
        message = f"faster than the speed of light, so the evaluation is in error: {beyond[0]}"
        raise Rejected(Status.SUSPICIOUS, message, {"workloads": rows, "beyond": beyond})
    return {"workloads": rows, **({"overclock": round(faster, 4)} if faster > 1 else {})}


# Small parts -------------------------------------------------------------------------------------


def algorithm_digest(program: Program) -> str:
    """The name of the algorithm alone: schedule edits do not change it."""
    return digest(replace(program, schedule=Schedule()))


def target_work(case: Case, bench: Bench, workload: Workload) -> Work:
    """What the target's own algorithm needs, so that a candidate's extra work earns it nothing."""
    key = (case.wanted, workload.name)
    with bench.lock:
        if key not in bench.works:
            bench.works[key] = work(case.wanted, workload.sizes, workload.params)
        return bench.works[key]


def exact_sizes(case: Case) -> dict[str, int]:
    """The axes that are a power of two in every size that the source has to serve: they need no masks."""
    target = case.target
    every = [extents(case.sure.algorithm, w) for w in (*target.workloads, *target.hidden, *target.checks)]
    return {a: n for a, n in every[0].items() if all(s[a] & (s[a] - 1) == 0 for s in every)}


def _params(program: Program, workload: Workload) -> dict[str, int | float | bool]:
    defaults = {p.name: p.default for p in program.algorithm.params if p.default is not None}
    return {**defaults, **workload.params}


def _machine_facts(machine: MachineCode) -> Evidence:
    facts = machine.model_dump(mode="json", exclude={"texts", "loops"})
    return {k: v for k, v in facts.items() if v not in ({}, "")}


def _errors(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    return [d for d in diagnostics if d.severity == "error"]


def _wrong(status: Status, diagnostics: list[Diagnostic] | tuple[Diagnostic, ...], text: str) -> Rejected:
    ordered = sorted(diagnostics, key=lambda d: (d.severity != "error", d.span.line, d.span.column))
    first = ordered[0]
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    place = f"line {first.span.line}: " if first.span.line else ""
    evidence = {
        "diagnostics": [_diagnostic(d) for d in ordered],
        "text": "\n".join(d.render(text) for d in ordered),
    }
    return Rejected(status, f"{place}{first.message}{more}", evidence)


def _diagnostic(d: Diagnostic) -> Evidence:
    fields = {
        "rule": d.rule,
        "severity": d.severity,
        "line": d.span.line,
        "column": d.span.column,
        "message": d.message,
    }
    return {**fields, **({"legal": d.legal} if d.legal else {}), **({"fix": d.fix} if d.fix else {})}
