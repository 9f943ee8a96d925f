"""What the verdicts so far say about settings that were not tried: a Gaussian process over knob settings.

It models the logarithm of the score minus what arithmetic expects (`avo.agents.appraisal`), so that without verdicts
the arithmetic decides, and every verdict bends it near the setting that it judged. Rebuilt from the brief at each
proposal; a few hundred verdicts take milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Value = int | str
Setting = Mapping[str, Value]

_STEP = 0.5  # distance of two neighbouring numbers on a scale
_OTHER = 0.2  # distance of two different choices
_ABSENT = 1.0  # distance where only one of two settings has the knob
_DEVIATION = 0.2  # standard deviation of log score about what arithmetic expects, of a setting as a whole
_EFFECT = 0.08  # standard deviation of what one value of one knob does wherever it is set
_NOISE = 0.01
_DARING = 0.6  # of the deviation that counts as a chance: below 1, what is known to be good comes first
_FAILED = 0.9  # a candidate that failed counts as this much below the median, in log score


@dataclass(frozen=True)
class Point:
    """A setting; expected: the negative logarithm of its appraised time. score: None where it was not judged."""

    setting: Setting
    expected: float


class Surrogate:
    """Fitted on judged points and their scores; 0 or less marks one that failed."""

    def __init__(self, points: Sequence[Point], scores: Sequence[float]) -> None:
        good = [math.log(s) for s in scores if s > 0]
        middle = float(np.median(good)) if good else 0.0
        logs = np.array([math.log(s) if s > 0 else middle - _FAILED for s in scores])
        rest = logs - np.array([p.expected for p in points])
        self._level = float(np.median(rest)) if len(rest) else 0.0
        self._points = list(points)
        self.best = max(good, default=middle)
        gram = self._kernel(self._points, self._points) + _NOISE**2 * np.eye(len(points))
        self._factor = np.linalg.cholesky(gram)
        self._weights = np.linalg.solve(self._factor.T, np.linalg.solve(self._factor, rest - self._level))

    def predict(self, points: Sequence[Point]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of the log score of each."""
        cross = self._kernel(points, self._points)
        mean = np.array([p.expected for p in points]) + self._level + cross @ self._weights
        solved = np.linalg.solve(self._factor, cross.T)
        own = np.array([_DEVIATION**2 + _EFFECT**2 * len(p.setting) for p in points])
        variance = own - np.sum(solved**2, axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-9))

    def improvement(self, points: Sequence[Point], bonus: Sequence[float]) -> NDArray[np.float64]:
        """Expected improvement of the log score over the best so far; `bonus` is added to each mean."""
        mean, deviation = self.predict(points)
        deviation = _DARING * deviation
        gap = mean + np.asarray(bonus) - self.best
        z = gap / deviation
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        below = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in z])
        found: NDArray[np.float64] = gap * below + deviation * density
        return found

    def _kernel(self, left: Sequence[Point], right: Sequence[Point]) -> NDArray[np.float64]:
        apart, alike = distances([p.setting for p in left], [p.setting for p in right])
        return _DEVIATION**2 * np.exp(-apart) + _EFFECT**2 * alike


def distances(left: Sequence[Setting], right: Sequence[Setting]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(distance, number of knobs that stand alike) of every pair.

    The distance is a sum over the knobs: how far two numbers lie apart on a scale of doublings (stages: of single
    steps), or that two choices differ, or that only one of the two settings has the knob.
    """
    total = np.zeros((len(left), len(right)))
    alike = np.zeros((len(left), len(right)))
    for name in sorted({n for s in (*left, *right) for n in s}):
        a, b = _column(left, name), _column(right, name)
        numbers = np.abs(a[0][:, None] - b[0][None, :])
        words = (a[1][:, None] != b[1][None, :]) * _OTHER
        both = ~np.isnan(numbers)
        apart = np.where(both, np.nan_to_num(numbers) * _STEP, words)
        absent = a[2][:, None] != b[2][None, :]
        total += np.where(absent, _ABSENT, apart)
        alike += (a[1][:, None] == b[1][None, :]) & a[2][:, None] & b[2][None, :]
    return total, alike


def _column(settings: Sequence[Setting], name: str) -> tuple[NDArray[np.float64], NDArray[np.str_], NDArray[np.bool_]]:
    """One knob over many settings: as a number on its scale (NaN: a word), as a word, and whether it is there."""
    values = [s.get(name) for s in settings]
    linear = "stages" in name
    scale = [(float(v) if linear else math.log2(v)) if isinstance(v, int) and v > 0 else math.nan for v in values]
    return np.array(scale), np.array([str(v) for v in values]), np.array([v is not None for v in values])
