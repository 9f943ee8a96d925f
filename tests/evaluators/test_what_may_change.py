"""What a candidate may change: each overstep is named with its line, each freedom is left."""

from __future__ import annotations

import pytest

from dsl.parser import parse
from dsl.syntax import Algorithm
from evaluators.contract import Opens, breaches
from evaluators.targets import target

SEED = target("attention").seed
GEMM = target("gemm").seed


def algorithm(text: str) -> Algorithm:
    return parse(text).algorithm


def rules(old: str, new: str, opens: Opens, seed: str = SEED) -> list[tuple[str, int]]:
    assert old in seed
    changed = seed.replace(old, new)
    return [(d.rule, d.span.line) for d in breaches(algorithm(seed), algorithm(changed), opens)]


def test_the_schedule_is_always_free() -> None:
    for opens in ("schedule", "numerics", "all"):
        assert rules("tile m=64 n=64", "tile m=128 n=32", opens) == []  # type: ignore[arg-type]


def test_a_locked_algorithm_names_the_changed_line() -> None:
    assert rules("* rsqrt(D)", "* 0.125", "schedule") == [("locked-algorithm", 6)]
    assert rules("m >= n", "m > n", "numerics") == [("locked-algorithm", 7)]
    assert rules("m >= n", "m > n", "all") == []
    found = breaches(algorithm(SEED), algorithm(SEED.replace("m >= n", "m > n")), "schedule")
    assert "where(not causal or m >= n, s, -inf)" in found[0].legal and found[0].severity == "error"


def test_numerics_frees_dtypes_of_intermediates_and_casts() -> None:
    assert rules("s[b h m n] =", "s[b h m n] bf16 =", "schedule") == [("locked-algorithm", 6)]
    assert rules("s[b h m n] =", "s[b h m n] bf16 =", "numerics") == []
    assert rules("softmax[n](c) * v", "bf16(softmax[n](c)) * v", "numerics") == []
    assert rules("softmax[n](c) * v", "bf16(softmax[n](c)) * v", "schedule") == [("locked-algorithm", 8)]


def test_an_added_or_a_missing_line_is_an_overstep_unless_all_is_open() -> None:
    line = "c = gelu(sum[k](a * b) + bias)"
    two = "p[m n] = sum[k](a * b)\nc = gelu(p + bias)"
    assert rules(line, two, "schedule", GEMM) == [("locked-algorithm", 4)]
    assert rules(line, two, "all", GEMM) == []
    found = breaches(algorithm(GEMM.replace(line, two)), algorithm(GEMM), "schedule")
    assert [d.rule for d in found] == ["locked-algorithm"]


@pytest.mark.parametrize("opens", ["schedule", "numerics", "all"])
@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("q[b h m d] bf16", "q[b h m d] f16", 2),
        ("k[b g n d] bf16, v[b g n e] bf16", "v[b g n e] bf16, k[b g n d] bf16", 1),
        ("out o[b h m e] bf16", "out o[b h m e] f32", 3),
        ("param causal bool", "param causal bool = true", 5),
    ],
)
def test_the_interface_is_never_open(opens: Opens, old: str, new: str, line: int) -> None:
    assert rules(old, new, opens) == [("locked-interface", line)]
