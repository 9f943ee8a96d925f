"""Reading answers: whole programs, schedules, diffs and edits, fenced, plain and in prose; and what holds none."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from avo.agents.answer import Unreadable, apply_diff, read_answer
from dsl.parser import parse
from dsl.printer import print_program

PARENT = """\
kernel rows
in  x[b d] bf16
out y[b d] bf16
y = softmax[d](x)

schedule
tile b=4 d=all
grid b
exponent exp2
warps 4
"""
CHILD = PARENT.replace("warps 4", "warps 8")
SCHEDULE = CHILD[CHILD.index("schedule") :]
DIFF = "--- parent\n+++ child\n@@ -8,3 +8,3 @@\n grid b\n exponent exp2\n-warps 4\n+warps 8\n"


def same(text: str) -> bool:
    return print_program(parse(text)) == print_program(parse(CHILD))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (CHILD, "program"),
        (f"```\n{CHILD}```\n", "program"),
        (f"Here it is:\n\n```avo\n{CHILD}```\n\nMore warps hide latency.\n", "program"),
        (f"I looked at it first:\n```\n{PARENT}```\nand so:\n~~~~text\n{CHILD}~~~~\nDone.", "program"),
        (
            f"I would raise the warps.\n\n{CHILD}\n\nThis should hide latency, since more warps are in flight.",
            "program",
        ),
        (f"I would raise the warps.\n\n{CHILD}This should hide latency behind more of them.", "program"),
        (f"```\n{CHILD}", "program"),  # cut before the fence closed
        (SCHEDULE, "schedule"),
        (f"Only the schedule:\n```\n{SCHEDULE}```", "schedule"),
        (DIFF, "diff"),
        (f"why: latency\n```diff\n{DIFF}```\nThat is all.", "diff"),
        (f"```diff\n{DIFF.replace('@@ -8,3 +8,3 @@', '@@ -2,3 +2,3 @@')}```", "diff"),  # wrong numbers, right lines
        (f"```diff\n{DIFF.replace('@@ -8,3 +8,3 @@', '@@')}```", "diff"),
        ("warps 8", "edits"),
        ("```\nwarps 8\n```", "edits"),
        ("- `warps 8`", "edits"),
        ("Set this:\n\n    warps 8\n\nwarps hide latency, so more of them help.", "edits"),
        (json.dumps({"program": CHILD, "why": "latency"}), "program"),
        (json.dumps({"edits": ["warps 8"]}), "edits"),
        (f"```json\n{json.dumps({'diff': DIFF})}\n```", "diff"),
    ],
)
def test_every_form_is_read(text: str, form: str) -> None:
    found = read_answer(text, PARENT)
    assert (found.form, same(found.text)) == (form, True), found.text


def test_an_edit_changes_what_it_names_and_nothing_else() -> None:
    assert "tile b=8 d=all\n" in read_answer("tile b=8", PARENT).text
    assert "exponent" not in read_answer("no exponent", PARENT).text
    streamed = read_answer("tile d=512\nstream d stages=2", PARENT).text
    assert "tile b=4 d=512" in streamed and "stream d stages=2" in streamed
    assert "stream d stages=3" in read_answer("stream stages=3", streamed).text
    bare = read_answer("warps 8", PARENT[: PARENT.index("schedule")]).text
    assert bare.endswith("schedule\nwarps 8\n")


def test_what_is_said_beside_it() -> None:
    text = f"**why:** more warps\nExpect: 10% \nparent: `abcd1234`\n```\n{CHILD}```"
    found = read_answer(text, PARENT)
    assert (found.why, found.expect, found.parent) == ("more warps", 1.1, "abcd1234")
    assert read_answer("expect: 1.25x\nwarps 8", PARENT).expect == 1.25
    assert read_answer("expect: much\nwarps 8", PARENT).expect is None
    assert read_answer(json.dumps({"edits": "warps 8", "expect": 1.5}), PARENT).expect == 1.5


def test_a_broken_program_is_still_the_program_that_was_sent() -> None:
    found = read_answer(
        "kernel rows\nin x[b d bf16\nout y[b d] bf16\ny = softmax[d](x)\n\nThis ought to be good now.", PARENT
    )
    assert found.form == "program" and found.text.startswith("kernel rows\nin x[b d bf16")
    assert "ought" not in found.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the answer is empty"),
        ("-\n" * 100_000, "there is no program in the answer"),  # in a time that grows with its length alone
        ('{"program": ' + "[" * 50_000, "there is no program in the answer"),
        (f"@@ -{'9' * 5000},1 +1,1 @@\n-warps 99\n+warps 8\n", "the program has no line `warps 99`"),
        ("  \n", "the answer is empty"),
        ("I am sorry, I cannot help with that.", "there is no program in the answer"),
        ("```python\nprint('hello')\n```", "there is no program in the answer"),
        ('{"note": 3}', "the JSON has none of program, schedule, diff, edits"),
        (f"```diff\n{DIFF.replace('-warps 4', '-warps 2')}```", "the program has no line `warps 2`"),
        (DIFF.replace(" grid b\n exponent", " exponent exp2\n grid b\n exponent"), "no such lines in this order"),
    ],
)
def test_what_holds_no_program_says_so_and_what_to_send(text: str, message: str) -> None:
    with pytest.raises(Unreadable, match=r"[Ss]end") as caught:
        read_answer(text, PARENT)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text", ["wraps 8", "```\nwraps 8\ntile b=8\n```", "num_warps 8", "Try this:\n\n```\nstages 2\n```"]
)
def test_a_misspelt_directive_reaches_the_check(text: str) -> None:
    from dsl.check import check
    from dsl.parser import parse

    answer = read_answer(text, PARENT)
    assert answer.form == "edits"
    found = [d for d in check(parse(answer.text)) if d.rule == "unknown-directive"]
    assert len(found) == 1 and found[0].fix
    if "tile" in text:
        assert "tile b=8" in answer.text


def test_a_diff_of_several_hunks_and_a_pure_insertion() -> None:
    diff = (
        "@@ -7,1 +7,1 @@\n-tile b=4 d=all\n+tile b=8 d=all\n@@ -9,0 +10,1 @@\n+persistent\n"
        "@@ -10 +11 @@\n-warps 4\n+warps 8\n"
    )
    rows = apply_diff(PARENT, diff).splitlines()
    assert rows[6:] == ["tile b=8 d=all", "grid b", "exponent exp2", "persistent", "warps 8"]


@pytest.mark.parametrize(
    ("answer", "language", "parent"),
    [
        pytest.param("kernel a\n" + "\n\nfoo = 1 + + (\n" * 3000, "avo", "kernel a\n", id="paragraphs"),
        pytest.param(
            ("@@ -1 +1 @@\n" + " #\n" * 3000 + "+#b\n") * 3, "python", "#\n" * 30000 + "def run(x): pass\n", id="alike"
        ),
        pytest.param("```\n@@ -1 +1 @@\n-#\n+#\n-none\n```\n" * 1000, "python", "#\n" * 30000, id="fences"),
        pytest.param("@@ -1 +1 @@\n-#\n+#\n" * 3000, "python", "#\n" * 30000, id="hunks"),
        pytest.param("x" * (2 << 20), "avo", "kernel a\n", id="long"),
    ],
)
def test_no_answer_takes_its_reader_long(answer, language, parent):
    began = time.process_time()
    with contextlib.suppress(Unreadable):
        read_answer(answer, parent, language)
    assert time.process_time() - began < 8


def test_a_hunk_goes_to_the_nearest_of_equal_places():
    rows = "a\nx\nb\nx\nc\nx\nd"
    for at, wanted in ((1, "a\ny\nb\nx\nc\nx\nd\n"), (4, "a\nx\nb\ny\nc\nx\nd\n"), (9, "a\nx\nb\nx\nc\ny\nd\n")):
        assert apply_diff(rows, f"@@ -{at} +{at} @@\n-x \n+y\n") == wanted
