"""Inputs: reproducible from a seed, representable in their dtype, within range where they index."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dsl.parser import parse
from dsl.rounding import round_to
from evaluators import inputs as inputs_module
from evaluators.inputs import (
    DISTRIBUTIONS,
    decode,
    default_inputs,
    draw,
    draw_inputs,
    encode,
    extents,
    generator,
    indexed_axes,
    input_shapes,
    representable,
)
from evaluators.target import Target, TargetError, Workload

TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "int8": torch.int8,
    "i32": torch.int32,
    "bool": torch.bool,
}

PROGRAM = parse(
    """kernel gathered
in  x[r c] bf16, t[r] i32, u[r] i32, s[b] f32
out y[r] f32
axis b = r // 4
y = x[r t] + x[r (u + 1)] * s
"""
)
SIZES = Workload({"r": 10, "c": 7})


def test_the_same_seed_and_labels_give_the_same_numbers_and_others_do_not() -> None:
    def first(*labels: object) -> float:
        return float(generator(*labels).random())  # type: ignore[arg-type]

    assert first(3, "a", 1) == first(3, "a", 1)
    assert len({first(3, "a", 1), first(4, "a", 1), first(3, "b", 1), first(3, "a", 2), first(3, "a1")}) == 5


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_drawn_values_cross_to_a_worker_unchanged(dtype: str, distribution: str) -> None:
    array = draw((6, 40), dtype, distribution, generator(1, dtype, distribution))
    data = encode(array, dtype)
    tensor = torch.frombuffer(bytearray(data), dtype=TORCH[dtype]).reshape(6, 40)
    assert np.array_equal(tensor.double().numpy(), array.astype(np.float64))
    assert np.array_equal(decode(data, dtype, (6, 40)), array)
    assert np.isfinite(array.astype(np.float64)).all()


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_every_code_of_an_8_bit_float_is_read_and_written_as_torch_does(dtype: str) -> None:
    data = bytes(range(256))
    ours = decode(data, dtype, (256,))
    theirs = torch.frombuffer(bytearray(data), dtype=TORCH[dtype]).double().numpy()
    np.testing.assert_array_equal(ours, theirs)
    finite = np.isfinite(ours)
    assert np.frombuffer(encode(ours, dtype), "u1")[finite].tolist() == np.arange(256)[finite].tolist()
    np.testing.assert_array_equal(decode(encode(ours, dtype), dtype, (256,)), ours)


def test_decode_refuses_bytes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="no bf16 array of shape"):
        decode(b"abcdef", "bf16", (2,))


def test_distributions_are_what_their_names_say() -> None:
    values = {name: draw((64, 128), "f32", name, generator(0, name)) for name in DISTRIBUTIONS}
    assert abs(values["normal"].std() - 1) < 0.05
    by_channel = np.abs(values["outlier_channels"]).mean(axis=0)
    assert by_channel.max() > 6 * np.median(by_channel)
    by_row = values["large_logits"].std(axis=1)
    assert by_row.max() > 4 * by_row.min() and by_row.max() > 6
    assert abs(abs(values["near_constant"].mean()) - 4) < 0.1 and values["near_constant"].std() < 0.3
    # attention over near-constant rows: the scores' common offset overflows exp in float32
    assert np.log(np.finfo(np.float32).max) < 16 * 64**0.5


def test_an_index_stays_within_the_axis_that_it_reads() -> None:
    assert indexed_axes(PROGRAM.algorithm) == {"t": {"c"}, "u": {"c"}}
    for distribution in DISTRIBUTIONS:
        inputs = default_inputs(PROGRAM.algorithm, SIZES, distribution, generator(2, distribution))
        assert list(inputs) == ["x", "t", "u", "s"]
        assert inputs["t"].min() >= 0 and inputs["t"].max() < 7
    ends = default_inputs(PROGRAM.algorithm, Workload({"r": 400, "c": 7}), "large_logits", generator(2))
    assert set(ends["t"].tolist()) == {0, 6}


def test_extents_of_coarse_axes_follow() -> None:
    assert extents(PROGRAM.algorithm, SIZES) == {"r": 10, "c": 7, "b": 3}
    assert input_shapes(PROGRAM.algorithm, SIZES) == {"x": (10, 7), "t": (10,), "u": (10,), "s": (3,)}
    with pytest.raises(TargetError, match="r=10: the extent of axis c is not given"):
        input_shapes(PROGRAM.algorithm, Workload({"r": 10}))


def _target(make_inputs: object) -> Target:
    return Target("mine", lambda x: x, "", (SIZES,), make_inputs=make_inputs)  # type: ignore[arg-type]


def test_a_targets_own_inputs_are_rounded_to_the_declared_dtype() -> None:
    def make(workload: Workload, distribution: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
        r, c = workload.sizes["r"], workload.sizes["c"]
        return {"x": rng.random((r, c)), "t": np.zeros(r, int), "u": np.zeros(r, int), "s": rng.random(3)}

    inputs = draw_inputs(_target(make), PROGRAM.algorithm, SIZES, "normal", generator(0))
    assert np.array_equal(inputs["x"], round_to(inputs["x"], "bf16"))
    assert np.array_equal(inputs["s"], inputs["s"].astype(np.float32))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda *_: 1 / 0, "make_inputs raised ZeroDivisionError"),
        (lambda *_: {"x": np.zeros((10, 7))}, "must give exactly x, t, u, s; got x"),
        (lambda *_: None, "must give exactly x, t, u, s; got NoneType"),
        (
            lambda *_: {"x": np.zeros((7, 10)), "t": np.zeros(10), "u": np.zeros(10), "s": np.zeros(3)},
            r"gave x the shape \(7, 10\); r=10,c=7 needs \(10, 7\)",
        ),
    ],
)
def test_a_targets_own_inputs_that_are_wrong_are_the_targets_mistake(make: object, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        draw_inputs(_target(make), PROGRAM.algorithm, SIZES, "normal", generator(0))


def test_many_values_are_drawn_and_rounded_by_all_cores_and_stay_the_same(monkeypatch):
    """Weights of a public size took one core the better part of a minute; the pieces must not depend on the cores."""
    monkeypatch.setattr(inputs_module, "_LARGE", 1000)
    monkeypatch.setattr(inputs_module, "_PIECE", 300)
    drawn = []
    for cores in (1, 3):
        monkeypatch.setattr(inputs_module, "cores", lambda cores=cores: cores)
        for distribution in DISTRIBUTIONS:
            drawn.append(draw((70, 23), "bf16", distribution, generator(5, distribution)))
    half = len(drawn) // 2
    assert all(np.array_equal(one, other) for one, other in zip(drawn[:half], drawn[half:], strict=True))
    plain = drawn[list(DISTRIBUTIONS).index("normal")]
    assert np.array_equal(plain, round_to(plain, "bf16")) and len(np.unique(plain)) > 400
    assert abs(plain.mean()) < 0.1 and abs(plain.std() - 1) < 0.1
    assert not np.array_equal(plain[:13], plain[13:26]), "each piece has a stream of its own"
    values = np.random.default_rng(0).standard_normal((70, 23))
    for dtype in ("bf16", "e4m3", "f16", "f32"):
        assert np.array_equal(representable(values, dtype), round_to(values, dtype))
