"""The page of `avo export` says what was measured."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("before: function", "function", "64 sets of tensors", "loaded", "launch alone", "the library's")


def test_what_a_call_costs_is_what_was_measured():
    measured = json.loads((ROOT / "benchmarks" / "data" / "host_cost_h200.json").read_text())
    page = (ROOT / "docs" / "export.md").read_text()
    section = page[page.index("## What a call costs the host") : page.index("## Gradients")]
    told = {}
    for target, kind, cells in re.findall(r"^\| `(\w+)`(?:, (\w+))? \| (.*) \|$", section, re.M):
        told["_".join(x for x in (target, kind) if x)] = [c.strip() for c in cells.split("|")]
    assert measured["on"] == "NVIDIA H200" and list(told) == list(measured["us"])
    for name, cells in told.items():
        found = measured["us"][name]
        assert found["remembered"] == found["same_bits"] == 1
        for cell, layer in zip(cells, LAYERS, strict=True):
            assert (cell == "") == (layer not in found), (name, layer)
            assert not cell or abs(float(cell) - found[layer]) < 0.0501, (name, layer)
