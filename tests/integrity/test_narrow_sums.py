"""Inputs on which sums in too narrow a dtype show, and sums in float32 do not, in whatever order."""

from __future__ import annotations

import numpy as np
import pytest

from dsl.meaning import evaluate
from dsl.rounding import round_to
from evaluators.integrity import narrow_sums
from evaluators.integrity.calls import right
from evaluators.integrity.narrow_sums import leaning, planted, recipes
from evaluators.loading import complete, seed_program
from evaluators.oracle import Answer, output_dtypes
from evaluators.target import Target, Workload
from evaluators.targets import target
from evaluators.tolerance import verdict

# A float32 output shows narrow sums on ordinary inputs; what tensor cores add of 8-bit floats is no float32 sum.
NONE = ("cross_entropy", "matmul_fp8")
PLANTED = ("attention", "gemm", "layernorm", "matmul", "matmul_f16", "rmsnorm", "softmax", "swiglu")


def of(name):
    job = complete(target(name))
    return job, seed_program(job)


def reasons(program, inputs, params, wanted, adding):
    got = evaluate(program, inputs, params, adding=adding)
    found = []
    for name, dtype in output_dtypes(program.algorithm).items():
        value = round_to(got[name], dtype)
        found += verdict(value, wanted[name].oracle, wanted[name].honest, dtype).reasons
        found += filter(None, [leaning(value, wanted[name])])
    return found


def random_order(seed):
    """Float32 sums of single places in a random order, in float32 twice: atomics of programs that finish anyhow."""
    rng = np.random.default_rng(seed)

    def add(part, n):
        places = np.array_split(np.arange(n), 24)
        total = np.zeros(())
        for i in rng.permutation(len(places)):
            total = (total + part(slice(places[i][0], places[i][-1] + 1)).astype(np.float32)).astype(np.float32)
        return total.astype(np.float64)

    return add


@pytest.mark.parametrize("name", PLANTED)
def test_float32_sums_pass_in_any_order_and_narrow_ones_do_not(name):
    job, program = of(name)
    found = recipes(job, program, right)
    assert found
    caught = set()
    for seed in range(4):
        for recipe in found:
            inputs = planted(job, program, recipe, recipe.check, right, np.random.default_rng(seed))
            assert inputs is not None
            params = narrow_sums._params(program, recipe.check)
            wanted = right(program, inputs, params)
            assert not reasons(program, inputs, params, wanted, random_order(seed))
            for place, adding in enumerate(narrow_sums._NARROW):
                if reasons(program, inputs, params, wanted, adding):
                    caught.add(place)
    # Terms of one sign in two parts of float16: 2^-12 twice, of a row's mean, is not beyond chance in softmax.
    assert caught >= ({0, 1, 2} if name == "softmax" else {0, 1, 2, 3})


def rescaled(q, k, v, causal, width=64):
    """Attention with a running maximum: probabilities are rounded in each block's own proportion."""
    (b, h, m, d), (g, n) = q.shape, k.shape[1:3]
    k, v = (np.repeat(x, h // g, axis=1) for x in (k, v))
    high, total = np.full((b, h, m, 1), -np.inf), np.zeros((b, h, m, 1))
    out = np.zeros((b, h, m, v.shape[-1]))
    for begin in range(0, n, width):
        there = np.arange(begin, min(n, begin + width))
        s = q @ k[:, :, there].swapaxes(-1, -2) / np.sqrt(d)
        s = np.where(there[None, :] <= np.arange(m)[:, None], s, -np.inf) if causal else s
        new = np.maximum(high, s.max(-1, keepdims=True))
        p, old = np.exp(s - new), np.exp(high - new)
        total = total * old + p.sum(-1, keepdims=True)
        out = out * old + round_to(p, "bf16") @ v[:, :, there]
        high = new
    return out / total


def test_attention_with_a_running_maximum_passes():
    job, program = of("attention")
    for recipe in recipes(job, program, right):
        for seed in range(3):
            inputs = planted(job, program, recipe, recipe.check, right, np.random.default_rng(seed))
            params = narrow_sums._params(program, recipe.check)
            (answer,) = right(program, inputs, params).values()
            got = round_to(rescaled(*(inputs[n] for n in ("q", "k", "v")), params["causal"]), "bf16")
            assert not verdict(got, answer.oracle, answer.honest, "bf16").reasons, recipe
            assert not leaning(got, answer), recipe


@pytest.mark.parametrize("name", NONE)
def test_where_nothing_is_planted(name):
    job, program = of(name)
    assert not recipes(job, program, right)


def test_a_sum_that_the_target_itself_declares_to_be_narrow_stays_legal():
    seed = """kernel halves
in  x[r c] bf16
out y[r] bf16
axis b = c // 128
s[r b] f16 = sum[c in b](x)
y = sum[b](s)

schedule
tile r=1 c=all
grid r
warps 4
"""

    def reference(x):
        return x.sum(-1)

    job = complete(Target("halves", reference, seed, (Workload({"r": 64, "c": 1024}),)))
    program = seed_program(job)

    def in_float16(part, n):
        return round_to(part(slice(None)), "f16") if n == 128 else part(slice(None))

    for recipe in recipes(job, program, right):
        for number in range(4):
            inputs = planted(job, program, recipe, recipe.check, right, np.random.default_rng(number))
            if inputs is None:
                continue
            wanted = right(program, inputs, {})
            assert not reasons(program, inputs, {}, wanted, in_float16)


def test_what_cancels_is_exact_in_float32():
    job, program = of("matmul")
    (recipe,) = recipes(job, program, right)
    inputs = planted(job, program, recipe, recipe.check, right, np.random.default_rng(0))
    products = np.abs(inputs["a"]) @ np.abs(inputs["b"])  # no partial sum is larger
    unit = min(np.abs(x[x != 0]).min() for x in inputs.values()) ** 2
    assert (products / unit).max() < 2**24
    assert np.abs(inputs["a"] @ inputs["b"]).max() < products.max() / 50


def test_a_row_off_by_one_factor_is_told():
    rng = np.random.default_rng(0)
    oracle = rng.standard_normal((4, 4096))
    honest = round_to(oracle, "bf16")
    answer = Answer("bf16", oracle, honest)
    assert not leaning(honest, answer)
    off = oracle.copy()
    off[2] *= 1 + 2.0**-10
    assert "all of row 2" in leaning(round_to(off, "bf16"), answer)
    assert not verdict(round_to(off, "bf16"), oracle, honest, "bf16").reasons  # it hides in the output's own rounding
