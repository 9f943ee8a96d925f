"""`avo grammar`: the language as a grammar for constrained decoding."""

from __future__ import annotations

from typing import Annotated

import typer


def grammar(
    form: Annotated[str, typer.Option("--format", help="lark or gbnf.", metavar="FORMAT")] = "lark",
    file: Annotated[
        str | None, typer.Option("--for", help="Only edits of this program's schedule; needs --hw.", metavar="FILE")
    ] = None,
    hw: Annotated[str | None, typer.Option(help="The chip whose legal values count.", metavar="CHIP")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it with its format as JSON.")] = False,
) -> None:
    """Print a grammar for constrained decoding.

    lark suits OpenAI's custom tools and llguidance, gbnf llama.cpp and vLLM (xgrammar). With --for, its axes and the
    values that are legal on the chip stand as alternatives.

    Example: avo grammar --format gbnf --for attention.avo --hw b200
    """
    from avo import choosing
    from avo.cli.console import show_json
    from avo.errors import UserMistake, unknown
    from avo.files import read_program
    from dsl.check import errors
    from dsl.diagnostics import ProgramError
    from dsl.grammars import FORMATS, edit_grammar
    from dsl.grammars import grammar as whole

    if form not in FORMATS:
        raise UserMistake(unknown("format", form, FORMATS))
    if (file is None) != (hw is None):
        raise UserMistake("--for and --hw go together: the legal values of a program depend on the chip")
    if file is None or hw is None:
        text = whole(form)
    else:
        chip = choosing.chip(hw)
        source, program = read_program(file)
        wrong = errors(program)
        if wrong:
            raise ProgramError(wrong, source, file)
        text = edit_grammar(program, chip, form)
    if as_json:
        show_json({"format": form, "grammar": text})
    else:
        typer.echo(text, nl=False)
