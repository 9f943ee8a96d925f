"""The page of evidence is what the committed data makes, and the candidates of the comparison are what it says."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dsl.parser import parse
from dsl.printer import digest
from evaluators.loading import complete

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_of_knobs_is_what_the_tables_make() -> None:
    maker = script("knob_effects")
    tables = [maker.read_table(p) for p in sorted((ROOT / "benchmarks/data/tables").glob("*.json"))]
    page = (ROOT / "docs/results/knobs.md").read_text(encoding="utf-8")
    assert page == maker.page(tables), "run python benchmarks/knob_effects.py"


def test_the_page_and_its_figure_are_what_the_data_makes() -> None:
    maker = script("evidence_page")
    assert maker.page() == (ROOT / "docs" / "results" / "evidence.md").read_text(encoding="utf-8")
    data = json.loads((ROOT / "benchmarks" / "data" / "search_on_tables.json").read_text(encoding="utf-8"))
    assert maker.figure(data) == maker.FIGURE.read_text(encoding="utf-8")


def test_the_candidates_of_the_comparison_are_distinct_and_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    compare, harness = script("kernelbench_compare"), script("kernelbench_harness")
    monkeypatch.setattr(compare, "VARIANTS", 1)
    wanted = complete(compare.at_4096(compare.EXTENT))
    found = compare.candidates(wanted)
    assert len(found) == len({digest(parse(text)) for text in found}) == 2 * len(compare.BASES)
    source, entry = compare._source(found[0], wanted)
    assert f"def {entry}(a, b)" in source and compile(source + harness.MODEL.format(entry=entry), "m", "exec")
