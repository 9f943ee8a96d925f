"""`avo knobs FILE --hw X`: every decision that a program leaves open on a chip, and its legal values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsl.knobs import Knob


def knobs(
    file: Annotated[str, typer.Argument(help="The program; - reads standard input.", metavar="FILE")],
    hw: Annotated[str, typer.Option(help="The chip whose legal values count.", metavar="CHIP")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the knobs as JSON.")] = False,
) -> None:
    """List the knobs of a program: what each is set to and what it may be on this chip.

    Example: avo knobs attention.avo --hw b200
    """
    from avo import plugins
    from avo.cli.console import say, show_json, table
    from avo.files import read_program
    from dsl.check import errors
    from dsl.diagnostics import ProgramError
    from dsl.knobs import knobs as open_decisions

    chip = plugins.load("hardware", hw)
    text, program = read_program(file)
    if wrong := errors(program, chip):
        raise ProgramError(wrong, text, file)
    found = [as_dict(k) for k in open_decisions(program, chip)]
    if as_json:
        show_json(found)
        return
    rows = [[k["name"], str(k["value"]), " ".join(map(str, k["legal"]))] for k in found]
    if not rows:
        say("this program leaves nothing open")
        return
    say(table(["knob", "now", "legal"], rows))
    say("")
    meanings = dict.fromkeys((f"{k['directive']} {_key(k)}".strip(), k["doc"]) for k in found)
    say(table(["knob", "what it decides"], [list(m) for m in meanings]))


def _key(knob: dict[str, Any]) -> str:
    """Tiles of all axes are one thing to explain."""
    return "" if knob["directive"] == "tile" else str(knob["key"])


def as_dict(knob: Knob) -> dict[str, Any]:
    """One knob in JSON. `chips`: those of the `for` line that decides it here; empty for a common line."""
    named = {"name": knob.name, "kernel": knob.kernel, "directive": knob.directive, "key": knob.key}
    legal, chips = list(knob.legal), list(knob.chips)
    return {**named, "value": knob.value, "legal": legal, "number": knob.number, "chips": chips, "doc": knob.doc}
