"""Knobs: what they offer is legal, an edit does what it says, and any chain of edits stays legal."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl import printer
from dsl.anatomy import Sizes, anatomies
from dsl.check import check, errors, schedule_diagnostics, unlowered
from dsl.diagnostics import Diagnostic
from dsl.directives import DEFAULTS, DIRECTIVES
from dsl.hardware import HARDWARE, Hardware, hardware
from dsl.knobs import Knob, explicit, fill, knobs, neighbours, plain, set_knob
from dsl.parser import parse
from dsl.printer import print_program
from dsl.schedule import KernelSchedule, held_blocks, resolve
from dsl.syntax import Program
from evaluators.targets import seed_text

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SIZES: Sizes = {"d": 128, "e": 128, "n": 4096, "m": 4096, "k": 4096, "r": 4096, "c": 4096, "f": 128, "h": 16, "b": 2}
PROGRAMS = {p.stem: parse(p.read_text()) for p in sorted(EXAMPLES.glob("*.avo"))}
EVERYWHERE = ("attention", "gemm", "rmsnorm", "cross_entropy", "numa_attention", "sliding_window")
LEGAL = [
    (n, c)
    for n, p in PROGRAMS.items()
    for c, hw in HARDWARE.items()
    if (n in EVERYWHERE or c == "b200") and not errors(p, hw, SIZES)
]
NAIVE = """kernel attention
in  q[b h m d] bf16, k[b g n d] bf16, v[b g n e] bf16
out o[b h m e] bf16
axis g = h // (H // G)
param causal bool
s[b h m n] = sum[d](q * k) * rsqrt(D)
c[b h m n] = where(not causal or m >= n, s, -inf)
o = sum[n](softmax[n](c) * v)

schedule
tile m=64 n=64
grid b h m
stream n
"""


def knob(program: Program, hw: Hardware, name: str) -> Knob:
    return next(k for k in knobs(program, hw, SIZES) if k.name == name)


def test_there_are_chips_and_programs_enough() -> None:
    assert len(LEGAL) > 50


@pytest.mark.parametrize(("name", "chip"), LEGAL, ids=lambda v: v)
def test_every_value_of_every_knob_passes_check(name: str, chip: str) -> None:
    program, hw = PROGRAMS[name], hardware(chip)
    found = knobs(program, hw, SIZES)
    assert found
    for k in found:
        assert k.doc and len(set(k.legal)) == len(k.legal) > 1
        assert k.value in k.legal
        for value in k.legal:
            changed = set_knob(program, k, value)
            assert not wrong(changed, hw), (k, value)
            parsed = parse(print_program(changed))
            assert parsed == changed and print_program(parsed) == print_program(changed)
            if value != k.value:
                schedule = resolve(changed, k.kernel, hw.arch, hw.name)
                assert resolved(schedule, k) == value


def wrong(program: Program, hw: Hardware) -> list[Diagnostic]:
    """Errors of the schedule half; the algorithm is untouched by knobs."""
    found = schedule_diagnostics(program, hw, SIZES, anatomies(program))
    return [d for d in found if d.severity == "error"]


def resolved(schedule: KernelSchedule, k: Knob) -> object:
    """What the lowering will read for this knob."""
    match k.directive, k.key:
        case "tile", axis:
            return schedule.tile.get(axis, 1)
        case "stream", "":
            return schedule.stream or "none"
        case "stream", "stages":
            return schedule.stages
        case "persistent", _:
            return "on" if schedule.persistent else "off"
        case "order", "l2":
            return schedule.l2_bytes or 0
        case "roles", "mma":
            return schedule.roles[1] if schedule.roles else 0
        case "hold", tensor:
            return dict(schedule.hold).get(tensor, "shared")
        case "buffers", tensor:
            return held_blocks(schedule, tensor)
        case "issue", "turns":
            return schedule.turns
        case "reduce", "rows":
            return schedule.rows
        case "reduce", "sums":
            return schedule.sums
        case "split", _:
            return "masked" if schedule.split_masked else "none"
        case "swizzle", _:
            return schedule.swizzle or "none"
        case ("order" | "rescale" | "exponent") as field, _:
            word, args = getattr(schedule, field)
            return f"{word}({args[0]})" if args else word
        case field, _:
            return getattr(schedule, field)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(LEGAL), st.randoms(use_true_random=False))
def test_any_chain_of_edits_stays_legal(start: tuple[str, str], rng: random.Random) -> None:
    program, hw = PROGRAMS[start[0]], hardware(start[1])
    for _ in range(6):
        k = rng.choice(knobs(program, hw, SIZES))
        program = set_knob(program, k, rng.choice(neighbours(k) or k.legal))
        assert not errors(program, hw, SIZES), print_program(program)


def test_an_edit_and_its_reverse_are_the_same_program() -> None:
    program = parse(NAIVE)
    for hw in (hardware("b200"), hardware("mi300x")):
        for k in knobs(program, hw, SIZES):
            if (k.directive, k.key) == ("stream", ""):
                continue  # making the streamed axis whole drops what acted on the loop
            for value in k.legal:
                changed = set_knob(program, k, value)
                back = next(x for x in knobs(changed, hw, SIZES) if x.name == k.name)
                assert print_program(set_knob(changed, back, k.value)) == print_program(program)


def test_what_a_naive_attention_leaves_open_on_b200() -> None:
    found = {k.name: (k.value, k.legal) for k in knobs(parse(NAIVE), hardware("b200"), SIZES)}
    assert found == {
        "tile m": (64, (16, 32, 64, 128, 256)),
        "tile n": (64, (16, 32, 64, 128, 256)),
        "order": ("row", ("row", "grouped(4)", "grouped(8)", "grouped(16)", "reverse(m)", "longest_first")),
        "persistent": ("off", ("off", "on")),
        "stream stages": (1, (1, 2, 3, 4, 5, 6)),
        "split": ("none", ("none", "masked")),
        "load": ("pointer", ("pointer", "tma")),
        "rescale": ("always", ("always", "lazy(4)", "lazy(8)", "lazy(12)")),
        "exponent": ("exp", ("exp", "exp2", "poly(8)", "poly(4)", "poly(2)")),
        "warps": (4, (1, 2, 4, 8, 16)),
    }


def test_chips_offer_what_they_have() -> None:
    names = {c: {k.name for k in knobs(parse(NAIVE), hardware(c), SIZES)} for c in HARDWARE}
    assert "load" in names["h100"] and "load" not in names["a100"] | names["mi300x"]
    amd = {"waves_per_eu", "matrix_instr", "swizzle"}
    assert amd <= names["mi300x"] and not amd & names["b200"]
    stages = DIRECTIVES["stream"].slot("stages")
    assert stages is not None and knob(parse(NAIVE), hardware("b200"), "stream stages").legal == stages.numbers


def test_shared_memory_bounds_the_values() -> None:
    program = parse(NAIVE.replace("m=64 n=64", "m=128 n=128"))
    assert knob(program, hardware("b200"), "stream stages").legal == (1, 2, 3)
    # Triton lays two products over each other at four stages on AMD, and holds one block of each then
    assert knob(program, hardware("mi300x"), "stream stages").legal == (1, 2, 4)


def test_a_for_line_of_the_chip_is_what_gets_edited() -> None:
    program = PROGRAMS["gemm"]
    here = knob(program, hardware("mi300x"), "tile m")
    assert (here.value, here.chips) == (256, ("gfx942",))
    text = print_program(set_knob(program, here, 128))
    assert "for gfx942: tile m=128 n=256 k=64" in text and "\ntile m=128 n=256 k=64\n" in text
    there = knob(program, hardware("b200"), "tile m")
    assert (there.value, there.chips) == (128, ())
    text = print_program(set_knob(program, there, 64))
    assert "for gfx942: tile m=256 n=256 k=64" in text and "\ntile m=64 n=256 k=64\n" in text
    # what the chip's line does not say is edited for all chips
    assert knob(program, hardware("mi300x"), "warps").chips == ()


def test_a_default_is_not_written_unless_it_overrides() -> None:
    program = parse(NAIVE)
    on = set_knob(program, knob(program, hardware("b200"), "split"), "masked")
    assert "split masked" in print_program(on)
    assert "split" not in print_program(set_knob(on, knob(on, hardware("b200"), "split"), "none"))
    special = parse(NAIVE + "load tma\nfor gfx942: load pointer, warps 8\n")
    k = knob(special, hardware("mi300x"), "warps")
    assert "for gfx942: load pointer, warps 4" in print_program(set_knob(special, k, 4))


def test_plain_forgets_what_only_repeats_a_default() -> None:
    said = parse(NAIVE.replace("stream n", "stream n stages=1") + "split none\nwarps 4\npersistent off\norder row\n")
    assert said != plain(said) == parse(NAIVE)
    assert (
        plain(parse(NAIVE + "persistent on\n")) == plain(parse(NAIVE + "persistent\n")) == parse(NAIVE + "persistent\n")
    )
    kept = parse(NAIVE + "load tma\norder row l2=8MiB\nfor gfx942: load pointer, warps 4\n")
    assert plain(kept) == kept


def test_no_stream_makes_the_axis_whole() -> None:
    program = parse(NAIVE.replace("stream n", "stream n stages=2") + "split masked\nrescale lazy(8)\n")
    k = knob(program, hardware("cpu"), "stream")
    text = print_program(set_knob(program, k, "none"))
    assert text.endswith("schedule\ntile m=64\ngrid b h m\n")
    back = knob(parse(text), hardware("cpu"), "stream")
    assert print_program(set_knob(parse(text), back, "n")).endswith("tile m=64 n=64\ngrid b h m\nstream n\n")


def test_a_kernel_without_a_schedule_has_its_naive_one_written_out_first() -> None:
    program = parse("kernel scale\nin x[r c] bf16\nout y[r c] bf16\ny = 2.0 * x\n")
    hw = hardware("h200")
    assert print_program(explicit(program)).endswith("schedule\ngrid r\n")
    text = print_program(set_knob(program, knob(program, hw, "tile r"), 8))
    assert text.endswith("schedule\ntile r=8\ngrid r\n")
    pipeline = parse(
        "kernel two\nin x[r c] bf16\nout z[r c] bf16\ny[r c] bf16 = 2.0 * x\nz = y + 1.0\n\nschedule\nkernels y | z\n"
    )
    first = knob(pipeline, hw, "warps")
    assert first.kernel == 0
    text = print_program(set_knob(pipeline, first, 8))
    assert text.endswith("kernels y | z\n\nschedule y\ngrid r\nwarps 8\n")  # the other kernel stays as it was
    assert explicit(PROGRAMS["gemm"]) == PROGRAMS["gemm"]


def test_what_is_offered_lowers() -> None:
    """Blocks of a fixed length fit few tiles; several outputs share few axes that a grid may cut."""
    hw = hardware("b200")
    for name in ("sage2pp", "sla", "swiglu", "attention"):
        program = PROGRAMS[name] if name in PROGRAMS else parse(seed_text(name))
        for k in knobs(program, hw, SIZES):
            if k.directive in ("tile", "stream"):
                for value in k.legal:
                    assert not unlowered(set_knob(program, k, value), hw, SIZES), (name, k.name, value)


@pytest.mark.parametrize("name", ["sage2pp", "sla", "attention"])
def test_one_knob_alone_is_the_one_that_is_listed(name: str) -> None:
    program = PROGRAMS[name] if name in PROGRAMS else parse(seed_text(name))
    for chip in ("h200", "mi300x"):
        every = knobs(program, hardware(chip), SIZES)
        assert [k for n in every for k in knobs(program, hardware(chip), SIZES, only=n.name)] == every
        assert knobs(program, hardware(chip), SIZES, only="tile zz") == []


def test_open_numbers_are_filled() -> None:
    program = parse(NAIVE.replace("m=64 n=64", "m=? n=?").replace("stream n", "stream n stages=?") + "warps ?\n")
    hw = hardware("b200")
    assert [d.rule for d in check(program, hw, SIZES)] == ["open-number"] * 4
    assert [k.name for k in knobs(program, hw, SIZES) if k.value == "?"] == [
        "tile m",
        "tile n",
        "stream stages",
        "warps",
    ]
    filled = fill(program, hw, SIZES)
    assert "?" not in print_program(filled) and not check(filled, hw, SIZES)


def test_neighbours() -> None:
    stages = Knob(0, "stream", "stages", 2, (1, 2, 3, 4), "", True)
    assert neighbours(stages) == (1, 3)
    assert neighbours(Knob(0, "load", "", "tma", ("pointer", "tma"), "", False)) == ("pointer",)
    assert neighbours(Knob(0, "warps", "", "?", (1, 2), "", True)) == (1, 2)


def test_the_table_and_the_printer_agree() -> None:
    assert tuple(DIRECTIVES) == printer.DIRECTIVES
    assert {n for n, s in DIRECTIVES.items() if s.scope == "pipeline"} == set(printer.PIPELINE_DIRECTIVES)


def test_the_table_and_the_defaults_of_a_kernel_agree() -> None:
    naive = KernelSchedule()
    for name, default in DEFAULTS.items():
        directive = {"stages": "stream", "l2": "order", "rows": "reduce", "sums": "reduce", "turns": "issue"}.get(
            name, name
        )
        k = Knob(0, directive, name if directive != name else "", default, (), "", False)
        assert resolved(naive, k) == default


def test_every_directive_says_its_form() -> None:
    forms = {s.form for s in DIRECTIVES.values()}
    assert "stream AXIS [stages=N]" in forms and "tile AXIS=N | all" in forms
    assert "rescale always | lazy(N) | speculative" in forms
    assert all(s.doc and all(x.doc for x in s.slots) for s in DIRECTIVES.values())
