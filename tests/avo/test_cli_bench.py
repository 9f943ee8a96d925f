"""`avo bench` on a machine without a GPU; its figures, page and exit code from samples that are made up."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from avo.benchmark_page import markdown, summary
from avo.candidates import Named
from avo.cli.bench import _entries, _leave, page
from dsl.hardware import hardware
from dsl.parser import parse
from evaluators import device
from evaluators.benchmark_result import Arm, Benchmark, Interval, Outcome, Row, mean_of
from evaluators.device import DeviceFacts
from evaluators.targets import target
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


SOFTMAX = target("softmax").seed


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--target", "sofmax"], 2, "did you mean 'softmax'?"),
        (["no.avo", "--target", "softmax"], 2, "no such file: no.avo"),
        (["x.avo", "--target", "softmax", "--workload", "nosuch"], 2, "unknown set of workloads of softmax 'nosuch'"),
        (["x.avo", "--target", "softmax", "--baseline", "torch.softmax"], 2, "--baseline wants module:FUNCTION"),
        (["x.avo", "--target", "softmax", "--fail-below", "nan"], 2, "a ratio of speeds above 0, as 0.97; got nan"),
        (["x.avo", "--target", "softmax", "--fail-below", "-1"], 2, "a ratio of speeds above 0, as 0.97; got -1"),
        (["--target", "softmax", "--fail-below", "0.9"], 2, "--fail-below judges programs: name one"),
        (["x.avo", "--target", "softmax", "-o", "old"], 2, "old.json is there already"),
        (["x.avo", "--target", "softmax", "--against", "cuDNN", "--hw", "h200"], 2, "--against cuDNN: no such arm"),
        (["x.avo", "--target", "rmsnorm", "--hw", "h200"], 1, "error[locked-interface]"),
        (
            ["x.avo", "--target", "softmax", "--hw", "h200"],
            3,
            "no h200 is here, so nothing can be measured. `avo eval`",
        ),
        (["x.avo", "--target", "softmax"], 3, "no GPU was found here"),
    ],
)
def test_mistakes_are_told_on_a_machine_without_the_chip_too(
    cli: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.avo").write_text(SOFTMAX)
    (tmp_path / "old.json").write_text("{}")
    answer = cli("bench", *arguments)
    assert answer.code == code and said in answer.err, answer.err


def test_another_chip_is_no_reason_to_name_options_that_the_verb_lacks(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = DeviceFacts(name="NVIDIA H200", uuid="GPU-x")
    monkeypatch.setattr(device, "local_devices", lambda: [card])
    answer = cli("bench", "--target", "softmax", "--hw", "b200")
    assert answer.code == 3 and "not b200: measure here with --hw h200. `avo eval`" in answer.err
    assert "--evaluator" not in answer.err


def test_a_file_called_like_another_arm_is_an_arm_of_its_own() -> None:
    job = target("softmax")
    named = [Named("seed", SOFTMAX, parse(SOFTMAX)), Named("eager", SOFTMAX, parse(SOFTMAX))]
    arms = [e.arm for e in _entries(job, hardware("h200"), named, [], [])]
    assert [a.name for a in arms[:4]] == ["seed (1)", "eager (2)", "seed", "eager"]
    assert len({a.name for a in arms}) == len(arms)


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


def test_fail_below_holds_what_was_named_against_what_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a fast seed nor a baseline that gives a wrong answer makes a slow program good enough."""
    row = made({"one": 4.0, "seed": 1.0, "lib": 2.0, "own.py:f": 9.0}, "lib", wrong="own.py:f")
    arms = [
        Arm(name="one", kind="program"), Arm(name="seed", kind="program"), Arm(name="lib", kind="baseline"),
    ]  # fmt: skip
    plain = table(row).model_copy(update={"arms": tuple(arms)})
    assert plain.dispatched() == Interval(value=2.0, low=2.0, high=2.0)
    assert plain.dispatched(among=["one"]) == Interval(value=0.5, low=0.5, high=0.5)
    _leave(plain, 0.4, None)
    with pytest.raises(typer.Exit):
        _leave(plain, 0.9, None)
    assert "--fail-below 0.9: 0.500 [0.500, 0.500] is below it" in capsys.readouterr().err
    assert plain.speed("one", "own.py:f") is None and plain.speed("one", "lib") == plain.dispatched(among=["one"])
    with pytest.raises(typer.Exit):
        _leave(plain, 0.4, "own.py:f")
    assert "no right program or no right baseline" in capsys.readouterr().err
    mine = plain.model_copy(update={"arms": (*arms, Arm(name="own.py:f", kind="function"))})
    with pytest.raises(typer.Exit):
        _leave(mine, 0.4, None)
    assert "nothing can be said beside your own.py:f: wrong answer" in capsys.readouterr().err
