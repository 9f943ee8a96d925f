"""Callables against each other: turns, figures, raw samples; on the CPU, where nothing is to be heated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evaluators import sustained
from evaluators.sustained import Arm, Load, measure, rotation
from evaluators.timing import Measurement, Regime, palindrome, rounds_paired

SHORT = Regime(name="test", untimed_s=0.0, timed_s=1e-3, rounds=3)


class Clock:
    """A time that only passes where somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter

    def passes(self, seconds: float) -> Callable[[int], None]:
        def call(place: int) -> None:
            self.now += seconds

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(sustained, "time", found)
    return found


def test_arms_take_turns_and_the_ratio_is_that_of_their_times(clock: Clock) -> None:
    arms = {"one": clock.passes(2e-4), "two": clock.passes(4e-4), "three": clock.passes(3e-4)}
    found = measure(arms, regime=SHORT)
    rounds = [[s.arm for s in found.samples[i : i + 6]] for i in (0, 6, 12)]
    assert all(r == r[::-1] and set(r) == {0, 1, 2} for r in rounds), "each round is a palindrome"
    assert len({tuple(r) for r in rounds}) > 1, "nobody has the same neighbours in all of them"
    assert found.ratio("one", over="one").value == 1.0
    ratio = found.ratio("one", over="two")
    assert ratio.value == pytest.approx(0.5) and ratio.low == pytest.approx(ratio.high)
    assert found.seconds("three") == pytest.approx(3e-4)
    assert [s.calls for s in found.of("one")] == [5] * 6  # a millisecond of each
    assert found.trouble is None and found.heat is None and not found.graphs
    assert Measurement.model_validate_json(found.model_dump_json()) == found


def test_two_arms_run_abba(clock: Clock) -> None:
    found = measure({"one": clock.passes(2e-4), "two": clock.passes(4e-4)}, regime=SHORT)
    assert [s.arm for s in found.samples] == [0, 1, 1, 0] * 3


def test_calls_go_round_the_sets_of_inputs() -> None:
    places: list[int] = []
    arm = Arm("x", places.append, sets=3, known_s=1e-4)
    arm.settle()
    arm.segment(0.0, 7e-4)
    assert places[:7] == [0, 1, 2, 0, 1, 2, 0]
    assert rotation(1 << 30) == 2


def test_a_round_of_arms_cancels_a_drift(clock: Clock) -> None:
    assert palindrome(2) == [0, 1, 1, 0] and palindrome(1) == [0]
    samples = measure({"a": clock.passes(1e-3), "b": clock.passes(1e-3)}, regime=SHORT).samples
    drifting = [s.model_copy(update={"seconds": 1.01**n}) for n, s in enumerate(samples)]
    assert rounds_paired(drifting, 0, 1, 2) == pytest.approx([0.0] * 3, abs=1e-12)


def test_nothing_is_no_measurement_and_errors_pass_through() -> None:
    with pytest.raises(ValueError, match="nothing to measure"):
        measure({})
    with pytest.raises(ZeroDivisionError):
        measure({"a": lambda i: 1 / 0}, regime=SHORT)


def test_a_load_without_a_device_does_nothing() -> None:
    load = Load()
    load.resume()
    load.pause()
    assert load.heat() is None and load.busy_s == 0.0


@pytest.mark.parametrize(("late", "asked"), [(0, 1), (1, 2), (2, 3), (9, 3)])
def test_a_segment_whose_clocks_differ_is_timed_again(late: int, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that was kept from looking looks late once or twice; work beside the timed stream does so each time."""
    answers = [(1e-3, 2e-3)] * late + [(1e-3, 1.1e-3)] * 9
    calls: list[int] = []
    monkeypatch.setattr(sustained, "clocked", lambda *rest: calls.append(1) or answers[len(calls) - 1])
    found = sustained.agreed(lambda: None, 4)
    assert len(calls) == asked and found == ((1e-3, 2e-3) if late > 2 else (1e-3, 1.1e-3))
