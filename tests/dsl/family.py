"""One small program of each family that lowers, with shapes that are no multiple of any tile, and random schedules."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dsl.hardware import hardware
from dsl.knobs import knobs, set_knob
from dsl.parser import parse
from dsl.rounding import round_to
from dsl.syntax import Program

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
Shapes = dict[str, tuple[int, ...]]
CHIPS = ("b200", "h200", "a100", "mi300x", "rtx5090", "mi355x")


@dataclass(frozen=True)
class Member:
    text: str
    shapes: tuple[Shapes, ...]
    params: tuple[dict[str, Any], ...] = ({},)
    index_below: dict[str, int] = field(default_factory=dict)  # integer inputs: their values are below this


def _example(name: str) -> str:
    return (EXAMPLES / f"{name}.avo").read_text(encoding="utf-8")


ATTENTION = ({"causal": True}, {"causal": False})
WINDOW = """kernel window
in q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16
out o[b h m e] bf16
param window int = 40
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(m >= n and m - n < window, s, -inf)
o = sum[n](softmax[n](c) * v)

schedule
tile m=64 n=32
grid b h m
stream n stages=2
split masked
"""
LSE = """kernel attention_lse
in q[b h m d] f16, k[b h n d] f16, v[b h n e] f16
out o[b h m e] f16, lse[b h m] f32
s[b h m n] = sum[d](q * k) * rsqrt(D)
x[b h m] = max[n](s)
l[b h m] = sum[n](exp(s - x))
lse = x + log(l)
o = sum[n](exp(s - x) * v) / l

schedule
tile m=64 n=32
grid b h m
stream n stages=2
"""
SINKS = """kernel sinks
in q[b h m d] bf16, k[b h n d] bf16, v[b h n e] bf16, sink[h] f32
out o[b h m e] bf16
s[b h m n] = sum[d](q * k) * rsqrt(D)
x[b h m] = max[n](s)
o = sum[n](exp(s - x) * v) / (sum[n](exp(s - x)) + exp(sink - x))

schedule
tile m=64 n=32
grid b h m
stream n stages=2
"""
POWERS = """kernel powers
in x[r c] bf16
out y[r c] bf16, z[r] bf16
y = exp(x * 0.5) + exp2(-x)
z = sum[c](exp(x))

schedule
exponent poly(2)
"""
SOFTMAX = "kernel softmax\nin x[r c] bf16\nout y[r c] bf16\ny = softmax[c](x)\n"
SWIGLU = """kernel swiglu
in x[m k] bf16, wg[k n] bf16, wu[k n] bf16
out y[m n] bf16
y = silu(sum[k](x * wg)) * sum[k](x * wu)

schedule
tile m=64 n=64 k=32
grid m n
stream k stages=2
"""
LAYERNORM = """kernel layernorm
in x[r c] bf16, w[c] f32, bias[c] f32
out y[r c] bf16
mu[r] = mean[c](x)
z[r c] = x - mu
y = z * rsqrt(mean[c](z * z) + 1e-5) * w + bias
"""
ENTROPY = """kernel entropy
in x[r c] f32
out e[r] f32
p[r c] = softmax[c](x)
e = -sum[c](p * log(p + 1e-9))

schedule
tile r=1 c=64
stream c stages=2
"""
BATCHED = """kernel batched
in a[b m k] f16, w[b n k] f16
out y[b m n] f16
y = relu(sum[k](a * w))

schedule
tile m=32 n=64 k=32
grid b m n
stream k stages=2
"""

FAMILY: dict[str, Member] = {
    "attention": Member(
        _example("attention"),
        (
            {"q": (1, 4, 70, 32), "k": (1, 2, 90, 32), "v": (1, 2, 90, 16)},
            {"q": (2, 2, 33, 64), "k": (2, 2, 130, 64), "v": (2, 2, 130, 64)},
        ),
        ATTENTION,
    ),
    "polynomial": Member(
        _example("attention").replace("exponent exp2", "exponent poly(8)"),
        (
            {"q": (1, 4, 70, 32), "k": (1, 2, 90, 32), "v": (1, 2, 90, 16)},
            {"q": (2, 2, 33, 64), "k": (2, 2, 130, 64), "v": (2, 2, 130, 64)},
        ),
        ATTENTION,
    ),
    "powers": Member(POWERS, ({"x": (5, 136)}, {"x": (9, 3)})),
    "gemm": Member(_example("gemm"), ({"a": (70, 56), "b": (56, 88), "bias": (88,)},)),
    "rmsnorm": Member(_example("rmsnorm"), ({"x": (5, 104), "w": (104,)}, {"x": (33, 64), "w": (64,)})),
    "cross_entropy": Member(_example("cross_entropy"), ({"x": (5, 304), "t": (5,)},), index_below={"t": 304}),
    "rope": Member(_example("rope"), ({"x": (2, 20, 3, 32), "cs": (20, 32), "sn": (20, 32)},)),
    "softmax": Member(SOFTMAX, ({"x": (7, 136)},)),
    "swiglu": Member(SWIGLU, ({"x": (70, 56), "wg": (56, 88), "wu": (56, 88)},)),
    "window": Member(
        WINDOW,
        ({"q": (1, 2, 150, 32), "k": (1, 2, 150, 32), "v": (1, 2, 150, 32)},),
        ({"window": 40}, {"window": 7}, {"window": 200}),
    ),
    "lse": Member(LSE, ({"q": (1, 2, 70, 32), "k": (1, 2, 90, 32), "v": (1, 2, 90, 32)},)),
    "sinks": Member(SINKS, ({"q": (1, 2, 70, 32), "k": (1, 2, 90, 32), "v": (1, 2, 90, 32), "sink": (2,)},)),
    "layernorm": Member(LAYERNORM, ({"x": (7, 136), "w": (136,), "bias": (136,)},)),
    "entropy": Member(ENTROPY, ({"x": (5, 132)},)),
    "attention_backward": Member(
        _example("attention_backward"),
        (
            {
                "q": (1, 4, 70, 32),
                "k": (1, 2, 90, 32),
                "v": (1, 2, 90, 32),
                "o": (1, 4, 70, 32),
                "go": (1, 4, 70, 32),
                "lse": (1, 4, 70),
            },
        ),
    ),
    "sage2pp": Member(_example("sage2pp"), ({"q": (1, 2, 200, 32), "k": (1, 2, 150, 32), "v": (1, 2, 150, 32)},)),
    "sla": Member(
        _example("sla"),
        ({"q": (1, 2, 200, 32), "k": (1, 2, 200, 32), "v": (1, 2, 200, 32), "w": (32, 32)},),
    ),
    "total": Member("kernel total\nin x[r c] f32\nout y[] f32\ny = sum[r c](x)\n", ({"x": (5, 48)},)),
    "found": Member(
        "kernel found\nin x[r c] f32\nout y[r] bool, z[r] bool\ny = any[c](x > 2)\nz = all[c](x > -2)\n",
        ({"x": (9, 48)},),
    ),
    "column": Member("kernel column\nin x[r c] f32\nout y[r] f32\ny = x[r 3] - x[r (C - 1)]\n", ({"x": (9, 48)},)),
    "wrapped": Member("kernel wrapped\nin x[r c] int8\nout y[r c] int8\ny = x * 3 + 1\n", ({"x": (9, 48)},)),
    "chosen": Member(
        "kernel chosen\nin x[r c] f32, b[c] bool\nout y[r c] f32\ny = where(b, x, 0) + c\n",
        ({"x": (9, 48), "b": (48,)},),
    ),
    "linear_cross_entropy": Member(
        _example("linear_cross_entropy"), ({"x": (70, 150), "w": (200, 150), "t": (70,)},), index_below={"t": 200}
    ),
    "batched": Member(BATCHED, ({"a": (2, 40, 48), "w": (2, 72, 48)},)),
}


def draw(member: Member, rng: random.Random) -> tuple[Program, str, dict[str, Any], dict[str, Any]]:
    """A program with a random legal schedule, a chip, inputs and params."""
    chip = rng.choice(CHIPS)
    hw, program = hardware(chip), parse(member.text)
    for _ in range(rng.randint(0, 8)):
        open_knobs = [k for k in knobs(program, hw) if k.legal]
        if open_knobs:
            knob = rng.choice(open_knobs)
            program = set_knob(program, knob, rng.choice(knob.legal))
    shapes = rng.choice(member.shapes)
    return program, chip, inputs(member, shapes, rng.randrange(2**32)), rng.choice(member.params)


def inputs(member: Member, shapes: Shapes, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    drawn: dict[str, Any] = {}
    for t in parse(member.text).algorithm.inputs:
        shape = shapes[t.name]
        if t.name in member.index_below:
            drawn[t.name] = rng.integers(0, member.index_below[t.name], shape)
        else:
            # large logits now and then; not where they stand against a log-sum-exp that is not theirs
            scale = rng.choice([1.0, 1.0, 6.0]) if t.dtype != "f32" and "lse" not in shapes else 1.0
            drawn[t.name] = round_to(rng.standard_normal(shape) * scale, t.dtype or "f32")
    return drawn
