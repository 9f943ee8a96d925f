"""Meaning = tile program = emitted Triton over whole programs at random, schedules among them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dsl.check import errors
from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.meaning import evaluate
from dsl.parser import parse
from dsl.printer import print_program
from evaluators.pool import WorkerPool

sys.path.insert(0, str(Path(__file__).parents[1] / "dsl"))
from agreement import disagreement, emitted_values, slack, tile_values
from generator import generate, scheduled
from vocabulary import WORDS, words_of


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as workers:
        yield workers


def judge(pool: WorkerPool, seed: int, tally: Counter[str] | None = None) -> str:
    """What became of the program of a seed: rejected, not lowered, or agreed. Fails where the values differ."""
    case, tally = generate(seed), Counter() if tally is None else tally
    hw, program = hardware(case.chip), parse(case.text)
    if errors(program, hw, case.extents):
        return "rejected"
    program = scheduled(case)
    wrong = errors(program, hw, case.extents)
    assert not wrong, f"{seed}: a legal edit gave {wrong[0].message}:\n{print_program(program)}"
    try:
        lowered = lower(program, hw)
    except ProgramError as refused:
        assert {d.rule for d in refused.diagnostics} == {"not-lowered"}
        return "not lowered"
    with np.errstate(all="ignore"):
        wanted = evaluate(program, case.arrays, case.params, mode="rounded")
        tile = tile_values(program, hw, case.arrays, case.params)
        emitted = emitted_values(pool, program, lowered, case.arrays, case.params)
        for what, found in (("tile program", tile), ("emitted source", emitted)):
            if disagreement(wanted, found):
                off = disagreement(wanted, found, slack(program, case.arrays, case.params, wanted))
                assert not off, f"{seed}: by the {what} {off} on {case.chip}:\n{print_program(program)}"
    tally.update(words_of(program, [*case.masks, *case.quotients]))
    return "agreed"


def test_a_hundred_programs(pool: WorkerPool) -> None:
    fates = Counter(judge(pool, seed) for seed in range(100))
    assert fates["rejected"] <= 10 and fates["agreed"] >= 85, fates


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_two_thousand_programs(pool: WorkerPool, capsys: pytest.CaptureFixture[str]) -> None:
    tally: Counter[str] = Counter()
    fates = Counter(judge(pool, seed, tally) for seed in range(10_000, 12_300))
    with capsys.disabled():
        print("\n" + table(fates, tally))
    assert fates["agreed"] >= 2000 and fates["rejected"] <= fates.total() // 2, fates
    rare = {w: tally[w] for words in WORDS.values() for w in words if tally[w] < 25}
    assert not rare, f"too rare to prove anything: {rare}"


def table(fates: Counter[str], tally: Counter[str]) -> str:
    """What became of the programs, and in how many of those that agreed each word occurs."""
    lines = [", ".join(f"{n} {fate}" for fate, n in sorted(fates.items())), "", "| kind | in how many programs |"]
    lines += ["|---|---|"]
    for kind, words in WORDS.items():
        shown = ", ".join(
            f"`{w}` {tally[w]}".replace("|", "\\|") for w in sorted(set(words), key=lambda w: (tally[w], w))
        )
        lines.append(f"| {kind} | {shown} |")
    return "\n".join(lines)


def _survey(first: int, last: int) -> None:
    """Each failure among the programs of these seeds as a line of JSON, then the table: to look for more."""
    import json

    fates: Counter[str] = Counter()
    tally: Counter[str] = Counter()
    with WorkerPool(1) as workers:
        for seed in range(first, last):
            try:
                fates[judge(workers, seed, tally)] += 1
            except Exception as wrong:
                fates["failed"] += 1
                print(json.dumps({"seed": seed, "wrong": f"{type(wrong).__name__}: {str(wrong)[:1500]}"}), flush=True)
    print(table(fates, tally))


if __name__ == "__main__":
    _survey(*map(int, sys.argv[1:]))
