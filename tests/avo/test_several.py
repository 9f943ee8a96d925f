"""Several targets on one budget: turns, what ends a run, where the rest goes, limits that hold for all together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archive import open_archive
from archive.records import Spend
from avo.config import RunConfig
from avo.several import Entry, Turn, _budget, _next, configs, evolve

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
NAMES = ("softmax", "rmsnorm", "layernorm")


def shared(tmp_path: Path, **more: Any) -> RunConfig:
    given = {"hw": "h200", "evaluator": f"{EXAMPLE / 'evaluator.py'}", "archive": str(tmp_path / "s.db"), "jobs": 1}
    return RunConfig(**(given | {"agent": "random", "steps": 18} | more))


def test_the_next_turn_goes_where_most_is_left_to_gain(tmp_path: Path) -> None:
    a, b, c = (Entry(x) for x in configs(shared(tmp_path), NAMES))
    assert (a.config.steps, a.config.epsilon, a.config.window) == (6, 0.25, 16)
    assert _next([a, b, c]) is a  # each has a turn first, in the order given
    for n, (entry, gap) in enumerate(((a, 1.3), (b, 3.0), (c, 2.0)), 1):
        entry.run, entry.gap = n, gap
    assert _next([a, b, c]) is b
    b.stale = 16  # a quarter of log 3 is less than log 2
    assert _next([a, b, c]) is c
    c.ended = "epsilon"
    assert _next([a, b, c]) is b
    a.ended = b.ended = "window"
    assert _next([a, b, c]) is None


def test_limits_hold_for_all_runs_together(tmp_path: Path) -> None:
    limits = shared(tmp_path, max_usd=5.0, max_tokens=1000, max_device_seconds=60.0)
    a, b = (Entry(x) for x in configs(limits, NAMES[:2]))
    a.spend, b.spend = Spend(usd=2.0, tokens_in=300, tokens_out=100, device_s=20.0), Spend(usd=1.0, tokens_in=50)
    a.made, a.wall_s = 6, 30.0
    found = _budget(a, [a, b], limits, 4, 90.0)
    assert (found.steps, found.usd, found.tokens, found.device_s) == (10, 4.0, 950, 60.0)
    assert found.minutes == pytest.approx(2.0) and not found.final


def test_runs_take_turns_until_the_budget_of_all_is_spent(tmp_path: Path) -> None:
    config = shared(tmp_path, epsilon=0.0, window=4)
    turns: list[Turn] = []
    entries = evolve(config, NAMES, turn=3, observe=turns.append)  # type: ignore[arg-type,func-returns-value]
    assert [t.entry.config.target for t in turns[:3]] == list(NAMES) and turns[0].left == 18
    assert sum(e.made for e in entries) <= 18 and all(e.made >= 3 for e in entries)
    with open_archive(config.archive, readonly=True) as store:
        for e in entries:
            assert store.run(e.run).target == e.config.target and len(store.candidates(e.run)) == e.made + 1
    again = evolve(config.model_copy(update={"archive": str(tmp_path / "b.db")}), NAMES, turn=3)
    assert [(e.run, e.made, e.gap, e.stale, e.ended) for e in again] == [
        (e.run, e.made, e.gap, e.stale, e.ended) for e in entries
    ]


def test_on_the_command_line(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["--hw", "h200", "--evaluator", EXAMPLE / "evaluator.py", "--agent", "random", "--jobs", 1]
    done = cli("evolve", "--targets", "softmax,rmsnorm", *line, "--steps", 8, "--epsilon", 0, "--window", 0)
    assert done.code == 0, done.err
    for word in ("turn 1: softmax, 4 proposals, 8 left", "turn 2: rmsnorm, 4 proposals, 4 left", "over ceiling"):
        assert word in done.out, done.out
    assert cli("evolve", "--resume", 2, "--steps", 4).code == 0
    for given, message in (
        (["--targets", "softmax"], "two or more different targets"),
        (["--targets", "softmax,softmax"], "two or more different targets"),
        (["--targets", "softmax,nosuch"], "nosuch"),
        (["--targets", "softmax,rmsnorm", "--target", "gemm"], "--target belongs to one run"),
    ):
        answer = cli("evolve", *given, *line)
        assert answer.code == 2 and message in answer.err, answer.err
