"""Samples become figures: drift cancels in pairs, intervals hold what they say, two clocks must agree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evaluators.timing import Ratio, Sample, bootstrap, in_pairs, median, noise_floor, paired, suspicious


class Card:
    """A simulated card: `seconds` of each arm, a clock that drifts and noise."""

    def __init__(
        self, seconds: tuple[float, float], *, noise: float = 0.003, drift: float = 0.0, seed: int = 0
    ) -> None:
        self._seconds, self._noise, self._drift = seconds, noise, drift
        self._rng = np.random.default_rng(seed)
        self._segments = 0

    def run(self, order: str) -> list[Sample]:
        found = []
        for letter in order:
            arm = "AB".index(letter)
            self._segments += 1
            seconds = self._seconds[arm] * math.exp(self._rng.normal(0, self._noise) + self._drift * self._segments)
            found.append(Sample(arm=arm, seconds=seconds, calls=10, wall_s=seconds * 1.01))
        return found


def test_a_steady_drift_cancels_within_a_block() -> None:
    logs = paired(Card((1.0, 1.0), noise=0.0, drift=0.01).run("ABBA" * 5))
    assert logs == pytest.approx([0.0] * 5, abs=1e-12)


def test_an_incomplete_block_is_left_out() -> None:
    assert len(paired(Card((1.0, 1.0)).run("ABBAAB"))) == 1


def test_pairs_are_the_quickest_answer_and_two_of_them_a_block() -> None:
    drifting = Card((1.1, 1.0), noise=0.0, drift=0.01).run("ABBA")
    one, two = in_pairs(drifting)
    assert one == pytest.approx(math.log(1.1) - 0.01) and two == pytest.approx(math.log(1.1) + 0.01)
    assert (one + two) / 2 == pytest.approx(paired(drifting)[0])


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    truth, covered, trials = 0.97, 0, 300
    for trial in range(trials):
        logs = paired(Card((truth, 1.0), seed=trial).run("ABBA" * 12))
        found = bootstrap(logs, seed=trial, draws=400)
        covered += found.low <= truth <= found.high
    assert 0.86 <= covered / trials <= 0.98  # a percentile interval of twelve values is a little short of 95%


def test_the_interval_is_the_same_for_the_same_seed() -> None:
    logs = [0.01, -0.02, 0.005, 0.0]
    assert bootstrap(logs, seed=3) == bootstrap(logs, seed=3)
    assert isinstance(bootstrap(logs, seed=3), Ratio)
    with pytest.raises(ValueError, match="at least one"):
        bootstrap([], seed=0)


def test_the_noise_floor_pools_workloads_around_their_own_means() -> None:
    floor = noise_floor([[0.01, 0.03], [-0.03, -0.01]])
    assert floor.deviation == pytest.approx(math.sqrt(2) * 0.01)
    assert floor.bias == pytest.approx(0.0)
    assert floor.pairs == 4


def test_work_that_the_events_did_not_see_is_noticed() -> None:
    honest = Sample(arm=0, seconds=1e-3, calls=30, wall_s=1.05e-3)
    hidden = Sample(arm=0, seconds=1e-6, calls=30, wall_s=1e-3)
    short = Sample(arm=0, seconds=1e-6, calls=10, wall_s=1e-5)  # the host's own work shows in so short a segment
    assert suspicious([honest, short]) is None
    assert "outside of the timed stream" in (suspicious([honest, hidden]) or "")
    assert suspicious([Sample(arm=0, seconds=0.0, calls=1, wall_s=1.0)]) is not None


def test_the_median_is_of_one_arm() -> None:
    assert median(Card((2.0, 5.0), noise=0.0).run("ABBA")) == 2.0
    assert median(Card((2.0, 5.0), noise=0.0).run("ABBA"), arm=1) == 5.0
