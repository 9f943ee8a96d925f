"""Each broken program of `parser_errors.txt` gives exactly the errors that stand below it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from dsl.diagnostics import ProgramError
from dsl.parser import parse
from dsl.printer import print_program

CASES = [
    case.split("\n-----\n") for case in (Path(__file__).parent / "parser_errors.txt").read_text().split("\n=====\n")
]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
ALGORITHM = "kernel f\nin  x[m n] bf16\nout y[m n] bf16\n"


@pytest.mark.parametrize("program, expected", CASES, ids=range(len(CASES)))
def test_errors_are_exactly(program, expected):
    with pytest.raises(ProgramError) as error:
        parse(program, "p.avo")
    assert str(error.value).rstrip() == expected.rstrip()


def test_there_are_many_distinct_errors():
    first = {re.sub(r"`[^`]*`|\d+", "", line) for _, e in CASES for line in re.findall(r"error\[.*", e)}
    assert len(first) >= 60


def errors(text):
    with pytest.raises(ProgramError) as error:
        parse(text)
    return error.value.diagnostics


@pytest.mark.parametrize(
    "text, line, column, rule",
    [
        (ALGORITHM + "y = " + "(" * 5000 + "x" + ")" * 5000, 4, 1, "too-large"),
        (ALGORITHM + "y = " + "(\n" * 5000 + "x", 104, 1, "too-deep"),
        (ALGORITHM + "y = " + "not " * 200 + "x", 4, 5, "too-deep"),
        (ALGORITHM + "y = " + " + ".join(["x"] * 200), 4, 5, "too-deep"),
        (ALGORITHM + "y = " + "sum[m](" * 101 + "x", 4, 708, "too-deep"),
        ("x" * 200_000, 1, 1, "too-large"),
        (ALGORITHM + "y = " + "9" * 900, 4, 5, "number"),
        (b"kernel f\n  \xe9", 2, 3, "not-text"),
        ("\ufeff", 1, 1, "no-kernel"),
        ("kernel \ud800", 1, 8, "character"),
        ("kernel f\x00", 1, 9, "character"),
        ("kernel f\r\nin  x[m] f32\rout y[m] f32\r\ny = x $", 4, 7, "character"),
    ],
)
def test_what_is_huge_deep_or_no_text_is_an_error_with_a_place(text, line, column, rule):
    d = errors(text)[0]
    assert (d.span.line, d.span.column, d.rule) == (line, column, rule)


def test_a_message_can_be_printed_whatever_the_program_holds():
    with pytest.raises(ProgramError) as error:
        parse("kernel f\nin \x1b[31m \u2028 \ud800 \x85\n")
    message = str(error.value)
    message.encode("utf-8")
    assert "\x1b" not in message and "\u2028" not in message


def test_errors_end_somewhere():
    assert len(errors("kernel f\n" + "y = \n" * 10_000)) == 50


def test_mangled_programs_give_errors_with_places_and_never_a_traceback():
    rng = random.Random(11)
    texts = [p.read_text() for p in sorted(EXAMPLES.glob("*.avo"))]
    odd = ["(", ")", "[", "]", "=", "==", "\n", "#", ",", " in ", "schedule", ":", "|", "-", "**", "@", "1e", ".", '"']
    broken = 0
    for _ in range(300):
        chars = list(rng.choice(texts))
        for _ in range(rng.randint(1, 6)):
            at, kind = rng.randrange(len(chars)), rng.random()
            if kind < 0.4:
                chars[at : at + rng.randint(1, 8)] = []
            elif kind < 0.8:
                chars[at:at] = rng.choice(odd)
            else:
                chars[at] = chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)]))
        text = "".join(chars)
        try:
            program = parse(text)
        except ProgramError as e:
            broken += 1
            rows = text.count("\n") + text.count("\r") + 1
            for d in e.diagnostics:
                assert 1 <= d.span.line <= rows and 1 <= d.span.column < d.span.end_column and d.message
        else:
            assert parse(print_program(program)) == program
    assert broken > 200
