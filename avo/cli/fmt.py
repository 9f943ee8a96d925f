"""`avo fmt FILE`: print a program in its canonical form, the one that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def fmt(
    file: Annotated[str, typer.Argument(help="The program; - reads standard input.", metavar="FILE")],
    write: Annotated[bool, typer.Option("--write", "-w", help="Rewrite the file; comments are lost.")] = False,
    verify: Annotated[bool, typer.Option("--check", help="Only say whether it is canonical; 1 if not.")] = False,
) -> None:
    """Print a program in canonical form: same meaning, same digest, one decision a line.

    Example: avo fmt attention.avo --write
    """
    from avo.cli.console import say
    from avo.errors import UserMistake
    from avo.files import read_program, write_text
    from dsl.printer import print_program

    text, program = read_program(file)
    canonical = print_program(program)
    if verify:
        if canonical == text:
            say(f"{file} is canonical")
            return
        say(f"{file} is not canonical; avo fmt {file} --write rewrites it")
        raise typer.Exit(1)
    if write:
        if file == "-":
            raise UserMistake("--write needs a file, not standard input")
        if canonical != text:
            write_text(Path(file), canonical, force=True)
        return
    typer.echo(canonical, nl=False)
