"""What the verdicts so far say about settings that were not tried: a Gaussian process over knob settings.

It models the logarithm of the score minus what arithmetic expects (`avo.agents.appraisal`), so that without verdicts
the arithmetic decides, and every verdict bends it near the setting that it judged. Where scores are measured and many
more settings were compiled and predicted, there are two of them (`Corrected`): one from arithmetic to predictions, one
from predictions to measurements. Rebuilt from the brief at each proposal; a few hundred verdicts take milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Value = int | str
Setting = Mapping[str, Value]
Array = NDArray[np.float64]

_STEP = 0.5  # distance of two neighbouring numbers on a scale
_OTHER = 0.2  # distance of two different choices
_ABSENT = 1.0  # distance where only one of two settings has the knob
_DEVIATION = 0.2  # standard deviation of log score about what arithmetic expects, of a setting as a whole
_EFFECT = 0.08  # standard deviation of what one value of one knob does wherever it is set
_DEVIATION_MEASURED, _EFFECT_MEASURED = 0.12, 0.05  # the same about what the machine code lets expect
_NOISE = 0.01
_DARING = 0.6  # of the deviation that counts as a chance: below 1, what is known to be good comes first
_FAILED = 0.9  # a candidate that failed counts as this much below the median, in log score


@dataclass(frozen=True)
class Point:
    """A setting; expected: the negative logarithm of its appraised time. score: None where it was not judged."""

    setting: Setting
    expected: float

    @cached_property
    def name(self) -> tuple[tuple[str, Value], ...]:
        """Equal where settings are."""
        return tuple(sorted(self.setting.items()))


class Model(Protocol):
    """best: the largest log score so far."""

    best: float

    def predict(self, points: Sequence[Point]) -> tuple[Array, Array]:
        """Mean and standard deviation of the log score of each."""
        ...

    def improvement(self, points: Sequence[Point], bonus: Sequence[float]) -> Array:
        """Expected improvement of the log score over the best so far; `bonus` is added to each mean."""
        ...


class Surrogate:
    """Fitted on judged points and their scores; 0 or less marks one that failed.

    deviation, effect: prior standard deviations of the log score about what is expected, of a setting as a whole, and
    of what one value of one knob does wherever it is set.
    """

    def __init__(
        self,
        points: Sequence[Point],
        scores: Sequence[float],
        deviation: float = _DEVIATION,
        effect: float = _EFFECT,
    ) -> None:
        good = [math.log(s) for s in scores if s > 0]
        middle = float(np.median(good)) if good else 0.0
        logs = np.array([math.log(s) if s > 0 else middle - _FAILED for s in scores])
        rest = logs - np.array([p.expected for p in points])
        self._deviation, self._effect = deviation, effect
        self._level = float(np.median(rest)) if len(rest) else 0.0
        self._points = list(points)
        self.best = max(good, default=middle)
        gram = self._kernel(self._points, self._points) + _NOISE**2 * np.eye(len(points))
        self._factor = _factor(gram)
        self._weights = np.linalg.solve(self._factor.T, np.linalg.solve(self._factor, rest - self._level))

    def predict(self, points: Sequence[Point]) -> tuple[Array, Array]:
        cross = self._kernel(points, self._points)
        mean = np.array([p.expected for p in points]) + self._level + cross @ self._weights
        solved = np.linalg.solve(self._factor, cross.T)
        own = np.array([self._deviation**2 + self._effect**2 * len(p.setting) for p in points])
        variance = own - np.sum(solved**2, axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-9))

    def improvement(self, points: Sequence[Point], bonus: Sequence[float]) -> Array:
        return expected_improvement(*self.predict(points), self.best, bonus)

    def _kernel(self, left: Sequence[Point], right: Sequence[Point]) -> Array:
        apart, alike = distances([p.setting for p in left], [p.setting for p in right])
        return self._deviation**2 * np.exp(-apart) + self._effect**2 * alike


class Corrected:
    """Predictions, as far as there are any, bent by measurements.

    known: points with their predicted scores (0: compiled in vain). judged: points with their measured scores.
    waiting: points whose verdict is under way; they count as if it were what is expected, so that the next proposal
    looks elsewhere.
    """

    def __init__(
        self,
        known: Sequence[tuple[Point, float]],
        judged: Sequence[tuple[Point, float]],
        waiting: Sequence[Point] = (),
    ) -> None:
        self._known = {p.name: math.log(s) for p, s in known if s > 0}
        self._predicted = Surrogate([p for p, _ in known], [s for _, s in known])
        points, scores = [p for p, _ in judged], [s for _, s in judged]
        self._measured = self._fitted(points, scores)
        self.best = self._measured.best
        if waiting:
            mean, _ = self.predict(waiting)
            self._measured = self._fitted([*points, *waiting], [*scores, *map(math.exp, mean)])

    def _fitted(self, points: Sequence[Point], scores: Sequence[float]) -> Surrogate:
        expected, _ = self._expected(points)
        moved = [Point(p.setting, float(e)) for p, e in zip(points, expected, strict=True)]
        return Surrogate(moved, scores, _DEVIATION_MEASURED, _EFFECT_MEASURED)

    def _expected(self, points: Sequence[Point]) -> tuple[Array, Array]:
        """Log of the predicted score: as it is where it is known, else what the known ones say of it."""
        mean, deviation = self._predicted.predict(points)
        for i, p in enumerate(points):
            exact = self._known.get(p.name)
            if exact is not None:
                mean[i], deviation[i] = exact, 0.0
        return mean, deviation

    def predict(self, points: Sequence[Point]) -> tuple[Array, Array]:
        expected, unsure = self._expected(points)
        mean, deviation = self._measured.predict(
            [Point(p.setting, float(e)) for p, e in zip(points, expected, strict=True)]
        )
        return mean, np.sqrt(deviation**2 + unsure**2)

    def improvement(self, points: Sequence[Point], bonus: Sequence[float]) -> Array:
        return expected_improvement(*self.predict(points), self.best, bonus)


def _factor(gram: Array) -> Array:
    """Cholesky's factor. The distances are no metric (a word is as near to each number of a scale, however far apart
    these are), so the matrix may have eigenvalues below 0: then it is that of the nearest matrix that has none."""
    try:
        factor = np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(gram)
        factor = np.linalg.cholesky((vectors * np.maximum(values, _NOISE**2)) @ vectors.T)
    return np.asarray(factor, dtype=np.float64)


def expected_improvement(mean: Array, deviation: Array, best: float, bonus: Sequence[float]) -> Array:
    """Of a log score over the best so far (Jones, Schonlau, Welch 1998), the deviation taken by `_DARING`."""
    deviation = _DARING * deviation
    gap = mean + np.asarray(bonus) - best
    z = gap / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in z])
    found: Array = gap * below + deviation * density
    return found


def distances(left: Sequence[Setting], right: Sequence[Setting]) -> tuple[Array, Array]:
    """(distance, number of knobs that stand alike) of every pair.

    The distance is a sum over the knobs: how far two numbers lie apart on a scale of doublings (stages: of single
    steps), or that two choices differ, or that only one of the two settings has the knob.
    """
    names = tuple(sorted({n for s in (*left, *right) for n in s}))
    (a, a_codes), (b, b_codes) = (_coded(s, names) for s in (left, right))
    total = np.zeros((len(left), len(right)))
    alike = np.zeros((len(left), len(right)))
    for i in range(len(names)):
        numbers = np.abs(a[:, i, None] - b[None, :, i])
        same = a_codes[:, i, None] == b_codes[None, :, i]
        here, there = a_codes[:, i] > 0, b_codes[:, i] > 0
        apart = np.where(np.isnan(numbers), np.where(same, 0.0, _OTHER), numbers * _STEP)
        total += np.where(here[:, None] != there[None, :], _ABSENT, apart)
        alike += same & here[:, None]
    return total, alike


_values: dict[tuple[bool, Value | None], tuple[float, int]] = {(n, None): (math.nan, 0) for n in (False, True)}


_rows: dict[tuple[tuple[str, ...], tuple[tuple[str, Value], ...]], Array] = {}
_ROWS_MOST = 200_000


def _coded(settings: Sequence[Setting], names: tuple[str, ...]) -> tuple[Array, Array]:
    """Settings by knobs: each value as a number on its scale (NaN: a word), and as a code (0: it is not there)."""
    if len(_rows) > _ROWS_MOST:
        _rows.clear()
    found = np.empty((len(settings), 2, len(names)))
    for i, setting in enumerate(settings):
        key = (names, tuple(setting.items()))
        row = _rows.get(key)
        if row is None:
            values = [_value(setting.get(name), "stages" in name) for name in names]
            row = _rows[key] = np.array(values, dtype=np.float64).T
        found[i] = row
    return found[:, 0], found[:, 1]


def _value(value: Value | None, linear: bool) -> tuple[float, int]:
    found = _values.get((linear, value))
    if found is None:
        number = math.nan
        if isinstance(value, int) and value > 0:
            number = float(value) if linear else math.log2(value)
        found = _values[(linear, value)] = (number, len(_values))
    return found
