"""The verdict of `evaluators.tolerance` from figures that a device summed up, where the arrays are too big to move.

Same questions, same limits: `tests/evaluators/test_device.py` holds the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from evaluators.tolerance import (
    FLOORS,
    HONEST_FACTOR,
    LARGEST_FACTOR,
    ROW_FACTOR,
    SMALL_ROW,
    STANDARD_ERRORS,
    TINY,
    Verdict,
)


def judge(found: Mapping[str, Any], dtype: str) -> Verdict:
    """Raises KeyError, TypeError or ValueError for figures that are none."""
    if found.get("exact"):
        wrong = int(found["different"])
        said = f"{wrong} of {int(found['of'])} differ"
        return Verdict((said,) if wrong else (), {"different": wrong, "of": int(found["of"])})
    if "nonfinite" in found:
        what, place = str(found["nonfinite"]), _at(found["at"])
        said = f"{int(found['ours'])} {what}, the right answer has {int(found['theirs'])}; first difference at {place}"
        return Verdict((said,), {"finite": False})
    tiny, floor, size = TINY[dtype], FLOORS[dtype], float(found["size"])
    if size <= tiny:
        top = float(found["top"])
        said = f"the right answer is zero everywhere; got {top:.3g}"
        return Verdict(() if top <= 2 * tiny else (said,), {"degenerate": True, "largest": _short(top)})
    if not float(found["top"]) > 0:
        return Verdict(("all zeros where the right answer is not",), {"zeros": True, "rms": _short(size)})
    reasons: list[str] = []
    evidence: dict[str, Any] = {"rms": _short(size)}

    def limit(name: str, value: float, honest: float, allowed: float, what: str, place: str = "") -> None:
        evidence[name] = {"value": _short(value), "limit": _short(allowed), "honest": _short(honest)}
        if place:
            evidence[name]["at"] = place
        if not value <= allowed:
            reasons.append(f"{what} {value:.3g}{' at ' + place if place else ''}, limit {allowed:.3g}")

    unit = floor.unit
    ours, theirs = map(float, found["l2"])
    limit(
        "relative_l2",
        ours,
        theirs,
        max(HONEST_FACTOR * theirs, floor.l2 * unit, tiny / size),
        "relative L2 error",
    )
    ours, theirs = map(float, found["largest"])
    allowed = max(LARGEST_FACTOR * theirs, floor.largest * unit * size, 2 * tiny)
    limit("largest_error", ours, theirs, allowed, "largest error", _at(found["largest_at"]))
    for name in ("row", "column", "block"):
        if name in found:
            ours, theirs, median = map(float, found[name])
            allowed = max(ROW_FACTOR * median, HONEST_FACTOR * theirs, floor.row * unit, tiny / (SMALL_ROW * size))
            limit(f"worst_{name}", ours, theirs, allowed, f"worst {name}", _at(found[f"{name}_at"]))
    mean, deviation, mean_size = map(float, found["lean"])
    chance = deviation / math.sqrt(int(found["count"]))
    allowed = max(floor.bias * unit, STANDARD_ERRORS * chance / mean_size, tiny / mean_size)
    limit("bias", abs(mean) / mean_size, 0.0, allowed, "errors lean to one side by")
    return Verdict(tuple(reasons), evidence)


def _at(place: Any) -> str:
    return "[" + ", ".join(str(int(i)) for i in place) + "]"


def _short(value: float) -> float:
    return float(f"{value:.4g}")
