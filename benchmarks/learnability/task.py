"""What a task is, and how an answer to it is judged: it parses, checks on a chip, has the asked signature, and means
what a reference in NumPy computes. Edits of a given program are also judged by what they had to change or keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dsl.check import errors
from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.meaning import evaluate
from dsl.parser import parse
from dsl.printer import print_program, print_tensor
from dsl.syntax import Call, Directive, Name, Number, Program, Word

Arrays = Mapping[str, NDArray[Any]]
Reference = Callable[..., Mapping[str, NDArray[Any]]]  # (inputs by name, **params) -> outputs by name
Demand = Callable[[Program], str]  # "" where the program has what was asked for, else what is missing


@dataclass(frozen=True)
class Task:
    """`words` is what a person asks; `signature` the lines `in` and `out` that the answer must have; `given` a program
    to start from. sizes: extents to try, with params. below: integer inputs hold indices below this."""

    name: str
    words: str
    signature: str
    reference: Reference
    sizes: Sequence[Mapping[str, int]]
    params: Sequence[Mapping[str, Any]] = ({},)
    given: str = ""
    demands: Sequence[Demand] = ()
    below: Mapping[str, int] = field(default_factory=dict)
    chip: str = "b200"


@dataclass(frozen=True)
class Verdict:
    """How far an answer came, and what is said of it: the same text that the language's user would see."""

    task: str
    stage: Literal["missing", "parse", "check", "signature", "meaning", "asked", "passed"]
    message: str = ""

    @property
    def passed(self) -> bool:
        return self.stage == "passed"


def judge(task: Task, text: str | None) -> Verdict:
    """The verdict on an answer's text; None: there is none."""
    if text is None:
        return Verdict(task.name, "missing", "no such file")
    try:
        program = parse(_fenced(text), f"{task.name}.avo")
    except ProgramError as error:
        return Verdict(task.name, "parse", str(error))
    wrong = errors(program, hardware(task.chip))
    if wrong:
        return Verdict(task.name, "check", str(ProgramError(wrong, _fenced(text), f"{task.name}.avo")))
    if said := _signature(task, program):
        return Verdict(task.name, "signature", said)
    for n, sizes in enumerate(task.sizes):
        for params in task.params:
            if said := _meaning(task, program, sizes, params, n):
                return Verdict(task.name, "meaning", said)
    missing = [said for demand in task.demands if (said := demand(program))]
    return Verdict(task.name, "asked", "\n".join(missing)) if missing else Verdict(task.name, "passed")


def _fenced(text: str) -> str:
    """The program of an answer that stands in a Markdown fence."""
    if "```" not in text:
        return text
    inside = text.split("```")[1]
    return inside.partition("\n")[2] if not inside.startswith("\n") else inside[1:]


def _signature(task: Task, program: Program) -> str:
    wanted = parse(f"kernel f\n{task.signature}\n").algorithm
    has = program.algorithm
    for kind, want, found in (("in", wanted.inputs, has.inputs), ("out", wanted.outputs, has.outputs)):
        named = {t.name: t for t in found}
        assigned = {t.name: t for s in has.statements for t in s.targets}
        for t in want:
            if t.name not in named:
                return f"there is no `{kind} {print_tensor(t)}`"
            mine = named[t.name]
            axes = mine.axes if mine.axes is not None else assigned[t.name].axes
            dtype = mine.dtype or (assigned[t.name].dtype if t.name in assigned else None) or "f32"
            if (axes, dtype) != (t.axes, t.dtype):
                return f"`{kind} {print_tensor(t)}` is asked for, not {mine.name}[{' '.join(axes or ())}] {dtype}"
        if extra := set(named) - {t.name for t in want}:
            return f"`{kind}` has also {', '.join(sorted(extra))}"
    return ""


def _meaning(task: Task, program: Program, sizes: Mapping[str, int], params: Mapping[str, Any], seed: int) -> str:
    rng = np.random.default_rng(seed)
    inputs: dict[str, NDArray[Any]] = {}
    for t in parse(f"kernel f\n{task.signature}\n").algorithm.inputs:
        shape = [sizes[a] for a in t.axes or ()]
        whole = t.dtype == "i32"
        below = task.below.get(t.name, 2)
        inputs[t.name] = rng.integers(0, below, shape) if whole else np.asarray(rng.standard_normal(shape))
    try:
        found = evaluate(program, inputs, dict(params))
    except (ValueError, KeyError, ZeroDivisionError) as error:
        return f"it has no value at {dict(sizes)}: {error}"
    for name, want in task.reference(inputs, **params).items():
        value = np.asarray(found[name], dtype=np.float64)
        want = np.asarray(want, dtype=np.float64)
        if value.shape != want.shape:
            return f"{name} has shape {value.shape} instead of {want.shape} at {dict(sizes)}"
        distance = np.linalg.norm(value - want) / max(np.linalg.norm(want), 1e-30)
        if not distance < 1e-9:
            return f"{name} is another function at {dict(sizes)} {dict(params)}: relative distance {distance:.1e}"
    return ""


# Demands ------------------------------------------------------------------------------------------------------------


def same_algorithm(given: str) -> Demand:
    """The algorithm is the given one, to the letter."""
    want = print_program(parse(given)).split("\nschedule")[0].rstrip()

    def check(program: Program) -> str:
        same = print_program(program).split("\nschedule")[0].rstrip() == want
        return "" if same else "the algorithm was to stay as it is"

    return check


def kernels(*writes: str) -> Demand:
    """Each of these names is written by a kernel that writes just them: `kernels("k8 ks")`."""

    def check(program: Program) -> str:
        have = [set(k) for k in program.schedule.kernels]
        outputs = {t.name for t in program.algorithm.outputs} - {n for k in have for n in k}
        have += [outputs] if outputs else []
        return "; ".join(f"no kernel writes just `{w}`" for w in writes if set(w.split()) not in have)

    return check


def number_of_kernels(n: int) -> Demand:
    def check(program: Program) -> str:
        named = {w for k in program.schedule.kernels for w in k}
        rest = any(t.name not in named for t in program.algorithm.outputs)
        have = len(program.schedule.kernels) + rest
        return "" if have == n else f"{n} kernels were asked for, it has {have}"

    return check


def _names(chip: str, chips: tuple[str, ...]) -> bool:
    """Whether a `for` line is for the chip, by its own name or its architecture's."""
    return any(hardware(c) == hardware(chip) for c in chips)


def directive(text: str, chip: str = "", writes: str = "") -> Demand:
    """A directive with at least these items, on this chip (of a `for` line) or for all."""
    (block,) = parse(f"kernel f\nin x[a] f32\nout y[a] f32\ny = x\nschedule\n{text}\n").schedule.blocks
    (want,) = block.directives

    def check(program: Program) -> str:
        blocks = [b for b in program.schedule.blocks if set(b.writes) == set(writes.split()) or not writes]
        lines = [d for b in blocks for d in b.directives if d.name == want.name]
        lines = [d for d in lines if (_names(chip, d.chips) if chip else not d.chips)]
        has = {(i.key, i.value) for d in lines for i in d.items}
        ok = bool(lines) and {(i.key, i.value) for i in want.items} <= has and _order(want, lines)
        return "" if ok else f"`{text}` was asked for" + (f" on {chip}" if chip else "")

    return check


def _order(want: Directive, lines: Sequence[Directive]) -> bool:
    """A grid's axes are asked for in order."""
    names = [i.value for i in want.items if isinstance(i.value, Word)]
    return want.name != "grid" or [i.value for d in lines for i in d.items] == names


def declares(name: str, dtype: str) -> Demand:
    """A name has this dtype where it is assigned."""

    def check(program: Program) -> str:
        found = [t.dtype for s in program.algorithm.statements for t in s.targets if t.name == name]
        return "" if dtype in found else f"`{name}` was to be declared {dtype}"

    return check


def quantised(*targets: str, dtype: str = "int8") -> Demand:
    """Each pair of names is the result of a `quantize` to this dtype."""

    def check(program: Program) -> str:
        made = {
            " ".join(t.name for t in s.targets)
            for s in program.algorithm.statements
            if isinstance(s.value, Call) and s.value.function == "quantize" and Name(dtype) in s.value.args
        }
        return "; ".join(f"`{pair}` was to come from `quantize(..., {dtype})`" for pair in targets if pair not in made)

    return check


def scale_in_blocks(fine: str, length: int) -> Demand:
    """The scale of some `quantize` has an axis of blocks of this length."""

    def check(program: Program) -> str:
        coarse = {a.name for a in program.algorithm.axes if a.fine == fine and a.value == Number(length)}
        scales = [s.targets[1] for s in program.algorithm.statements if len(s.targets) == 2]
        found = any(coarse & set(t.axes or ()) for t in scales)
        return "" if found else f"no scale has blocks of {length} along {fine}"

    return check


def has_sums_in(dtype: str) -> Demand:
    """Some statement sums within blocks into a name of this dtype."""

    def check(program: Program) -> str:
        for s in program.algorithm.statements:
            call = s.value
            axes = getattr(call, "axes", None) or ()
            if getattr(call, "function", "") == "sum" and s.targets[0].dtype == dtype and any(a.within for a in axes):
                return ""
        return f"no sum over blocks is assigned to a name of dtype {dtype}"

    return check
