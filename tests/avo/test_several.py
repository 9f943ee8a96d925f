"""Several targets on one budget: turns, what ends a run, where the rest goes, limits that hold for all together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archive import open_archive
from archive.records import Spend
from avo.config import RunConfig
from avo.errors import UserMistake
from avo.events import Event, Verdict
from avo.several import Entry, Turn, _budget, _next, configs, evolve, taken_up

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
NAMES = ("softmax", "rmsnorm", "layernorm")


def shared(folder: Path, **more: Any) -> RunConfig:
    given = {"hw": "h200", "evaluator": f"{EXAMPLE / 'evaluator.py'}", "archive": str(folder / "s.db"), "jobs": 1}
    return RunConfig(**(given | {"agent": "random", "steps": 18} | more))


def test_the_next_turn_goes_where_most_is_left_to_gain(tmp_path: Path) -> None:
    a, b, c = (Entry(x) for x in configs(shared(tmp_path), NAMES))
    assert (a.config.steps, a.config.epsilon, a.config.window) == (6, 0.25, 16)
    assert _next([a, b, c], set(NAMES)) is a  # each has a turn first, in the order given
    assert _next([a, b, c], set(NAMES[1:])) is b
    for n, (entry, gap) in enumerate(((a, 1.3), (b, 3.0), (c, 2.0)), 1):
        entry.run, entry.gap = n, gap
    assert _next([a, b, c], ()) is b
    b.stale = 16  # a quarter of log 3 is less than log 2
    assert _next([a, b, c], ()) is c
    c.ended = "epsilon"
    assert _next([a, b, c], ()) is b
    a.ended = b.ended = "window"
    assert _next([a, b, c], ()) is None


def test_limits_hold_for_all_runs_together(tmp_path: Path) -> None:
    limits = shared(tmp_path, max_usd=5.0, max_tokens=1000, max_device_seconds=60.0)
    a, b = (Entry(x) for x in configs(limits, NAMES[:2]))
    a.spend, b.spend = Spend(usd=2.0, tokens_in=300, tokens_out=100, device_s=20.0), Spend(usd=1.0, tokens_in=50)
    a.made, a.wall_s = 6, 30.0
    found = _budget(a, [a, b], limits, 4, 90.0)
    assert (found.steps, found.usd, found.tokens, found.device_s) == (10, 4.0, 950, 60.0)
    assert found.minutes == pytest.approx(2.0) and not found.final


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, list[Entry], list[Turn]]:
    """Eighteen proposals that nothing disturbed, in turns of three."""
    config = shared(tmp_path_factory.mktemp("whole"), epsilon=0.0, window=4)
    turns: list[Turn] = []
    entries = evolve(config, NAMES, turn=3, observe=turns.append)  # type: ignore[arg-type,func-returns-value]
    return config, entries, turns


Whole = tuple[RunConfig, list[Entry], list[Turn]]


def test_runs_take_turns_until_the_budget_of_all_is_spent(whole: Whole) -> None:
    config, entries, turns = whole
    assert [t.entry.config.target for t in turns[:3]] == list(NAMES) and turns[0].left == 18
    assert sum(e.made for e in entries) <= 18 and all(e.made >= 3 for e in entries)
    with open_archive(config.archive, readonly=True) as store:
        for e in entries:
            assert store.run(e.run).target == e.config.target and len(store.candidates(e.run)) == e.made + 1


def facts(entries: list[Entry]) -> list[tuple[Any, ...]]:
    return [(e.run, e.made, e.gap, e.stale, e.ended) for e in entries]


def texts(archive: str) -> list[list[str]]:
    with open_archive(archive, readonly=True) as store:
        return [[c.text for c in store.candidates(run.id)] for run in store.runs()]


@pytest.mark.parametrize("cut", [(2, 1), (4, 2)], ids=str)
def test_what_was_killed_goes_on_as_if_it_had_not_been(tmp_path: Path, whole: Whole, cut: tuple[int, int]) -> None:
    """cut: in which turn, at which of its verdicts."""
    undisturbed, wanted, _ = whole
    config = undisturbed.model_copy(update={"archive": str(tmp_path / "cut.db")})

    def dies(turn: Turn) -> Callable[[Event], None] | None:
        seen: list[Event] = []

        def watch(event: Event) -> None:
            seen.extend([event] if isinstance(event, Verdict) else [])
            if len(seen) == cut[1]:
                raise KeyboardInterrupt

        return watch if turn.number == cut[0] else None

    with pytest.raises(KeyboardInterrupt):
        evolve(config, NAMES, turn=3, observe=dies)
    turns: list[Turn] = []
    with open_archive(config.archive, readonly=True) as store:
        found, group = taken_up(store, None, NAMES, {})
    assert found.steps == 18 and len(group.runs) == min(cut[0], 3)
    again = evolve(found, NAMES, turn=3, observe=turns.append, group=group)  # type: ignore[arg-type,func-returns-value]
    assert facts(again) == facts(wanted) and texts(config.archive) == texts(undisturbed.archive)
    assert turns[0].number == cut[0], "turns that were taken pass in silence"


def test_a_new_budget_of_all_is_over_all_sessions(tmp_path: Path, whole: Whole) -> None:
    undisturbed, wanted, _ = whole
    short = undisturbed.model_copy(update={"archive": str(tmp_path / "short.db"), "steps": 9})
    assert sum(e.made for e in evolve(short, NAMES, turn=3)) == 9
    with open_archive(short.archive, readonly=True) as store:
        found, group = taken_up(store, 2, [*reversed(NAMES)], {"steps": 18})
        for run, names, message in (
            (None, NAMES[:2], r"no run that was begun with --targets softmax,rmsnorm; there are those of softmax,rms"),
            (7, NAMES, "has run 7, but not one that was begun with"),
        ):
            with pytest.raises(UserMistake, match=message):
                taken_up(store, run, names, {})
    assert facts(evolve(found, NAMES, turn=3, group=group)) == facts(wanted)
    assert texts(short.archive) == texts(undisturbed.archive)


def test_on_the_command_line(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["--hw", "h200", "--evaluator", EXAMPLE / "evaluator.py", "--agent", "random", "--jobs", 1]
    done = cli("evolve", "--targets", "softmax,rmsnorm", *line, "--steps", 8, "--epsilon", 0, "--window", 0)
    assert done.code == 0, done.err
    for word in ("turn 1: softmax, 4 proposals, 8 left", "turn 2: rmsnorm, 4 proposals, 4 left", "over ceiling"):
        assert word in done.out, done.out
    assert "avo evolve --targets softmax,rmsnorm --resume --steps N with all" in done.out
    more = cli("evolve", "--targets", "softmax,rmsnorm", "--resume", "--steps", 12)
    assert more.code == 0 and "runs 1, 2 go on" in more.out, more.err
    assert "turn 1: softmax, 6 proposals, 12 left\n" in more.out, "its share of the larger budget is finished first"
    with open_archive("avo.db", readonly=True) as store:
        assert len(store.runs()) == 2 and sum(len(store.candidates(run)) - 1 for run in (1, 2)) == 12
    assert cli("evolve", "--resume", 2, "--steps", 9).code == 0
    for given, message in (
        (["--targets", "softmax"], "two or more different targets"),
        (["--targets", "softmax,softmax"], "two or more different targets"),
        (["--targets", "softmax,nosuch"], "nosuch"),
        (["--targets", "softmax,rmsnorm", "--target", "gemm"], "--target belongs to one run"),
        (["--targets", "softmax,rmsnorm", "--resume"], "cannot change it"),
    ):
        answer = cli("evolve", *given, *line)
        assert answer.code == 2 and message in answer.err, answer.err
