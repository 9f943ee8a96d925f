"""The committed results: the page is what the data makes, champions are legal programs, and they can be shipped."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from avo.exporting import exported
from dsl.check import check
from dsl.hardware import hardware
from dsl.parser import parse
from dsl.printer import digest

ROOT = Path(__file__).resolve().parents[2]
CHAMPIONS = sorted((ROOT / "configs" / "champions" / "h200").glob("*.avo"))


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results_page", ROOT / "benchmarks" / "results_page.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_the_champions_are_what_the_data_makes(maker: Any, tmp_path: Path) -> None:
    items = maker.tables("h200")
    kept = maker.champions(items, tmp_path)
    assert maker.page("h200", items, kept) == (ROOT / "docs" / "results" / "h200.md").read_text(encoding="utf-8")
    here = {p.name: p.read_text() for p in tmp_path.iterdir()}
    assert here == {p.name: p.read_text() for p in (ROOT / "configs" / "champions" / "h200").iterdir()}


def test_the_page_on_roles_has_the_claims_of_the_run(maker: Any) -> None:
    from one_run import claims, read  # beside results_page.py

    assert "\n".join(claims(read())) in (ROOT / "docs" / "gluon.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", CHAMPIONS, ids=lambda p: p.stem)
def test_a_champion_is_a_legal_program_with_measurements_that_name_their_regime(path: Path) -> None:
    program = parse(path.read_text())
    assert not [d for d in check(program, hardware("h200")) if d.severity == "error"]
    facts = json.loads(path.with_suffix(".json").read_text())
    assert facts["digest"] == digest(program) and facts["mode"] == "measured"
    assert facts["regime"]["name"] == "sustained" and facts["versions"]["triton"] and facts["device"]["name"]
    assert facts["workloads"] and all(w["seconds"] for w in facts["workloads"])
    assert "no samples" in facts.get("kept", "") or all(w["samples_s"] for w in facts["workloads"])


def test_champions_are_exported_with_their_measured_sizes() -> None:
    mine = [str(p) for p in CHAMPIONS if p.stem.startswith("matmul_public") and "_m4096_" not in p.stem]
    package, variants = exported(mine, bench=ROOT / "benchmarks/data/bench/h200/matmul_public.json")
    assert len(mine) == len(variants) >= 1 and all(v.mode == "measured" for v in variants)
    assert "measured" in package.files["README.md"] and "predicted" not in package.files["README.md"]
    facts: dict[str, Any] = {}
    exec(package.files["matmul_h200/facts.py"], facts)
    assert {row["kernel"] for row in facts["TABLE"]} == set(range(len(mine))) and len(facts["TABLE"]) == 4


def test_a_run_tells_its_pace_and_what_its_promotion_may_owe_to_launches(maker: Any) -> None:
    told = {line.partition(" (")[0].removeprefix("- "): line for line in maker.runs()}
    tall = told["h200_matmul_tall_2026_11_30"]
    assert "`in  a[m k] bf16" in tall and "axis kb = k // 8192" in tall
    assert "55 candidates a minute, the device 98% busy (it printed 52 candidates a minute" in tall
    assert "promoted at 5.353 [5.340, 5.366]" in tall and "launch-bound: m=512,n=512,k=65536 (94.4 us)" in tall
    assert "launch-bound" not in told["h200_attention_d256_2026_11_30"]  # 0.66 ms and longer
    assert "promoted" not in told["h200_attention_2026_11"]


def test_goals_are_told_of_searches_first_and_of_a_copy_that_was_a_limit(maker: Any) -> None:
    import results_goals
    import results_tables

    from evaluators.benchmark_result import Benchmark

    items = {maker.named(item): item for item in maker.tables("h200")}
    told = results_goals.goals(list(items.values()))
    row = next(line for line in told if line.startswith("| softmax | public | 0.90 of a copy"))
    assert "0.923 [0.920, 0.924]: reached (softmax_search)" in row and row.endswith("| **yes** |")
    row = next(line for line in told if line.startswith("| matmul | decode"))
    assert "1.047 [1.044, 1.052]: reached (matmul_search_decode)" in row and row.endswith("| **yes** |")

    found = Benchmark.model_validate(items["rmsnorm_search"]["benchmark"])
    beside = [r.speed(o.arm, "copy") for r, o in found.best_programs()]
    mean = 1.0
    for one in beside:
        mean *= one.value ** (1 / len(beside)) if one else 0
    over = results_tables.over_copy(found)
    assert over and over.value == pytest.approx(mean) == pytest.approx(0.973, abs=5e-4) and over.low < 0.973 < over.high
    arms = tuple(a.model_copy(update={"about": "a memcpy"}) if a.name == "copy" else a for a in found.arms)
    slow = found.model_copy(update={"arms": arms})
    assert results_tables.over_copy(slow) is None and results_tables.standing(slow, "copy", 0.9) == (
        f"0.953 ({results_tables.CEILING})",
        "reached",
    )
    assert results_tables.standing(found, "copy", 0.972)[1] == "reached, the interval holds less"
    assert results_tables.standing(found, "copy", 0.98)[1] == "missed"
    short = found.model_copy(update={"rows": found.rows[:-1]})
    cut = dict(items["rmsnorm_search"], benchmark=short.model_dump(mode="json"))
    wanted = results_tables.GOALS["rmsnorm", "public"]
    assert results_goals.verdicts(cut, short, wanted) == ["not decided", "not decided"]


@pytest.mark.parametrize(
    ("search", "by_hand", "stands"),
    [
        ("reached", "missed", "**yes**"),
        ("reached, the interval holds less", "missed", "**yes**, the interval holds less"),
        ("missed", "reached", "by hand alone; by search missed"),
        ("not measured", "reached", "by hand alone; by search not measured"),
        ("not measured", "missed", "**no**"),
        ("missed", "not decided", "**no**"),
        ("not measured", "not measured", "not measured"),
        ("not measured", "not decided", "not decided"),
    ],
)
def test_what_stands_is_what_a_search_reached(maker: Any, search: str, by_hand: str, stands: str) -> None:
    import results_goals

    assert results_goals._stands(search, by_hand) == stands
