"""Meaning = tile program, over random legal schedules of every family and chip."""

from __future__ import annotations

import random

import numpy as np
import pytest
from family import FAMILY, draw, inputs

from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.interpret import run
from dsl.lowering import tile_program
from dsl.meaning import evaluate
from dsl.parser import parse
from dsl.printer import print_program


def check(name: str, seed: int) -> None:
    program, chip, given, params = draw(FAMILY[name], random.Random(f"{name} {seed}"))
    wanted = evaluate(program, given, params, mode="rounded")
    found = dict(given)
    try:
        kernels = tile_program(program, hardware(chip))
    except ProgramError as refused:
        # a random schedule of a pipeline's many kernels may have no lowering; one of a single kernel always has
        assert program.schedule.kernels and {d.rule for d in refused.diagnostics} == {"not-lowered"}
        return
    for kernel in kernels:
        found.update(run(kernel, found, params))
    for output, answer in wanted.items():
        error = np.linalg.norm(np.subtract(found[output], answer, dtype=float)) / max(np.linalg.norm(answer), 1e-6)
        # contraction operands may be rounded to the other's dtype, nothing else
        assert error < 1e-2, f"{output} is {error:.1e} off on {chip} with {params}:\n{print_program(program)}"


@pytest.mark.parametrize("chip", ["h200", "mi300x"])
@pytest.mark.parametrize("name", FAMILY)
def test_the_program_as_it_stands_lowers_and_keeps_the_value(name: str, chip: str) -> None:
    member = FAMILY[name]
    program, given = parse(member.text), inputs(member, member.shapes[0], seed=1)
    wanted = evaluate(program, given, member.params[0], mode="rounded")
    found = dict(given)
    for kernel in tile_program(program, hardware(chip)):
        found.update(run(kernel, found, member.params[0]))
    for output, answer in wanted.items():
        assert np.linalg.norm(np.subtract(found[output], answer, dtype=float)) < 1e-2 * np.linalg.norm(answer), output


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", FAMILY)
def test_any_legal_schedule_keeps_the_value(name: str, seed: int) -> None:
    check(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_many_more_legal_schedules_keep_the_value(name: str) -> None:
    for seed in range(100, 250):
        check(name, seed)
