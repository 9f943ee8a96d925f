"""How many samples a candidate gets: the clearly slower one few, the close one more, and a stated error for all.

A sequential test on the paired log ratios of candidate over incumbent, one value a pair (AB, then BA). After each pair
the interval of the mean is looked at, at a level that is split evenly over all looks (Bonferroni), so that the chance
to call a candidate of equal speed better or slower, at any look, is at most `error`. The deviation is pooled from the
pairs seen and the noise floor of the run: two alone say little about it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from evaluators.timing import NoiseFloor

Outcome = Literal["better", "slower", "within noise", "open"]

LEAST_DEVIATION = 5e-4  # clocks have steps: blocks that agree by chance are no proof of an exact card


@dataclass(frozen=True)
class Rules:
    """drop_above: the ratio over the incumbent, in a candidate's first look, from which on nothing more is measured:
    four standard deviations of such a look. hopeless_above: the same, after the few cheapest sizes, from which on the
    others are not even looked at. error: of the sequential test, two-sided. least: pairs before a candidate may be
    called better; most: pairs after which it is within noise; margin: gains below this are not worth more pairs."""

    drop_above: float = 1.04
    hopeless_above: float = 2.5
    error: float = 0.02
    least: int = 4
    most: int = 12
    margin: float = 0.003


@dataclass(frozen=True)
class Standing:
    """After some pairs: the mean log ratio and half the width of its interval."""

    outcome: Outcome
    mean: float
    half: float
    pairs: int


def standing(values: Sequence[float], noise: NoiseFloor, rules: Rules) -> Standing:
    """values: one paired log ratio a pair, each the mean over the workloads."""
    count = len(values)
    if count == 0:
        return Standing("open", 0.0, math.inf, 0)
    mean = sum(values) / count
    squares = sum((v - mean) ** 2 for v in values)
    prior = max(0, noise.pairs - 1)
    freedom = prior + count - 1
    if freedom < 1:
        return Standing("open", mean, math.inf, count)
    pooled = math.sqrt((prior * noise.deviation**2 + squares) / freedom)
    looks = max(1, rules.most)
    half = student(1 - rules.error / looks / 2, freedom) * max(pooled, LEAST_DEVIATION) / math.sqrt(count)
    # An odd number of pairs leaves half of a drift in the mean.
    low = mean - half - (rules.margin if count % 2 else 0.0)
    outcome: Outcome = "open"
    if low > 0:
        outcome = "slower"
    elif mean + half < 0 and count >= rules.least and count % 2 == 0:
        outcome = "better"
    elif count >= rules.most or (count >= rules.least and count % 2 == 0 and mean - half > -rules.margin):
        outcome = "within noise"
    return Standing(outcome, mean, half, count)


def student(probability: float, freedom: int) -> float:
    """Quantile of Student's t, by Hill's expansion (CACM algorithm 396, 1970); exact for 1 and 2 degrees."""
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        a = 2 * probability - 1
        return a * math.sqrt(2 / (1 - a * a))
    z = NormalDist().inv_cdf(probability)
    n = float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / n ** (i + 1) for i, term in enumerate(terms))
