"""What parses, and to which tree."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dsl.diagnostics import ProgramError
from dsl.parser import grammar_text, parse
from dsl.printer import print_expr, print_program
from dsl.syntax import (
    AxisDecl,
    AxisIn,
    Binary,
    Block,
    Call,
    Directive,
    Item,
    Name,
    Number,
    Param,
    Read,
    Tensor,
    Unary,
    Word,
)

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.avo"))
HEAD = "kernel f\nin  x[m n] bf16, t[m] i32\nout y[m n] bf16\n"


def expression(text):
    return parse(f"{HEAD}y = {text}\n").algorithm.statements[0].value


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_parse_and_print_back(path):
    program = parse(path.read_text(), str(path))
    text = print_program(program)
    assert parse(text) == program
    assert print_program(parse(text)) == text


def test_there_are_all_examples():
    assert len(EXAMPLES) >= 11


def test_an_algorithm():
    a = parse(next(p for p in EXAMPLES if p.stem == "attention").read_text()).algorithm
    assert (a.name, a.rank) == ("attention", None)
    assert a.inputs[0] == Tensor("q", ("b", "h", "m", "d"), "bf16")
    assert a.outputs == (Tensor("o", ("b", "h", "m", "e"), "bf16"),)
    assert a.axes == (AxisDecl("g", "h", Binary("//", Name("H"), Name("G"))),)
    assert a.params == (Param("causal", "bool"),)
    assert a.statements[2].targets == (Tensor("o", None, None),)
    span = a.statements[1].span
    assert (span.line, span.column, span.end_column) == (7, 1, 50)


@pytest.mark.parametrize(
    "text, tree",
    [
        ("1 + 2 * x", Binary("+", Number(1), Binary("*", Number(2), Name("x")))),
        ("x - 1 - 2", Binary("-", Binary("-", Name("x"), Number(1)), Number(2))),
        ("m // 2 % 3", Binary("%", Binary("//", Name("m"), Number(2)), Number(3))),
        ("-x * 2", Binary("*", Unary("-", Name("x")), Number(2))),
        ("- -x", Unary("-", Unary("-", Name("x")))),
        ("-inf", Unary("-", Number(math.inf))),
        (".5 + 1. + 1e-6", Binary("+", Binary("+", Number(0.5), Number(1.0)), Number(1e-6))),
        ("not m >= n", Unary("not", Binary(">=", Name("m"), Name("n")))),
        ("m > 1 or n > 1 and m < 2", None),
        ("x[n m]", Read("x", (Name("n"), Name("m")))),
        ("x[m, n]", Read("x", (Name("m"), Name("n")))),
        ("x[t (n + 1)]", Read("x", (Name("t"), Binary("+", Name("n"), Number(1))))),
        ("x[(m) 0]", Read("x", (Name("m"), Number(0)))),
        ("x[(m - 1), (n)]", Read("x", (Binary("-", Name("m"), Number(1)), Name("n")))),
        ("sum[m n in nb](x)", Call("sum", (AxisIn("m"), AxisIn("n", "nb")), (Name("x"),))),
        ("sum[m in mb, n](x)", Call("sum", (AxisIn("m", "mb"), AxisIn("n")), (Name("x"),))),
        ("sum[m in mb n in nb](x)", Call("sum", (AxisIn("m", "mb"), AxisIn("n", "nb")), (Name("x"),))),
        ("max(x, 1)", Call("max", None, (Name("x"), Number(1)))),
        ("(x +\n     1)", Binary("+", Name("x"), Number(1))),
    ],
)
def test_expressions(text, tree):
    found = expression(text)
    if tree is None:
        assert print_expr(found) == text
    else:
        assert found == tree


def test_a_number_keeps_its_kind():
    assert type(expression("1").value) is int and type(expression("1.0").value) is float


@pytest.mark.parametrize(
    "line, expected",
    [
        ("axis g = n // 64", AxisDecl("g", "n", Number(64))),
        ("axis j = R", AxisDecl("j", None, Name("R"))),
        ("axis j = R // 2", AxisDecl("j", None, Binary("//", Name("R"), Number(2)))),
        ("axis j = w // 2", AxisDecl("j", None, Binary("//", Name("w"), Number(2)))),
    ],
)
def test_axis_lines(line, expected):
    program = parse(f"kernel f\nrank r\nparam w int = 4\nin x[m n] f32\nout y[m] f32\n{line}\ny = sum[n](x)")
    assert program.algorithm.axes == (expected,)


@pytest.mark.parametrize(
    "line, expected",
    [
        ("param causal bool", Param("causal", "bool")),
        ("param causal bool = true", Param("causal", "bool", True)),
        ("param window int = 128", Param("window", "int", 128)),
        ("param scale f32 = -1.5", Param("scale", "f32", -1.5)),
        ("param low f32 = -inf", Param("low", "f32", -math.inf)),
    ],
)
def test_param_lines(line, expected):
    assert parse(f"{HEAD}{line}\ny = x").algorithm.params == (expected,)


def test_schedule_blocks_and_directives():
    schedule = parse(
        f"{HEAD}y = x\nschedule\nwarps 4\nkernels a b | y\nlaunch queue\n"
        "for gfx942, gfx950: load pointer, order l2=8MiB\ntile m=128, n=all\nschedule a b\nrescale lazy(8)\npersistent"
    ).schedule
    assert schedule.kernels == (("a", "b"), ("y",))
    assert schedule.pipeline == (Directive("launch", (Item(None, Word("queue")),)),)
    chips = ("gfx942", "gfx950")
    assert schedule.blocks == (
        Block(
            (),
            (
                Directive("tile", (Item("m", 128), Item("n", Word("all")))),
                Directive("warps", (Item(None, 4),)),
                Directive("order", (Item("l2", 8 << 20),), chips),
                Directive("load", (Item(None, Word("pointer")),), chips),
            ),
        ),
        Block(("a", "b"), (Directive("persistent", ()), Directive("rescale", (Item(None, Word("lazy", (8,))),)))),
    )


def test_an_open_decision_is_a_word():
    (block,) = parse(f"{HEAD}y = x\nschedule\ntile m=? n=64\nwarps ?\n").schedule.blocks
    assert block.directives[0].items[0] == Item("m", Word("?"))
    assert block.directives[1].items == (Item(None, Word("?")),)


def test_layout_does_not_matter():
    plain = parse(f"{HEAD}y = exp(x + 1)\n\nschedule\nwarps 4\n")
    spaced = f"\n\n# c\n  {HEAD}\n\ty   =  exp( # why\n\n   x+1 # (\n ) # [\n\n\n\nschedule  # x\n\n\n  warps\t4"
    assert parse(spaced) == plain
    assert parse(spaced.replace("\n", "\r\n")) == plain
    assert parse(spaced.encode()) == plain
    assert parse("\ufeff" + spaced) == plain


def test_several_in_lines_are_one():
    one = parse("kernel f\nin a[m] f32, b[m] f32\nout y[m] f32\ny = a + b")
    assert parse("kernel f\nin a[m] f32\nout y[m] f32\nin b[m] f32\ny = a + b") == one


def test_keywords_name_nothing_but_directives_do():
    assert parse("kernel tile\nin warps[m] f32\nout load[m] f32\nload = warps").algorithm.name == "tile"
    with pytest.raises(ProgramError):
        parse("kernel rank\nin a[m] f32\nout y[m] f32\ny = a")


def test_the_grammar_stays_within_what_decoders_take():
    """No look-around, no priorities, no conflict that LALR would resolve silently."""
    import logging

    from lark import Lark, logger

    text = grammar_text()
    assert not any(mark in text for mark in ("(?=", "(?!", "(?<", "\\b", "%import"))
    assert not any(line.partition(":")[0].rstrip()[-2:-1] == "." for line in text.splitlines() if ":" in line)
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        Lark(text, parser="lalr", lexer="basic", start=["program", "algorithm_line", "schedule_line"], debug=True)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert [r.getMessage() for r in records if "onflict" in r.getMessage()] == []
