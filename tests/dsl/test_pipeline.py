"""A stage moves into or out of fusion by one line; the value stays, and `avo check` says what it costs in bytes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from agreement import hold, tile_values
from example_references import REFERENCES, drawn, program

from dsl.check import errors
from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.parser import parse
from dsl.pipeline import formula, fused, moves, stages, stored
from dsl.printer import print_program
from dsl.syntax import Program, Schedule
from dsl.work import work

H200 = hardware("h200")
MLP = """kernel gated_mlp
in  x[r c] bf16, up[c f] bf16, gate[c f] bf16, down[f o] bf16
out y[r o] bf16
a[r f] bf16 = silu(sum[c](x * gate)) * sum[c](x * up)
y = sum[f](a * down)

schedule
kernels a | y
tile r=64 o=64 f=32
grid r o
stream f stages=3

schedule a
tile r=64 f=64 c=32
grid r f
stream c stages=3
"""
SIZES = {"r": 8192, "c": 4096, "f": 14336, "o": 4096}


def plain(p: Program) -> Program:
    """Every kernel with the naive schedule: a moved stage has no schedule that was written for it."""
    return replace(p, schedule=Schedule(p.schedule.kernels))


def test_one_line_moves_a_stage() -> None:
    """The line `kernels` alone: what schedules a kernel that is gone is a warning, no error."""
    edited = parse(MLP.replace("kernels a | y\n", "kernels y\n"))
    assert not errors(edited, H200)
    back = parse(print_program(edited).replace("kernels y\n", "kernels a | y\n"))
    assert back == parse(MLP)


PIPELINES = ("attention_backward", "flash_decoding", "linear_attention", "sage2pp", "split_k_gemm")


@pytest.mark.parametrize("name", PIPELINES)
def test_the_value_stays_when_a_stage_is_fused(name: str) -> None:
    p, given, params = program(name), drawn(name), REFERENCES[name].params
    lowered = 0
    for names in filter(None, stages(p)):
        moved = plain(fused(p, names))
        assert len(moved.schedule.kernels) < len(p.schedule.kernels) and not errors(moved)
        try:
            found = tile_values(moved, H200, given, params)
        except ProgramError as refused:
            assert {d.rule for d in refused.diagnostics} == {"not-lowered"}
            continue
        hold(p, "h200", given, params, found)
        lowered += 1
    assert lowered or name in ("linear_attention", "split_k_gemm", "flash_decoding")


@pytest.mark.parametrize("name", ["alibi", "attention", "layernorm", "linear_cross_entropy", "softcap", "swiglu"])
def test_the_value_stays_when_a_stage_is_stored(name: str) -> None:
    p, given, params = program(name), drawn(name), REFERENCES[name].params
    written = {t.name for t in p.algorithm.outputs}
    names = [s.targets[0].name for s in p.algorithm.statements if s.targets[0].name not in written]
    for n in names:
        moved = plain(stored(p, (n,)))
        hold(p, "h200", given, params, tile_values(moved, H200, given, params))
    assert names or name == "swiglu"


def test_fusing_and_storing_are_each_other() -> None:
    p = parse(MLP)
    assert stages(p) == (("a",),)
    apart = fused(p, ("a",))
    assert apart.schedule.kernels == (("y",),) and stages(apart) == ()
    assert stored(apart, ("a",)).schedule.kernels == p.schedule.kernels


def test_what_a_move_costs() -> None:
    p = parse(MLP)
    (move,) = moves(p, SIZES, {})
    assert (move.names, move.stored, move.flops_more) == (("a",), True, 0)
    assert move.bytes_more == -2 * 2 * SIZES["r"] * SIZES["f"]  # written once, read once, two bytes each
    assert formula(p, "a") == "2 R F"
    (back,) = moves(fused(p, ("a",)), SIZES, {})
    assert (back.names, back.stored, back.bytes_more) == (("a",), False, -move.bytes_more)


def test_a_stage_that_two_kernels_use_is_computed_twice_when_fused() -> None:
    p = program("attention_backward")
    sizes = {"b": 1, "h": 4, "g": 2, "m": 256, "n": 256, "d": 64, "e": 64}
    by_name = {m.names: m for m in moves(p, sizes, {})}
    assert by_name["s",].bytes_more == 4 * 4 * 256 * 256 * 3 and by_name["s",].flops_more < 0  # written, read by two
    total = work(stored(p, ("s",)), sizes)
    assert (
        sum(k.bytes for k in total.kernels) == sum(k.bytes for k in work(p, sizes).kernels) + by_name["s",].bytes_more
    )


def test_the_command_says_it(tmp_path, capsys) -> None:
    from avo.cli import main

    file = tmp_path / "mlp.avo"
    file.write_text(MLP)

    def said(*more: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main(["check", str(file), *more])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out + captured.err

    assert "a (2 R F bytes)" in said()[1]
    code, text = said("--workload", "r=8192,c=4096,f=14336,o=4096")
    assert (
        code == 0 and "a fused into what uses it: -469.8 MB" in text and re.search(r"all +654\.3 MB +302\.0 MB", text)
    )
    code, text = said("--workload", "r=8192,c=4096")
    assert code == 2 and "--workload needs f=..., o=... too" in text
    code, text = said("--workload", "r=8192,q=1")
    assert code == 2 and "'q'" in text
