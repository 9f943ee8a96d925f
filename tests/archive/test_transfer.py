"""An archive as JSON Lines and back is the same archive; upkeep finds what is not whole and frees what nobody needs."""

from __future__ import annotations

import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from archive_parts import bad, ok

from archive import Archive, ArchiveError, Held, Hypothesis, Spend, open_archive
from archive.documents import SCORE_RULE
from archive.tables import metadata
from archive.transfer import export_archive, import_archive, imported
from archive.upkeep import check_archive, collect
from evaluators.evaluation import Status


def fill(archive: Archive, seed: int = 3, judge: str = "judge", hold: bool = False) -> int:
    """A run with something in every table."""
    run = archive.create_run(target="attention", hardware="b200", agent="a", seed=seed, jobs=2, judge=judge)
    writer = archive.claim(run.id)
    writer.add_candidate(0, "a" * 16, "kernel a\n", agent="seed")
    writer.record_evaluation(0, ok(0.5))
    writer.add_candidate(1, f"b{seed}" * 8, f"kernel b{seed} \u2028 ünï\n", agent="a", parents=[0])
    writer.record_evaluation(1, bad())
    writer.add_candidate(2, "a" * 16, "kernel a\n", agent="a", parents=[0, 1], rationale="again")
    writer.nominate(1, Hypothesis("deeper pipeline", 1.2, "latency"), {"cost": 2})
    asked = writer.ask(1, "m", "what now?", Spend(usd=0.5, tokens_in=9))
    writer.answered(asked, "this", "ok", Spend(usd=0.1, tokens_in=9, tokens_out=2))
    writer.ask(2, "m", "and now?", Spend(usd=None))
    writer.note(1, "64 is enough", topic="tiles")
    if not hold:
        writer.release("steps", "done")
    return run.id


def rows(archive: Archive) -> dict[str, list[dict[str, Any]]]:
    """Everything but who writes a run."""
    found = {}
    with archive.database.reading() as connection:
        for table in metadata.sorted_tables:
            if table.name in ("avo_archive", "members", "leases"):
                continue
            taken = connection.execute(table.select().order_by(*table.primary_key)).mappings()
            found[table.name] = [
                {k: v for k, v in row.items() if k not in ("holder", "token", "beat", "beat_at")} for row in taken
            ]
    return found


def exported(archive: Archive) -> list[str]:
    out = io.StringIO()
    export_archive(archive, out)
    return list(io.StringIO(out.getvalue()))


@pytest.fixture
def full(tmp_path: Path) -> Any:
    with open_archive(tmp_path / "full.db") as archive:
        fill(archive)
        fill(archive, seed=4)
        archive.review(archive.candidate("2/0"), ok(0.5), by="ann", reason="seen")
        yield archive


def test_an_empty_archive_becomes_equal(full: Archive, tmp_path: Path) -> None:
    lines = exported(full)
    assert all(rows(full).values()), "every table has a row, so none escapes this test"
    with open_archive(tmp_path / "copy.db") as copy:
        done = import_archive(copy, lines, "full.jsonl", trusted=True)
        assert (done.runs, done.known) == ({1: 1, 2: 2}, {})
        assert rows(copy) == rows(full)
        assert exported(copy) == lines
        assert check_archive(copy) == []
        again = import_archive(copy, lines, "full.jsonl", trusted=True)
        assert (again.runs, again.known) == ({}, {1: 1, 2: 2}) and not any(again.rows.values())
        assert rows(copy) == rows(full)
        with copy.claim(1) as writer:  # it can be gone on with
            writer.record_evaluation(2, ok(0.5))


def test_verdicts_of_somebody_s_file_hold_for_its_own_runs_alone(full: Archive, tmp_path: Path) -> None:
    with open_archive(tmp_path / "copy.db") as copy:
        import_archive(copy, exported(full), "full.jsonl")
        shown = copy.candidates(1)[0]
        assert shown.status is Status.OK and copy.best(1) is not None
        assert copy.run(1).judge == imported(full.run(1).judge)
        mine = fill(copy, seed=5)  # the same judge, the same programs
        theirs, here = copy.candidates(1)[0].evaluation_id, copy.candidates(mine)[0].evaluation_id
        assert theirs != here
        again = import_archive(copy, exported(full), "full.jsonl")
        assert again.known == {1: 1, 2: 2} and not any(again.rows.values())
        with copy.claim(1) as writer:  # it can be gone on with
            writer.record_evaluation(2, ok(0.5))
        assert check_archive(copy) == []


def test_numbers_that_are_taken_are_changed_and_references_follow(full: Archive, tmp_path: Path) -> None:
    with open_archive(tmp_path / "mine.db") as mine:
        fill(mine, seed=9)
        done = import_archive(mine, exported(full), "full.jsonl", trusted=True)
        assert done.runs == {1: 2, 2: 3}
        assert check_archive(mine) == []
        for theirs, ours in done.runs.items():
            before = [c for c in full.candidates(theirs)]
            after = [c for c in mine.candidates(ours)]
            assert [(c.k, c.digest, c.text, c.parents, c.status, c.score, c.reused) for c in before] == [
                (c.k, c.digest, c.text, c.parents, c.status, c.score, c.reused) for c in after
            ]
            assert [full.evaluation(c) for c in before] == [mine.evaluation(c) for c in after]
            assert full.spend(theirs) == mine.spend(ours)
            assert [(e.k, e.seq, e.request, e.reply, e.outcome) for e in full.exchanges(theirs)] == [
                (e.k, e.seq, e.request, e.reply, e.outcome) for e in mine.exchanges(ours)
            ]
            assert [t.hypothesis for t in full.hypotheses(theirs)] == [t.hypothesis for t in mine.hypotheses(ours)]
            assert [n.body for n in full.notes(run=theirs)] == [n.body for n in mine.notes(run=ours)]
        assert done.rows["evaluations"] == 2, "the verdict on a program that was judged here is shared"


def test_a_run_that_is_being_written_is_exported_as_interrupted(tmp_path: Path) -> None:
    with open_archive(tmp_path / "live.db") as live, open_archive(tmp_path / "copy.db") as copy:
        fill(live, hold=True)
        assert live.run(1).state == "running"
        import_archive(copy, exported(live), "live.jsonl", trusted=True)
        assert copy.run(1).state == "interrupted"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: ['{"a": 1}\n'], "was not written by `avo archive export`"),
        (lambda lines: [lines[0].replace('"version":', '"version":9'), *lines[1:]], "has schema version 9"),
        (lambda lines: lines[:-1], "is not whole"),
        (lambda lines: [*lines[:-4], lines[-1]], "is not whole"),
        (lambda lines: [*lines[:5], lines[5][:20]], "line 6: not JSON"),
        (lambda lines: [*lines[:5], "[1]\n"], "line 6: not a JSON object"),
        (lambda lines: [lines[0], '{"table":"cats"}\n'], "line 2: no table of an archive"),
        (lambda lines: [lines[0], lines[-2], *lines[1:-2], lines[-1]], "not in its turn|not whole"),
        (lambda lines: [t.replace("kernel a", "kernel z") for t in lines], "SHA-256"),
        (lambda lines: [t for t in lines if '"table":"runs"' not in t], "a row of .* that is not whole"),
    ],
)
def test_a_file_that_is_not_whole_imports_nothing(full: Archive, tmp_path: Path, spoil: Any, message: str) -> None:
    with open_archive(tmp_path / "copy.db") as copy:
        with pytest.raises(ArchiveError, match=message):
            import_archive(copy, spoil(exported(full)), "full.jsonl")
        assert not any(rows(copy).values())


def test_keys_by_another_rule_are_computed_anew(full: Archive, tmp_path: Path) -> None:
    lines = exported(full)
    head = json.loads(lines[0])
    assert head["score_rule"] == SCORE_RULE
    lines[0] = json.dumps({**head, "score_rule": 0}) + "\n"
    lines = [line.replace('"headroom":', '"headroom":9,"was":') for line in lines]
    with open_archive(tmp_path / "copy.db") as copy:
        import_archive(copy, lines, "full.jsonl", trusted=True)
    with open_archive(tmp_path / "copy.db") as copy:
        assert rows(copy)["evaluations"] == rows(full)["evaluations"]


def test_check_names_what_is_wrong(full: Archive) -> None:
    assert check_archive(full) == []
    path = full.where
    raw = sqlite3.connect(path)
    raw.execute(
        "UPDATE texts SET body = x'00' WHERE sha256 = (SELECT text_sha FROM candidates WHERE run_id = 1 AND k = 0)"
    )
    raw.execute("UPDATE evaluations SET predicted = 5 WHERE id = 1")
    raw.execute("UPDATE documents SET body = '{}' WHERE evaluation_id = 2")
    raw.execute("DELETE FROM documents WHERE evaluation_id = 3")
    raw.execute("UPDATE parents SET parent_k = 2 WHERE run_id = 2 AND k = 2 AND position = 1")
    raw.execute("UPDATE candidates SET evaluation_id = 77 WHERE run_id = 2 AND k = 1")
    raw.execute("UPDATE candidates SET digest = 'deadbeef' || digest WHERE run_id = 1 AND k = 1")
    raw.commit()
    raw.close()
    told = "\n".join(check_archive(full))
    for part in (
        "is damaged",
        "candidate 1/1 is deadbeef, and its verdict is on",
        "predicted differ",
        "cannot be read",
        "lost its evidence",
        "is not before",
        "evaluations",
    ):
        assert part in told, told


def test_collect_frees_what_nothing_refers_to(full: Archive) -> None:
    whole = rows(full)
    nothing = collect(full)
    assert (nothing.runs, nothing.verdicts, nothing.texts) == (0, 0, 0) and rows(full) == whole
    freed = collect(full, drop=(2,))
    assert freed.runs == 1 and freed.verdicts == 1 and freed.texts == 1
    assert check_archive(full) == []
    assert [r.id for r in full.runs()] == [1] and len(full.candidates(1)) == 3
    assert not [n for n in full.notes() if n.run == 2]
    with pytest.raises(ArchiveError, match="holds no run 2"):
        collect(full, drop=(2,))


def test_a_run_that_is_being_written_is_not_dropped(tmp_path: Path) -> None:
    with open_archive(tmp_path / "live.db") as live:
        fill(live, hold=True)
        with pytest.raises(Held, match="Stop it before it is dropped"):
            collect(live, drop=(1,))


def test_a_promotion_travels_and_is_kept_while_its_candidate_is(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.db") as archive:
        run = archive.create_run(target="attention", hardware="b200", agent="a", seed=3, jobs=2, judge="judge")
        with archive.claim(run.id) as writer:
            writer.add_candidate(0, "a" * 16, "kernel a\n", agent="seed")
            writer.record_evaluation(0, ok(0.5))
            writer.record_promotion(0, ok(0.6))
        assert collect(archive).verdicts == 0
        assert list(archive.promotions(run.id)) == ["a" * 16]
        lines = exported(archive)
        assert collect(archive, (run.id,)).verdicts == 2
    with open_archive(tmp_path / "b.db") as other:
        import_archive(other, lines, "lines", trusted=True)
        assert other.promotions(1)["a" * 16] == ok(0.6)


def test_what_is_damaged_is_told_as_such(full: Archive) -> None:
    """`avo report` called a damaged text a bug in avo."""
    raw = sqlite3.connect(full.where)
    raw.execute("UPDATE texts SET body = x'00' WHERE sha256 = (SELECT text_sha FROM candidates WHERE k = 0 LIMIT 1)")
    raw.execute("UPDATE evaluations SET status = 'ok2'")
    raw.commit()
    raw.close()
    with pytest.raises(ArchiveError, match="damaged; `avo archive check` says"):
        full.candidates(1)
