"""The race stops early where it is clear, goes on where it is close, and errs no more often than it says."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from evaluators.racing import Rules, standing, student
from evaluators.timing import NoiseFloor

NOISE = NoiseFloor(deviation=0.004, bias=0.0, pairs=24)


def race(ratio: float, seed: int, rules: Rules, noise: float = 0.004) -> tuple[str, int]:
    rng = np.random.default_rng(seed)
    values: list[float] = []
    while True:
        values.append(math.log(ratio) + rng.normal(0, noise))
        found = standing(values, NOISE, rules)
        if found.outcome != "open":
            return found.outcome, found.pairs


def test_the_stated_error_holds_over_all_looks() -> None:
    rules = Rules(error=0.05)
    outcomes = [race(1.0, seed, rules)[0] for seed in range(2000)]
    wrong = sum(o in ("better", "slower") for o in outcomes) / len(outcomes)
    assert wrong <= 0.05


def test_clear_ones_are_short_and_close_ones_long() -> None:
    rules = Rules()
    slower = [race(1.05, seed, rules) for seed in range(100)]
    assert all(outcome == "slower" for outcome, _ in slower)
    assert np.mean([pairs for _, pairs in slower]) < 1.2
    better = [race(0.95, seed, rules) for seed in range(100)]
    assert all(found == ("better", rules.least) for found in better)
    close = [race(0.997, seed, rules) for seed in range(100)]
    assert np.mean([pairs for _, pairs in close]) > 6
    # What cannot gain anything worth having is not measured to the end.
    hopeless = [race(1.006, seed, rules) for seed in range(100)]
    assert np.mean([pairs for _, pairs in hopeless]) < 7
    assert not any(outcome == "better" for outcome, _ in hopeless)


def test_one_lucky_pair_makes_no_winner() -> None:
    assert standing([-0.05], NOISE, Rules()).outcome == "open"
    assert standing([0.05], NOISE, Rules()).outcome == "slower"


def test_half_of_a_drift_makes_no_loser() -> None:
    quiet = NoiseFloor(deviation=0.0005, bias=0.0, pairs=24)
    assert standing([0.004], quiet, Rules()).outcome == "open"  # AB alone: the second may be later, not slower
    assert standing([0.004, 0.004], quiet, Rules()).outcome == "slower"


def test_nothing_is_decided_without_a_deviation() -> None:
    assert standing([0.5], NoiseFloor(0.0, 0.0, 0), Rules()).outcome == "open"
    assert standing([], NOISE, Rules()).outcome == "open"


@pytest.mark.parametrize(("freedom", "expected"), [(1, 12.706), (2, 4.303), (5, 2.571), (30, 2.042)])
def test_the_quantiles_of_student(freedom: int, expected: float) -> None:
    assert student(0.975, freedom) == pytest.approx(expected, rel=4e-3)
    assert student(0.5, freedom) == pytest.approx(0.0, abs=1e-9)
    assert student(0.975, 10**6) == pytest.approx(NormalDist().inv_cdf(0.975), rel=1e-5)
