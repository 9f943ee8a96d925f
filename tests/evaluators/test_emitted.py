"""Meaning = emitted Triton, run by the corrected interpreter in a worker, over random legal schedules."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dsl.accuracy import ERRORS
from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.named_functions import FUNCTIONS
from dsl.parser import parse
from evaluators.cpu import Tensor, interpret
from evaluators.inputs import decode, encode
from evaluators.pool import WorkerPool

sys.path.insert(0, str(Path(__file__).parents[1] / "dsl"))
from agreement import emitted_values, hold
from example_references import REFERENCES, drawn, program
from family import FAMILY, draw


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as workers:
        yield workers


def check(pool: WorkerPool, name: str, seed: int) -> None:
    program, chip, inputs, params = draw(FAMILY[name], random.Random(f"{name} {seed}"))
    try:
        lowered = lower(program, hardware(chip))
    except ProgramError as refused:
        assert program.schedule.kernels and {d.rule for d in refused.diagnostics} == {"not-lowered"}
        return
    hold(program, chip, inputs, params, emitted_values(pool, program, lowered, inputs, params))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FAMILY)
def test_the_emitted_source_keeps_the_value(pool: WorkerPool, name: str, seed: int) -> None:
    check(pool, name, seed)


def test_every_function_keeps_its_stated_error(pool: WorkerPool) -> None:
    """In the interpreter, whose primitives are nearly exact: it is the emitted formulas that are held here."""
    rng = np.random.default_rng(0)
    for name, stated in ERRORS.items():
        text = f"kernel t\nin x[r c] f32\nout y[r c] f32\ny = {name}(x)\n"
        lowered = lower(parse(text), hardware("h200"))
        x = np.float32(np.concatenate([rng.uniform(-20, 20, 512), np.exp(rng.uniform(-20, 3, 512))]).reshape(8, 128))
        x = np.abs(x) if name in ("log", "log2", "sqrt", "rsqrt") else x
        (got,) = interpret(
            pool, lowered.source, lowered.entry, [Tensor("x", "f32", x.shape, encode(x, "f32"))], {}
        ).outputs
        wanted = FUNCTIONS[name](np.float64(x))
        size = np.abs(wanted) if stated.kind == "relative" else np.maximum(1.0, np.abs(wanted))
        assert (np.abs(decode(got.data, got.dtype, got.shape) - wanted) <= stated.most * size).all(), name


@pytest.mark.parametrize("name", [n for n, e in REFERENCES.items() if e.lowers])
def test_the_emitted_source_of_an_example_keeps_the_value(pool: WorkerPool, name: str) -> None:
    inputs, params = drawn(name), REFERENCES[name].params
    lowered = lower(program(name), hardware("h200"))
    hold(program(name), "h200", inputs, params, emitted_values(pool, program(name), lowered, inputs, params))


@pytest.mark.parametrize("share", [2, 4, 8])
def test_a_polynomial_keeps_nan_and_the_ends_of_the_range(pool: WorkerPool, share: int) -> None:
    text = f"kernel t\nin x[r c] f32\nout y[r c] bf16\ny = exp2(x)\n\nschedule\nexponent poly({share})\n"
    lowered = lower(parse(text), hardware("h200"))
    row = [-np.inf, -1e30, -127.0, -126.7, -0.5, 0.0, 1.0, 3.25, 128.0, 1e30, np.inf, np.nan, 0.3, -3.0, 100.5, -100.5]
    x = np.tile(np.float32(row), (16, 1))
    for i in range(16):
        x[i] = np.roll(x[i], i)  # each value meets each column, so both ways of computing it
    tensor = Tensor("x", "f32", x.shape, encode(x, "f32"))
    (got,) = interpret(pool, lowered.source, lowered.entry, [tensor], {}).outputs
    with np.errstate(over="ignore"):
        wanted = np.exp2(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(decode(got.data, got.dtype, got.shape), wanted, rtol=2**-8 + 1.1e-4, atol=2.0**-126)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_more_emitted_sources_keep_the_value(pool: WorkerPool, name: str) -> None:
    for seed in range(1000, 1040):
        check(pool, name, seed)
