"""`avo lower FILE --hw X`: the Triton that a program becomes, or what the compiler makes of it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsl.wording import counted

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from dsl.lowering.lowered import Lowered
    from dsl.syntax import Program
    from evaluators.target import Workload


class Form(StrEnum):
    """What `--emit` may ask for: source, Triton's IR for GPUs, NVIDIA's assembly and machine code, AMD's assembly."""

    TRITON = "triton"
    TTGIR = "ttgir"
    PTX = "ptx"
    SASS = "sass"
    AMDGCN = "amdgcn"


_VENDOR = {Form.PTX: "nvidia", Form.SASS: "nvidia", Form.AMDGCN: "amd"}


def lower(
    file: Annotated[str, typer.Argument(help="The program; - reads standard input.", metavar="FILE")],
    hw: Annotated[str, typer.Option(help="The chip to lower for; auto: the one that is here.", metavar="CHIP")],
    emit: Annotated[Form, typer.Option(help="Which text to print.")] = Form.TRITON,
    target: Annotated[
        str | None,
        typer.Option(help="Take sizes from this target; needed beyond triton.", metavar="TARGET"),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(help="Sizes instead of the target's first workload; or a set of it.", metavar="k=v,...|SET"),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write here.", metavar="PATH")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
    untried: Annotated[
        bool, typer.Option("--untried", help="Roles on sm_100 too: code that was compiled and never run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print text, kernels and warnings as JSON.")] = False,
) -> None:
    """Print the Triton that a program becomes on a chip; it runs without avo. Or its machine code, per kernel.

    Example: avo lower attention.avo --hw b200 --emit ptx --target attention
    """
    from avo import choosing
    from avo.cli.check import as_dict
    from avo.cli.console import say, show_json, warn
    from avo.errors import UserMistake
    from avo.files import read_program, refuse_existing, write_text
    from dsl.check import check
    from dsl.diagnostics import ProgramError
    from dsl.knobs import fill
    from dsl.lowering import lower as lowered

    chip = choosing.chip(hw)
    legal = [f for f in Form if f is Form.TRITON or (chip.claims_speed and _VENDOR.get(f, chip.vendor) == chip.vendor)]
    if emit not in legal:
        raise UserMistake(f"{chip.name} has no {emit}; --emit takes {', '.join(legal)} there")
    refuse_existing(output, force)
    text, program = read_program(file)
    sizes = sizes_of(program, target, workload)
    errors = [d for d in check(program, chip, sizes.sizes if sizes else None) if d.severity == "error"]
    if errors:
        raise ProgramError(errors, text, file)
    program = fill(program, chip, sizes.sizes if sizes else None)  # `?` becomes a number
    try:
        result = lowered(program, chip, sizes.sizes if sizes else None, untried=untried)
    except ProgramError as refused:
        raise ProgramError(refused.diagnostics, text, file) from None
    for warning in result.warnings:
        warn(warning.render(text, file))
    if emit is Form.TRITON:
        answer = result.source
    else:
        if sizes is None:
            raise UserMistake(
                f"--emit {emit} compiles for one size: name a --target, and a --workload if not its first"
            )
        answer = _machine_text(result, sizes, chip, emit)
    if output is not None:
        write_text(output, answer, force)
    elif as_json:
        kernels = [k.name for k in result.kernels]
        warnings = [as_dict(w) for w in result.warnings]
        show_json({"hardware": chip.name, "emit": emit, "kernels": kernels, "warnings": warnings, "text": answer})
    else:
        say(answer.rstrip("\n"))


def _machine_text(lowered: Lowered, sizes: Workload, chip: Hardware, emit: Form) -> str:
    """What the compiler makes of each kernel, one after another; the facts of each stand above it as comments."""
    from avo.compiling import require_triton
    from evaluators.compiler import Compiler
    from evaluators.pool import WorkerPool

    require_triton("compiling")
    parts = []
    with WorkerPool(1) as pool:
        compiler = Compiler(pool)
        for kernel in lowered.kernels:
            launch = kernel.specialise(sizes.sizes, sizes.params)
            code = compiler.compile(lowered.source, kernel.name, launch, chip, emit=[emit.value])
            sign = {Form.SASS: "//", Form.AMDGCN: ";"}.get(emit, "//")
            parts.append(
                f"{sign} {kernel.name} for {chip.name}, {sizes.name}\n"
                f"{sign} {code.registers} registers, {code.spills} spilled, {code.shared_bytes} bytes shared, "
                f"{counted(code.occupancy_blocks, 'block a unit')}\n" + code.texts[emit.value].rstrip("\n") + "\n"
            )
    return "\n".join(parts)


def sizes_of(program: Program, target: str | None, text: str | None) -> Workload | None:
    """The first of `all_sizes`: of a target, of one of its sets, or what `text` gives; None where nothing is given."""
    return next(iter(all_sizes(program, target, text)), None)


def all_sizes(program: Program, target: str | None, text: str | None) -> tuple[Workload, ...]:
    """The sizes of a target: its public workloads, those of the set that `text` names, or its first changed as `text`
    says; without a target, those that `text` gives. Raises UserMistake."""
    from avo import plugins, workloads
    from avo.errors import UserMistake

    if target is None:
        return (workloads.of_program(text, program),) if text is not None else ()
    job = workloads.retarget(plugins.load("target", target), [text] if text else [])
    found = job.workloads[0]
    unknown = dict.fromkeys(a for t in program.algorithm.inputs for a in t.axes or () if a not in found.sizes)
    if unknown:
        raise UserMistake(f"the program is not one for {target}, which has no size for axis {', '.join(unknown)}")
    return tuple(job.workloads)
