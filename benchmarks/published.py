"""Figures that others published, of another chip, beside what was measured here: a section of the results page."""

from __future__ import annotations

import json
from pathlib import Path

RUNNING = ("lazy", "lazy_shared", "lazy@64", "lazy_shared@64", "d256_lazy@256", "direct_n64_lazy@256")
GUESSING = ("spec", "spec_shared", "spec@64", "spec_shared@64", "d256_spec@256", "direct_n64_spec@256")
Rates = dict[str, dict[str, float]]  # workload -> arm -> TFLOP/s


def published(path: Path, rates: Rates, device: str) -> list[str]:
    """Lines of Markdown; [] where there is nothing published or measured. `rates` has the library as `theirs`."""
    if not path.exists():
        return []
    facts = json.loads(path.read_text(encoding="utf-8"))
    found = [x for x in facts["rows"] if x["here"] in rates]
    if not found:
        return []
    heads = (
        "| head dim | | keys | FlashAttention-3, H100, published | cuDNN, H100, published "
        f"| running maximum, {device}, here | speculative, {device}, here | cuDNN, {device}, here |"
    )
    lines = [f"## {facts['title']}", "", f"{facts['what']}. TFLOP/s.", "", heads, "|---|---|---|" + "---:|" * 5]
    for row in found:
        here = rates[row["here"]]
        cells = (
            *(str(row["head_dim"]), "causal" if row["causal"] else "full", str(row["length"])),
            *(str(row["fa3"]), str(row["cudnn"]), _best(here, RUNNING), _best(here, GUESSING)),
            f"{here['theirs']:.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _best(rates: dict[str, float], names: tuple[str, ...]) -> str:
    found = [rates[n] for n in names if n in rates]
    return f"{max(found):.0f}" if found else "-"
