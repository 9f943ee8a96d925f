"""A command line that cannot be read is told in avo's own words, on stderr, with exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["log", "abc"], "RUN wants a whole number, got 'abc'"),
        (["replay", "0"], "RUN is at least 1, got 0"),
        (["lower", "x.avo", "--hw", "b200", "--emit", "pxt"], "unknown value of --emit: 'pxt'; did you mean 'ptx'?"),
        (["evolve", "--steps", "x"], "--steps wants a whole number, got 'x'"),
        (["evolve", "--minutes", "x"], "--minutes wants a number, got 'x'"),
        (["evolve", "--stepz", "3"], "unknown option of avo evolve: '--stepz'; did you mean '--steps'?"),
        (["evolve", "--jobs"], "--jobs needs a value"),
        (["load", "1/17"], "load is of Python: avo.load('1/17') is a candidate as a function"),
        (["evole"], "unknown verb 'evole'; did you mean 'evolve'?"),
        (["check"], "avo check needs FILE...: programs; - reads standard input"),
        (["lower", "x.avo"], "avo lower needs --hw: the chip to lower for"),
        (["report", "1", "2"], "avo report takes no more arguments, got 2"),
        (["log", "-n", "0"], "--last is at least 1, got 0"),
        (["tell", "x", "--expect", "much"], "--expect wants a number, got 'much'"),
        (["--bogus"], "unknown option of avo: '--bogus'"),
    ],
)
def test_the_message(cli: Callable[..., Any], arguments: list[str], message: str) -> None:
    answer = cli(*arguments)
    assert answer.code == 2 and answer.out == ""
    first, *rest = answer.err.splitlines()
    assert first.startswith("error: ") and message in first
    assert len(rest) == 1 and rest[0].endswith("--help shows how it is called")
