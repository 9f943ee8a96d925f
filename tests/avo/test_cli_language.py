"""The verbs that print the language: spec and grammar, and what knobs says of each knob."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "attention.avo"


def test_spec_prints_the_page(cli: Callable[..., Any]) -> None:
    answer = cli("spec")
    assert answer.code == 0 and answer.out.startswith("# The avo kernel language")
    assert "waves_per_eu" in answer.out and "waves_per_eu" not in cli("spec", "--hw", "b200").out
    found = json.loads(cli("spec", "--json").out)
    assert found["spec"] == answer.out and found["hardware"] is None


def test_spec_narrows_to_a_target_or_a_file(cli: Callable[..., Any]) -> None:
    of_target, of_file = (
        cli("spec", "--hw", "b200", *more) for more in (("--target", "attention"), ("--for", EXAMPLE))
    )
    assert of_target.code == of_file.code == 0
    assert "it may stream n" in of_target.out and "order longest_first" in of_file.out


@pytest.mark.parametrize("form, start", [("lark", "start: "), ("gbnf", "root ::= ")])
def test_grammar_prints_both_forms(cli: Callable[..., Any], form: str, start: str) -> None:
    whole = cli("grammar", "--format", form)
    assert whole.code == 0 and whole.out.startswith(start)
    edits = cli("grammar", "--format", form, "--for", EXAMPLE, "--hw", "b200")
    assert edits.code == 0 and '"kernel attention\\nin' in edits.out and "waves_per_eu" in edits.out.splitlines()[0]
    assert json.loads(cli("grammar", "--format", form, "--json").out) == {"format": form, "grammar": whole.out}


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("spec", "--target", "attention"), "need --hw"),
        (("spec", "--target", "attention", "--for", EXAMPLE, "--hw", "b200"), "give one"),
        (("spec", "--hw", "b300"), "b200"),
        (("grammar", "--format", "ebnf"), "did you mean 'gbnf'"),
        (("grammar", "--for", EXAMPLE), "go together"),
        (("grammar", "--for", "nothing.avo", "--hw", "b200"), "no such file"),
    ],
)
def test_what_is_asked_wrongly_says_so(cli: Callable[..., Any], arguments: tuple[Any, ...], says: str) -> None:
    answer = cli(*arguments)
    assert answer.code == 2 and says in answer.err and answer.out == ""


def test_a_program_that_is_wrong_gives_its_errors(cli: Callable[..., Any], tmp_path: Path) -> None:
    bad = tmp_path / "bad.avo"
    bad.write_text("kernel f\nin x[m n] f32\nout y[m] f32\ny = x\n", encoding="utf-8")
    for verb in ("spec", "grammar"):
        answer = cli(verb, "--for", bad, "--hw", "b200")
        assert answer.code == 1 and "bad.avo:4" in answer.err


def test_knobs_says_what_each_decides(cli: Callable[..., Any]) -> None:
    out = cli("knobs", EXAMPLE, "--hw", "b200").out
    assert "what it decides" in out and "blocks in flight" in out
    assert max(map(len, out.splitlines())) <= 80
