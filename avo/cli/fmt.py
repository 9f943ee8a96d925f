"""`avo fmt FILE`: print a program in its canonical form, the one that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def fmt(
    files: Annotated[list[str], typer.Argument(help="Programs; - reads standard input.", metavar="FILE...")],
    write: Annotated[bool, typer.Option("--write", "-w", help="Rewrite the file.")] = False,
    verify: Annotated[bool, typer.Option("--check", help="Only say whether it is canonical; 1 if not.")] = False,
    newer: Annotated[
        bool, typer.Option("--upgrade", help="Bring forms of older versions of the language up to date.")
    ] = False,
) -> None:
    """Print a program in canonical form: same meaning, same digest, one decision a line; comments stay.

    Example: avo fmt attention.avo --write
    """
    from avo.errors import UserMistake

    if write and "-" in files:
        raise UserMistake("--write needs a file, not standard input")
    if len(files) > 1 and not (write or verify):
        raise UserMistake("several programs are not printed one after another; --write rewrites them, --check compares")
    canonical = [_formatted(file, write, verify, newer) for file in files]
    if verify and not all(canonical):
        raise typer.Exit(1)


def _formatted(file: str, write: bool, verify: bool, newer: bool) -> bool:
    """Whether the file was canonical; printed, rewritten, or only said."""
    from avo.cli.console import say, warn
    from avo.files import read_text, write_text
    from dsl.comments import format_program
    from dsl.versions import upgrade

    text = source = read_text(file)
    if newer:
        source, changes = upgrade(text)
        for change in changes:
            warn(f"{file}: {change}")
    canonical = format_program(source, file)
    if verify:
        if canonical == text:
            say(f"{file} is canonical")
            return True
        say(f"{file} is not canonical; avo fmt {file} --write{' --upgrade' if newer else ''} rewrites it")
        return False
    if not write:
        typer.echo(canonical, nl=False)
    elif canonical != text:
        write_text(Path(file), canonical, force=True)
    return canonical == text
