"""Rounding to the dtypes of the language, in float64 by NumPy.

To nearest, ties to even, subnormals kept. f32, f16 and bf16 overflow to infinity as IEEE 754 says; the narrow ones
(e4m3, e5m2, mxfp4 and nvfp4, int8, i32) saturate. NaN stays. Formats: IEEE 754-2019; OCP 8-bit floating point
specification 1.0 (e4m3 without infinities, largest 448; e5m2, largest 57344); OCP Microscaling formats 1.0 (e2m1,
largest 6, and mxfp4); nvfp4 as NVIDIA's PTX ISA 8.6 has it (kind::mxf4nvf4, 16 elements a scale).

mxfp4 and nvfp4 are block formats: what a name holds are e2m1 elements and, for each block along its last axis, a scale.
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


# Block formats: how many elements along the last axis share a scale, and the scale's own format.
BLOCKS: dict[str, tuple[int, str]] = {"mxfp4": (32, "e8m0"), "nvfp4": (16, "e4m3")}


def round_blocks(array: NDArray, dtype: str) -> NDArray:
    """`array` (at least one axis, read as float64) rounded to a block format along its last axis, as float64.

    mxfp4: the scale of 32 elements is 2^(floor(log2(amax)) - 2), within 2^-127..2^127 (OCP Microscaling 1.0, 6.3).
    nvfp4: that of 16 is amax / 6 rounded to e4m3, so at most 448. Elements are x / scale rounded to e2m1, which
    saturates. A last block may be short. A scale of 0 gives zeros; NaN stays where it is and sets no scale.
    """
    length, scale_format = BLOCKS[dtype]
    x = np.asarray(array, dtype=np.float64)
    n = x.shape[-1]
    padded = np.concatenate([x, np.zeros((*x.shape[:-1], -n % length))], axis=-1)
    blocks = padded.reshape(*x.shape[:-1], -1, length)
    with np.errstate(all="ignore"):
        amax = np.max(np.where(np.isnan(blocks), 0.0, np.abs(blocks)), axis=-1, keepdims=True, initial=0.0)
        if scale_format == "e8m0":
            _, exponent = np.frexp(np.where(np.isinf(amax), 2.0**127, amax))
            scale = np.ldexp(1.0, np.clip(exponent - 3, -127, 127))
        else:
            scale = round_to(amax / 6.0, scale_format)
        scale = np.where((amax == 0) | (scale == 0), 1.0, scale)
        rounded = round_to(blocks / scale, dtype) * scale
    return rounded.reshape(padded.shape)[..., :n]


def round_to(array: NDArray, dtype: str) -> NDArray:
    """`array` (any shape, read as float64) rounded to `dtype`, as float64; bool gives a bool array (x != 0).

    Of a block format the element, e2m1, alone: `round_blocks` has the scales.

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
        y = _nearest(x, f)
        if f.saturates:
            return np.clip(y, -f.largest, f.largest)
        return np.where(np.abs(y) > f.largest, np.copysign(np.inf, y), y)


def _nearest(x: NDArray, f: Format) -> NDArray:
    """To `f.mantissa` bits, and to no less than the smallest subnormal, in whatever range: on the bits of the float64,
    where adding just under half of what is cut off carries as it should, and all of half where the rest is odd."""
    cut = np.int64(52 - f.mantissa)
    bits = np.ascontiguousarray(x).view(np.int64)
    rounded = bits >> cut
    rounded &= 1
    rounded += bits
    rounded += (np.int64(1) << (cut - 1)) - 1
    rounded &= ~((np.int64(1) << cut) - 1)
    y = rounded.view(np.float64).reshape(x.shape)
    size = np.abs(x)
    rare = (size < 2.0**f.smallest_exponent) | ~(size < np.inf)
    if rare.any():
        few = x[rare]
        finest = 2.0 ** (f.smallest_exponent - f.mantissa)
        y[rare] = np.where(np.isfinite(few), np.rint(few / finest) * finest, few)
    return y
