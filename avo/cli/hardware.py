"""`avo hardware [CHIP]`: the chips that are known, and every figure of one with its source."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsl.hardware import Hardware


def hardware(
    chip: Annotated[str | None, typer.Argument(help="Show all figures of this chip.", metavar="[CHIP]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """List the chips, or every fact about one with where it was published.

    Example: avo hardware b200
    """
    from avo import choosing, plugins
    from avo.cli.console import amount, say, show_json, table, warn

    if chip is not None:
        facts = as_dict(choosing.chip(chip))
        if as_json:
            show_json(facts)
            return
        say(_page(facts))
        return
    chips = plugins.usable("hardware", warn)
    if as_json:
        show_json([as_dict(c) for c in chips])
        return
    rows = []
    for c in chips:
        best = max(c.peak_flops.get("bf16", 0.0), c.peak_flops.get("f16", 0.0))
        speed = [amount(best, "FLOP/s"), amount(c.hbm_bytes_per_s, "B/s")] if c.claims_speed else ["-", "-"]
        rows.append([c.name, c.arch, str(c.sms) if c.claims_speed else "-", *speed, c.title])
    say(table(["chip", "arch", "SMs", "bf16 dense", "memory", "what it is"], rows, right=(2, 3, 4)))


def as_dict(chip: Hardware) -> dict[str, Any]:
    """The chip as JSON: rates per second, sizes in bytes."""
    found: dict[str, Any] = {}
    for f in fields(chip):
        value = getattr(chip, f.name)
        if hasattr(value, "items"):
            value = dict(value)
        elif isinstance(value, (frozenset, tuple)):
            value = sorted(value)
        found[f.name] = value
    return found


def _page(facts: dict[str, Any]) -> str:
    """One chip: a line a fact, each with the number of its source, and the sources below."""
    import textwrap

    from avo.cli.console import table, width

    numbers: dict[str, int] = {}
    rows = []
    for key, value in facts.items():
        if key in ("name", "title", "sources"):
            continue
        source = facts["sources"].get(key, "")
        mark = f"[{numbers.setdefault(source, len(numbers) + 1)}]" if source else ""
        rows += [[name, text, mark if place == 0 else ""] for place, (name, text) in enumerate(_lines(key, value))]
    cited = [
        textwrap.fill(f"[{n}] {text}", width(), subsequent_indent=" " * (len(str(n)) + 3), break_on_hyphens=False)
        for text, n in numbers.items()
    ]
    return "\n".join([f"{facts['name']}: {facts['title']}", "", table(["fact", "value", "source"], rows), "", *cited])


def _lines(key: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [(key if place == 0 else "", f"{k} {v:.5g}") for place, (k, v) in enumerate(value.items())] or [
            (key, "-")
        ]
    if isinstance(value, list):
        return [(key, ", ".join(map(str, value)) or "-")]
    return [(key, f"{value:.6g}" if isinstance(value, float) else str(value))]
