"""A program as a function on torch tensors: `attention = avo.load("best.avo", hw="h200"); o = attention(q, k, v)`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from avo.errors import HarnessUnavailable, UserMistake
from dsl.wording import counted

if TYPE_CHECKING:
    import numpy as np

    from dsl.hardware import Hardware
    from dsl.lowering.lowered import Lowered
    from dsl.syntax import Program


def load(
    path: str | os.PathLike[str], hw: str | Hardware | None = None, *, archive: str | os.PathLike[str] | None = None
) -> Kernel:
    """The program of a file, or the text of one (it has line ends), for one chip; or a candidate of an archive.

    hw: b200 where nothing is said; a candidate brings its run's chip. archive: where a candidate is looked for, avo.db
    if None. A candidate is named RUN/K or by the start of its digest, and gives what `avo export` writes: a function
    with dispatch by size, a fallback and a torch operator.

    Raises UserMistake for a missing file or an unknown chip, dsl.diagnostics.ProgramError for what is wrong with it,
    archive.errors.ArchiveError for a candidate that is not there.
    """
    from avo import choosing
    from avo.files import read_program
    from dsl.check import errors
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse

    given = os.fspath(path)
    if archive is not None or _is_candidate(given):
        if hw is not None:
            raise UserMistake(f"{given} is a candidate, which brings its run's chip: leave hw out")
        return _exported(given, None if archive is None else os.fspath(archive))
    hw = "b200" if hw is None else hw
    chip = choosing.chip(hw) if isinstance(hw, str) else hw
    if "\n" in given:
        text, name, program = given, "<program>", parse(given)
    else:
        text, program = read_program(given)
        name = given
    found = errors(program, chip)
    if found:
        raise ProgramError(found, text, name)
    return Kernel(program, chip)


def _is_candidate(given: str) -> bool:
    """`3/17`, `3/best`, or hexadecimal digits that name no file."""
    return bool(re.fullmatch(r"\d+/(\d+|best)|[0-9a-f]{4,16}", given)) and not os.path.exists(given)


def _exported(name: str, archive: str | None) -> Kernel:
    from avo.exporting import callable_of

    function, variant, chip = callable_of(name, archive)
    return Exported(variant.program, chip, function)


@dataclass(frozen=True)
class Kernel:
    """A checked program on a chip. `source` is Triton that runs without avo; write it to a file to ship it."""

    program: Program
    hardware: Hardware

    @property
    def text(self) -> str:
        """The program in canonical form."""
        from dsl.printer import print_program

        return print_program(self.program)

    @cached_property
    def lowered(self) -> Lowered:
        """Source, kernels, and how each is specialised. Raises ProgramError for what has no lowering yet."""
        from dsl.knobs import fill
        from dsl.lowering import lower

        return lower(fill(self.program, self.hardware), self.hardware)

    @property
    def source(self) -> str:
        return self.lowered.source

    def __call__(self, *inputs: Any, **params: Any) -> Any:
        """Run it. inputs: contiguous torch tensors on one GPU, in the program's order and dtypes. Returns the output,
        or a tuple of them. Nothing is checked against a reference here.

        Raises UserMistake for a wrong number of inputs or tensors on the CPU, HarnessUnavailable without Triton.
        """
        if len(inputs) != len(self._names):
            raise UserMistake(
                f"{self.program.algorithm.name} takes {counted(len(self._names), 'tensor')} ({', '.join(self._names)})"
            )
        if any([getattr(i, "device", None) is None or i.device.type == "cpu" for i in inputs]):
            raise UserMistake("the kernel runs on a GPU: pass tensors of its device; `meaning` computes on the host")
        return self._entry(*inputs, **params)

    @cached_property
    def _names(self) -> list[str]:
        return [t.name for t in self.program.algorithm.inputs]

    @cached_property
    def _entry(self) -> Callable[..., Any]:
        from avo.compiling import require_triton
        from avo.export.calls import quick
        from evaluators.compiler import load_source

        require_triton("running a kernel")
        try:
            return quick(getattr(load_source(self.source), self.lowered.entry), len(self._names))
        except ImportError as error:
            raise HarnessUnavailable(f"the kernel cannot be loaded: {error}") from error

    def meaning(self, inputs: dict[str, np.ndarray], **params: Any) -> dict[str, np.ndarray]:
        """Output name -> float64 array, by NumPy on the host, with the program's named roundings. For small sizes."""
        from dsl.meaning import evaluate

        return evaluate(self.program, inputs, params, "rounded")

    def __repr__(self) -> str:
        from dsl.printer import digest

        return f"<avo kernel {self.program.algorithm.name} {digest(self.program)} for {self.hardware.name}>"


@dataclass(frozen=True, repr=False)
class Exported(Kernel):
    """A candidate as its package has it: at sizes that were judged its kernel runs, at others the reference in torch.

    `function` is one torch operator, so torch.compile takes it; it is forward-only and says so.
    """

    function: Callable[..., Any]

    def __call__(self, *inputs: Any, **params: Any) -> Any:
        """Run it, on any device: where the kernel does not run, the reference does. Params as the program has them."""
        return self.function(*inputs, **params)
