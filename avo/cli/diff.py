"""`avo diff A B`: what changed between two programs, in one line and line by line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from archive.records import Candidate


def diff(
    a: Annotated[str, typer.Argument(help="A file, the start of a digest, or RUN/K.", metavar="A")],
    b: Annotated[str, typer.Argument(help="The same, for the other one.", metavar="B")],
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two candidates or program files in their canonical form, with their scores where they have one.

    Example: avo diff 1/0 1/17
    """
    from avo.cli.console import folded, paint, say, show_json, tame, width
    from avo.report.differences import change, line_diff

    (old_name, old, one), (new_name, new, two) = _side(a, archive), _side(b, archive)
    if as_json:
        answer: dict[str, Any] = {"a": _as_dict(old_name, one), "b": _as_dict(new_name, two)}
        show_json({**answer, "change": change(old, new), "diff": line_diff(old, new, old_name, new_name)})
        return
    if old == new:
        say("the same program")
        return
    say("\n".join(folded(tame(change(old, new)), width())) + "\n")
    for line in line_diff(old, new, old_name, new_name).splitlines():
        colour = {"+": "green", "-": "red", "@": "dim"}.get(line[:1])
        say(paint(tame(line), colour) if colour else tame(line))
    if one is not None and two is not None and one.mode == two.mode and one.value and two.value:
        say(f"\nscore {one.value:.4g} -> {two.value:.4g} {one.mode} ({two.value / one.value:.3f}x)")


def _side(name: str, archive: str | None) -> tuple[str, str, Candidate | None]:
    """(name, canonical text, candidate where it is one)."""
    from avo.cli.options import reading
    from avo.files import read_text
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse
    from dsl.printer import print_program

    if name == "-" or Path(name).is_file() or name.endswith(".avo"):
        return name, print_program(parse(read_text(name), name)), None
    with reading(archive) as store:
        found = store.candidate(name)
    try:
        text = print_program(parse(found.text))
    except ProgramError:  # a candidate that does not parse is compared as it was written
        text = found.text
    return found.digest[:8], text, found


def _as_dict(name: str, found: Candidate | None) -> dict[str, Any]:
    from avo.cli.log import summary

    return summary(found) if found is not None else {"path": name}
