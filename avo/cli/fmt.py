"""`avo fmt FILE`: print a program in its canonical form, the one that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def fmt(
    file: Annotated[str, typer.Argument(help="The program; - reads standard input.", metavar="FILE")],
    write: Annotated[bool, typer.Option("--write", "-w", help="Rewrite the file.")] = False,
    verify: Annotated[bool, typer.Option("--check", help="Only say whether it is canonical; 1 if not.")] = False,
    newer: Annotated[
        bool, typer.Option("--upgrade", help="Bring forms of older versions of the language up to date.")
    ] = False,
) -> None:
    """Print a program in canonical form: same meaning, same digest, one decision a line; comments stay.

    Example: avo fmt attention.avo --write
    """
    from avo.cli.console import say, warn
    from avo.errors import UserMistake
    from avo.files import read_text, write_text
    from dsl.comments import format_program
    from dsl.versions import upgrade

    if write and file == "-":
        raise UserMistake("--write needs a file, not standard input")
    text = source = read_text(file)
    if newer:
        source, changes = upgrade(text)
        for change in changes:
            warn(f"{file}: {change}")
    canonical = format_program(source, file)
    if verify:
        if canonical == text:
            say(f"{file} is canonical")
            return
        say(f"{file} is not canonical; avo fmt {file} --write{' --upgrade' if newer else ''} rewrites it")
        raise typer.Exit(1)
    if write:
        if canonical != text:
            write_text(Path(file), canonical, force=True)
        return
    typer.echo(canonical, nl=False)
