"""docs/language.md says what is true: its programs parse, check and evaluate, and its tables are complete."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from dsl import accuracy, mistakes, named_functions, work
from dsl.elaborate import elaborate
from dsl.meaning import evaluate
from dsl.parser import grammar_text, parse

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
PROGRAMS = re.findall(r"```avo\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("text", PROGRAMS, ids=lambda t: t.split()[1])
def test_programs_parse_check_and_evaluate(text):
    program = parse(text)
    assert [d for d in elaborate(program)[1] if d.severity == "error"] == []
    sizes = {a: n for n, a in enumerate(sorted({a for t in program.algorithm.inputs for a in t.axes}), start=2)}
    if "h" in sizes and "g" in sizes:
        sizes["h"] = 2 * sizes["g"]
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.standard_normal([sizes[a] for a in t.axes]) for t in program.algorithm.inputs}
    params = {p.name: False for p in program.algorithm.params}
    exact = evaluate(program, inputs, params)
    rounded = evaluate(program, inputs, params, mode="rounded")
    for name, value in exact.items():
        assert np.isfinite(value).all() and np.linalg.norm(value - rounded[name]) < 0.1 * np.linalg.norm(value)


def test_there_are_programs():
    assert len(PROGRAMS) == 4


def test_the_table_of_functions_is_complete_and_its_costs_are_those_of_the_work_model():
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) \+ (\d+) \| (.*) \|$", PAGE, re.M)
    assert {r[0] for r in rows} == set(named_functions.FUNCTIONS)
    for name, exps, alu, error in rows:
        assert error == accuracy.stated(name)
        expected = (0, 2) if name == "clamp" else work._COSTS.get(name, (0, 1))
        assert (int(exps), int(alu)) == expected, name


def test_no_error_that_was_measured_is_above_the_stated_one():
    measured = json.loads((Path(__file__).parents[2] / "benchmarks/data/function_errors_h200.json").read_text())
    assert set(measured["errors"]) == set(accuracy.ERRORS) and measured["device"] == "NVIDIA H200"
    for name, stated in accuracy.ERRORS.items():
        assert measured["errors"][name][stated.kind] <= stated.most, name


def test_every_function_with_axes_is_named():
    section = PAGE[PAGE.index("### Functions with axes") : PAGE.index("## Numerics")]
    assert [f for f in named_functions.BRACKETED if f"`{f}" not in section] == []


def test_the_reserved_words_are_those_of_the_grammar():
    (line,) = re.findall(r"Words that name nothing else: `([^`]*)`", PAGE)
    assert set(line.split()) == set(re.findall(r'"([a-z]+)"', grammar_text()))


def test_the_error_shown_is_the_real_one():
    from dsl.diagnostics import ProgramError

    with pytest.raises(ProgramError) as error:
        parse("kernel f\nin x[m k] f32\nout v[m] f32\nv = x @ k\n", "p.avo")
    assert str(error.value) in PAGE
    assert mistakes.MOST >= 20
