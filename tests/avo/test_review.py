"""What is suspicious is shown with its evidence, kept out of rankings, decided by people, and never over-written."""

from __future__ import annotations

import json

import pytest

from archive import open_archive
from avo.cli import main
from avo.history import History
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult
from evaluators.integrity import rules

FACTS = {
    "odd": [],
    "late": [],
    "children": 0,
    "state": "",
    "torch": "glue",
    "aten": {},
    "launches": 9,
    "ghost": "wrong",
}


def evaluation(seconds, status=Status.OK, at_work=0, seen=""):
    result = WorkloadResult(workload="m=1", work=1e12, floor_s=0.1, bottleneck="matrix", measured_s=seconds)
    facts = {**FACTS, "threads": [1, 9], "at work": at_work, "rules": rules.applied()}
    gates = (
        GateResult(gate="correctness", passed=True),
        GateResult(gate="integrity", passed=status is Status.OK, evidence=facts, message=seen),
    )
    return Evaluation(status=status, mode="measured", gates=gates, workloads=(result,), message=seen)


@pytest.fixture
def store(tmp_path):
    """A seed, a suspicious candidate that is faster, a gaming one, and a copy of that one."""
    with open_archive(tmp_path / "avo.db") as archive:
        run = archive.create_run(target="softmax", hardware="h200", agent="outside", seed=0, jobs=1, judge="j")
        with archive.claim(run.id) as writer:
            for k, (text, parents, verdict) in enumerate(
                (
                    ("seed", (), evaluation(2.0)),
                    ("fast", (0,), evaluation(1.0, Status.SUSPICIOUS, 8, "8 threads compute")),
                    ("cheat\na\nb\nc\nd", (0,), evaluation(0.5, Status.GAMING, seen="state kept")),
                    ("cheat\na\nb\nc\nd\ne", (0,), evaluation(0.5, Status.GAMING, seen="state kept")),
                    ("child", (2,), evaluation(0.5, Status.GAMING, seen="late write")),
                )
            ):
                writer.add_candidate(k, f"{k}" * 16, text, agent="x", parents=parents)
                writer.record_evaluation(k, verdict)
        yield archive


def avo(store, capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--archive", store.where])
    told = capsys.readouterr()
    return ended.value.code, told.out + told.err


def test_what_is_suspicious_is_in_no_ranking_and_is_shown(store, capsys):
    assert store.best(1).k == 0
    code, told = avo(store, capsys, "review")
    assert code == 0 and "1/1" in told and "8 threads compute" in told and '"launches": 9' in told
    found = json.loads(avo(store, capsys, "review", "--json")[1])
    assert [f["status"] for f in found] == ["suspicious", "gaming", "gaming", "gaming"]
    assert found[0]["evidence"]["threads"] == [1, 9]


def test_a_decision_holds_until_it_is_undone(store, capsys):
    code, told = avo(store, capsys, "review", "1/1", "--accept", "--reason", "a pool that waits", "--by", "ann")
    assert code == 0 and "1/1 is ok now" in told
    assert store.best(1).k == 1 and store.counts(1)["ok"] == 2
    kept = store.evaluation(store.candidate("1/1"))
    assert kept.environment["review"] == {"by": "ann", "reason": "a pool that waits", "was": "suspicious"}
    assert kept.failed_gate is None and "ann" in kept.gate("integrity").message
    assert History.of(store, 1).best().k == 1
    assert avo(store, capsys, "review", "1/1", "--reject", "--reason", "no, it does not", "--by", "bob")[0] == 0
    assert store.best(1).k == 0 and store.counts(1)["gaming"] == 4
    for status in ("ok", "suspicious"):
        code, told = avo(store, capsys, "review", "1/1", "--undo")
        assert code == 0 and f"is {status} again" in told
    code, told = avo(store, capsys, "review", "1/1", "--undo")
    assert code == 2 and "no decision to undo" in told
    assert [(d.by, d.undone_at is not None) for d in store.reviews()] == [("ann", True), ("bob", True)]
    assert "bob decided gaming" in avo(store, capsys, "review", "1/1")[1]


def test_what_may_not_be_decided(store, capsys):
    assert "needs a reason" in avo(store, capsys, "review", "1/1", "--accept")[1]
    assert "say which" in avo(store, capsys, "review", "--accept")[1]
    assert "exclude each other" in avo(store, capsys, "review", "1/1", "--accept", "--undo")[1]
    assert "a decision is about" in avo(store, capsys, "review", "1/0", "--accept", "--reason", "x")[1]


def test_a_new_rule_judges_the_archive_without_running_anything(store, capsys, monkeypatch):
    code, told = avo(store, capsys, "review", "--rules")
    assert (
        code == 0 and "5 verdicts looked at, 3 changed, 0 would need a run" in told
    )  # those that FACTS do not bear out
    few = rules.Rule("launches", 1, Status.SUSPICIOUS, ("launches",), lambda f: "few" if f["launches"] < 10 else None)
    heat = rules.Rule("heat", 1, Status.GAMING, ("watts",), lambda f: None)
    avo(store, capsys, "review", "1/1", "--accept", "--reason", "a person's word", "--by", "ann")
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, few, heat))
    found = json.loads(avo(store, capsys, "review", "--rules", "--json")[1])
    assert found["judged"] == 4 and len(found["missing"]) == 4
    assert {(c["was"], c["is"]) for c in found["changed"]} == {("ok", "suspicious")}
    assert store.counts(1) == {"ok": 1, "suspicious": 4}


def test_a_copy_of_a_gaming_one_is_marked(store):
    assert [c.inherited for c in History.of(store, 1).all()] == [None, None, None, 2, 2]


def test_decisions_travel_and_go_with_what_they_are_about(store, tmp_path):
    import io

    from archive.transfer import export_archive, import_archive
    from archive.upkeep import check_archive, collect

    verdict = store.evaluation(store.candidate("1/1")).model_copy(update={"status": Status.OK, "message": ""})
    store.review(store.candidate("1/1"), verdict, by="ann", reason="seen")
    assert check_archive(store) == []
    out = io.StringIO()
    export_archive(store, out)
    with open_archive(tmp_path / "other.db") as other:
        import_archive(other, out.getvalue().splitlines(), "x", trusted=True)
        assert [d.by for d in other.reviews()] == ["ann"] and other.best(1).k == 1
    collect(store, (1,))
    assert store.reviews() == []
