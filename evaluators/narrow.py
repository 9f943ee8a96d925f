"""Narrow floats held in float32: rounding, and the way to and from their bits. Needs torch; runs in workers.

bf16 and the 8-bit floats have no NumPy dtype. Each of their values is a float32, so arrays of float32 that hold only
such values stand for them, and one rounding after each operation is what a chip's own instruction does.
Rounding is to nearest, ties to even; the 8-bit formats saturate as the hardware's conversions do (PTX ISA,
`cvt.rn.satfinite`), infinities too; NaN stays.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

# name in Triton -> (torch dtype, largest finite value where the format saturates, dtype of its bits)
FORMATS: dict[str, tuple[torch.dtype, float | None, np.dtype]] = {
    "bf16": (torch.bfloat16, None, np.dtype(np.uint16)),
    "fp8e4nv": (torch.float8_e4m3fn, 448.0, np.dtype(np.uint8)),
    "fp8e5": (torch.float8_e5m2, 57344.0, np.dtype(np.uint8)),
    "fp8e4b8": (torch.float8_e4m3fnuz, 240.0, np.dtype(np.uint8)),
    "fp8e5b16": (torch.float8_e5m2fnuz, 57344.0, np.dtype(np.uint8)),
}


def _tensor(values: NDArray) -> torch.Tensor:
    # Not ascontiguousarray, which makes an array of a number.
    return torch.from_numpy(np.asarray(values, dtype=np.float32, order="C"))


def round_to(values: NDArray, name: str) -> NDArray:
    """float32 values rounded to the format; a new float32 array."""
    dtype, largest, _ = FORMATS[name]
    tensor = _tensor(values)
    if largest is not None:
        tensor = tensor.clamp(-largest, largest)  # keeps NaN
    return tensor.to(dtype).to(torch.float32).numpy()


def round_toward_zero(values: NDArray, name: str) -> NDArray:
    """As `round_to`, but towards zero."""
    nearest = round_to(values, name)
    away = np.abs(nearest) > np.abs(values)
    if not away.any():
        return nearest
    bits = to_bits(nearest, name)
    return np.where(away, from_bits((bits - 1).astype(bits.dtype), name), nearest)  # one step towards zero


def to_bits(values: NDArray, name: str) -> NDArray:
    """Bits of float32 values that the format has exactly."""
    dtype, _, bits = FORMATS[name]
    if name == "bf16":
        upper = np.asarray(values, dtype=np.float32, order="C").view(np.uint32) >> np.uint32(16)
        return upper.astype(np.uint16)
    return _tensor(values).to(dtype).view(torch.uint8).numpy().view(bits)


def from_bits(bits: NDArray, name: str) -> NDArray:
    """float32 values of an array of bits."""
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return _TABLES[name][bits]


_TABLES = {
    name: torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).numpy()
    for name, (dtype, _, bits) in FORMATS.items()
    if bits.itemsize == 1
}
