"""`avo doctor`: is everything here that avo needs, and what to do where it is not."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    archive: Annotated[
        str | None, typer.Option(help="The archive to look at: a path or a URL.", metavar="ARCHIVE")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out what starts a worker process.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at Python, torch, Triton, the interpreter, GPUs, the archive, plug-ins and the installation.

    Exits with 3 where something fails that a run needs. Example: avo doctor
    """
    from avo.cli.console import paint, say, show_json, table
    from avo.config import DEFAULT_ARCHIVE
    from avo.doctor import examine

    found = examine(archive or DEFAULT_ARCHIVE, quick=quick)
    if as_json:
        show_json([{"name": f.name, "verdict": f.verdict, "found": f.found, "advice": f.advice} for f in found])
    else:
        colour = {"ok": "green", "warn": "yellow", "fail": "red"}
        rows = [[f.verdict, f.name, f.found + (f" -> {f.advice}" if f.advice else "")] for f in found]
        for line in table(["", "what", "found"], rows).splitlines()[1:]:
            verdict = line.split(" ", 1)[0]
            say(paint(verdict, colour[verdict]) + line[len(verdict) :] if verdict in colour else line)
        fails = sum(f.verdict == "fail" for f in found)
        warns = sum(f.verdict == "warn" for f in found)
        say(f"\n{len(found)} looked at, {fails} failed, {warns} to mind")
    if any(f.verdict == "fail" for f in found):
        raise typer.Exit(3)
