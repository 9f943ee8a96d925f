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

_STEP = 0.6  # distance of two neighbouring numbers on a scale
_OTHER = 0.35  # distance of two different choices
_ABSENT = 1.0  # distance where only one of two settings has the knob
_DEVIATION = 0.25  # standard deviation of log score about what arithmetic expects
_NOISE = 0.01
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
        variance = _DEVIATION**2 - np.sum(solved**2, axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-9))

    def improvement(self, points: Sequence[Point], bonus: Sequence[float]) -> NDArray[np.float64]:
        """Expected improvement of the log score over the best so far; `bonus` is added to each mean."""
        mean, deviation = self.predict(points)
        gap = mean + np.asarray(bonus) - self.best
        z = gap / deviation
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        below = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in z])
        found: NDArray[np.float64] = gap * below + deviation * density
        return found

    def _kernel(self, left: Sequence[Point], right: Sequence[Point]) -> NDArray[np.float64]:
        found = np.empty((len(left), len(right)))
        for i, a in enumerate(left):
            for j, b in enumerate(right):
                found[i, j] = distance(a.setting, b.setting)
        return _DEVIATION**2 * np.exp(-found)


def distance(a: Setting, b: Setting) -> float:
    """Sum over the knobs: how far two numbers lie apart on a scale of doublings, or that two choices differ."""
    total = 0.0
    for name in a.keys() | b.keys():
        x, y = a.get(name), b.get(name)
        if x == y:
            continue
        if x is None or y is None:
            total += _ABSENT
        elif isinstance(x, int) and isinstance(y, int) and x > 0 and y > 0:
            apart = abs(x - y) if max(x, y) <= 8 and "stages" in name else abs(math.log2(x / y))
            total += _STEP * apart
        else:
            total += _OTHER
    return total
