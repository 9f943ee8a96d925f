"""The rules of the language, one by one, against NumPy written by hand."""

from __future__ import annotations

import math
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.diagnostics import ProgramError
from dsl.extents import extents_of
from dsl.meaning import evaluate
from dsl.named_arrays import Named, contract
from dsl.parser import parse
from dsl.rounding import round_blocks, round_to

rng = np.random.default_rng(1)
X = rng.standard_normal((5, 7))
W = rng.standard_normal(7)


def run(body, inputs=None, params=None, mode="exact", want=None, decl="in x[m n] f32, w[n] f32"):
    program = parse(f"kernel f\n{decl}\n{body}\n")
    return evaluate(program, {"x": X, "w": W} if inputs is None else inputs, params, mode, want)


def value(expr, axes="m n", dtype="f64", **kw):
    """The value of one expression over x[m n], w[n]."""
    return run(f"out y[{axes}] {dtype}\ny = {expr}", **kw)["y"]


def same(found, expected):
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


# Elementwise -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expr, expected",
    [
        ("x + w * 2 - 1", X + W * 2 - 1),
        ("-x / w", -X / W),
        ("exp(x)", np.exp(X)),
        ("exp2(x) + log2(abs(x)) + log(abs(x))", np.exp2(X) + np.log2(abs(X)) + np.log(abs(X))),
        ("sqrt(abs(x)) * rsqrt(abs(x))", np.ones_like(X)),
        ("tanh(x) + sin(x) + cos(x)", np.tanh(X) + np.sin(X) + np.cos(X)),
        ("sigmoid(x)", 1 / (1 + np.exp(-X))),
        ("silu(x)", X / (1 + np.exp(-X))),
        ("relu(x)", np.maximum(X, 0)),
        ("erf(x)", np.vectorize(math.erf)(X)),
        ("gelu(x)", 0.5 * X * (1 + np.vectorize(math.erf)(X / math.sqrt(2)))),
        ("gelu_tanh(x)", 0.5 * X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))),
        ("softplus(x)", np.log1p(np.exp(X))),
        ("floor(x)", np.floor(X)),
        ("min(x, 0.5) + max(x, w)", np.minimum(X, 0.5) + np.maximum(X, W)),
        ("clamp(x, -1, 0.5)", np.clip(X, -1, 0.5)),
        ("where(x > 0 and not x > 1 or x == w, x, -w)", np.where(((X > 0) & (X <= 1)) | (X == W), X, -W)),
        ("where(m >= n, x, 0)", np.tril(X)),
        ("where(m + N - M >= n, x, 0)", np.tril(X, 2)),
        ("x * M + N // 2 + 7 % 4", X * 5 + 3 + 3),
        ("m * 10 + n + x * 0", np.arange(5)[:, None] * 10 + np.arange(7)),
        ("x * (m % 3) + n // 2", X * (np.arange(5) % 3)[:, None] + np.arange(7) // 2),
        ("(x > 0) * 2 + (x > 1)", (X > 0) * 2.0 + (X > 1)),
    ],
)
def test_elementwise(expr, expected):
    same(value(expr), expected)


def test_integers_stay_integers():
    y = value("(m - 3) // 2 + n * 0", dtype="i32")
    assert y.dtype == np.int64 and y[:, 0].tolist() == [-2, -1, -1, 0, 0]
    assert value("x > 0", dtype="bool").dtype == bool


def test_division_by_zero_and_log_of_zero_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = value("(x * 0 + 1) / (n - 1) + log(n * 0)")
        assert np.isneginf(y[:, 2]).all()
        assert np.isnan(value("(x - x) / (x - x)")).all()
        assert np.isinf(value("exp(x + 1000)")).all()


# Reductions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expr, axes, expected",
    [
        ("sum[n](x)", "m", X.sum(1)),
        ("sum[m n](x)", "", X.sum()),
        ("sum[n](x * w)", "m", X @ W),
        ("sum[n](x * w * exp(w))", "m", X @ (W * np.exp(W))),
        ("sum[m](x * w * 2)", "n", X.sum(0) * W * 2),
        ("sum[m n](x * w)", "", (X @ W).sum()),
        ("mean[m](x)", "n", X.mean(0)),
        ("mean[m n](x)", "", X.mean()),
        ("max[n](x)", "m", X.max(1)),
        ("min[m n](x)", "", X.min()),
        ("prod[n](x)", "m", X.prod(1)),
        ("any[n](x > 1)", "m", (X > 1).any(1)),
        ("all[n](x > -2)", "m", (X > -2).all(1)),
        ("argmax[n](x)", "m", X.argmax(1)),
        ("runsum[n](x)", "m n", X.cumsum(1)),
        ("runmax[m](x)", "m n", np.maximum.accumulate(X, 0)),
        ("softmax[n](x)", "m n", np.exp(X) / np.exp(X).sum(1, keepdims=True)),
        ("softmax[m n](x)", "m n", np.exp(X) / np.exp(X).sum()),
        ("sum[n](n + m * 0)", "m", [21] * 5),
        ("sum[n](x > 0)", "m", (X > 0).sum(1)),
    ],
)
def test_reductions(expr, axes, expected):
    same(value(expr, axes), expected)


BLOCKS = "in x[m n] f32\naxis nb = n // 3\naxis mb = m // 2"
CUT = [X[:, i : i + 3] for i in (0, 3, 6)]


@pytest.mark.parametrize(
    "expr, axes, expected",
    [
        ("sum[n in nb](x)", "m nb", np.stack([c.sum(1) for c in CUT], 1)),
        ("sum[n in nb](x * x)", "m nb", np.stack([(c * c).sum(1) for c in CUT], 1)),
        ("mean[n in nb](x)", "m nb", np.stack([c.mean(1) for c in CUT], 1)),
        ("max[n in nb](x)", "m nb", np.stack([c.max(1) for c in CUT], 1)),
        ("min[n in nb](x)", "m nb", np.stack([c.min(1) for c in CUT], 1)),
        ("prod[n in nb](x)", "m nb", np.stack([c.prod(1) for c in CUT], 1)),
        ("all[n in nb](x > -1)", "m nb", np.stack([(c > -1).all(1) for c in CUT], 1)),
        ("any[n in nb](x > 1)", "m nb", np.stack([(c > 1).any(1) for c in CUT], 1)),
        ("argmax[n in nb](x)", "m nb", np.stack([c.argmax(1) + 3 * i for i, c in enumerate(CUT)], 1)),
        ("runmax[n in nb](x)", "m nb", np.maximum.accumulate(np.stack([c.max(1) for c in CUT], 1), 1)),
        ("runsum[n in nb](x)", "m nb", np.cumsum(np.stack([c.sum(1) for c in CUT], 1), 1)),
        ("mean[m n in nb](x)", "nb", np.array([c.mean() for c in CUT])),
        ("mean[m in mb n in nb](x)", "nb mb", np.array([[c[i : i + 2].mean() for i in (0, 2, 4)] for c in CUT])),
        (
            "softmax[n in nb](x)",
            "m n",
            np.concatenate([np.exp(c) / np.exp(c).sum(1, keepdims=True) for c in CUT], 1),
        ),
        ("sum[nb](sum[n in nb](x))", "m", X.sum(1)),
        ("topk[n in nb](x, 1)", "m n", np.concatenate([c == c.max(1, keepdims=True) for c in CUT], 1)),
    ],
)
def test_block_reductions(expr, axes, expected):
    """Rule 5: the last block holds one member."""
    dtype = "bool" if np.asarray(expected).dtype == bool else "f64"
    same(value(expr, axes, dtype, inputs={"x": X}, decl=BLOCKS), expected)


def test_an_infinity_in_a_ragged_block_does_not_meet_the_filling():
    x = X.copy()
    x[2, 6] = np.inf
    y = value("sum[n in nb](x * (m + 1))", "m nb", inputs={"x": x}, decl=BLOCKS)
    assert np.isposinf(y[2, 2]) and np.isfinite(np.delete(y.ravel(), 8)).all()


# Coarse axes -------------------------------------------------------------------------------------


def test_a_coarse_axis_is_read_at_the_fine_one():
    """Rule 3, also for indices, in any operand order, and inside out."""
    s = rng.standard_normal(3)
    decl = "in x[m n] f32, s[nb] f32\naxis nb = n // 3"
    at = np.arange(7) // 3
    for expr, expected in [
        ("x * s", X * s[at]),
        ("s - x", s[at] - X),
        ("x + nb", X + at),
        ("nb * 3 + x * 0 + s * 0", X * 0 + at * 3),
        ("x + (s + nb)", X + s[at] + at),
        ("where(nb == 1, x, s)", np.where(at == 1, X, s[at])),
    ]:
        same(value(expr, inputs={"x": X[:, :6], "s": s[:2]}, decl=decl), expected[:, :6])
    same(value("exp(s) + nb", "nb", inputs={"x": X[:, :6], "s": s[:2]}, decl=decl), np.exp(s[:2]) + np.arange(2))


def test_chains_of_coarse_axes():
    decl = "in x[n] f32, a[c] f32, b[d] f32\naxis c = n // 2\naxis d = c // 3"
    x, a, b = rng.standard_normal(12), rng.standard_normal(6), rng.standard_normal(2)
    n = np.arange(12)
    give = {"x": x, "a": a, "b": b}
    same(value("x * b", "n", inputs=give, decl=decl), x * b[n // 6])
    same(value("a * b", "c", inputs=give, decl=decl), a * b[np.arange(6) // 3])
    same(value("x + a * b", "n", inputs=give, decl=decl), x + (a * b[np.arange(6) // 3])[n // 2])
    same(value("sum[n in d](x)", "d", inputs=give, decl=decl), x.reshape(2, 6).sum(1))
    same(value("sum[n](x * a * b)", "", inputs=give, decl=decl), (x * a[n // 2] * b[n // 6]).sum())
    same(value("sum[c in d](a * b)", "d", inputs=give, decl=decl), a.reshape(2, 3).sum(1) * b)


def test_one_operand_with_both_axes_is_its_diagonal():
    x = rng.standard_normal((6, 3))
    decl = "in x[n nb] f32\naxis nb = n // 2"
    expected = x[np.arange(6), np.arange(6) // 2]
    same(value("x + 0", "n", inputs={"x": x}, decl=decl), expected)
    same(value("sum[n](x)", "", inputs={"x": x}, decl=decl), expected.sum())


def test_a_reduction_over_one_part_of_a_group():
    p, g = rng.standard_normal((6, 4)), rng.standard_normal((6, 5))
    decl = "in p[h m] f32, v[h e] f32, k[g] f32\naxis g = h // (H // G)"
    y = value("sum[h in g](p * v)", "g m e", inputs={"p": p, "v": g, "k": np.ones(2)}, decl=decl)
    same(y, np.einsum("ghm,ghe->gme", p.reshape(2, 3, 4), g.reshape(2, 3, 5)))


def test_free_axes():
    y = value("x * 0 + j + w * 0", "j m n", decl="in x[m n] f32, w[n] f32\naxis j = M // 2 + 1")
    same(y, np.broadcast_to(np.arange(3.0)[:, None, None], (3, 5, 7)))


# Reads by position -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expr, axes, expected",
    [
        ("x[m (n + 1)]", "m n", np.pad(X, ((0, 0), (0, 1)))[:, 1:]),
        ("x[m (n - 2)]", "m n", np.pad(X, ((0, 0), (2, 0)))[:, :7]),
        ("x[m (N - 1 - n)]", "m n", X[:, ::-1]),
        ("x[(2) n]", "n", X[2]),
        ("x[m 3] * w", "m n", X[:, 3:4] * W),
        ("x[n m]", "n m", np.pad(X, ((0, 2), (0, 0)))[:, :5]),
        ("x[m m]", "m", X[np.arange(5), np.arange(5)]),
        ("x[(99) n]", "n", np.zeros(7)),
        ("x[(-1) n]", "n", np.zeros(7)),
        ("sum[n](x[m (n * 2)])", "m", X[:, ::2].sum(1)),
        ("w[n] * x", "m n", X * W),
    ],
)
def test_reads(expr, axes, expected):
    """Rule 7: out of range reads 0, and a negative index does not count from the end."""
    same(value(expr, axes), expected)


def test_a_read_by_an_integer_tensor():
    t = np.array([3, 0, 9, -1, 6], dtype=np.int32)
    y = value("x[m t] + x[t (0)]", "m", inputs={"x": X, "t": t}, decl="in x[m n] f32, t[m] i32")
    padded = np.pad(X, ((0, 9), (0, 9)))
    same(y, [padded[i, max(j, -1)] * (j >= 0) + padded[max(j, 0), 0] * (j >= 0) for i, j in enumerate(t)])


def test_a_convolution():
    x, f = rng.standard_normal((4, 9)), rng.standard_normal((2, 4, 3))
    y = value("sum[c u](x[c (t + u - 1)] * f)", "o t", inputs={"x": x, "f": f}, decl="in x[c t] f32, f[o c u] f32")
    padded = np.pad(x, ((0, 0), (1, 1)))
    same(y, np.stack([[np.sum(padded[:, i : i + 3] * f[o]) for i in range(9)] for o in range(2)]))


def test_a_read_with_a_coarse_index():
    decl = "in x[m n] f32, s[n] f32\naxis nb = n // 2"
    y = value("s[nb] + x * 0", inputs={"x": X, "s": W}, decl=decl)
    same(y, np.broadcast_to(W[np.arange(7) // 2], X.shape))


# Softmax, selection ------------------------------------------------------------------------------


def test_softmax_of_all_minus_infinity_is_zero():
    y = value("softmax[n](where(m > 1 and n < m, x, -inf))")
    assert (y[:2] == 0).all()
    same(y[2:].sum(1), np.ones(3))


def test_topk_takes_exactly_k_and_the_lowest_index_first():
    x = np.array([[1.0, 3, 3, 3, 0], [2, 2, 2, 2, 2], [-np.inf, 1, -np.inf, -np.inf, 0]])
    top = value("topk[n](x, 2)", dtype="bool", inputs={"x": x}, decl="in x[m n] f32")
    assert top.tolist() == [[0, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 1, 0, 0, 1]]
    low = value("bottomk[n](x, N // 2)", dtype="bool", inputs={"x": x}, decl="in x[m n] f32")
    assert low.tolist() == [[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0]]
    assert not value("topk[n](x, 0)", dtype="bool").any() and value("topk[n](x, N)", dtype="bool").all()
    for count in ("N + 1", "-1", "1.5"):
        with pytest.raises(ValueError, match=r"whole number from 0 to 7"):
            value(f"topk[n](x, {count})", dtype="bool")


# Roundings ---------------------------------------------------------------------------------------


def test_a_declared_dtype_rounds_wherever_the_name_is_read():
    body = "out y[m n] f16\nz[m n] bf16 = x * 3\nu[m n] = z + w\ny = u * u"
    exact, rounded = (run(body, mode=mode, want=["z", "u"]) for mode in ("exact", "rounded"))
    same(exact["y"], (X * 3 + W) ** 2)
    x, w = round_to(X, "f32"), round_to(W, "f32")
    z = round_to(x * 3, "bf16")
    assert np.array_equal(rounded["z"], z)
    assert np.array_equal(rounded["u"], z + w)  # undeclared: never rounded by name
    assert np.array_equal(rounded["y"], round_to((z + w) ** 2, "f16"))


def test_casts_round_in_rounded_mode_only():
    same(value("e4m3(x * 100)"), X * 100)
    y = value("e4m3(x * 1000)", mode="rounded")
    assert np.array_equal(y, round_to(round_to(X, "f32") * 1000, "e4m3")) and abs(y).max() == 448
    assert np.array_equal(value("int8(x * 100)", mode="rounded"), round_to(round_to(X, "f32") * 100, "int8"))
    assert value("bool(x)", dtype="bool").all()


def test_a_sum_in_a_declared_dtype_rounds_its_result():
    y = run("out y[m] f32\nz[m] f16 = sum[n](x * w)\ny = z", mode="rounded")["y"]
    assert np.array_equal(y, round_to(round_to(X, "f32") @ round_to(W, "f32"), "f16"))


def test_an_integer_contraction_is_an_integer():
    a, b = rng.integers(-128, 128, (4, 6), dtype=np.int8), rng.integers(-128, 128, (6, 3), dtype=np.int8)
    y = value("sum[k](a * b)", "m n", "i32", inputs={"a": a, "b": b}, decl="in a[m k] int8, b[k n] int8")
    assert y.dtype == np.int64 and np.array_equal(y, a.astype(int) @ b.astype(int))


@pytest.mark.parametrize("dtype, limit", [("int8", 127), ("e4m3", 448), ("e5m2", 57344), ("mxfp4", 6), ("nvfp4", 6)])
def test_quantize(dtype, limit):
    x = X.copy()
    x[:, 3:6] = 0
    body = f"out y[m n] f64\nq[m n], s[nb] = quantize(x, {dtype})\ny = q * s"
    exact = run(body, {"x": x}, want=["q", "s"], decl=BLOCKS)
    amax = np.array([abs(x[:, i : i + 3]).max() for i in (0, 3, 6)])
    step = np.where(amax == 0, 1, amax / limit)
    same(exact["s"], step)
    same(exact["y"], x)
    rounded = run(body, {"x": round_to(x, "f32")}, mode="rounded", want=["q", "s"], decl=BLOCKS)
    fine = rounded["s"][np.arange(7) // 3]
    round_it = (
        round_blocks if dtype in ("mxfp4", "nvfp4") else round_to
    )  # a block format rounds by its own scales as well
    assert np.array_equal(rounded["q"], round_it(round_to(x, "f32") / fine, dtype))
    assert abs(rounded["q"]).max() == limit


def test_quantize_with_a_limit_over_some_axes_and_none():
    y = run("out q[m n] int8, s[m] f32\nq, s = quantize(x, int8, limit=2.25)", {"x": X}, decl="in x[m n] f32")
    same(y["s"], abs(X).max(1) / 2.25)
    y = run("out q[m n] int8, s[] f32\nq, s = quantize(x * 2, int8)", {"x": X}, decl="in x[m n] f32", mode="rounded")
    assert y["s"].shape == () and y["q"].dtype == np.int64 and abs(y["q"]).max() == 127


def test_a_quantized_product_is_near_the_exact_one():
    body = (
        "out y[m n] f32\nqa[m k], sa[m] = quantize(a, int8)\nqb[k n], sb[n] = quantize(b, int8)\n"
        "y = sum[k](qa * qb) * sa * sb"
    )
    a, b = rng.standard_normal((20, 64)), rng.standard_normal((64, 9))
    give, decl = {"a": a, "b": b}, "in a[m k] f32, b[k n] f32"
    same(run(body, give, decl=decl)["y"], a @ b)
    error = np.linalg.norm(run(body, give, decl=decl, mode="rounded")["y"] - a @ b) / np.linalg.norm(a @ b)
    assert 1e-3 < error < 3e-2


# Params, outputs, collectives --------------------------------------------------------------------


def test_params():
    decl = "in x[m n] f32\nparam flip bool = false\nparam shift int = 1\nparam scale f32"
    body = "out y[m n] f64\ny = where(flip, -x, x) * scale + shift"
    same(run(body, {"x": X}, {"scale": 0.1}, decl=decl)["y"], X * 0.1 + 1)
    same(run(body, {"x": X}, {"scale": 2, "flip": True, "shift": -4}, decl=decl)["y"], -X * 2 - 4)
    y = run(body, {"x": X}, {"scale": 0.1}, decl=decl, mode="rounded")["y"]
    assert np.array_equal(y, round_to(X, "f32") * float(np.float32(0.1)) + 1)


def test_an_extent_from_an_int_param():
    decl = "in x[m n] f32\nparam width int = 2\naxis nb = n // width"
    y = value("sum[n in nb](x)", "nb m", inputs={"x": X}, decl=decl, params={"width": 4})
    same(y, np.stack([X[:, :4].sum(1), X[:, 4:].sum(1)]))


def test_outputs_have_their_declared_order():
    y = run("out y[n m] f64, z f64, u[] f64\ny = x\nz[n m] = x\nu = sum[m n](x)")
    same(y["y"], X.T)
    same(y["z"], X.T)
    assert y["u"].shape == ()


def test_wanted_names_come_too_and_inputs_are_left_alone():
    x = X.copy()
    y = run("out y[m] f64\nz[m n] = x * w\ny = sum[n](z)", {"x": x, "w": W}, want=["z"])
    assert set(y) == {"y", "z"} and np.array_equal(x, X)


@pytest.mark.parametrize(
    "expr, axes, expected",
    [
        ("all_reduce[r](x)", "j k", lambda x: x.sum(0)),
        ("all_reduce[r](x) + x * 0", "r j k", lambda x: np.broadcast_to(x.sum(0), x.shape)),
        ("all_gather[r i](x)", "i j k", lambda x: x),
        ("reduce_scatter[r j](x)", "r k", lambda x: x.sum(0)),
        ("all_to_all[r j](x)", "r j k", lambda x: x.transpose(1, 0, 2)),
    ],
)
def test_collectives(expr, axes, expected):
    """Rule 20, every rank at once: axis r of an array holds each rank's part."""
    x = rng.standard_normal((3, 3, 4))
    y = value(expr, axes, inputs={"x": x}, decl="rank r\nin x[r j k] f32\naxis i = R")
    same(y, expected(x))


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kw, message",
    [
        (dict(inputs={"x": X}), "missing input: w"),
        (dict(inputs={}), "missing inputs: x, w"),
        (dict(inputs={"x": X, "w": W, "z": W}), "the program has no input `z`; its inputs are x, w"),
        (dict(inputs={"x": X, "w": X}), r"input `w` has axes \[n\] and shape \(5, 7\)"),
        (dict(inputs={"x": X, "w": W[:3]}), "axis `n` is 7 long in `x` and 3 in `w`"),
        (dict(inputs={"x": X, "w": np.array(["a"] * 7)}), "input `w` is an array of <U1, not of numbers"),
        (dict(params={"k": 1}), "the program has no param `k`"),
        (dict(decl="in x[m n] f32, w[n] f32\nparam scale f32"), "param `scale` has no default and no value was given"),
        (
            dict(decl="in x[m n] f32, w[n] f32\nparam scale f32 = 1", params={"scal": 1}),
            "no param `scal`; is it `scale`?",
        ),
        (dict(decl="in x[m n] f32, w[n] f32\nparam c bool = true", params={"c": 3}), "param `c` is bool, not 3"),
        (dict(decl="in x[m n] f32, w[n] f32\nparam c int = 1", params={"c": 1.5}), "param `c` is int, not 1.5"),
        (
            dict(decl="in x[m n] f32, w[n] f32, s[nb] f32\naxis nb = n // 2", inputs={"x": X, "w": W, "s": np.ones(4)}),
            r"axis nb = n // 2: 2 does not divide N = 7 \(`s` fixes it\)",
        ),
        (
            dict(decl="in x[m n] f32, w[n] f32, s[nb] f32\naxis nb = n // 7", inputs={"x": X, "w": W, "s": np.ones(4)}),
            "axis nb = n // 7 is 1 long, but 4 in `s`",
        ),
        (
            dict(decl="in x[m n] f32, w[n] f32\naxis nb = n // (M // N)"),
            "the ratio over `n` is 0; it must be 1 or more",
        ),
        (dict(decl="in x[m n] f32, w[n] f32\naxis nb = n // (M % 5 // 0)"), "axis `nb`: division by zero"),
        (dict(want=["q"]), "the program assigns no `q`; it assigns y"),
        (dict(mode="fast"), "mode is exact or rounded, not 'fast'"),
    ],
)
def test_what_does_not_fit_the_program(kw, message):
    with pytest.raises(ValueError, match=message):
        run("out y[m n] f64\ny = x * w", **kw)


@pytest.mark.parametrize(
    "body, rule, line",
    [
        ("out y[m n] f32\ny = sum[k](x)", "axis-absent", 4),
        ("out y[m n] f32\ny = sum[n in m](x)", "not-a-block", 4),
        ("out y[m n] f32\ny = w", "axes", 4),
        ("out y[m] f32\ny = x", "axes", 4),
        ("out y[m n] f32\ny = xx", "name", 4),
        ("out y[m n] f32\ny = z\nz[m n] = x", "name", 4),
        ("out y[m n] f32\ny = x[m]", "read", 4),
        ("out y[m n] f32\ny = expp(x)", "function", 4),
        ("out y[m n] f32\ny = exp(x, w)", "call", 4),
        ("out y[m n] f32\ny = sum(x)", "call", 4),
        ("out y[m n] f32\ny = argmax[m n](x)", "one-axis", 4),
        ("out y[m n] f32\ny = all_reduce[m](x)", "collective", 4),
        ("out y[m n] f32\nz[m n] = x", "output-missing", 3),
        ("out y[m n] f32\nq[m n], s = quantize(x, int8)\ny = q", "axes", 4),
        ("out y[m n] f32\nq[m n], s[m] = quantize(x, f16)\ny = q", "dtype", 4),
        ("out y[m n] f32\naxis j = Q\ny = x", "axis-extent", 4),
        ("out y[m n] f32\naxis j = exp(M)\ny = x", "axis-form", 4),
    ],
)
def test_what_is_wrong_with_the_program_has_a_place(body, rule, line):
    with pytest.raises(ProgramError) as error:
        run(body)
    (d,) = error.value.diagnostics
    assert (d.rule, d.span.line) == (rule, line) and d.message


def test_extents():
    program = parse(
        "kernel f\nin x[b h m] f32, k[g] f32\nout y[] f32\naxis g = h // (H // G)\naxis mb = m // 64\ny = 0"
    )
    e = extents_of(program, {"x": (2, 8, 100), "k": (2,)})
    assert e.axes == {"b": 2, "h": 8, "m": 100, "g": 2, "mb": 2}
    assert (e.ratio("g", "h"), e.ratio("mb", "m"), e.ratio("h", "g")) == (4, 64, None)


# The machinery -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_contract_equals_einsum(data):
    letters = "abcde"
    sizes = {a: data.draw(st.integers(1, 4)) for a in letters}
    some = st.lists(st.sampled_from(letters), unique=True, max_size=4)
    factors = [tuple(data.draw(some)) for _ in range(data.draw(st.integers(1, 4)))]
    present = sorted({a for f in factors for a in f})
    over = [a for a in present if data.draw(st.booleans())]
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    arrays = [generator.standard_normal([sizes[a] for a in f]) for f in factors]
    result = contract([Named(f, x) for f, x in zip(factors, arrays, strict=True)], over)
    assert sorted(result.axes) == sorted(set(present) - set(over))
    expected = np.einsum(",".join("".join(f) for f in factors) + "->" + "".join(result.axes), *arrays)
    np.testing.assert_allclose(result.data, expected, rtol=1e-10, atol=1e-10)


def test_attention_of_512_takes_well_under_a_second():
    program = parse(
        "kernel a\nin q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16\nout o[b h m e] bf16\n"
        "s[b h m n] = sum[d](q * k) * rsqrt(D)\no = sum[n](softmax[n](where(m >= n, s, -inf)) * v)"
    )
    x = {name: rng.standard_normal((1, 4, 512, 64)) for name in "qkv"}
    start = time.process_time()
    evaluate(program, x)
    assert time.process_time() - start < 1.0  # 0.1 s


# Block formats --------------------------------------------------------------------------------------------------------


def test_a_block_format_rounds_along_the_last_axis_of_the_name():
    x = np.random.default_rng(2).standard_normal((40, 70))
    body = "out y[m n] f64, z[m n] f64\na[m n] mxfp4 = x\nb[n m] mxfp4 = x\ny = a\nz = b"
    found = run(body, {"x": x}, mode="rounded", decl="in x[m n] f64")
    assert np.array_equal(found["y"], round_blocks(x, "mxfp4"))
    assert np.array_equal(found["z"], round_blocks(x.T, "mxfp4").T) and not np.array_equal(found["y"], found["z"])
    assert np.array_equal(run(body, {"x": x}, mode="exact", decl="in x[m n] f64")["y"], x)


def test_a_tensor_scale_and_block_scales_of_nvfp4():
    """quantize gives the scale of the tensor, the dtype those of the blocks."""
    x = np.random.default_rng(2).standard_normal((20, 70)) * 1e4
    body = "out y[m n] f64\nq[m n], s[] = quantize(x, nvfp4, limit=2688)\ny = q * s"
    found = run(body, {"x": x}, mode="rounded", want=["q", "s"], decl="in x[m n] f64")
    assert found["s"] == abs(x).max() / 2688 and abs(found["q"]).max() == 2688
    assert np.array_equal(found["q"], round_blocks(x / found["s"], "nvfp4"))
    assert np.linalg.norm(found["y"] - x) < 0.12 * np.linalg.norm(x)


def test_a_product_of_block_formats():
    a, b = np.random.default_rng(2).standard_normal((2, 9, 70))
    y = run("out y[m n] f64\ny = sum[k](a * b)", {"a": a, "b": b}, mode="rounded", decl="in a[m k] mxfp4, b[n k] mxfp4")
    same(y["y"], round_blocks(a, "mxfp4") @ round_blocks(b, "mxfp4").T)
