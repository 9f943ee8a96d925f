"""Meaning = tile program, over random legal schedules of every family and chip."""

from __future__ import annotations

import random

import pytest
from agreement import hold, tile_values
from family import FAMILY, draw, inputs

from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.parser import parse


def check(name: str, seed: int) -> None:
    program, chip, given, params = draw(FAMILY[name], random.Random(f"{name} {seed}"))
    try:
        found = tile_values(program, hardware(chip), given, params)
    except ProgramError as refused:
        # a random schedule of a pipeline's many kernels may have no lowering; one of a single kernel always has
        assert program.schedule.kernels and {d.rule for d in refused.diagnostics} == {"not-lowered"}
        return
    hold(program, chip, given, params, found)


@pytest.mark.parametrize("chip", ["h200", "mi300x"])
@pytest.mark.parametrize("name", FAMILY)
def test_the_program_as_it_stands_lowers_and_keeps_the_value(name: str, chip: str) -> None:
    member = FAMILY[name]
    program, given = parse(member.text), inputs(member, member.shapes[0], seed=1)
    hold(program, chip, given, member.params[0], tile_values(program, hardware(chip), given, member.params[0]))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", FAMILY)
def test_any_legal_schedule_keeps_the_value(name: str, seed: int) -> None:
    check(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_many_more_legal_schedules_keep_the_value(name: str) -> None:
    for seed in range(100, 250):
        check(name, seed)
