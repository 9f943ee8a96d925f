"""The verdict of `evaluators.tolerance` from figures that a device summed up, where the arrays are too big to move.

Same questions, same limits; `tests/evaluators/test_device.py` holds the figures of both against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.tolerance import TINY, Figures, Verdict, all_zero, all_zeros, place_of


def judge(found: Mapping[str, Any], dtype: str) -> Verdict:
    """Raises KeyError, TypeError or ValueError for figures that are none."""
    if found.get("exact"):
        wrong = int(found["different"])
        said = f"{wrong} of {int(found['of'])} differ"
        return Verdict((said,) if wrong else (), {"different": wrong, "of": int(found["of"])})
    if "nonfinite" in found:
        what, place = str(found["nonfinite"]), place_of(found["at"])
        said = f"{int(found['ours'])} {what}, the right answer has {int(found['theirs'])}; first difference at {place}"
        return Verdict((said,), {"finite": False})
    size = float(found["size"])
    if size <= TINY[dtype]:
        return all_zero(float(found["top"]), dtype)
    if not float(found["top"]) > 0:
        return all_zeros(size)
    figures = Figures(dtype, size)
    ours, theirs = map(float, found["l2"])
    figures.whole(ours, theirs)
    ours, theirs = map(float, found["largest"])
    figures.largest(ours, theirs, place_of(found["largest_at"]))
    for name in ("row", "column", "block"):
        if name in found:
            ours, theirs, median = map(float, found[name])
            figures.worst(name, ours, theirs, median, place_of(found[f"{name}_at"]))
    mean, deviation, mean_size = map(float, found["lean"])
    figures.lean(mean, deviation, int(found["count"]), mean_size, float(found.get("beyond", 0.0)))
    return figures.verdict()
