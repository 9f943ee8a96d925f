"""`--seed-program FILE`: a program that is wrong, or of another job, is told by its own name before a run begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluators.targets import target


@pytest.fixture
def refused(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """What is said of a program's text that a run for that target is to start from."""
    monkeypatch.chdir(tmp_path)

    def call(job: str, text: str) -> str:
        (tmp_path / "mine.avo").write_text(text)
        answer = cli("evolve", "--target", job, "--seed-program", "mine.avo", "--steps", "1", "--hw", "b200")
        assert answer.code in (1, 2) and not (tmp_path / "avo.db").exists()
        return str(answer.err)

    return call


def test_a_program_of_another_job_is_told_from_the_targets_own(refused: Callable[[str, str], str]) -> None:
    said = refused("softmax", target("rmsnorm").seed)
    assert "mine.avo is no program for softmax, whose inputs, outputs and params it has to have" in said
    assert "mine.avo:2:" in said and "legal: in x[r c] bf16" in said
    assert "mine.avo is no program for rmsnorm" in refused("rmsnorm", target("layernorm").seed)


def test_what_is_wrong_is_told_with_the_files_name(refused: Callable[[str, str], str]) -> None:
    said = refused("rmsnorm", target("rmsnorm").seed.replace("warps 4", "warps 99"))
    assert "the program to start from is wrong\nmine.avo:9:7: error[bad-number]: `warps 99`" in said
    assert "mine.avo:1:" in refused("rmsnorm", "kernel ]]]")


def test_one_that_computes_something_else_is_refused(refused: Callable[[str, str], str]) -> None:
    said = refused("rmsnorm", target("rmsnorm").seed.replace("mean[c](x * x)", "mean[c](x * x) * 1.01"))
    assert "does not compute what the reference does" in said
    assert said.rstrip().endswith("the seed program is that of mine.avo")


def test_a_candidate_is_no_file_to_start_from(cli: Callable[..., Any], evolved: Path) -> None:
    answer = cli("evolve", "--target", "softmax", "--seed-program", "1/best", "--steps", "1")
    assert answer.code == 2 and "`avo show 1/best --program > seed.avo` writes one" in answer.err
