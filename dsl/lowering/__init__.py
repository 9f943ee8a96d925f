"""From a checked program to source code: `lower` is the whole way down, read top to bottom."""

from __future__ import annotations

from dsl.diagnostics import Diagnostic, ProgramError
from dsl.elaborate import elaborate
from dsl.hardware import Hardware
from dsl.lowering.launch import LEAST_PRODUCT
from dsl.lowering.lowered import Lowered, Sizes
from dsl.lowering.triton import emit
from dsl.printer import digest
from dsl.schedule import KernelSchedule, kernels_of, resolve
from dsl.syntax import Program, Word
from dsl.tile import TileKernel
from dsl.tiling import tile_kernel

__all__ = ["lower", "tile_program"]


def tile_program(program: Program, hw: Hardware, sizes: Sizes | None = None) -> list[TileKernel]:
    """The tile programs of all kernels, in the order in which they run.

    `sizes` only tells which whole axes are powers of two and so need no padding masks; the kernels stay valid for any
    length of the other axes. Raises ProgramError ("not-lowered" where a construct has no lowering).
    """
    kernels = []
    names = kernels_of(program)
    for i, writes in enumerate(names):
        graph, found = elaborate(program, kernel=i)
        errors = [d for d in found if d.severity == "error"]
        if errors:
            raise ProgramError(errors)
        schedule = resolve(program, i, hw.arch, hw.name)
        _closed(schedule)
        exact = frozenset(a for a, n in (sizes or {}).items() if n >= LEAST_PRODUCT and n & (n - 1) == 0)
        suffix = "" if len(names) == 1 else "_" + "_".join(writes)
        kernels.append(tile_kernel(graph, schedule, f"{program.algorithm.name}{suffix}_kernel", exact))
    return kernels


def _closed(schedule: KernelSchedule) -> None:
    for d in schedule.directives:
        for item in d.items:
            if isinstance(item.value, Word) and item.value.id == "?":
                message = f"`{d.name}` leaves a number open"
                raise ProgramError([Diagnostic("open-number", message, item.span, fix="give it a number")])


def lower(program: Program, hw: Hardware, sizes: Sizes | None = None) -> Lowered:
    """Triton source for one chip. Raises ProgramError; see `tile_program`."""
    for d in program.schedule.pipeline:
        if d.name in ("launch", "comm"):
            raise ProgramError(
                [Diagnostic("not-lowered", f"`{d.name}` needs a runtime, which does not exist yet", d.span)]
            )
    return emit(program, tile_program(program, hw, sizes), hw, digest(program))
