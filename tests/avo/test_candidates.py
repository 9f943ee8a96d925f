"""A program by a person's name for it: a file, a candidate, or a message that says what is neither."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from archive.archive import open_archive
from archive.errors import ArchiveError
from avo.candidates import WORTH, each, find, find_all
from avo.errors import UserMistake


def test_a_candidate_brings_its_run_and_its_lineage(evolved: Path) -> None:
    with open_archive(evolved / "avo.db", readonly=True) as store:
        last = store.candidates(1)[-1]
    named = find(f"1/{last.k}")
    assert named.candidate is not None and named.run is not None and named.evaluation is not None
    assert named.lineage[-1] == last.digest and named.name == last.digest[:8]
    assert find(last.digest[:10]).text == named.text


def test_a_file_brings_its_text_alone(evolved: Path) -> None:
    (evolved / "mine.avo").write_text(find("1/0").text)
    named = find("mine.avo")
    assert named.name == "mine" and named.candidate is None and named.text == find("1/0").text


def test_what_is_neither_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserMistake, match=r"neither a file 1/7 nor an archive avo\.db"):
        find("1/7")
    with pytest.raises(UserMistake, match=r"no such file: x\.avo"):
        find("x.avo")


def test_raw_python_is_no_program(evolved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dsl import parser
    from dsl.diagnostics import ProgramError

    def refuses(text: str, *more: object) -> None:
        raise ProgramError([], text, "x")

    monkeypatch.setattr(parser, "parse", refuses)
    with pytest.raises(UserMistake, match=r"raw Python, or a text that does not parse\. `avo show 1/0 --program`"):
        find("1/0")


def test_each_is_the_few_that_no_other_candidate_would_make_faster(evolved: Path) -> None:
    with open_archive(evolved / "avo.db", readonly=True) as store:
        found = {c.k: store.evaluation(c) for c in store.candidates(1)}
    times = {
        k: {w.workload: w.predicted_s for w in e.workloads if w.predicted_s}
        for k, e in found.items()
        if e is not None and e.status == "ok"
    }
    chosen = each(1)
    assert [n.candidate.k for n in find_all(["1/each"]) if n.candidate] == chosen
    best = {name: min(times[k][name] for k in chosen) for name in times[chosen[0]]}
    for k, mine in times.items():
        gain = sum(math.log(s / min(s, mine[name])) for name, s in best.items()) / len(best)
        assert gain < WORTH, k
    for k in chosen[1:]:
        without = {n: min(times[o][n] for o in chosen if o != k) for n in best}
        assert any(best[n] < without[n] for n in best)


def test_each_of_a_run_without_a_right_candidate_is_told(evolved: Path) -> None:
    with pytest.raises(ArchiveError, match="run 7"):
        find_all(["7/each"])
