"""What `benchmarks/champions.py` would measure on a card: a plan's programs are legal, and tables are read right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluators.benchmark_result import Arm, Benchmark, Outcome, Row
from evaluators.timing import Measurement, Regime, Sample, palindrome

ROOT = Path(__file__).resolve().parents[2]
PLANS = ("again", "rest", "more")


@pytest.fixture(scope="module")
def benchmarks() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.parametrize("plan", PLANS)
def test_every_table_of_a_plan_has_legal_programs_and_libraries_that_are_known(benchmarks: None, plan: str) -> None:
    import champions  # type: ignore[import-not-found]

    for step in champions.PLANS[plan]:
        job = champions.job_of(step)
        names = [e.arm.name for e in champions.entries_of(step, job, "h200")]
        assert job.workloads and set(step.only) <= set(names), f"{step} has no such library"
        assert set(step.pick) <= set(names) and len(names) > len(step.only), f"{step} has no such candidate"
        assert not set(step.leave) & set(names)


def test_a_candidate_may_be_a_whole_program(benchmarks: None) -> None:
    import champions

    step = next(s for s in champions.PLANS["again"] if (s.target, s.chosen) == ("matmul", "tall"))
    found = {e.arm.name: e.arm.program or "" for e in champions.entries_of(step, champions.job_of(step), "h200")}
    assert "axis kb = k // 8192" in found["blocks"] and "axis kb" not in found["roles"]


def test_packages_that_are_tried_on_a_device_are_of_programs_that_are_there(benchmarks: None) -> None:
    import export_on_device  # type: ignore[import-not-found]
    import host_cost  # type: ignore[import-not-found]

    from avo.exporting import exported
    from dsl.parser import parse

    for name, table in export_on_device.PACKAGES.items():
        words = export_on_device.words(name)
        programs = [word for word in words if word.endswith(".avo")]
        assert programs and all(Path(word).is_file() for word in programs)
        if table:
            package, variants = exported(programs, bench=Path(words[-1]))
            assert package.files and len(variants) == len(programs) and all(v.mode == "measured" for v in variants)
    for name, (target, _) in host_cost.PACKAGES.items():
        assert parse(host_cost.program_text(name)).algorithm.name == target


def test_what_plain_schedules_reach_is_told_apart_from_what_those_with_roles_do(benchmarks: None) -> None:
    from results_missing import _of_goals  # type: ignore[import-not-found]
    from results_tables import over_plain  # type: ignore[import-not-found]

    item: dict[str, Any] = {"set": "public", "benchmark": table().model_dump(mode="json")}
    assert over_plain(table()).value == pytest.approx(1.25)  # 1 / 0.8
    assert over_plain(table(), roles=False).value == pytest.approx(1 / 1.25)  # "plain lazy" is the better setting
    (said,) = _of_goals([item], "attention", "public")
    assert "without roles" in said and "0.800 [0.800, 0.800]" in said and "with roles 1.250" in said


def table() -> Benchmark:
    """Attention at two sizes: seconds of each arm, the same in every round."""
    seconds = {"lean": 1.25, "roles": 0.8, "plain Triton": 1.5, "plain lazy": 1.0}
    samples = [
        Sample(arm=place, seconds=list(seconds.values())[place], calls=9, wall_s=1.0)
        for _ in range(2)
        for place in palindrome(len(seconds))
    ]
    measured = Measurement(names=tuple(seconds), samples=tuple(samples), regime=Regime())
    row = Row(
        workload="b=1,causal=0",
        work=1.0,
        floor_s=0.5,
        bottleneck="matrix units",
        ceiling_s=None,
        best_baseline="plain lazy",
        outcomes=tuple(Outcome(arm=name, seconds=s, rate=1 / s) for name, s in seconds.items()),
        measurement=measured,
    )
    arms = (
        Arm(name="lean", kind="program", program="schedule\nwarps 4\n"),
        Arm(name="roles", kind="program", program="schedule\nroles load=1 mma=2\n"),
        *(Arm(name=name, kind="baseline") for name in ("plain Triton", "plain lazy")),
    )
    rows = (row, row.model_copy(update={"workload": "b=1,causal=1"}))
    return Benchmark(
        target="attention", hardware="h200", unit="TFLOP/s", date="2026-11-30", device={}, versions={},
        regime=Regime(), rounds=2, ceilings={}, arms=arms, rows=rows,
    )  # fmt: skip
