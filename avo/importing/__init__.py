"""From a plain PyTorch function to a program: traced, written with a naive schedule, checked against the function.

torch is imported here alone of all that `avo check` and its like load, and only when something is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from avo.importing.checking import Checked
    from dsl.diagnostics import Diagnostic
    from dsl.hardware import Hardware
    from dsl.syntax import Program
    from evaluators.target import Target

__all__ = ["Imported", "import_function", "reference_of"]


@dataclass(frozen=True)
class Imported:
    """program: with its schedule. target: the function as a job, with small sizes that it takes. notes: (line of the
    file, what differs there).

    guessed: numbers that were taken for what they were computed from. wrong: why the schedule does not lower, if so.
    """

    program: Program
    target: Target
    checked: Checked
    notes: tuple[tuple[int, str], ...]
    guessed: tuple[str, ...]
    wrong: tuple[Diagnostic, ...]
    stored: tuple[str, ...]
    tensors: tuple[str, ...]  # the function's arguments that are inputs, in order
    fixed: Mapping[str, Any]  # its other arguments


def reference_of(reference: str, tensors: Sequence[str], **fixed: Any) -> Callable[..., Any]:
    """The function of `file.py:function` as a target's reference: exact in float64, whatever dtypes it names.

    tensors: its arguments that are tensors, in the order of the program's inputs. fixed: the others.
    """
    from avo.importing.checking import in_float64
    from avo.importing.source import functions_of

    exact = in_float64(functions_of(reference)[1])

    def job(*given: Any) -> Any:
        return exact(**dict(zip(tensors, given, strict=True)), **fixed)

    return job


def import_function(
    reference: str,
    hw: Hardware,
    shapes: str | None = None,
    fixed: Mapping[str, Any] | None = None,
    name: str = "",
    seed: int = 0,
) -> Imported:
    """Import `file.py:function` for a chip. shapes: as `--shapes`. fixed: arguments that are no tensors.

    Raises UserMistake for what the person can mend, `tracing.NotImported` for what the language cannot say, and
    `checking.Differs` where the program is not the function.
    """
    from avo.importing import checking, source

    read = source.read(reference, shapes, fixed or {})
    try:
        found = _imported(read, hw, name, seed, keep_numbers=False)
        if not (found.guessed and found.checked.differs):
            return found
    except checking.Differs:
        pass
    # a number may have been no sqrt(D) after all
    return replace(_imported(read, hw, name, seed, keep_numbers=True), guessed=())


def _renamed(read: Any, program: Program, order: Sequence[str]) -> list[str]:
    """What is called otherwise in the program than in the function and in `--shapes`, one note of each kind."""
    inputs: dict[str, str] = {}
    axes: dict[str, str] = {}
    for name, tensor in zip(order, program.algorithm.inputs, strict=True):
        inputs[name] = tensor.name
        given = read.axes.get(name) or ()
        if len(given) == len(tensor.axes or ()):
            axes |= dict(zip(given, tensor.axes or (), strict=True))
    return [
        f"{kind} {', '.join(f'{a} is {b}' for a, b in new.items())} in the program: {why}"
        for kind, found, why in (
            ("argument", inputs, "its own name is a word of the language, or an axis"),
            ("axis", axes, "a tensor has its name, or it is one with another axis"),
        )
        if (new := {a: b for a, b in found.items() if a and a != b})
    ]


def _imported(read: Any, hw: Hardware, name: str, seed: int, keep_numbers: bool) -> Imported:
    import torch

    from avo.importing import checking, scheduling, sizes
    from avo.importing.tracing import trace
    from avo.importing.writing import write

    order = [n for n, a in read.arguments.items() if isinstance(a, torch.Tensor)]
    best: tuple[Any, Program, list[Diagnostic], list[str]] | None = None
    for pick in (scheduling.cut, scheduling.every_step):
        traced = trace(read.function, read.arguments, read.path, read.axes)
        stored = pick(traced)
        scheduling.store(traced.builder, stored)
        written = write(traced, name or read.function.__name__, str(read.path), keep_numbers)
        names = [n for v in stored if (n := written.names.get(v.id))]
        program, wrong = scheduling.scheduled(written.algorithm, names, hw, written.sizes)
        if best is None or not wrong:
            best = (written, program, wrong, names)
        if not wrong:
            break
    assert best is not None
    written, program, wrong, names = best
    fixed = {n: a for n, a in read.arguments.items() if n not in order}
    target = checking.as_target(written, program, read.function, fixed, order)
    both = checking.Comparison(target, program, read.function, read.arguments, order)
    checked = both.check(read.path, seed)
    if checked.refused or checked.differs:
        target = sizes.fitting(target, both.agrees)
    notes = (*written.notes, *((read.function.__code__.co_firstlineno, n) for n in _renamed(read, program, order)))
    return Imported(program, target, checked, notes, written.guessed, tuple(wrong), tuple(names), tuple(order), fixed)
