"""Exponentials by polynomial: the stated error, awkward values, which columns, and where the check allows them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dsl import polynomial
from dsl.anatomy import anatomies
from dsl.elaborate import elaborate
from dsl.hardware import hardware
from dsl.knobs import knobs
from dsl.lowering import lower
from dsl.parser import parse
from dsl.work import work

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SIZES = {"b": 1, "h": 2, "g": 2, "m": 512, "n": 512, "d": 128, "e": 128}
ATTENTION = (EXAMPLES / "attention.avo").read_text()


def test_the_stated_error_holds_in_f32_and_is_below_half_an_ulp_of_f16() -> None:
    x = np.linspace(-126, 127, 1_000_001).astype(np.float32)
    n = (x + np.float32(12583039.0)) - np.float32(12583039.0)
    f = x - n
    p = np.float32(1.0) + np.zeros_like(f)
    c1, c2, c3 = map(np.float32, polynomial.COEFFICIENTS)
    p = ((c3 * f + c2) * f + c1) * f + np.float32(1.0)
    exact = np.exp2(x.astype(np.float64))
    for found in (polynomial.exp2(x), p.astype(np.float64) * np.exp2(n.astype(np.float64))):
        assert np.abs(found / exact - 1).max() < polynomial.ERROR < 2**-12


def test_awkward_values() -> None:
    given = np.array([-np.inf, -1e30, -127.0, -126.7, 0.0, 1.0, -3.0, 128.0, 1e30, np.inf, np.nan])
    wanted = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.125, np.inf, np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(polynomial.exp2(given), wanted)


@pytest.mark.parametrize("share", [2, 4, 8])
def test_one_of_so_many_columns_and_no_other(share: int) -> None:
    x = np.full((3, 32), 0.3)
    off = polynomial.shared_exp2(x, share) != np.exp2(x)
    assert off.sum() == x.size // share and (off == off[0]).all()
    assert not (polynomial.shared_exp2(x[:, : share // 2], share) != np.exp2(x[:, : share // 2])).any()


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        ("in x[r c] bf16\nout y[r c] bf16\ny = softmax[c](x)\n", ()),
        ("in x[r c] bf16\nout y[r c] f32\ny = softmax[c](x)\n", ("y",)),
        ("in x[r c] bf16\nout y[r c] f32\np[r c] bf16 = softmax[c](x)\ny = p * 2\n", ()),
        ("in x[r c] bf16\nout y[r] bf16\ny = log(sum[c](exp(x)))\n", ("y",)),
        ("in x[r c] bf16\nout y[r] i32\ny = sum[c](where(exp(x) > 2, 1, 0))\n", ("y",)),
        ("in x[r c] bf16, w[c k] bf16\nout y[r k] f32\ny = sum[c](exp(x) * w)\n", ()),
        ("in x[r c] f32, w[c k] f32\nout y[r k] f32\ny = sum[c](exp(x) * w)\n", ("y",)),
        ("in x[r c] bf16\nout y[r c] bf16\ny = exp(exp(x))\n", ("y",)),
        ("in x[r c] f32\nout y[r c] f32\ny = x * 2\n", ()),
    ],
)
def test_where_the_error_would_show(text: str, shows: tuple[str, ...]) -> None:
    program = parse("kernel t\n" + text)
    assert polynomial.exact_outputs(elaborate(program)[0]) == shows == anatomies(program)[0].exact_outputs


def test_the_knob_offers_what_the_check_accepts() -> None:
    def offered(name: str) -> tuple[object, ...]:
        found = knobs(parse((EXAMPLES / f"{name}.avo").read_text()), hardware("b200"))
        return next(k.legal for k in found if k.directive == "exponent")

    assert offered("attention") == ("exp", "exp2", "poly(8)", "poly(4)", "poly(2)")
    assert offered("attention_lse") == ("exp", "exp2")


def test_the_share_is_counted_and_printed() -> None:
    counts = {}
    for how, functions in (("exp2", 0), ("poly(2)", 2), ("poly(4)", 3), ("poly(8)", 4)):
        lowered = lower(parse(ATTENTION.replace("exponent exp2", f"exponent {how}")), hardware("h200"), SIZES)
        loop = next(s for s in lowered.kernels[0].profile(SIZES, {"causal": False}).segments if s.name == "loop")
        counts[how] = loop.exps, loop.alu
        assert len(re.findall(r"^def exp2_\w+", lowered.source, re.M)) == functions
    tile = 128 * 64
    for n in (2, 4, 8):
        assert counts[f"poly({n})"][0] == counts["exp2"][0] - tile / n
        assert counts[f"poly({n})"][1] == counts["exp2"][1] + polynomial.OPERATIONS * tile / n


def test_only_what_was_not_compared_with_its_maximum_is_guarded_against_overflow() -> None:
    guard = "tl.minimum("
    assert f"exp2_one_in_8({guard}" not in lower(
        parse(ATTENTION.replace("exponent exp2", "exponent poly(8)")), hardware("h200"), SIZES
    ).source.replace("tl.minimum(N", "")
    text = "kernel t\nin x[r c] bf16\nout y[r c] bf16\ny = exp(x)\n\nschedule\nexponent poly(2)\n"
    assert f"exp2_one_in_2({guard}" in lower(parse(text), hardware("h200")).source


def test_the_work_tells_what_a_polynomial_may_replace() -> None:
    attention = work(parse(ATTENTION), SIZES, {"causal": False})
    assert attention.replaceable == 2 * 512 * 512 < attention.exps
    lse = work(parse((EXAMPLES / "attention_lse.avo").read_text()), SIZES, {"causal": False})
    assert lse.replaceable == 0 < lse.exps
