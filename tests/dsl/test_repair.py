"""`avo check --fix`: each mechanical repair, that nothing gets worse, and that what needs thought stays."""

from __future__ import annotations

import random

import pytest
from test_check import CASES, SIZES, example

from dsl.check import check
from dsl.diagnostics import Diagnostic, ProgramError
from dsl.hardware import Hardware, hardware
from dsl.parser import parse
from dsl.printer import print_program
from dsl.repair import repaired

HEAD = "kernel f\nin  x[m n] bf16, w[n] f32, u[m n] f32\nout y[m n] bf16\n"


def complaints(source: str, hw: Hardware | None = None) -> list[Diagnostic]:
    try:
        return check(parse(source), hw, SIZES if hw else None)
    except ProgramError as error:
        return list(error.diagnostics)


def errors(source: str, hw: Hardware | None = None) -> list[Diagnostic]:
    return [d for d in complaints(source, hw) if d.severity == "error"]


def parses(source: str) -> bool:
    try:
        parse(source)
    except ProgramError:
        return False
    return True


# what stands in the last line -> what it becomes
FORMS = {
    "y = x ** 2": "y = x * x",
    "y = x if m > n else 0": "y = where(m > n, x, 0)",
    "y = where(m >= n >= m, x, 0)": "y = where(m >= n and n >= m, x, 0)",
    "y = where(m > n && n > m || m == n, x, 0.)": "y = where(m > n and n > m or m == n, x, 0.)",
    "y = where(!(m > n), x, 0)": "y = where(not (m > n), x, 0)",
    "y = where(True, x, 0)": "y = where(true, x, 0)",
    "y = x[m, n+1]": "y = x[m (n + 1)]",
    "y = np.exp(x)": "y = exp(x)",
    "y = x - sum(x, axis=n)": "y = x - sum[n](x)",
    "y = x × w": "y = x * w",
    "y := x": "y = x",
    "y = 2x": "y = 2 * x",
    "y = +x": "y = x",
    "y = (x]": "y = (x)",
    "y = exq(x)": "y = exp(x)",
    "y = exp[n](x)": "y = exp(x)",
    "y = xx * w if false else x": None,
    "z[m n] bfloat16 = x\ny = z": "z[m n] bf16 = x\ny = z",
    "z[m n] float32 = x\ny = z": "z[m n] f32 = x\ny = z",
    "z = x; y = z": None,
    "y = x  # keep me\n\nschedule\ntile m: 128  # me too": "y = x  # keep me\n\nschedule\ntile m=128  # me too",
    "y = x\n\nschedule\nwarps = 8": "y = x\n\nschedule\nwarps 8",
    "y = x\nwarps 8": "y = x\n\nschedule\nwarps 8",
    "y = x\n\nschedule\nnum_warps = 8": "y = x\n\nschedule\nwarps 8",
    "y = x\n\nschedule\nwarp 8": "y = x\n\nschedule\nwarps 8",
    "y = x\n\nschedule\nwarps 6": "y = x\n\nschedule\nwarps 4",
    "y = x\n\nschedule\nload tmaa": "y = x\n\nschedule\nload tma",
    "y = x\n\nschedule\nrescale lazy(8)": "y = x\n\nschedule",
}


@pytest.mark.parametrize("line", FORMS)
def test_a_form_is_mended(line: str) -> None:
    before = HEAD + line + "\n"
    assert errors(before), "nothing to mend"
    after, changes = repaired(before, complaints)
    if FORMS[line] is not None:
        assert after.rstrip() == HEAD + FORMS[line] and not errors(after)
        assert changes and all(c.rule for c in changes)


STAY = ("y = x @ w", "y += x", "y = x[:, 0]", "y = x.sum(n)", "y = sum[k](x)", "y = zz * x", "y = (x", "y = sum[n](x)")


@pytest.mark.parametrize("line", STAY)
def test_what_needs_thought_stays(line: str) -> None:
    source = HEAD + line + "\n"
    assert repaired(source, complaints) == (source, [])


def test_a_missing_cast() -> None:
    source = "kernel f\nin  a[m k] bf16, b[k n] f16\nout c[m n] bf16\nc = sum[k](a * b)   # a product\n"
    after, changes = repaired(source, complaints)
    assert after.splitlines()[-1] == "c = sum[k](a * bf16(b))   # a product"
    assert [c.rule for c in changes] == ["contraction-dtypes"]


def test_what_does_not_fit_is_made_smaller() -> None:
    source = example("attention").replace("m=128 n=64", "m=256 n=128").replace("stages=2", "stages=4")
    hw = hardware("b200")
    after, _ = repaired(source, lambda s: complaints(s, hw))
    assert after == example("attention").replace("m=128 n=64", "m=256 n=128") and not errors(after, hw)


def test_a_word_that_python_has() -> None:
    source = "kernel f\nin  lambda_[m] f32, class[m] f32\nout y[m] f32\ny = lambda_ + class\n"
    after, _ = repaired(source, complaints)
    assert "class_[m] f32" in after and after.endswith("y = lambda_ + class_\n") and not errors(after)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_no_error_of_the_golden_file_gets_worse(case: int) -> None:
    name, old, new, chip = CASES[case]
    source, hw = example(name).replace(old, new, 1), hardware(chip)
    after, changes = repaired(source, lambda s: complaints(s, hw))
    assert len(errors(after, hw)) <= len(errors(source, hw))
    assert bool(changes) == (after != source)
    if not errors(source, hw):
        assert after == source


def test_most_errors_of_schedules_are_mended() -> None:
    """Of the golden file's cases that are errors, by the nearest legal value or by leaving the line out."""
    mended, wrong = 0, 0
    for name, old, new, chip in CASES:
        source, hw = example(name).replace(old, new, 1), hardware(chip)
        if old not in example(name).split("\nschedule")[0] and errors(source, hw):
            wrong += 1
            mended += not errors(repaired(source, lambda s, hw=hw: complaints(s, hw))[0], hw)
    assert mended >= wrong / 2, f"{mended} of {wrong}"


def test_broken_letters_never_get_worse() -> None:
    rng = random.Random(3)
    source = print_program(parse(example("attention")))
    for _ in range(40):
        i = rng.randrange(len(source))
        broken = source[:i] + rng.choice("xyz(]=* 7") + source[i + 1 :]
        after, _ = repaired(broken, complaints)
        assert after == broken or len(errors(after)) < len(errors(broken)) or (not parses(broken) and parses(after))


def test_a_bad_repair_does_not_pass_among_good_ones() -> None:
    """`c=al` had become `all`, which the next round took away: the tile of an axis was gone, and all was well."""
    source = HEAD + "y = x + w + u\n\nschedule\ntile m=4 n=al\ngird m n\nwarps 4\n"
    text, _ = repaired(source, lambda t: complaints(t, hardware("b200")))
    assert "n=al" in text and ("grid m n" in text or "gird m n" in text), text  # either is mended, neither is gone
