"""`avo knobs FILE --hw X`: every decision that a program leaves open on a chip, and its legal values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import SizesOption

if TYPE_CHECKING:
    from dsl.knobs import Knob


def knobs(
    file: Annotated[str, typer.Argument(help="The program; - reads standard input.", metavar="FILE")],
    hw: Annotated[
        str, typer.Option(help="The chip whose legal values count; auto: the one that is here.", metavar="CHIP")
    ],
    target: Annotated[
        str | None, typer.Option(help="Leave out what does not fit at this target's sizes.", metavar="TARGET")
    ] = None,
    workload: SizesOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the knobs as JSON.")] = False,
) -> None:
    """List the knobs of a program: what each is set to and what it may be on this chip.

    What fits a chip's memory depends on sizes: without them nothing is left out that some size has room for.

    Example: avo knobs attention.avo --hw b200 --target attention
    """
    from avo import choosing
    from avo.cli.console import say, show_json, table
    from avo.cli.lower import all_sizes
    from avo.files import read_program
    from dsl.check import errors
    from dsl.diagnostics import ProgramError
    from dsl.knobs import knobs as open_decisions

    chip = choosing.chip(hw)
    text, program = read_program(file)
    sizes: list[Any] = [w.sizes for w in all_sizes(program, target, workload)] or [None]
    if wrong := list(dict.fromkeys(d for s in sizes for d in errors(program, chip, s))):
        raise ProgramError(wrong, text, file)
    found = [as_dict(k) for k in _at_all(open_decisions(program, chip, s) for s in sizes)]
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


def _at_all(found: Iterable[Sequence[Knob]]) -> list[Knob]:
    """The knobs with the values that are legal at all sizes."""
    first, *others = ({k.name: k for k in knobs} for knobs in found)
    legal = {n: tuple(v for v in k.legal if all(n in o and v in o[n].legal for o in others)) for n, k in first.items()}
    return [replace(k, legal=legal[n]) for n, k in first.items() if len(legal[n]) > 1]


def _key(knob: dict[str, Any]) -> str:
    """Tiles of all axes are one thing to explain."""
    return "" if knob["directive"] == "tile" else str(knob["key"])


def as_dict(knob: Knob) -> dict[str, Any]:
    """One knob in JSON. `chips`: those of the `for` line that decides it here; empty for a common line."""
    named = {"name": knob.name, "kernel": knob.kernel, "directive": knob.directive, "key": knob.key}
    legal, chips = list(knob.legal), list(knob.chips)
    return {**named, "value": knob.value, "legal": legal, "number": knob.number, "chips": chips, "doc": knob.doc}
