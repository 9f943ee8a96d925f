"""`avo spec`: the language on one page, or what of it is legal for one program on one chip."""

from __future__ import annotations

from typing import Annotated

import typer


def spec(
    hw: Annotated[str | None, typer.Option(help="Only what is legal on this chip.", metavar="CHIP")] = None,
    target: Annotated[
        str | None, typer.Option(help="Only edits of this target's seed program; needs --hw.", metavar="TARGET")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--for", help="Only edits of this program's schedule; needs --hw.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it with the language's version as JSON.")] = False,
) -> None:
    """Print the language, taught on one page: for a person, or for a model's context.

    Grammar and knob tables are those that the parser and the checks use.

    Example: avo spec --hw b200 --target attention
    """
    from avo import choosing, plugins
    from avo.cli.console import show_json
    from avo.errors import UserMistake
    from avo.files import read_program
    from dsl.check import errors
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from dsl.printer import LANGUAGE_VERSION
    from dsl.spec import narrowed
    from dsl.spec import spec as whole

    if target is not None and file is not None:
        raise UserMistake("--target and --for both name a program; give one")
    chip = choosing.chip(hw) if hw else None
    if target is None and file is None:
        page = whole(chip)
    elif chip is None:
        raise UserMistake("--target and --for need --hw: the legal values of a program depend on the chip")
    elif target is not None:
        job = plugins.load("target", target)
        page = narrowed(parse(job.seed, f"seed of {job.name}"), chip, job.opens)
    else:
        text, program = read_program(file or "-")
        wrong = errors(program)
        if wrong:
            raise ProgramError(wrong, text, file or "-")
        page = narrowed(program, chip)
    if as_json:
        show_json({"version": LANGUAGE_VERSION, "hardware": chip.name if chip else None, "spec": page})
    else:
        typer.echo(page, nl=False)
