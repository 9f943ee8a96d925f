"""Rounding to the dtypes of the language, in float64 by NumPy.

To nearest, ties to even, subnormals kept. f32, f16 and bf16 overflow to infinity as IEEE 754 says; the narrow ones
(e4m3, e5m2, mxfp4 and nvfp4, int8, i32) saturate. NaN stays. Formats: IEEE 754-2019; OCP 8-bit floating point
specification 1.0 (e4m3 without infinities, largest 448; e5m2, largest 57344); OCP Microscaling formats 1.0 (e2m1,
largest 6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Format:
    """`mantissa` bits without the hidden one, exponent of the smallest normal, largest finite value.

    `kind` is "float", "int" (`largest` and `smallest` bound it) or "bool". `bits` is the width in memory.
    """

    kind: str
    bits: int
    mantissa: int = 0
    smallest_exponent: int = 0
    largest: float = 0.0
    smallest: float = 0.0
    saturates: bool = False


DTYPES: dict[str, Format] = {
    "f64": Format("float", 64, 52, -1022, float(np.finfo(np.float64).max)),
    "f32": Format("float", 32, 23, -126, float(np.finfo(np.float32).max)),
    "f16": Format("float", 16, 10, -14, 65504.0),
    "bf16": Format("float", 16, 7, -126, (2.0 - 2.0**-7) * 2.0**127),
    "e4m3": Format("float", 8, 3, -6, 448.0, saturates=True),
    "e5m2": Format("float", 8, 2, -14, 57344.0, saturates=True),
    "mxfp4": Format("float", 4, 1, 0, 6.0, saturates=True),
    "nvfp4": Format("float", 4, 1, 0, 6.0, saturates=True),
    "int8": Format("int", 8, largest=127.0, smallest=-128.0, saturates=True),
    "i32": Format("int", 32, largest=2.0**31 - 1, smallest=-(2.0**31), saturates=True),
    "bool": Format("bool", 1),
}


def round_to(array: NDArray, dtype: str) -> NDArray:
    """`array` (any shape, read as float64) rounded to `dtype`, as float64; bool gives a bool array (x != 0).

    Raises KeyError on an unknown dtype.
    """
    f = DTYPES[dtype]
    if f.kind == "bool":
        return np.asarray(array) != 0
    x = np.asarray(array, dtype=np.float64)
    if dtype == "f64":
        return x
    with np.errstate(all="ignore"):
        if f.kind == "int":
            return np.clip(np.rint(x), f.smallest, f.largest)
        if dtype == "f32":
            return x.astype(np.float32).astype(np.float64)
        if dtype == "f16":
            return x.astype(np.float16).astype(np.float64)
        _, exponent = np.frexp(x)  # |x| in [2**(exponent-1), 2**exponent)
        quantum = np.maximum(exponent - 1, f.smallest_exponent) - f.mantissa
        y = np.ldexp(np.rint(np.ldexp(x, -quantum)), quantum)
        if f.saturates:
            return np.clip(y, -f.largest, f.largest)
        return np.where(np.abs(y) > f.largest, np.copysign(np.inf, y), y)
