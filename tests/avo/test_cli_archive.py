"""The verbs that look at whole runs and whole archives: status, tree, compare, archive."""

from __future__ import annotations

import gzip
import json
import lzma
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_sample import sample
from rich.cells import cell_len

from archive.archive import open_archive
from avo import metrics
from evaluators.evaluation import Evaluation, GateResult, Status

PARTS = Path(__file__).parents[1] / "plugin_package" / "avo_example"


def narrow(text: str) -> bool:
    return all(len(line) <= 80 for line in text.splitlines())


def test_status_and_tree_tell_where_a_run_stands(cli: Callable[..., Any], evolved: Path) -> None:
    told = cli("status")
    assert told.code == 0 and "row_l2 on b200" in told.out and "ended (steps)" in told.out and narrow(told.out)
    facts = json.loads(cli("status", "1", "--json").out)
    assert facts["steps"] == {"done": 4, "given": 4} and facts["statuses"] and facts["best"]["over_seed"] >= 1
    drawn = cli("tree", "1")
    assert drawn.code == 0 and narrow(drawn.out) and ">>" in drawn.out
    assert len(drawn.out.splitlines()) == 5
    nested = json.loads(cli("tree", "--json").out)
    assert [c["k"] for c in nested["candidates"]] == list(range(5)) and nested["candidates"][0]["parent"] is None
    fewer = cli("tree", "--committed")
    assert len(fewer.out.splitlines()) <= 5
    for verb in ("status", "tree"):
        assert cli(verb, "7").code == 2


def test_log_filters_and_sorts(cli: Callable[..., Any], evolved: Path) -> None:
    every = json.loads(cli("log", "1", "--json").out)
    best = json.loads(cli("log", "1", "--best", "-n", "2", "--json").out)
    scores = [c["score"]["predicted"] or 0 for c in every]
    assert [c["score"]["predicted"] for c in best] == sorted(scores, reverse=True)[:2]
    good = json.loads(cli("log", "1", "--status", "ok", "--json").out)
    assert [c["k"] for c in good] == [c["k"] for c in every if c["status"] == "ok"]
    assert json.loads(cli("log", "1", "--status", "pending", "--json").out) == []
    seeds = json.loads(cli("log", "1", "--agent", "seed", "--json").out)
    assert [c["k"] for c in seeds] == [0]
    told = cli("log", "1", "--status", "okay")
    assert told.code == 2 and "unknown status 'okay'" in told.err and "ok" in told.err
    assert cli("log", "--best").code == 2


def test_compare_puts_runs_side_by_side(cli: Callable[..., Any], evolved: Path) -> None:
    parts = [part for kind in ("target", "agent", "evaluator") for part in (f"--{kind}", PARTS / f"{kind}.py")]
    assert cli("evolve", *parts, "--steps", 2, "--seed", 1).code == 0
    told = cli("compare", "1", "2")
    assert told.code == 0 and "run 1" in told.out and "over these runs" in told.out and narrow(told.out)
    facts = json.loads(cli("compare", "1", "2", "--json").out)
    assert facts["comparable"] and len(facts["runs"]) == 2
    assert len(facts["attempt_fast_p"]["1.0"]) == 4
    assert cli("compare", "1").code == 2


def test_an_archive_is_checked_exported_imported_and_freed(cli: Callable[..., Any], evolved: Path) -> None:
    assert cli("archive", "check").out.startswith("avo.db is whole; that a verdict is true")
    done = cli("archive", "export", "runs.jsonl")
    assert done.code == 0 and "wrote 1 run with 5 candidates to runs.jsonl" in done.err
    assert cli("archive", "export").out == Path("runs.jsonl").read_text(encoding="utf-8")
    done = cli("archive", "import", "runs.jsonl", "--archive", "copy.db", "--trust")
    assert done.code == 0 and "run 1 of runs.jsonl is run 1 of copy.db" in done.out
    assert "was here already as run 1" in cli("archive", "import", "runs.jsonl", "--archive", "copy.db", "--trust").out
    assert cli("archive", "export", "--archive", "copy.db").out == Path("runs.jsonl").read_text(encoding="utf-8")
    freed = json.loads(cli("archive", "gc", "--drop", "1", "--archive", "copy.db", "--json").out)
    assert freed["runs"] == 1 and freed["texts"] > 0
    assert "holds no run yet" in cli("log", "--archive", "copy.db").out
    with sqlite3.connect("avo.db") as raw:
        raw.execute("UPDATE evaluations SET predicted = 7 WHERE id = 1")
    told = cli("archive", "check", "--json")
    assert told.code == 1 and not json.loads(told.out)["whole"]


@pytest.mark.parametrize(("ending", "compress"), [("xz", lzma.compress), ("gz", gzip.compress)])
def test_a_compressed_file_is_imported_as_it_stands(
    cli: Callable[..., Any], evolved: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    assert cli("archive", "export", "here.jsonl").code == 0
    packed = compress((evolved / "here.jsonl").read_bytes())
    (evolved / f"here.jsonl.{ending}").write_bytes(packed)
    answer = cli("archive", "import", f"here.jsonl.{ending}", "--archive", "all.db")
    assert answer.code == 0 and f"run 1 of here.jsonl.{ending} is run 1 of all.db" in answer.out
    assert cli("best", "--archive", "all.db").out == cli("best").out
    for wrong in (packed[: len(packed) // 2], b"no archive"):
        (evolved / f"cut.{ending}").write_bytes(wrong)
        answer = cli("archive", "import", f"cut.{ending}", "--archive", "cut.db")
        assert answer.code == 2 and f"cannot read cut.{ending}: " in answer.err
        assert not (evolved / "cut.db").exists() or "holds no run yet" in cli("log", "--archive", "cut.db").out


def test_a_file_to_import_that_is_none_makes_no_archive(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("hello\n", "", '{"a": 1}\n'):
        Path("other.txt").write_text(text, encoding="utf-8")
        told = cli("archive", "import", "other.txt", "--archive", "made.db")
        assert told.code == 2 and "other.txt" in told.err and not Path("made.db").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("import", "none.jsonl"), "no such file: none.jsonl"),
        (("import", "."), "cannot read ."),
        (("import", "avo.db"), "avo.db is not UTF-8 text"),
        (("export", "no/such/place.jsonl"), "cannot write no/such/place.jsonl"),
        (("gc", "--archive", "none.db"), "there is no archive at none.db"),
        (("gc", "--drop", "9"), "holds no run 9"),
        (("check", "--archive", "none.db"), "there is no archive at none.db"),
    ],
)
def test_trouble_with_an_archive_is_told(
    cli: Callable[..., Any], evolved: Path, arguments: tuple[str, ...], message: str
) -> None:
    answer = cli("archive", *arguments)
    assert answer.code == 2 and message in answer.err and answer.err.count("\n") == 1
    assert not Path("none.db").exists()


def test_the_figures_of_the_field() -> None:
    assert metrics.geometric_mean([1.0, 4.0]) == 2.0 and metrics.geometric_mean([]) is None
    assert metrics.median([3.0, 1.0, 2.0]) == 2.0
    assert metrics.fast_p([0.9, 1.0, 1.2, 2.0], 1.0) == 0.5
    assert metrics.attempt_fast_p([[1.0, 1.5], [1.2, 1.2, 3.0]], 1.4) == [0.0, 0.5, 1.0]
    assert metrics.attempt_fast_p([], 1.0) == []
    model = sample(40)
    curve = metrics.attempts(model)
    assert len(curve) == len(model.candidates) - 1 and curve == sorted(curve) and curve[0] >= 1
    best, seed = model.best(model.kind), model.by_k(model.baseline)
    assert best is not None and seed is not None
    score = getattr(best.score, model.kind) / getattr(seed.score, model.kind)
    assert curve[-1] == pytest.approx(score)
    assert metrics.geometric_mean(list(metrics.speedups(model).values())) == pytest.approx(score, rel=1e-6)
    share = metrics.sol_score(model)
    assert share is not None and model.speed_of_light is not None
    assert share == pytest.approx(getattr(best.score, model.kind) / model.speed_of_light, rel=1e-6)


def test_strange_names_fit_the_terminal_and_leave_it_alone(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Names as an imported archive may bring them: long, wide, with control characters and turned writing."""
    odd = "</script>\x1b[2J\x1b[31m\u2028 \u202eturned\u202c 核心并行\t\nnext line 🚀 \x9b "
    where = str(tmp_path / "odd 核 [x].db")
    with open_archive(where) as archive:
        for _ in range(2):
            run = archive.create_run(
                target="t" * 60 + " 核", hardware="h\x1b[2J", agent="agent " * 12, seed=1, jobs=1, judge="j"
            )
            with archive.claim(run.id) as writer:
                for k in range(5):
                    parents = [k - 1] if k else []
                    agent = "核" * 40 + odd
                    writer.add_candidate(
                        k, f"{k:02x}" * 8, f"kernel {odd * k}", agent=agent, parents=parents, rationale=odd * 5
                    )
                    gates = (GateResult(gate="parse", passed=False, message=odd),)
                    writer.record_evaluation(k, Evaluation(status=Status.PARSE_ERROR, gates=gates, message=odd * 4))
                writer.release("steps", odd)
    for verb in ("log", "log 1", "show 1/2", "diff 1/1 1/2", "tree 1", "status 1", "compare 1 2", "report --no-html"):
        told = cli(*verb.split(), "--archive", where)
        assert told.code == 0, told.err
        assert not {"\x1b", "\x9b", "\x07"} & set(told.out), verb
        program = told.out.find("\nprogram\n") if verb.startswith("show") else told.out.find("\n--- ")
        words = told.out[:program] if program > 0 else told.out
        assert not {"\u202e", "\u2028"} & set(words), verb
        lines = words.splitlines()
        assert not [line for line in lines if cell_len(line) > 80], verb
        if "--no-html" not in verb and "diff" not in verb:
            answer = cli(*verb.split(), "--archive", where, "--json").out
            assert json.loads(answer) and not {"\x1b", "\x9b", "\u202e"} & set(answer), verb
