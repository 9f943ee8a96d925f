"""The faults that generated programs have found, each as the smallest program that showed it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsl.check import errors
from dsl.extents import extents_of
from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.meaning import evaluate
from dsl.parser import parse
from dsl.rounding import round_to
from evaluators.pool import WorkerPool

sys.path.insert(0, str(Path(__file__).parents[1] / "dsl"))
from agreement import disagreement, emitted_values, tile_values

FLAGGED = (
    "in q[m b] bf16, k[n b] bf16, f[n] bool, v[n b] bf16\nout y[m b] f32\nparam causal bool = {2}\n"
    "s[m n] = sum[b](q * k)\nt[m n] = where(not causal or m >= n, {0}, -inf)\nu[m n] = where({1}, t, -inf)\n"
    "y = sum[n](softmax[n](u) * v)\n\nschedule\ntile m=16 n=16\ngrid m\nstream n\nsplit masked\n"
)
ROWS = {"q": (70, 3), "k": (70, 3), "f": (70,), "v": (70, 3)}

FOUND: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "a stored row that a mask emptied": (
        "in x[m n] f32\nout y[m n] f32\ns[m n] = where(m >= n + 2, x, -inf)\ny = softmax[n](s)\n\n"
        "schedule\nkernels s | y\n",
        {"x": (5, 9)},
    ),
    "an additive mask that empties the first blocks of a row": (
        "in x[m n] f32, z[m n] f32\nout y[m] f32\ns[m n] = x + log(z)\nt[m] = max[n](s)\n"
        "y = t + log(sum[n](exp(s - t)))\n\nschedule\ntile n=128\nstream n\n",
        {"x": (3, 200), "z": (3, 200)},
    ),
    "a read of a name whose line turns its axes": (
        "in x[b c] f32\nout y[c b] f32\nv[c b] = x\ny = v[c b] * 2 + v[c (b - 1)]\n\nschedule\nkernels v | y\n",
        {"x": (3, 5)},
    ),
    "a renamed axis of a name whose line turns its axes": (
        "in x[b d] f32\nout y[j b] f32\naxis j = D\nv[d b] = x + d\ny = v[j b]\n",
        {"x": (3, 5)},
    ),
    "a float function of an integer": (
        "in x[r c] int8\nout y[r c] f32\ny = sigmoid(x) + exp(-abs(x))\n",
        {"x": (3, 5)},
    ),
    "a product of narrow integers, element by element": (
        "in x[r c] int8, w[c e] int8\nout y[r e] f32\ny = sum[c](x * w) * 0.01\n\nschedule\ntile e=all\n",
        {"x": (3, 37), "w": (37, 19)},
    ),
    "scores that are read beside their softmax": (
        "in x[b m] f32, w[b k] f32\nout y[b k] f32\nu[k m] = sum[b](w * softmax[m](x))\ny = sum[m](u * x)\n",
        {"x": (20, 23), "w": (20, 25)},
    ),
    "a flag between a value and its turned self": (
        "in x[m n] f32\nout y[m] f32\nparam causal bool = true\nv[n m] = where(n < m + 5, x, -inf)\n"
        "s[m n] = where(not causal or m >= n, v, -inf)\nz[m] = max[n](s)\ny = z + log(sum[n](exp(s - z)))\n\n"
        "schedule\nkernels v | y\ntile m=16 n=128\ngrid m\nstream n\n",
        {"x": (20, 150)},
    ),
    "an empty row of scores in base 2": (
        "in x[m d] bf16, w[n d] bf16\nout y[m n] f32\ns[m n] = sum[d](x * w) / 4\n"
        "y = softmax[n](where(m >= n + 3, s, -inf))\n\nschedule\ntile m=16\ngrid m\nexponent exp2\n",
        {"x": (20, 33), "w": (18, 33)},
    ),
    "a negated flag beside a mask": (
        "in x[m n] f32\nout y[m n] f32\nparam causal bool = true\nv[m n] bool = not causal or m >= n\n"
        "y = where(v and n < 3, x, 0)\n",
        {"x": (4, 5)},
    ),
    "a norm beside a log-sum-exp": (
        "in x[r c] f32\nout y[r] f32, z[r c] f32\nm[r] = max[c](x)\ny = m + log(sum[c](exp(x - m)))\n"
        "z = x * rsqrt(mean[c](x * x))\n",
        {"x": (4, 37)},
    ),
    "a param named as the launcher names its scalars": (
        "in x[r c] f32\nout y[r c] f32\nparam scale f32 = 0.5\ny = x * rsqrt(C) * scale\n",
        {"x": (3, 5)},
    ),
    "params named as values are": (
        "in x[m n] f32\nout y[m n] f32\nparam p f32 = 2.0\nparam size f32 = 3.0\n"
        "y = exp(abs(x) - max[n](x)) * p + abs(x) * size\n\nschedule\ntile n=64\nstream n\n",
        {"x": (3, 70)},
    ),
    "an input named as the launcher names its scalars": (
        "in scale[r c] f32\nout y[r c] f32\ny = scale * rsqrt(C)\n",
        {"scale": (3, 5)},
    ),
    "two outputs of different axes, without a grid": (
        "in x[m d] bf16, w[d e] bf16\nout y[m] f32, z[m e] bf16\ns[m e] = sum[d](x * w)\ny = sum[e](s)\nz = s\n",
        {"x": (20, 33), "w": (33, 18)},
    ),
    "blocks that are summed up in their turn": (
        "in x[m n] f32, w[nb] f32\nout y[m] f32\naxis nb = n // 16\nv[m nb] = sum[n in nb](x)\ny = sum[nb](v * w)\n",
        {"x": (5, 48), "w": (3,)},
    ),
    "blocks along the last axis of the output": (
        "in x[m n] f32\nout y[m nb] f32\naxis nb = n // 16\ny = max[n in nb](x)\n",
        {"x": (5, 41)},
    ),
    "a stored operand whose line names no dtype": (
        "in x[m k] bf16, w[k n] bf16\nout y[m n] bf16\nv[m k] = x * 2\ny = sum[k](v * w)\n\nschedule\nkernels v | y\n",
        {"x": (20, 33), "w": (33, 18)},
    ),
    "a product over the longest axis": ("in x[r c] f32\nout y[r] f32\ny = prod[c](1 + x * 0.01)\n", {"x": (4, 37)}),
    "the place of a maximum": ("in x[r c] bf16\nout y[r] i32\ny = argmax[c](x)\n", {"x": (4, 37)}),
    "running sums and maxima": (
        "in x[r c] bf16\nout y[r c] f32, z[r c] f32\ny = runsum[c](x)\nz = runmax[c](x)\n",
        {"x": (4, 37)},
    ),
    "the log-sum-exp of rows that a mask empties": (
        "in x[m n] f32\nout y[m] f32\ns[m n] = where(n >= 5 and m >= n, x, -inf)\nz[m] = max[n](s)\n"
        "y = z + log(sum[n](exp(s - z)))\n",
        {"x": (8, 9)},
    ),
    "the log-sum-exp of rows that a mask empties, their maximum stored": (
        "in x[m n] f32\nout y[m] f32\ns[m n] = where(n >= 5 and m >= n, x, -inf)\nz[m] = max[n](s)\n"
        "y = z + log(sum[n](exp(s - z)))\n\nschedule\nkernels z | y\n",
        {"x": (8, 9)},
    ),
    "a difference of what a mask hid": (
        "in x[m n] f32\nout y[m n] f32, p[m n] f32\ns[m n] = where(m >= n + 2, x, -inf)\nz[m] = max[n](s)\n"
        "y = s - z\np = exp(y)\n\nschedule\nkernels z | y | p\n",
        {"x": (5, 9)},
    ),
    "a float that becomes an integer, halves to even": (
        "in x[r c] f32\nout y[r c] i32, z[r c] bool\ny = i32(x * 4 + 0.5)\nz = bool(floor(x))\n",
        {"x": (4, 37)},
    ),
    "quotients and rests of numbers below 0, which round down": (
        "in x[r c] int8\nout y[r c] i32, z[r c] i32, u[r c] i32, v[r c] i32\ny = x // 5 * 10 + x % 5\n"
        "z = x // 16 * 100 + x % 16\nu = (r - c) // 3 * 10 + (r - c) % 3\nv = x[((r - 3) % R) (c % 7 - 2)]\n",
        {"x": (5, 37)},
    ),
    **{
        f"a mask under a flag that is {flag}, {what}": (FLAGGED.format(inner, outer, flag), ROWS)
        for flag in ("true", "false")
        for what, inner, outer in (
            ("inside the same one without", "s", "m >= n and f"),
            ("whose predicate counts elsewhere", "s + where(m >= n, 1, 0)", "f"),
        )
    },
    "quotients and rests of floats": (
        "in x[r c] f32\nout y[r c] f32, z[r c] f32\ny = x // 0.75 + (x + 9) // 1.5\nz = x % 0.75 + x % -1.25\n",
        {"x": (5, 37)},
    ),
}


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as workers:
        yield workers


@pytest.mark.parametrize("name", FOUND)
def test_a_fault_that_was_found_once(pool: WorkerPool, name: str) -> None:
    text, shapes = FOUND[name]
    program, hw, rng = parse("kernel found\n" + text), hardware("h200"), np.random.default_rng(1)
    given: dict[str, Any] = {}
    for t in program.algorithm.inputs:
        given[t.name] = round_to(rng.standard_normal(shapes[t.name]), t.dtype or "f32")
        if t.dtype == "bool":
            given[t.name] = rng.random(shapes[t.name]) < 0.7
        if t.dtype == "int8":
            given[t.name] = rng.integers(-120, 120, shapes[t.name])
    if "z" in given:
        given["z"] = np.where(np.arange(200) < 150, 0.0, 1.0) * np.ones((3, 1))  # log makes -inf of it
    sizes = extents_of(program, {n: x.shape for n, x in given.items()}, {}).axes
    assert not errors(program, hw, sizes)
    wanted = evaluate(program, given, {}, mode="rounded")
    assert not disagreement(wanted, tile_values(program, hw, given, {}))
    assert not disagreement(wanted, emitted_values(pool, program, lower(program, hw), given, {}))
