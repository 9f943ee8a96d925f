"""How many samples a candidate gets: the clearly slower one few, the close one more, and a stated error for all.

A sequential test on the paired log ratios of ABBA blocks (candidate over incumbent). After each block the interval of
the mean is looked at, at a level that is split evenly over all looks (Bonferroni), so that the chance to call a
candidate of equal speed better or slower, at any look, is at most `error`. The deviation is pooled from the blocks seen
and the noise floor of the run: two blocks alone say little about it.
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
    """drop_above: a single segment's ratio over the incumbent from which on nothing more is measured. It is far beyond
    what a regime or a drift can do. error: of the sequential test, two-sided. least: blocks before a candidate may be
    called better; most: blocks after which it is within noise."""

    drop_above: float = 1.15
    error: float = 0.02
    least: int = 2
    most: int = 6


@dataclass(frozen=True)
class Standing:
    """After some blocks: the mean log ratio and half the width of its interval."""

    outcome: Outcome
    mean: float
    half: float
    blocks: int


def standing(values: Sequence[float], noise: NoiseFloor, rules: Rules) -> Standing:
    """values: one paired log ratio a block, each the mean over the workloads."""
    count = len(values)
    if count == 0:
        return Standing("open", 0.0, math.inf, 0)
    mean = sum(values) / count
    squares = sum((v - mean) ** 2 for v in values)
    prior = max(0, noise.blocks - 1)
    freedom = prior + count - 1
    if freedom < 1:
        return Standing("open", mean, math.inf, count)
    pooled = math.sqrt((prior * noise.deviation**2 + squares) / freedom)
    looks = max(1, rules.most)
    half = student(1 - rules.error / looks / 2, freedom) * max(pooled, LEAST_DEVIATION) / math.sqrt(count)
    outcome: Outcome = "open"
    if mean - half > 0:
        outcome = "slower"
    elif mean + half < 0 and count >= rules.least:
        outcome = "better"
    elif count >= rules.most:
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
