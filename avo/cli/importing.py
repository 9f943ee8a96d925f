"""`avo import FILE.py:FUNCTION`: a plain PyTorch function as a program with a naive schedule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from avo.importing import Imported

TARGET = '''\
"""{name}: the job of {reference}, as `avo import` wrote it.

    avo evolve --target {file} --hw {hw}

docs/targets.md explains every field. The sizes are those of the example: put those that matter.
"""

from pathlib import Path

from avo import Target, Workload, reference_of

SEED = """\\
{seed}"""

TARGET = Target(
    name="{name}",
    reference=reference_of({source}, {tensors}{fixed}),
    seed=SEED,
    workloads=(Workload({sizes}),),
{small}    unit="{unit}",
)
'''


def importing(
    function: Annotated[str, typer.Argument(help="The file and the function in it.", metavar="FILE.py:FUNCTION")],
    hw: Annotated[str, typer.Option(help="The chip that the schedule has to fit.", metavar="CHIP")],
    shapes: Annotated[
        str | None,
        typer.Option(
            help="Example tensors, lengths with or without a name: 'x[r=64 c=256] bf16, w[c] bf16'. "
            "[default: what FUNCTION_inputs or example_inputs in the file is or returns]",
            metavar="TENSORS",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="An argument that is no tensor: causal=true; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write here.", metavar="PATH")] = None,
    target: Annotated[
        Path | None,
        typer.Option(help="Also write a target file: the function as the reference of a run.", metavar="PATH"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print program, sizes and checks as JSON.")] = False,
) -> None:
    """Write a PyTorch function as a program with a naive schedule, or name what the language cannot say.

    The file is run: it is code that you trust. Before anything is written the program is compared with the function on
    random inputs, in float64 and in the function's own dtypes.

    Example: avo import layers.py:rmsnorm --hw h200 --shapes 'x[r=4096 c=4096] bf16, w[c] bf16'
    """
    if code := _import(function, hw, shapes, settings, output, target, force, as_json):
        raise typer.Exit(code)


def _import(
    function: str,
    hw: str,
    shapes: str | None,
    settings: list[str] | None,
    output: Path | None,
    target: Path | None,
    force: bool,
    as_json: bool,
) -> int:
    """The exit code."""
    from avo import choosing
    from avo.cli.console import say, show_json, warn
    from avo.errors import HarnessUnavailable
    from avo.files import refuse_existing, write_text
    from avo.importing import import_function
    from avo.importing.checking import Differs
    from avo.importing.source import constant
    from avo.importing.tracing import NotImported
    from dsl.printer import print_program
    from evaluators.loading import ready
    from evaluators.target import TargetError

    chip = choosing.chip(hw)
    for written in (output, target):
        refuse_existing(written, force)
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise HarnessUnavailable(f"importing needs PyTorch, which does not load here: {error}") from None
    try:
        found = import_function(function, chip, shapes, dict(map(constant, settings or ())))
    except (NotImported, Differs) as error:
        if as_json:
            troubles = [vars(t) for t in getattr(error, "troubles", ())]
            show_json({"function": function, "ok": False, "error": str(error), "troubles": troubles})
        else:
            warn(str(error) if isinstance(error, NotImported) else f"not written: {error}")
        return 1
    text = print_program(found.program)
    if target is not None:
        write_text(target, _target(found, function, chip.name, target), force)
    if output is not None:
        write_text(output, text, force)
    c = found.checked
    if as_json:
        show_json(
            {
                "function": function,
                "ok": True,
                "hardware": chip.name,
                "program": text,
                "sizes": dict(found.target.workloads[0].sizes),
                "checked": {
                    "exact": c.exact,
                    "rounded": c.rounded,
                    "function": c.own,
                    "sizes": list(c.sizes),
                    "refused": dict(c.refused),
                },
                "guessed": list(found.guessed),
                "notes": [{"line": line, "note": note} for line, note in found.notes],
                "not_lowered": [d.message for d in found.wrong],
            }
        )
        return 0
    if output is None:
        say(text.rstrip("\n"))
    path = function.rpartition(":")[0]
    for line, note in found.notes:
        warn(f"note: {path}:{line}: {note}")
    for guess in found.guessed:
        warn(f"note: {guess}; the program and the function agree at every size below")
    for name, why in c.refused:
        warn(f"note: not checked at {name}, which the function does not take: {why}")
    for w in found.target.tiny if c.refused or c.differs else ():
        warn(f"note: it takes {w.name}; the target's small sizes are like that")
    for name, why in c.differs:
        warn(f"note: only for the example's sizes, for the function fixes some of them: at {name} {why}")
    for where in c.undefined:
        warn(f"note: {where}: the function gives NaN where the program gives 0 (a softmax of nothing but -inf)")
    for d in found.wrong:
        warn(f"note: this schedule does not lower for {chip.name}: {d.message}" + (f"; {d.fix}" if d.fix else ""))
    warn(
        f"checked at {' and '.join(c.sizes)}: {max(c.exact, 1e-16):.1g} off the function in float64; "
        f"with roundings {c.rounded:.1g}, the function itself {c.own:.1g}"
    )
    if output is not None:
        warn(f"wrote {output}")
    if target is not None:
        try:
            ready(found.target)
        except TargetError as error:
            warn(f"wrote {target}; a run will refuse it until it has sizes (checks, tiny) that fit: {error}")
            return 1
        warn(f"wrote {target}; next: avo evolve --target {target} --hw {chip.name}")
    return 0


def _target(found: Imported, function: str, hw: str, file: Path) -> str:
    from dsl.printer import print_program

    where, _, name = function.rpartition(":")
    source = Path(where).expanduser().resolve()
    folder = file.expanduser().resolve().parent
    if source.is_relative_to(folder):  # so that the two files may move together
        place = f'f"{{Path(__file__).parent}}/{source.relative_to(folder).as_posix()}:{name}"'
    else:
        place = repr(f"{source.as_posix()}:{name}")
    job = found.target
    return TARGET.format(
        name=job.name,
        reference=function,
        file=file,
        hw=hw,
        seed=print_program(found.program).replace("\\", "\\\\"),
        source=place,
        tensors=repr(tuple(found.tensors)),
        fixed="".join(f", {k}={v!r}" for k, v in found.fixed.items()),
        sizes=dict(job.workloads[0].sizes),
        small="".join(
            f"    {what}=({', '.join(f'Workload({dict(w.sizes)})' for w in sizes)},),\n"
            for what, sizes in (("checks", job.checks), ("tiny", job.tiny))
            if sizes
        ),
        unit=job.unit,
    )
