"""The verdict on numbers: is this output as right as an honest low-precision kernel's would be?

A fixed tolerance either rejects honest kernels or passes zeros. Here the yardstick is the error of an honest
computation of the same inputs (`evaluators.oracle`): every limit is a small multiple of that error, with a floor that
follows from the output's dtype. Five questions, each of which catches what the others miss:

- are the non-finite values where the oracle has them,
- is the whole close (relative L2), and is every element (largest error),
- is every row and every column close (one wrong row in a thousand hides in the whole),
- do the errors lean to one side (truncation, a scale that is off by half a per cent).

The constants are calibrated by `benchmarks/tolerance.py`: no rejection in 1,000 honest draws per target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evaluators.inputs import Array

HONEST_FACTOR = 2.0  # relative L2: this many times the honest one
LARGEST_FACTOR = 3.0  # largest error: this many; the largest of a sample varies more than its mean
ROW_FACTOR = 4.0  # the worst row or column: this many times the honest median one
SMALL_ROW = 0.05  # a row smaller than this share of the whole's rms is measured against that share instead
# Rows that are small because their inputs are: of what share of the whole on they are looked at by their own size, how
# right an honest answer has to be there, and what is wrong beyond doubt.
FAINTEST, FAINT_HONEST, FAINT_ERROR = 2.0**-16, 0.02, 0.25
BLOCK = 16  # a one-dimensional output is cut into blocks of this many elements
STANDARD_ERRORS = 6.0  # a mean error below this many of its standard errors is chance


@dataclass(frozen=True)
class Floor:
    """What is always allowed, in units of the dtype's rounding error `unit` (half an ulp of 1).

    l2: relative L2; largest: of the rms; row: relative L2 of a row; bias: mean error over mean size.
    """

    unit: float
    l2: float
    largest: float
    row: float
    bias: float


# Narrow outputs round once, at the end. A float32 output also carries the sums and exponentials of float32 arithmetic,
# which the honest computation (float64 between named roundings) does not show: its floor is wider in its tiny units.
FLOORS = {
    "f32": Floor(unit=2.0**-24, l2=64, largest=512, row=256, bias=32),
    "f16": Floor(unit=2.0**-11, l2=0.75, largest=16, row=2, bias=0.25),
    "bf16": Floor(unit=2.0**-8, l2=0.75, largest=16, row=2, bias=0.25),
    "e4m3": Floor(unit=2.0**-4, l2=0.75, largest=16, row=2, bias=0.25),
    "e5m2": Floor(unit=2.0**-3, l2=0.75, largest=16, row=2, bias=0.25),
}
# below this a value counts as zero: chips flush what float32 cannot hold, f16 and the 8-bit floats have their own steps
TINY = {"f32": 1e-30, "bf16": 1e-30, "f16": 2.0**-24, "e4m3": 2.0**-9, "e5m2": 2.0**-16}


@dataclass(frozen=True)
class Verdict:
    """`reasons` is empty where it passed, else one sentence each. `evidence` is JSON: each figure beside its limit."""

    reasons: tuple[str, ...]
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.reasons


def form(got_dtype: str, got_shape: tuple[int, ...], dtype: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """What is wrong with an output's dtype and shape; to be asked before any number is looked at."""
    reasons = []
    if got_dtype != dtype:
        reasons.append(f"dtype {got_dtype}, declared {dtype}")
    if tuple(got_shape) != tuple(shape):
        reasons.append(f"shape {list(got_shape)}, declared {list(shape)}")
    return tuple(reasons)


class Figures:
    """Figures of one output as they come in, each held against its limit: whoever summed them up, here or on a device.

    size: the rms of the right answer. Places are for people, such as "[3, 17]".
    """

    def __init__(self, dtype: str, size: float) -> None:
        self._floor, self._tiny, self._size = FLOORS[dtype], TINY[dtype], size
        self._reasons: list[str] = []
        self._evidence: dict[str, Any] = {"rms": short(size)}

    def whole(self, ours: float, theirs: float) -> None:
        """Relative L2 of all, and the honest one's."""
        allowed = max(HONEST_FACTOR * theirs, self._floor.l2 * self._floor.unit, self._tiny / self._size)
        self._limit("relative_l2", ours, theirs, allowed, "relative L2 error")

    def largest(self, ours: float, theirs: float, place: str) -> None:
        """Largest error of an element, and the honest one's."""
        allowed = max(LARGEST_FACTOR * theirs, self._floor.largest * self._floor.unit * self._size, 2 * self._tiny)
        self._limit("largest_error", ours, theirs, allowed, "largest error", place)

    def worst(self, name: str, ours: float, theirs: float, median: float, place: str) -> None:
        """Relative L2 of the worst row, column or block (`name`), that of the honest one's worst, and its median."""
        allowed = max(
            ROW_FACTOR * median,
            HONEST_FACTOR * theirs,
            self._floor.row * self._floor.unit,
            self._tiny / (SMALL_ROW * self._size),
        )
        self._limit(f"worst_{name}", ours, theirs, allowed, f"worst {name}", place)

    def lean(self, mean: float, deviation: float, count: int, mean_size: float, beyond: float = 0.0) -> None:
        """Mean and standard deviation of errors in the direction of the right answer, of so many elements.

        beyond: how far the honest answer is off in the mean, beyond its own last rounding. One value inside that is
        rounded to another side moves whole rows at once, which the standard error of elements does not know.
        """
        chance = deviation / math.sqrt(count)
        allowed = max(
            self._floor.bias * self._floor.unit,
            STANDARD_ERRORS * chance / mean_size,
            HONEST_FACTOR * beyond / mean_size,
            self._tiny / mean_size,
        )
        self._limit("bias", abs(mean) / mean_size, 0.0, allowed, "errors lean to one side by")

    def verdict(self) -> Verdict:
        return Verdict(tuple(self._reasons), self._evidence)

    def _limit(self, name: str, value: float, honest: float, allowed: float, what: str, place: str = "") -> None:
        self._evidence[name] = {"value": short(value), "limit": short(allowed), "honest": short(honest)}
        if place:
            self._evidence[name]["at"] = place
        if not value <= allowed:
            self._reasons.append(f"{what} {value:.3g}{' at ' + place if place else ''}, limit {allowed:.3g}")


def all_zero(largest: float, dtype: str) -> Verdict:
    """Where the right answer is zero everywhere. largest: of what came, by size."""
    passed = largest <= 2 * TINY[dtype]
    said = f"the right answer is zero everywhere; got {largest:.3g}"
    return Verdict(() if passed else (said,), {"degenerate": True, "largest": short(largest)})


def all_zeros(size: float) -> Verdict:
    """Where nothing but zeros came, and the right answer has an rms of `size`."""
    return Verdict(("all zeros where the right answer is not",), {"zeros": True, "rms": short(size)})


def verdict(got: Array, oracle: Array, honest: Array, dtype: str) -> Verdict:
    """Judge the values of one output of a declared dtype; all three arrays have its shape.

    oracle: the right values, float64, without the output's last rounding. honest: what an honest low-precision kernel
    gives, rounded to the dtype. Integers and bools must be equal to the one or the other.
    """
    if dtype not in FLOORS:
        return _exact(got, oracle, honest)
    reasons = _mask_reasons(got, honest)
    if reasons:
        return Verdict(reasons, {"finite": False})
    finite = np.isfinite(honest) & np.isfinite(oracle)
    got, oracle, honest = (np.where(finite, x, 0.0) for x in (got, oracle, honest))
    tiny = TINY[dtype]
    error, honest_error = got - oracle, honest - oracle
    size = float(np.sqrt(np.mean(oracle**2))) if oracle.size else 0.0
    if size <= tiny:
        return all_zero(float(np.max(np.abs(got), initial=0.0)), dtype)
    if not np.any(got):
        return all_zeros(size)
    figures = Figures(dtype, size)

    def l2(e: Array) -> float:
        return float(np.sqrt(np.mean(e**2))) / size

    figures.whole(l2(error), l2(honest_error))
    largest = np.abs(error)
    where = np.unravel_index(int(np.argmax(largest)), largest.shape)
    figures.largest(float(largest[where]), float(np.max(np.abs(honest_error))), place_of(where))
    for name, axis, e, h, o in _slices(error, honest_error, oracle):
        ours, theirs = _relative(e, o, axis, size), _relative(h, o, axis, size)
        worst = np.unravel_index(int(np.argmax(ours)), ours.shape)
        figures.worst(name, float(ours[worst]), float(np.max(theirs)), float(np.median(theirs)), place_of(worst))
    lean = (got - honest) * np.sign(oracle)
    beyond = np.maximum(np.abs(honest_error) - FLOORS[dtype].unit * np.abs(oracle), 0.0)
    mean_size = float(np.mean(np.abs(oracle)))
    figures.lean(float(np.mean(lean)), float(np.std(lean)), lean.size, mean_size, float(np.mean(beyond)))
    return figures.verdict()


def small_rows(got: Array, oracle: Array, honest: Array, dtype: str) -> str:
    """What is wrong with rows that are far smaller than the others, or "". For inputs of which some rows are tiny and
    nothing cancels: a row that an honest kernel gets right by its own size has to be right so, if roughly."""
    if dtype not in FLOORS or oracle.ndim < 2 or not oracle.size:
        return ""
    finite = np.isfinite(honest) & np.isfinite(oracle) & np.isfinite(got)
    got, oracle, honest = (np.where(finite, x, 0.0) for x in (got, oracle, honest))
    norm, error, theirs = (np.sqrt(np.mean(x**2, axis=-1)) for x in (oracle, got - oracle, honest - oracle))
    size = float(np.sqrt(np.mean(oracle**2)))
    asked = (
        (norm >= FAINTEST * size) & (norm < SMALL_ROW * size) & (norm > TINY[dtype]) & (theirs < FAINT_HONEST * norm)
    )
    wrong = asked & (error > FAINT_ERROR * norm)
    if not wrong.any():
        return ""
    worst = np.unravel_index(int(np.argmax(np.where(wrong, error / np.where(asked, norm, 1.0), 0.0))), norm.shape)
    ours = float(error[worst] / norm[worst])
    return (
        f"{int(wrong.sum())} of {int(asked.sum())} rows that are small beside the others are wrong, worst at "
        f"{place_of(worst)}: relative L2 error {ours:.3g} of its own size, limit {FAINT_ERROR}"
    )


def _exact(got: Array, oracle: Array, honest: Array) -> Verdict:
    wrong = (np.asarray(got) != np.asarray(oracle)) & (np.asarray(got) != np.asarray(honest))
    count = int(np.count_nonzero(wrong))
    evidence: dict[str, Any] = {"different": count, "of": int(np.asarray(oracle).size)}
    if not count:
        return Verdict((), evidence)
    where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return Verdict(
        (f"{count} of {oracle.size} differ, first at {place_of(where)}: {got[where]}, not {oracle[where]}",), evidence
    )


def _mask_reasons(got: Array, honest: Array) -> tuple[str, ...]:
    for what, ours, theirs in (
        ("NaN", np.isnan(got), np.isnan(honest)),
        ("inf", np.isposinf(got), np.isposinf(honest)),
        ("-inf", np.isneginf(got), np.isneginf(honest)),
    ):
        wrong = ours != theirs
        if np.any(wrong):
            where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            return (
                f"{int(np.count_nonzero(ours))} {what}, the right answer has {int(np.count_nonzero(theirs))}; "
                f"first difference at {place_of(where)}: got {got[where]:.3g}",
            )
    return ()


def _slices(error: Array, honest_error: Array, oracle: Array) -> list[tuple[str, int, Array, Array, Array]]:
    """(name, axis to sum over, the three arrays): rows, columns, or blocks of a one-dimensional output."""
    arrays = (error, honest_error, oracle)
    if oracle.ndim < 2:
        padded = [np.pad(np.atleast_1d(x), (0, -x.size % BLOCK)).reshape(-1, BLOCK) for x in arrays]
        return [("block", -1, *padded)]  # type: ignore[list-item]
    return [("row", -1, *arrays), ("column", -2, *arrays)]


def _relative(error: Array, oracle: Array, axis: int, size: float) -> Array:
    norm = np.sqrt(np.mean(oracle**2, axis=axis))
    relative: Array = np.sqrt(np.mean(error**2, axis=axis)) / np.maximum(norm, SMALL_ROW * size)
    return relative


def place_of(index: Iterable[Any]) -> str:
    """`[3, 17]`"""
    return "[" + ", ".join(str(int(i)) for i in index) + "]"


def short(value: float) -> float:
    """Four digits: evidence is read by people and must not differ in noise."""
    return float(f"{value:.4g}")
