"""A program as a function on torch tensors: `attention = avo.load("best.avo", hw="h200"); o = attention(q, k, v)`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from avo.errors import HarnessUnavailable, UserMistake

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from dsl.hardware import Hardware
    from dsl.lowering.lowered import Lowered
    from dsl.syntax import Program


def load(path: str | os.PathLike[str], hw: str | Hardware = "b200") -> Kernel:
    """The program of a file, or the text of one (it has line ends), for one chip.

    Raises UserMistake for a missing file or an unknown chip, dsl.diagnostics.ProgramError for what is wrong with it.
    """
    from avo import plugins
    from avo.files import read_program
    from dsl.check import errors
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse

    chip = plugins.load("hardware", hw) if isinstance(hw, str) else hw
    given = os.fspath(path)
    if "\n" in given:
        text, name, program = given, "<program>", parse(given)
    else:
        text, program = read_program(given)
        name = given
    found = errors(program, chip)
    if found:
        raise ProgramError(found, text, name)
    return Kernel(program, chip)


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
        from avo.compiling import require_triton

        names = [t.name for t in self.program.algorithm.inputs]
        if len(inputs) != len(names):
            raise UserMistake(f"{self.program.algorithm.name} takes {len(names)} tensors ({', '.join(names)})")
        if any(getattr(i, "device", None) is None or i.device.type == "cpu" for i in inputs):
            raise UserMistake("the kernel runs on a GPU: pass tensors of its device; `meaning` computes on the host")
        require_triton("running a kernel")
        return self._entry(*inputs, **params)

    @cached_property
    def _entry(self) -> Callable[..., Any]:
        from evaluators.compiler import load_source

        try:
            return getattr(load_source(self.source), self.lowered.entry)
        except ImportError as error:
            raise HarnessUnavailable(f"the kernel cannot be loaded: {error}") from error

    def meaning(self, inputs: dict[str, np.ndarray], **params: Any) -> dict[str, np.ndarray]:
        """Output name -> float64 array, by NumPy on the host, with the program's named roundings. For small sizes."""
        from dsl.meaning import evaluate

        return evaluate(self.program, inputs, params, "rounded")

    def __repr__(self) -> str:
        from dsl.printer import digest

        return f"<avo kernel {self.program.algorithm.name} {digest(self.program)} for {self.hardware.name}>"
