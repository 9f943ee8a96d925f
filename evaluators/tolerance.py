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

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evaluators.inputs import Array

HONEST_FACTOR = 2.0  # relative L2: this many times the honest one
LARGEST_FACTOR = 3.0  # largest error: this many; the largest of a sample varies more than its mean
ROW_FACTOR = 4.0  # the worst row or column: this many times the honest median one
SMALL_ROW = 0.05  # a row smaller than this share of the whole's rms is measured against that share instead
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


def verdict(got: Array, oracle: Array, honest: Array, dtype: str) -> Verdict:
    """Judge the values of one output of a declared dtype; all three arrays have its shape.

    oracle: the right values, float64, without the output's last rounding. honest: what an honest low-precision kernel
    gives, rounded to the dtype. Integers and bools must be equal.
    """
    if dtype not in FLOORS:
        return _exact(got, oracle)
    reasons = _mask_reasons(got, honest)
    if reasons:
        return Verdict(reasons, {"finite": False})
    finite = np.isfinite(honest) & np.isfinite(oracle)
    got, oracle, honest = (np.where(finite, x, 0.0) for x in (got, oracle, honest))
    tiny = TINY[dtype]
    floor = FLOORS[dtype]
    error, honest_error = got - oracle, honest - oracle
    size = float(np.sqrt(np.mean(oracle**2))) if oracle.size else 0.0
    if size <= tiny:
        largest = float(np.max(np.abs(got), initial=0.0))
        passed = largest <= 2 * tiny
        return Verdict(
            () if passed else (f"the right answer is zero everywhere; got {largest:.3g}",),
            {"degenerate": True, "largest": _short(largest)},
        )
    if not np.any(got):
        return Verdict(("all zeros where the right answer is not",), {"zeros": True, "rms": _short(size)})

    found: list[str] = []
    evidence: dict[str, Any] = {"rms": _short(size)}

    def limit(name: str, value: float, honest_value: float, allowed: float, what: str, place: str = "") -> None:
        evidence[name] = {"value": _short(value), "limit": _short(allowed), "honest": _short(honest_value)}
        if place:
            evidence[name]["at"] = place
        if not value <= allowed:
            found.append(f"{what} {value:.3g}{' at ' + place if place else ''}, limit {allowed:.3g}")

    def l2(e: Array) -> float:
        return float(np.sqrt(np.mean(e**2))) / size

    limit(
        "relative_l2",
        l2(error),
        l2(honest_error),
        max(HONEST_FACTOR * l2(honest_error), floor.l2 * floor.unit, tiny / size),
        "relative L2 error",
    )
    largest, honest_largest = np.abs(error), float(np.max(np.abs(honest_error)))
    where = np.unravel_index(int(np.argmax(largest)), largest.shape)
    limit(
        "largest_error",
        float(largest[where]),
        honest_largest,
        max(LARGEST_FACTOR * honest_largest, floor.largest * floor.unit * size, 2 * tiny),
        "largest error",
        _place(where),
    )
    for name, axis, e, h, o in _slices(error, honest_error, oracle):
        ours, theirs = _relative(e, o, axis, size), _relative(h, o, axis, size)
        allowed = max(
            ROW_FACTOR * float(np.median(theirs)),
            HONEST_FACTOR * float(np.max(theirs)),
            floor.row * floor.unit,
            tiny / (SMALL_ROW * size),
        )
        worst = np.unravel_index(int(np.argmax(ours)), ours.shape)
        limit(f"worst_{name}", float(ours[worst]), float(np.max(theirs)), allowed, f"worst {name}", _place(worst))

    lean = (got - honest) * np.sign(oracle)
    mean_size = float(np.mean(np.abs(oracle)))
    chance = float(np.std(lean)) / np.sqrt(lean.size)
    limit(
        "bias",
        abs(float(np.mean(lean))) / mean_size,
        0.0,
        max(floor.bias * floor.unit, STANDARD_ERRORS * chance / mean_size, tiny / mean_size),
        "errors lean to one side by",
    )
    return Verdict(tuple(found), evidence)


def _exact(got: Array, oracle: Array) -> Verdict:
    wrong = np.asarray(got) != np.asarray(oracle)
    count = int(np.count_nonzero(wrong))
    evidence: dict[str, Any] = {"different": count, "of": int(np.asarray(oracle).size)}
    if not count:
        return Verdict((), evidence)
    where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return Verdict(
        (f"{count} of {oracle.size} differ, first at {_place(where)}: {got[where]}, not {oracle[where]}",), evidence
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
                f"first difference at {_place(where)}: got {got[where]:.3g}",
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


def _place(index: tuple[Any, ...]) -> str:
    return "[" + ", ".join(str(int(i)) for i in index) + "]"


def _short(value: float) -> float:
    """Four digits: evidence is read by people and must not differ in noise."""
    return float(f"{value:.4g}")
