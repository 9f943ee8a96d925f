"""The verdict on numbers: honest kernels pass, planted errors are caught, and each question catches its own kind."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dsl.parser import parse
from dsl.rounding import round_to
from evaluators.inputs import Array, generator
from evaluators.oracle import Answer, answers
from evaluators.targets import BUILTIN
from evaluators.tolerance import Verdict, form, small_rows, verdict

ROOT = Path(__file__).resolve().parents[2]


def _benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tolerance_benchmark", ROOT / "benchmarks" / "tolerance.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCHMARK = _benchmark()
NAMES = (*BUILTIN, *BENCHMARK.OWN)


@pytest.mark.parametrize("name", NAMES)
def test_honest_kernels_pass(name: str) -> None:
    for one in BENCHMARK.judgements(BENCHMARK.job(name), 8, seed=101):
        for workload, distribution, found in one:
            assert found.passed, (workload.name, distribution, found.reasons)


@pytest.mark.parametrize(("name", "fault"), [(n, f) for n in NAMES for f in BENCHMARK.faults(n)])
def test_planted_errors_are_caught(name: str, fault: str) -> None:
    for one in BENCHMARK.judgements(BENCHMARK.job(name), 1, fault, seed=202):
        assert any(not found.passed for _, _, found in one)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_honest_draws_give_no_rejection(name: str) -> None:
    judged = [one for everything in BENCHMARK.judgements(BENCHMARK.job(name), 250, seed=303) for one in everything]
    assert len(judged) >= 1000
    assert not [(w.name, d, v.reasons) for w, d, v in judged if not v.passed]


# Each question by itself ---------------------------------------------------------------------------


def _case(shape: tuple[int, ...] = (64, 96), dtype: str = "bf16") -> tuple[Array, Array, Array]:
    """(right values, an honest kernel's, another honest kernel's)."""
    rng = generator(9, shape, dtype)
    right = rng.standard_normal(shape)
    noisy = (right * (1 + 1e-4 * rng.standard_normal(shape)) for _ in range(2))
    honest, got = (round_to(x, dtype) for x in noisy)
    return right, honest, got


def _reasons(found: Verdict) -> str:
    return "; ".join(found.reasons)


def test_two_honest_kernels_agree() -> None:
    for dtype in ("bf16", "f16", "f32", "e4m3"):
        right, honest, got = _case(dtype=dtype)
        if dtype == "f32":
            honest, got = round_to(right, dtype), round_to(right * (1 + 1e-7), dtype)
        found = verdict(got, right, honest, dtype)
        assert found.passed, (dtype, found.reasons)
        assert set(found.evidence) >= {"relative_l2", "largest_error", "worst_row", "worst_column", "bias"}


def test_one_wrong_element_is_named() -> None:
    right, honest, got = _case()
    got[3, 5] += 0.5
    found = verdict(got, right, honest, "bf16")
    assert "largest error" in _reasons(found) and "[3, 5]" in _reasons(found)
    assert found.evidence["largest_error"]["at"] == "[3, 5]"


def test_one_wrong_row_and_one_wrong_column_are_named() -> None:
    right, honest, got = _case((200, 200))
    row, column = got.copy(), got.copy()
    row[17] = round_to(right[17] * 1.015, "bf16")
    column[:, 9] = round_to(right[:, 9] * 1.015, "bf16")
    assert "worst row" in _reasons(verdict(row, right, honest, "bf16"))
    assert "at [17]" in _reasons(verdict(row, right, honest, "bf16"))
    assert "worst column" in _reasons(verdict(column, right, honest, "bf16"))


def test_truncation_leans_to_one_side() -> None:
    right, honest, _ = _case((200, 200))
    cut = (np.ascontiguousarray(right, dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert "lean to one side" in _reasons(verdict(cut.astype(np.float64), right, honest, "bf16"))


def test_a_row_near_zero_is_no_reason() -> None:
    """Where a sum cancels, a relative error says nothing: the row is measured against the whole."""
    right, honest, got = _case((64, 96))
    right[7], honest[7], got[7] = 0.0, 1e-4, -1e-4
    assert verdict(got, right, honest, "bf16").passed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_must_be_where_the_right_answer_has_it(value: float) -> None:
    right, honest, got = _case()
    wrong = got.copy()
    wrong[1, 2] = value
    assert "[1, 2]" in _reasons(verdict(wrong, right, honest, "bf16"))
    right[1, 2] = honest[1, 2] = value
    assert verdict(wrong, right, honest, "bf16").passed
    assert not verdict(got, right, honest, "bf16").passed
    assert not verdict(-wrong if np.isinf(value) else got, right, honest, "bf16").passed


def test_zeros_and_a_right_answer_of_zeros() -> None:
    right, honest, _ = _case()
    nothing = np.zeros_like(right)
    assert "all zeros" in _reasons(verdict(nothing, right, honest, "bf16"))
    assert verdict(nothing, nothing, nothing, "bf16").passed
    assert not verdict(honest, nothing, nothing, "bf16").passed


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_verdict_does_not_depend_on_scale(scale: float) -> None:
    right, honest, got = _case()
    right, honest, got = right * scale, round_to(honest * scale, "bf16"), round_to(got * scale, "bf16")
    assert verdict(got, right, honest, "bf16").passed
    assert not verdict(got * 1.01, right, honest, "bf16").passed
    assert not verdict(np.zeros_like(got), right, honest, "bf16").passed


def test_one_dimension_and_none() -> None:
    right, honest, got = _case((37,), "f32")
    honest, got = round_to(right, "f32"), round_to(right, "f32")
    assert verdict(got, right, honest, "f32").passed
    got[36] += 0.01
    assert "worst block" in _reasons(verdict(got, right, honest, "f32"))
    scalar = np.asarray(2.5)
    assert verdict(scalar, scalar, scalar, "f32").passed
    assert not verdict(np.asarray(2.6), scalar, scalar, "f32").passed


def test_integers_and_bools_must_be_equal() -> None:
    right = np.arange(12).reshape(3, 4)
    assert verdict(right, right, right, "i32").passed
    other = right.copy()
    other[2, 1] = 7
    assert verdict(other, right, right, "i32").reasons == ("1 of 12 differ, first at [2, 1]: 7, not 9",)
    assert not verdict(right > 3, right > 4, right > 4, "bool").passed


def test_shape_and_dtype_are_strict() -> None:
    assert form("bf16", (2, 3), "bf16", (2, 3)) == ()
    assert form("f32", (2, 3), "bf16", (2, 3)) == ("dtype f32, declared bf16",)
    assert form("bf16", (1, 3), "bf16", (2, 3)) == ("shape [1, 3], declared [2, 3]",)


# The other side of a boundary ----------------------------------------------------------------------


NARROW = "kernel f\nin x[r c] f32, w[c] f32\nout y[r c] f32\n{}\ny = q * w\n"


def _answer(body: str, **inputs: Array) -> Answer:
    return answers(parse(NARROW.format(body)), inputs, {})["y"]


def test_a_computed_value_near_to_a_boundary_may_be_rounded_to_either_side() -> None:
    tie = 1 + 2.0**-8  # halfway between two neighbours of bf16, to the even one
    x, w = np.asarray([[1.0, 1.5, 1.25]]), np.ones(3)
    for scale in (tie, tie * (1 + 2.0**-20), tie * (1 - 2.0**-20)):
        found = _answer(f"q[r c] bf16 = x * {scale!r}", x=x, w=w)
        assert sorted((found.oracle[0, 0], found.honest[0, 0])) == [1.0, 1 + 2.0**-7]
        assert np.array_equal(found.oracle[0, 1:], found.honest[0, 1:])  # these are far from a boundary
        assert verdict(found.honest, found.oracle, found.honest, "f32").passed
    far = _answer(f"q[r c] bf16 = x * {tie * (1 + 2.0**-12)!r}", x=x, w=w)
    assert np.array_equal(far.oracle, far.honest)


def test_what_is_no_sum_of_float32_has_one_side() -> None:
    """Inputs, what is chosen among them, and a program that names nothing between: the yardstick is what it was."""
    x, w = np.asarray([[1 + 2.0**-8, 1.5, 1.25]]), np.ones(3)
    for value in ("x", "max(x, 0)", "where(x > 1, -x, x)", "f32(x)"):
        found = _answer(f"q[r c] bf16 = {value}", x=x, w=w)
        assert np.array_equal(found.oracle, found.honest), value
    assert not np.array_equal(*_both(_answer("s[r c] f32 = x * 1.0\nq[r c] bf16 = s", x=x, w=w)))
    assert np.array_equal(*_both(_answer("q[r c] = x * 1.0", x=x, w=w)))


def _both(found: Answer) -> tuple[Array, Array]:
    return found.oracle, found.honest


def test_an_integer_rounded_at_a_half_may_be_either() -> None:
    program = parse("kernel f\nin x[r c] f32\nout q[r c] int8, s[r] f32\nq, s[r] = quantize(x, int8)\n")
    x = np.asarray([[127.0, 2.5, 3.0, -7.5 * (1 + 2.0**-21)]])
    found = answers(program, {"x": x}, {})["q"]
    assert found.oracle.tolist() == [[127, 2, 3, -8]] and found.honest.tolist() == [[127, 3, 3, -7]]
    for got, passed in (([[127, 2, 3, -7]], True), ([[127, 3, 3, -8]], True), ([[127, 2, 4, -8]], False)):
        assert verdict(np.asarray(got), found.oracle, found.honest, "int8").passed == passed


def test_small_rows_are_asked_for_by_their_own_size() -> None:
    """One flushed to zero is nothing beside the whole; rounded as its dtype is, it is right."""
    rng = np.random.default_rng(3)
    scale = np.exp2([0.0, 0.0, -13.0, -15.0, -22.0])[:, None]
    oracle = rng.standard_normal((5, 512)) * scale
    honest = round_to(oracle, "bf16").astype(np.float64)
    assert small_rows(honest, oracle, honest, "bf16") == ""
    flushed = honest.copy()
    flushed[3] = 0.0
    assert verdict(flushed, oracle, honest, "bf16").passed
    assert small_rows(flushed, oracle, honest, "bf16").startswith("1 of 2 rows that are small beside the others")
    for row, other in ((4, 0.0), (0, honest[1])):  # what may be noise; what is not small, and others look at
        changed = honest.copy()
        changed[row] = other
        assert small_rows(changed, oracle, honest, "bf16") == ""
    unsure = honest.copy()
    unsure[3] *= 1.1  # an honest answer that is off there tells nothing
    assert small_rows(flushed, oracle, unsure, "bf16") == ""
    assert small_rows(flushed[3], oracle[3], honest[3], "bf16") == small_rows(flushed, oracle, honest, "int8") == ""
