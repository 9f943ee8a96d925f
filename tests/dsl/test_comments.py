"""`avo fmt`: comments stay with their lines, formatting twice is formatting once, older forms come up to date."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_printer import programs

from dsl.check import errors
from dsl.comments import format_program
from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.parser import parse
from dsl.printer import digest, print_program
from dsl.versions import upgrade

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.avo"))

WRITTEN = """# a softmax
kernel softmax # its name
out y[r c] bf16 # the result
in  x[r c] bf16
y = softmax[c](x) + (x * # inside
   2 # and more
  ) # behind

# how
schedule
warps 8 # eight
tile r=1 c=all
# the grid
grid r
# the end
"""

KEPT = """# a softmax
kernel softmax  # its name
in  x[r c] bf16
out y[r c] bf16  # the result
# inside
# and more
y = softmax[c](x) + x * 2  # behind

# how
schedule
tile r=1 c=all
# the grid
grid r
warps 8  # eight
# the end
"""


def test_comments_stay_with_their_lines() -> None:
    assert format_program(WRITTEN) == KEPT
    assert format_program(KEPT) == KEPT


def test_lines_that_become_one_keep_all_comments() -> None:
    text = "kernel f\nin x[n] f32 # one\nin z[n] f32 # two\nout y[n] f32\ny = x + z\nschedule # nothing in it\n# last\n"
    kept = "kernel f\n# one\n# two\nin  x[n] f32, z[n] f32\nout y[n] f32\ny = x + z\n# nothing in it\n# last\n"
    assert format_program(text) == kept == format_program(kept)


@settings(max_examples=150, deadline=None)
@given(programs, st.integers(0, 2**32))
def test_no_comment_is_lost_wherever_it_stands(program: object, seed: int) -> None:
    rng, rows, said = Random(seed), [], []
    for row in print_program(program).splitlines():  # type: ignore[arg-type]
        for _ in range(rng.choice((0, 0, 1, 2))):
            said.append(f"# {len(said)}: ([ # x")
            rows.append(" " * rng.randint(0, 2) + said[-1])
        if rng.random() < 0.3 and len(row) < 900:
            said.append(f"# {len(said)} beside")
            row += " " * rng.randint(0, 2) + said[-1]
        rows.append(row)
    text = rng.choice(("\n", "\r\n")).join(rows)
    once = format_program(text)
    assert format_program(once) == once
    assert sorted(re.findall(r"#.*", once)) == sorted(said)
    assert digest(parse(once)) == digest(program)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_keep_their_comments(path: Path) -> None:
    text = path.read_text()
    once = format_program(text)
    assert re.sub(r"#.*", "", text).split() and len(re.findall("#", once)) == len(re.findall("#", text))
    assert format_program(once) == once and digest(parse(once)) == digest(parse(text))
    assert upgrade(once) == (f"# avo 1\n{once}", [])


OLD = """kernel f
in  x[m k] bf16, w[k n] bf16
out y[m n] bf16
y = sum[k](x * w)

schedule
tile m=64 n=64 k=32
grid m n
stream k stages=8  # stages=8 was legal once
for sm_80: stream k stages=7
"""


def test_a_form_of_version_0_comes_up_to_date() -> None:
    hw = hardware("h200")
    assert errors(parse(OLD), hw)
    new, changes = upgrade(OLD)
    assert changes == [
        "line 9: stream k stages=6 (a loop keeps at most 6 blocks in flight)",
        "line 10: for sm_80: stream k stages=6 (a loop keeps at most 6 blocks in flight)",
    ]
    assert new.startswith("# avo 1\nkernel f") and "stages=6  # stages=8 was legal once" in new
    assert not errors(parse(new), hw)
    assert upgrade(new) == (new, [])
    assert upgrade("# avo 0\n" + OLD)[0] == new


def test_a_version_of_the_future_is_refused_by_name() -> None:
    with pytest.raises(ProgramError) as found:
        parse("# avo 2\n" + OLD)
    (one,) = found.value.diagnostics
    assert (one.rule, one.span.line) == ("version", 1) and "version 2" in one.message
    assert upgrade("# avo 2\n" + OLD) == ("# avo 2\n" + OLD, [])
    assert parse("# avo 1\n" + OLD) == parse("# avocado 9\n" + OLD)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_examples_are_as_fmt_writes_them(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_program(text, path.name) == text
