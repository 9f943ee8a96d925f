"""Where the pieces of a timed input lie among the values that were drawn: known to whoever has the call's key."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PIECE = 16  # values that follow each other; of two bytes each, no more than memory is read by
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64
SHIFTS = (30, 27, 33)


def scattered(key: int, pieces: NDArray, drawn: int) -> NDArray:
    """The place at which each of these pieces (their numbers) begins, of so many values; `child_device.fill` is the
    same on a device."""
    with np.errstate(over="ignore"):
        z = np.uint64(key) + (pieces.astype(np.uint64) + np.uint64(1)) * np.uint64(STEP)
        z = (z ^ (z >> np.uint64(SHIFTS[0]))) * np.uint64(FIRST)
        z = (z ^ (z >> np.uint64(SHIFTS[1]))) * np.uint64(SECOND)
    return ((z >> np.uint64(SHIFTS[2])) % np.uint64(drawn - PIECE + 1)).astype(np.int64)
