"""Replies under a grammar: whatever a decoder draws from it is read, and nearly all of it passes the check."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from avo import plugins
from avo.agents.constrained import MOST, follows, lines, reply_grammar, reply_schema
from avo.agents.protocol import Brief
from avo.agents.reading import look_at
from avo.testing import brief
from dsl.check import errors
from dsl.parser import parse

sys.path.insert(0, str(Path(__file__).parents[1] / "dsl"))
from decoders import Decoders

CHIPS = ("a100", "h200", "b200", "rtx5090", "mi300x")


def made(target: str, chip: str) -> Brief:
    return brief(plugins.load("target", target), plugins.load("hardware", chip))


def drawn(found: list[tuple[str, tuple[str, ...]]], rng: random.Random) -> str:
    edits = [rng.choice(found) for _ in range(rng.randint(1, MOST))]
    return "\n".join(head + rng.choice(values) for head, values in edits)


@pytest.mark.parametrize("target", plugins.builtins("target"))
def test_at_least_95_in_100_edits_drawn_at_random_pass_the_check(target: str) -> None:
    rng = random.Random(7)
    good = count = 0
    for chip in CHIPS:
        one = made(target, chip)
        if errors(parse(one.parent.text), one.hardware):
            continue  # its algorithm has a dtype that the chip lacks
        found = lines(one)
        assert found, "nothing is open"
        for _ in range(40):
            answer, problem = look_at(drawn(found, rng), one)
            assert answer is not None and answer.form == "edits"
            good += not problem or "judged already" in problem
            count += 1
    assert good / count >= 0.95, f"{good} of {count}"


@pytest.mark.parametrize("form", ["lark", "gbnf"])
@pytest.mark.parametrize(("target", "chip"), [("attention", "b200"), ("gemm", "mi300x"), ("softmax", "h200")])
def test_real_decoders_take_the_grammars_and_what_they_let_through_is_read(
    target: str, chip: str, form: Literal["lark", "gbnf"]
) -> None:
    one, rng, decoders = made(target, chip), random.Random(3), Decoders()
    found, grammar = lines(one), reply_grammar(one, form)
    head, fence = ("", "") if form == "lark" else ("```\n", "\n```\n")
    reason = "why: larger tiles read each operand less often\nexpect: 1.08\n"
    try:
        for _ in range(10):
            text = f"{reason}{head}{drawn(found, rng)}{fence}"
            assert decoders.accepts(form, grammar, text), text
            answer, _ = look_at(text, one)
            assert answer is not None and answer.expect == 1.08 and answer.why.startswith("larger tiles")
        for wrong in ("warps 5", "tile zz=64", "kernel x", ""):
            assert not decoders.accepts(form, grammar, f"{reason}{head}{wrong}{fence}"), wrong
    finally:
        decoders.close()


def test_where_more_than_the_schedule_may_change_there_is_no_grammar_of_edits() -> None:
    one = made("attention", "b200")
    assert reply_grammar(replace(one, opens="all"), "lark") == ""
    raw = replace(one, parent=replace(one.parent, text="import triton\n"))
    assert reply_grammar(raw, "gbnf") == ""


def test_the_schema_of_a_reply_has_the_edits_of_the_grammar_and_a_reply_of_it_is_read() -> None:
    one, rng = made("attention", "b200"), random.Random(5)
    schema = reply_schema(one)
    edits = schema["properties"]["edits"]["items"]["enum"]
    assert edits == [head + value for head, values in lines(one) for value in values] and schema["required"]
    for _ in range(20):
        text = json.dumps({"why": "larger tiles", "expect": 1.1, "edits": rng.sample(edits, 2)})
        answer, _ = look_at(text, one)
        assert answer is not None and (answer.form, answer.expect, answer.why) == ("edits", 1.1, "larger tiles")
        assert not follows(text)
    assert follows("why: larger tiles read less\nexpect: 1.08\n```\nwarps 8\n```\n")
    assert reply_schema(replace(one, target=replace(one.target, opens="all"), opens="all")) == {}
