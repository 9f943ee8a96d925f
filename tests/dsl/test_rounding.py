"""Rounding to each dtype equals torch, bit for bit, on random values, ties, subnormals and the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dsl.rounding import BLOCKS, DTYPES, round_blocks, round_to

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


# Block formats --------------------------------------------------------------------------------------------------------

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def element(x: float) -> float:
    """The e2m1 value nearest to x, of two equally near the one with an even code; saturating."""
    gaps = np.abs(E2M1 - min(abs(x), 6.0))
    near = [i for i in range(8) if gaps[i] == gaps.min()]
    return float(np.copysign(E2M1[next((i for i in near if i % 2 == 0), near[0])], x))


def block_by_block(x: np.ndarray, dtype: str) -> np.ndarray:
    """The formats as their specifications say them, one block after another, scales by torch's own dtypes."""
    length = BLOCKS[dtype][0]
    y = np.empty_like(x)
    for row, out in zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, x.shape[-1]), strict=True):
        for i in range(0, len(row), length):
            amax = max(abs(v) for v in row[i : i + length])
            if dtype == "mxfp4":  # OCP Microscaling formats 1.0, section 6.3: the exponent of 4 = 2^2 is the element's
                scale = 2.0 ** max(-127, math.floor(math.log2(amax)) - 2) if amax else 1.0
                assert float(torch.tensor(scale, dtype=torch.float64).float().to(torch.float8_e8m0fnu).float()) == scale
            else:
                scale = float(torch.tensor(amax / 6.0).clamp(max=448).to(torch.float8_e4m3fn).float()) or 1.0
            for j in range(i, min(i + length, len(row))):
                out[j] = element(row[j] / scale) * scale
    return y


@pytest.mark.parametrize("dtype", BLOCKS)
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 5000.0])
def test_block_formats_are_their_specification(dtype, size):
    x = np.random.default_rng(5).standard_normal((3, 5, 75)) * size
    x[0, 0, :40] = 0.0
    x[1] *= np.exp2(np.arange(75) % 9)
    assert np.array_equal(round_blocks(x, dtype), block_by_block(x, dtype))


@pytest.mark.parametrize("dtype", BLOCKS)
def test_block_formats_keep_what_they_hold(dtype):
    x = round_blocks(np.random.default_rng(6).standard_normal((4, 70)), dtype)
    assert np.array_equal(round_blocks(x, dtype), x)


def test_block_formats_at_the_ends():
    x = np.array([[np.nan, 1.0, np.inf, -1e9]])
    mx, nv = round_blocks(x, "mxfp4"), round_blocks(x, "nvfp4")
    assert np.isnan(mx[0, 0]) and np.isnan(nv[0, 0]) and np.isfinite(mx[0, 1:]).all()
    assert nv[0, 1:].tolist() == [0.0, 6 * 448, -6 * 448]  # the scale is 448 at the most
    assert round_blocks(np.array([5.0, 7.9]), "mxfp4").tolist() == [4.0, 6.0]  # 7.9 saturates at the scale of 4..8
    assert round_blocks(np.array([1e-5, -1e-5]), "nvfp4").tolist() == [0.0, 0.0]  # below the least scale


def test_blocks_are_apart():
    """A large value costs its own block precision and no other."""
    x = np.full((1, 64), 1.25)
    x[0, 40] = 1000.0
    y = round_blocks(x, "mxfp4")
    assert y[0, :32].tolist() == [1.25] * 32 or y[0, :32].tolist() == [1.0] * 32
    assert y[0, 32] == 0.0
