"""Rounding to each dtype equals torch, bit for bit, on random values, ties, subnormals and the edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dsl.rounding import DTYPES, round_to

TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}
TORCH |= {"e5m2": torch.float8_e5m2}


def values():
    """float32 values, so that torch rounds once: every 16-bit prefix, its neighbours and midpoints."""
    rng = np.random.default_rng(5)
    prefixes = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32)
    halves = ((np.arange(2**16, dtype=np.uint32) << 16) | 0x8000).view(np.float32)
    above = ((np.arange(2**16, dtype=np.uint32) << 16) | 0x8001).view(np.float32)
    scaled = rng.standard_normal(20000) * np.exp2(rng.uniform(-30, 20, 20000))
    steps = np.arange(-2000, 2000) / 2.0**12
    return np.concatenate([prefixes, halves, above, scaled.astype(np.float32), steps.astype(np.float32)])


@pytest.mark.parametrize("dtype", TORCH)
def test_equals_torch(dtype):
    x = values()
    with np.errstate(all="ignore"):
        found = round_to(x, dtype)
    source = torch.from_numpy(x)
    if DTYPES[dtype].saturates:  # torch's casts to 8 bits do not saturate
        largest = DTYPES[dtype].largest
        source = source.clamp(-largest, largest)
    expected = source.to(TORCH[dtype]).double().numpy()
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found[~np.isnan(x)]), np.signbit(expected[~np.isnan(x)]))


@pytest.mark.parametrize("dtype", TORCH)
def test_every_value_of_the_dtype_stays(dtype):
    width = DTYPES[dtype].bits
    raw = torch.arange(2 ** min(width, 16), dtype=torch.int64)
    if width == 32:
        raw = raw << 16
    kind = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[width]
    x = raw.to(kind).view(TORCH[dtype]).double().numpy()
    expected = x if not DTYPES[dtype].saturates else np.where(np.isinf(x), np.copysign(DTYPES[dtype].largest, x), x)
    assert np.array_equal(round_to(x, dtype), expected, equal_nan=True)


@pytest.mark.parametrize("dtype", TORCH)
def test_a_float64_is_rounded_once(dtype):
    """Through float32 a value a little above a tie would round down to it, and then to even."""
    step = 2.0 ** -DTYPES[dtype].mantissa
    tie = 1 + step / 2
    assert round_to(np.array([tie, tie * (1 + 1e-15), tie * (1 - 1e-15)]), dtype).tolist() == [1.0, 1 + step, 1.0]


@pytest.mark.parametrize(
    "dtype, largest", [("f16", 65504.0), ("bf16", 3.3895313892515355e38), ("f32", 3.4028234663852886e38)]
)
def test_wide_ones_overflow_to_infinity(dtype, largest):
    assert DTYPES[dtype].largest == largest == float(torch.finfo(TORCH[dtype]).max)
    assert round_to(np.array([largest, largest * 2, -largest * 2, np.inf]), dtype).tolist() == [
        largest,
        np.inf,
        -np.inf,
        np.inf,
    ]


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2", "mxfp4", "nvfp4", "int8", "i32"])
def test_narrow_ones_saturate_and_keep_nan(dtype):
    low, high = -DTYPES[dtype].largest, DTYPES[dtype].largest
    if DTYPES[dtype].kind == "int":
        low = DTYPES[dtype].smallest
    found = round_to(np.array([1e30, -1e30, np.inf, -np.inf, np.nan]), dtype)
    assert found[:4].tolist() == [high, low, high, low] and np.isnan(found[4])


def test_fp4_has_sixteen_values():
    x = np.linspace(-8, 8, 100_001)
    assert sorted(set(np.abs(round_to(x, "nvfp4")))) == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert round_to(np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]), "mxfp4").tolist() == [0, 1, 1, 2, 2, 4, 4]


def test_integers_round_half_to_even():
    assert round_to(np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5]), "int8").tolist() == [0, 2, 2, 0, -2, 126, 127]


def test_bool_and_f64():
    assert round_to(np.array([0.0, 2.0, np.nan]), "bool").tolist() == [False, True, True]
    assert round_to(np.array([0.1]), "f64").tolist() == [0.1]
    with pytest.raises(KeyError):
        round_to(np.array([1.0]), "f8")
