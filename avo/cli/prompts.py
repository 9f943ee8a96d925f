"""`avo prompts`: what models are told, with versions and digests."""

from __future__ import annotations

from typing import Annotated

import typer

from avo.cli.options import JsonOption


def prompts(
    name: Annotated[str | None, typer.Argument(help="Print this one.", metavar="[NAME]")] = None,
    folder: Annotated[
        str | None, typer.Option(help="A folder whose files stand instead, as agent_options.prompts.", metavar="FOLDER")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the templates that models are asked with, or print one. Each candidate of a model keeps their digest.

    Example: avo prompts operator > prompts/operator.md
    """
    from avo.agents.prompting import names, template
    from avo.cli.console import say, show_json, table, tame

    if name is not None:
        one = template(name, folder)
        if as_json:
            show_json(vars(one) | {"digest": one.digest})
        else:
            say(f"<!-- {tame(one.version)} -->\n{tame(one.text)}".rstrip("\n"))
        return
    found = [template(n, folder) for n in names()]
    if as_json:
        show_json([vars(t) | {"digest": t.digest} for t in found])
        return
    say(table(["prompt", "digest", "what it is"], [[t.name, t.digest, tame(t.version)] for t in found]))
    say("\nYours instead: a file of that name in --set agent_options.prompts=FOLDER.")
