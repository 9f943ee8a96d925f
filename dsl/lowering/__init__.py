"""From a checked program to source code: `lower` is the whole way down, read top to bottom."""

from __future__ import annotations

from dataclasses import replace

from dsl.diagnostics import Diagnostic, ProgramError
from dsl.elaborate import elaborate
from dsl.hardware import Hardware
from dsl.lowering.launch import LEAST_PRODUCT
from dsl.lowering.lowered import Lowered, Sizes
from dsl.lowering.triton import Printed, emit, lowered, plain_kernel
from dsl.printer import digest
from dsl.schedule import KernelSchedule, kernels_of, resolve
from dsl.syntax import Program, Word
from dsl.tile import TileKernel
from dsl.tiling import tile_kernel

__all__ = ["lower", "tile_program", "without_roles"]


def tile_program(program: Program, hw: Hardware, sizes: Sizes | None = None) -> list[TileKernel]:
    """The tile programs of all kernels, in the order in which they run.

    `sizes` only tells which whole axes are powers of two and so need no padding masks; the kernels stay valid for any
    length of the other axes. Raises ProgramError ("not-lowered" where a construct has no lowering).
    """
    kernels = []
    names = kernels_of(program)
    if errors := [d for d in elaborate(program)[1] if d.severity == "error"]:
        raise ProgramError(errors)
    for i, writes in enumerate(names):
        graph, _ = elaborate(program, kernel=i)
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


def lower(
    program: Program, hw: Hardware, sizes: Sizes | None = None, triton: str = "", untried: bool = False
) -> Lowered:
    """Source for one chip: Triton, or Gluon where warps have roles. Raises ProgramError; see `tile_program`.

    triton: the version that will compile it, where that is known; with one whose Gluon was never tried, `roles` gives
    plain Triton and a warning. untried: `roles` has its form on sm_100 too, which was compiled and never run.
    """
    for d in program.schedule.pipeline:
        if d.name in ("launch", "comm"):
            raise ProgramError(
                [Diagnostic("not-lowered", f"`{d.name}` needs a runtime, which does not exist yet", d.span)]
            )
    kernels = tile_program(program, hw, sizes)
    name, digest_ = program.algorithm.name, digest(program)
    plain = [plain_kernel(k, hw) for k in kernels]
    warnings: list[Diagnostic] = []
    printed = [_specialised(k, hw, triton, warnings, untried) or p for k, p in zip(kernels, plain, strict=True)]
    source = emit(program, printed, hw, digest_)
    gluon = any(p.language == "gluon" for p in printed)
    return Lowered(
        source,
        name,
        tuple(lowered(p) for p in printed),
        tuple(warnings),
        "gluon" if gluon else "triton",
        emit(program, plain, hw, digest_) if gluon else source,
    )


def without_roles(kernels: list[TileKernel]) -> list[Diagnostic]:
    """A warning for each kernel that its schedule gives roles in vain."""
    from dsl.lowering.gluon import why_plain

    wanted = [k for k in kernels if k.schedule.roles is not None]
    return [_plainly(k, why) for k in wanted if (why := why_plain(k))]


def _plainly(kernel: TileKernel, why: str) -> Diagnostic:
    at = next(d.span for d in kernel.schedule.directives if d.name == "roles")
    message = f"`roles` has no effect on {kernel.name}, which is lowered to plain Triton: {why}"
    return Diagnostic("plain-lowering", message, at, severity="warning")


def _specialised(
    kernel: TileKernel, hw: Hardware, triton: str, warnings: list[Diagnostic], untried: bool
) -> Printed | None:
    """The kernel with roles for its warps where the schedule wants that; else, or where it has no such form, None."""
    from dsl.lowering.gluon import TESTED, NotSpecialised, specialised_kernel

    if kernel.schedule.roles is None:
        return None
    try:
        if triton and not triton.startswith(TESTED):
            raise NotSpecialised(f"its Gluon was tried with triton {', '.join(TESTED)}, and this is {triton}")
        found = specialised_kernel(kernel, hw, untried)
    except NotSpecialised as reason:
        warnings.append(_plainly(kernel, str(reason)))
        return None
    for note in found.notes:
        warnings.append(replace(_plainly(kernel, ""), message=f"{kernel.name}: {note}"))
    return found
