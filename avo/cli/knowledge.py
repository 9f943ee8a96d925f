"""`avo knowledge`: the pages that agents search, for people."""

from __future__ import annotations

from typing import Annotated

import typer

from avo.cli.options import JsonOption


def knowledge(
    query: Annotated[str | None, typer.Argument(help="Words, or a page's name.", metavar="[QUERY]")] = None,
    hw: Annotated[str | None, typer.Option(help="Only what holds on this chip.", metavar="CHIP")] = None,
    target: Annotated[str, typer.Option(help="Pages on this target first.", metavar="TARGET")] = "",
    folder: Annotated[
        list[str] | None, typer.Option(help="A folder of Markdown beside avo's own; repeatable.", metavar="FOLDER")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the pages on techniques and chips, or print those that fit a query: when each helps, what was measured.

    Example: avo knowledge "lazy rescale" --hw h200
    """
    from avo import choosing, plugins
    from avo.cli.console import say, show_json, table, tame
    from avo.errors import UserMistake
    from avo.knowledge import pages, search

    found = pages(tuple(folder or ()))
    chip = choosing.chip(hw) if hw else None
    if query is not None:
        named = [p for p in found if p.name == query]
        chips = [chip] if chip else [plugins.load("hardware", n) for n in ("h200", "mi300x")]
        hits = named or list(dict.fromkeys(p for c in chips for p in search(query, c, target=target, among=found)))
        if not hits:
            raise UserMistake(f"no page on '{query}'; there are {', '.join(p.name for p in found)}")
        found = hits
    elif chip is not None:
        found = [p for p in found if p.suits(chip)]
    if as_json:
        show_json([vars(p) for p in found])
    elif query is not None:
        say("\n\n".join(tame(p.text.rstrip()) for p in found))
    else:
        rows = [[p.name, ", ".join(p.chips) or "all", tame(p.title)] for p in found]
        say(table(["page", "chips", "what it is on"], rows))
