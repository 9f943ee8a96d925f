"""A report reads a run from a real archive: proposals, repeats, verdicts that are still missing, gains and spend."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest
from loop_parts import TARGET, program

from archive.archive import Archive, open_archive
from archive.records import Hypothesis, Spend
from avo import metrics
from avo.report import build_model, print_report, render_html, render_table, to_json, write_report
from avo.report.build import read_whole
from avo.report.document import pieces
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult


def verdict(predicted: float, measured: float | None = None, spread: float = 0.0) -> Evaluation:
    return Evaluation(
        status=Status.OK,
        mode="predicted" if measured is None else "measured",
        gates=(GateResult(gate="parse", passed=True, evidence={"digest": "x"}, seconds=0.1),),
        workloads=tuple(
            WorkloadResult(
                workload=w.name,
                work=1e9,
                floor_s=1e-4,
                bottleneck="memory",
                predicted_s=predicted,
                measured_s=measured,
                detail={} if measured is None else {"interval_s": [measured - spread, measured + spread]},
            )
            for w in TARGET.workloads
        ),
        source="# the emitted source\n",
        environment={
            "device": {"name": "NVIDIA H200"},
            "regime": {"name": "sustained", "untimed_s": 0.015, "timed_s": 0.03, "rounds": 12},
        },
    )


def wrong() -> Evaluation:
    return Evaluation(
        status=Status.INCORRECT,
        mode="predicted",
        gates=(
            GateResult(gate="parse", passed=True),
            GateResult(gate="correctness", passed=False, message="rel L2 0.4", evidence={"rel_l2": 0.4}),
        ),
        message="rel L2 0.4",
    )


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Seed, a gain, a failure, a repeat of the gain, a slower one, one that waits for its verdict."""
    store = open_archive(tmp_path / "avo.db")
    config = {"given": {"steps": 6, "minutes": None}, "judge": {}}
    run = store.create_run(
        target="rows",
        hardware="b200",
        agent="walk",
        seed=3,
        jobs=2,
        judge="j",
        config=config,
        versions={"avo": "0.1.0"},
    )
    with store.claim(run.id) as writer:
        writer.add_candidate(0, "a" * 16, TARGET.seed, agent="seed")
        writer.record_evaluation(0, verdict(1e-3), Spend(wall_s=2.0))
        writer.add_candidate(
            1,
            "b" * 16,
            program(2, 4),
            agent="walk",
            parents=[0],
            rationale="more rows a block",
            hypothesis=Hypothesis("fewer blocks", 1.5, "launch"),
        )
        writer.record_evaluation(1, verdict(5e-4))
        writer.add_candidate(2, "c" * 16, program(4, 4), agent="walk", parents=[1])
        writer.record_evaluation(2, wrong())
        writer.add_candidate(3, "b" * 16, program(2, 4), agent="walk", parents=[0])
        writer.add_candidate(4, "d" * 16, program(2, 8), agent="walk", parents=[1])
        writer.record_evaluation(4, verdict(8e-4))
        writer.add_candidate(5, "e" * 16, program(8, 8), agent="walk", parents=[4])
    return store


def test_a_run_is_told_as_it_was(archive: Archive) -> None:
    model = build_model(archive)
    assert [c.outcome for c in model.candidates] == [
        "committed",
        "committed",
        "correctness",
        "repeat",
        "passed",
        "pending",
    ]
    assert [c.parents for c in model.candidates] == [(), (0,), (1,), (0,), (1,), (4,)]
    assert model.candidates[1].change == "tile b: 1 → 2; + warps 4"
    assert model.candidates[1].hypothesis["actual_gain"] == pytest.approx(2.0)
    assert model.candidates[2].message == "rel L2 0.4"
    assert model.candidates[1].source == "# the emitted source\n"
    assert [(c.k, c.line, c.reason) for c in model.commits] == [(0, True, ""), (1, True, "more rows a block")]
    assert model.commits[1].gain == pytest.approx(2.0)
    assert model.commits[1].gain_low is None
    assert model.speed_of_light == pytest.approx(10.0)
    assert (model.mode, model.mode_reason) == ("predicted", "nothing was timed on a device")
    assert (model.budget.steps, model.budget.steps_used, model.budget.minutes) == (6, 5, None)
    assert model.budget.spend["wall_s"] == pytest.approx(2.0)
    assert model.versions == {"avo": "0.1.0"}


def test_a_measured_gain_carries_its_interval(tmp_path: Path) -> None:
    store = open_archive(tmp_path / "avo.db")
    run = store.create_run(target="rows", hardware="h200", agent="walk", seed=0, jobs=1, judge="j")
    with store.claim(run.id) as writer:
        writer.add_candidate(0, "a" * 16, TARGET.seed, agent="seed")
        writer.record_evaluation(0, verdict(9e-4, 1e-3, 1e-5))
        writer.add_candidate(1, "b" * 16, program(2, 4), agent="walk", parents=[0])
        writer.record_evaluation(1, verdict(9e-4, 8e-4, 1e-5))
    model = build_model(store, run.id)
    assert model.mode_reason == "NVIDIA H200; sustained regime, 15 ms untimed then 30 ms timed"
    gain = model.commits[1]
    assert (model.kind, gain.kind) == ("measured", "measured")
    assert gain.gain == pytest.approx(1.25)
    assert gain.gain_low == pytest.approx(0.99e-3 / 0.81e-3)
    assert gain.gain_high == pytest.approx(1.01e-3 / 0.79e-3)
    assert model.running_best.measured[-1].k == 1
    assert model.running_best.predicted[-1].k == 0


def test_a_report_needs_no_more_than_a_readable_archive(archive: Archive, tmp_path: Path) -> None:
    with open_archive(tmp_path / "avo.db", readonly=True) as reader:
        where = write_report(reader, path=tmp_path / "out.html")
        assert where.read_text("utf-8") == render_html(build_model(archive))


@pytest.mark.parametrize("measured", [False, True])
def test_a_long_run_is_told_alike_from_what_a_page_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: bool
) -> None:
    """As many as a page has no room for: the page and the table are those of the whole run, to the last letter."""
    store = open_archive(tmp_path / "avo.db")
    run = store.create_run(target="rows", hardware="b200", agent="walk", seed=0, jobs=1, judge="j")
    rng = random.Random(3)
    with store.claim(run.id) as writer:
        for k in range(120):
            text = TARGET.seed if k == 0 else program(2, 4) + f"# {k if k % 9 else 1}\n"
            parents = sorted({rng.randrange(max(0, k - 40), k), rng.randrange(k)}) if k else []
            digest = f"{'a' if k % 9 else 'b'}{k if k % 9 or not k else 1:015x}"
            hypothesis = Hypothesis(f"claim {k}", 1 + rng.random() / 9) if k % 3 == 1 else None
            writer.add_candidate(
                k, digest, text, agent="walk", parents=parents, hypothesis=hypothesis, spend=Spend(wall_s=k)
            )
            if k in (40, 90) or (k and rng.random() < 0.3):
                status = Status.GAMING if k in (40, 90) else Status.INCORRECT
                writer.record_evaluation(k, wrong().model_copy(update={"status": status}))
            elif k != 77:
                time = 1e-3 * (1 - k / 400) * (1 + rng.random() / 5)
                writer.record_evaluation(k, verdict(time, time * 1.1 if measured else None, time / 50))
        writer.nominate(5, Hypothesis("never tried", 1.5))
    whole, few = build_model(store, run.id), build_model(store, run.id, full=15)
    assert len(whole.candidates) == few.total == 120
    assert len(few.candidates) < 120
    assert len(whole.tried) == whole.tried_total == few.tried_total > len(few.tried)
    assert render_html(few, full=15) == render_html(whole, full=15)
    assert render_table(few) == render_table(whole)
    assert metrics.attempts(few) == metrics.attempts(whole)
    assert metrics.speedups(few) == metrics.speedups(whole)
    # and its JSON, read a few candidates at a time, is that of the whole
    monkeypatch.setattr("avo.report.build.FULL", 15)
    monkeypatch.setattr("avo.report.build._IN_ROOM", 7)
    said = "".join(pieces(*read_whole(store, run.id)))
    assert said == to_json(whole) and len(json.loads(said)["candidates"]) == 120


def test_an_upgrade_that_was_cut_off_leaves_a_whole_report(archive: Archive, tmp_path: Path) -> None:
    before = build_model(archive)
    raw = sqlite3.connect(tmp_path / "avo.db")
    raw.execute("UPDATE evaluations SET times = NULL")
    raw.execute("UPDATE avo_archive SET score_rule = 1")
    raw.commit()
    raw.close()
    with open_archive(tmp_path / "avo.db", readonly=True) as reader:
        assert build_model(reader) == before


def test_printing_a_report(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    print_report(archive)
    table = capsys.readouterr().out
    assert "best, predicted: 2 TFLOP/s by bbbbbbbb (proposal 1); 2.00x the seed" in table
    assert "1 repeated, 1 pending" in table
    print_report(archive, as_json=True)
    assert json.loads(capsys.readouterr().out)["candidates"][5]["status"] is None


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    store = open_archive(tmp_path / "avo.db")
    run = store.create_run(target="rows", hardware="b200", agent="walk", seed=0, jobs=1, judge="j")
    assert build_model(store).candidates == ()
    with store.claim(run.id) as writer:
        writer.add_candidate(0, "a" * 16, TARGET.seed, agent="seed")
    model = build_model(store)
    assert model.mode == "none" and model.candidates[0].outcome == "pending"
    assert "pending" in render_html(model)
