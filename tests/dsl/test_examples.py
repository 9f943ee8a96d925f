"""Every program of docs/examples: its meaning is a plain PyTorch reference's, its tile program keeps it."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import hold, tile_values
from example_references import EXAMPLES, REFERENCES, drawn, expected, program

from dsl.check import errors
from dsl.diagnostics import ProgramError
from dsl.edits import set_knob
from dsl.hardware import hardware
from dsl.knobs import knobs
from dsl.lowering import lower
from dsl.meaning import evaluate
from dsl.work import work

H200 = hardware("h200")
LOWERED = [n for n, e in REFERENCES.items() if e.lowers]
CHIPS = ("a100", "rtx4090", "h200", "b200", "rtx5090", "mi300x", "mi355x")


def test_each_has_a_reference() -> None:
    assert sorted(p.stem for p in EXAMPLES.glob("*.avo")) == sorted(REFERENCES)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_meaning_is_the_reference(name: str) -> None:
    """Backward against autograd, everything in float64."""
    given = drawn(name)
    found = evaluate(program(name), given, REFERENCES[name].params)
    for output, right in expected(name, given).items():
        assert found[output].shape == right.shape
        assert np.linalg.norm(found[output] - right) <= 1e-11 * np.linalg.norm(right)


@pytest.mark.parametrize("name", LOWERED)
def test_the_tile_program_keeps_the_value(name: str) -> None:
    given, params = drawn(name), REFERENCES[name].params
    hold(program(name), "h200", given, params, tile_values(program(name), H200, given, params))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", LOWERED)
def test_it_has_a_schedule_on_every_chip_that_has_its_dtypes(name: str, chip: str) -> None:
    """As written, or with its tiles made smaller where the chip has less shared memory."""
    hw, text = hardware(chip), program(name)
    wrong = errors(text, hw)
    if any(d.rule == "dtype-lacking" for d in wrong) or name == "attention_sm90":
        return
    for _ in range(12):
        if not (wrong := errors(text, hw)):
            break
        text = _mended(text, hw, {d.rule for d in wrong})
    assert lower(text, hw).source


def _mended(text, hw, rules):
    """The nearest program that the chip takes: loads by pointer where there is no TMA, fewer stages, smaller tiles."""
    for k in knobs(text, hw):
        if "chip-lacks" in rules and k.directive == "load" and k.value == "tma":
            return set_knob(text, k, "pointer")
    for key in ("stages", "n", "k", "m"):
        for k in knobs(text, hw):
            smaller = [v for v in k.legal if isinstance(v, int) and isinstance(k.value, int) and v < k.value]
            if k.key == key and smaller:
                return set_knob(text, k, max(smaller))
    return text


@pytest.mark.parametrize("name", [n for n in REFERENCES if n not in LOWERED])
def test_what_has_no_lowering_says_why(name: str) -> None:
    with pytest.raises(ProgramError) as refused:
        lower(program(name), H200)
    assert {d.rule for d in refused.value.diagnostics} == {"not-lowered"}


@pytest.mark.parametrize("name", REFERENCES)
def test_its_work_is_counted(name: str) -> None:
    text = program(name)
    axes = {t.name: t.axes for t in text.algorithm.inputs}
    sizes = {a: n for t, s in REFERENCES[name].shapes.items() for a, n in zip(axes[t] or (), s, strict=True)}
    counts = work(text, sizes, REFERENCES[name].params)
    assert counts.bytes_in > 0 and counts.bytes_out > 0 and counts.alu + counts.exps + counts.total_flops > 0


def test_most_algorithms_are_short() -> None:
    """Lines without comments and blank ones, schedule and all."""
    lengths = {}
    for path in EXAMPLES.glob("*.avo"):
        lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
        lengths[path.stem] = len([line for line in lines if line])
    assert sum(n < 15 for n in lengths.values()) > len(lengths) / 2, lengths
