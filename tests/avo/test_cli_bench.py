"""`avo bench` on a machine without a GPU; its figures, page and exit code from samples that are made up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import typer

from avo.benchmark_page import markdown, summary
from avo.cli.bench import _leave, page
from evaluators.benchmark_result import Arm, Benchmark, Interval, Outcome, Row, mean_of
from evaluators.timing import Measurement, Regime, Sample

QUICK = Regime(untimed_s=0.0, timed_s=1e-3)


def made(seconds: dict[str, float], best: str, wrong: str = "") -> Row:
    names = tuple(seconds)
    samples = [Sample(arm=i, seconds=s, calls=9, wall_s=s) for i, s in enumerate(seconds.values())]
    both = tuple((samples + samples[::-1]) * 2)
    measurement = Measurement(names=names, samples=both, regime=QUICK)
    outcomes = tuple(
        Outcome(arm=n, seconds=s, rate=1 / s, of_floor=0.1 / s, reason="wrong answer" if n == wrong else "")
        for n, s in seconds.items()
    )
    return Row(
        workload=f"n={len(names)},s={sum(seconds.values()):g}",
        work=1e12,
        floor_s=0.1,
        bottleneck="memory",
        ceiling_s=None,
        best_baseline=best,
        outcomes=outcomes,
        measurement=measurement,
    )


def table(*rows: Row) -> Benchmark:
    arms = [Arm(name="one", kind="program"), Arm(name="two", kind="program"), Arm(name="lib", kind="baseline")]
    facts = {"flops": {}, "bytes_per_s": 1e12}
    return Benchmark(
        target="matmul", hardware="h200", unit="TFLOP/s", date="2026-01-01", device={"name": "x"}, versions={},
        regime=QUICK, rounds=2, ceilings=facts, arms=tuple(arms), rows=rows,
    )  # fmt: skip


def test_the_best_program_of_each_workload_makes_the_dispatch() -> None:
    found = table(made({"one": 1.0, "two": 2.0, "lib": 2.0}, "lib"), made({"one": 4.0, "two": 1.0, "lib": 2.0}, "lib"))
    assert [o.arm for _, o in found.best_programs()] == ["one", "two"]
    speed = found.dispatched()
    assert speed is not None and math.isclose(speed.value, 2.0)
    one = found.speed("one")
    assert one is not None and math.isclose(one.value, 1.0)
    assert [r[0] for r in summary(found)] == ["one", "two", "lib", "best of each workload"]


def test_a_wrong_program_is_never_dispatched_to_and_half_a_table_has_no_mean() -> None:
    bad = made({"one": 1.0, "two": 2.0, "lib": 2.0}, "lib", wrong="one")
    assert [o.arm for _, o in table(bad).best_programs()] == ["two"]
    alone = made({"one": 1.0, "lib": 2.0}, "lib", wrong="one")
    assert table(bad, alone).dispatched() is None


def test_intervals_of_independent_workloads_shrink_by_their_squares() -> None:
    one = Interval(value=1.0, low=math.exp(-0.02), high=math.exp(0.02))
    both = mean_of([one] * 4)
    assert both is not None and math.isclose(math.log(both.high), 0.01) and math.isclose(math.log(both.low), -0.01)
    assert mean_of([]) is None


def test_without_a_gpu_it_says_so_and_what_works(cli: Callable[..., Any]) -> None:
    answer = cli("bench", "--target", "attention", "--hw", "h200")
    assert answer.code == 3 and answer.out == ""
    assert "no h200 is here, so nothing can be measured. `avo eval` and `avo evolve` predict times" in answer.err


def finished() -> Benchmark:
    return table(made({"one": 1.0, "two": 2.0, "lib": 2.0}, "lib"), made({"one": 4.0, "two": 1.0, "lib": 2.0}, "lib"))


def test_the_page_names_regime_arms_and_means() -> None:
    said = page(finished())
    assert "matmul on h200, measured, TFLOP/s" in said and "best of each workload" in said
    assert "A  one" in said and "2.000 [2.000, 2.000]" in said and "2 rounds" in said


def test_the_page_says_how_calls_were_launched_and_what_is_launch_bound() -> None:
    def so(row: Row, **how: Any) -> Row:
        assert row.measurement is not None
        return row.model_copy(update={"measurement": row.measurement.model_copy(update=how)})

    one, two = finished().rows
    graphed, bound = so(one, graphs=True), so(two, launch_bound="launch-bound: one (9 us a call) is launched by ...")
    assert "calls launched one by one" in markdown(table(one, two))
    assert "cold L2, calls launched from graphs." in markdown(table(graphed, graphed))
    found = markdown(table(graphed, bound))
    assert "calls launched from graphs at 1 size of 2." in found
    assert f"- launch-bound: one (9 us a call) is launched by ... ({two.workload})" in found
    assert "launched from graphs at 1 size of 2" in page(table(graphed, bound))


def test_fail_below_looks_at_the_upper_end_of_the_interval() -> None:
    _leave(finished(), 1.9, None)
    with pytest.raises(typer.Exit) as left:
        _leave(finished(), 2.1, None)
    assert left.value.exit_code == 1
    with pytest.raises(typer.Exit):
        _leave(table(made({"one": 1.0, "lib": 2.0}, "lib", wrong="one")), None, None)
