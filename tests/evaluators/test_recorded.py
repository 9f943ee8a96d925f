"""Recorded tables: what records them still fits the worker that it runs in, and what replays them guesses nothing."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Status, score
from evaluators.protocol import Evaluator
from evaluators.recorded import RecordedEvaluator, TableError, read_tables
from evaluators.target import Target, TargetError, Workload

H200 = hardware("h200")
SIZES = {"m": 4096, "n": 4096, "k": 4096}
PROGRAM = """kernel matmul
in  a[m k] bf16, b[k n] bf16
out c[m n] bf16
c = sum[k](a * b)

schedule
tile m=64 n=64 k=32
grid m n
order grouped(8)
stream k stages=2
"""
TARGET = Target("matmul", lambda a, b: a @ b, PROGRAM, (Workload(SIZES),))


def content(**changes: Any) -> dict[str, Any]:
    """Tile m of 64 and 128, load by pointer and tma: three points were timed, one did not fit."""
    points = [
        {"status": "ok", "s": [4e-4, 4.2e-4, 3.9e-4], "registers": 90, "spills": 0, "parts": [3e-4, 1e-4]},
        {"status": "ok", "s": [3e-4], "registers": 90, "spills": 0, "predicted_s": 2.5e-4},
        {"status": "ok", "s": [9e-4], "slow": True},
        {"status": "resource", "message": "231,480 bytes of shared memory"},
    ]
    found = {
        "format": 1,
        "table": "square",
        "target": "matmul",
        "chip": "h200",
        "date": "2026-11-29",
        "sizes": SIZES,
        "params": {},
        "program": PROGRAM,
        "knobs": {"tile m": [64, 128], "load": ["pointer", "tma"]},
        "causes": ["matrix units", "latency"],
        "points": points,
    }
    return found | changes


def written(folder: Path, name: str = "square", **changes: Any) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content(table=name, **changes)))
    return path


@pytest.fixture
def judge(tmp_path: Path) -> RecordedEvaluator:
    return RecordedEvaluator(str(written(tmp_path)))


def test_a_point_of_the_grid_gets_its_measured_time_and_facts(judge: RecordedEvaluator) -> None:
    assert isinstance(judge, Evaluator)
    found = judge.evaluate(PROGRAM, TARGET, H200)
    assert (found.status, found.mode) == (Status.OK, "measured")
    (row,) = found.workloads
    assert row.measured_s == 4e-4, "the median of the samples"
    assert row.detail["interval_s"] == [3.9e-4, 4.2e-4]
    assert row.detail["parts"] == {"matrix units": 3e-4, "latency": 1e-4}
    assert row.floor_s < 4e-4
    gate = found.gate("compile")
    assert gate is not None and gate.evidence["kernels"][0]["registers"] == 90
    assert score(found).measured == pytest.approx(2 * 4096**3 / 4e-4 * 1e-12)


def test_how_a_schedule_is_written_does_not_matter(judge: RecordedEvaluator) -> None:
    other = PROGRAM.replace(
        "tile m=64 n=64 k=32\ngrid m n\n", "load tma  # by descriptor\ngrid m n\ntile k=32 n=64 m=64\nwarps 4\n"
    )
    assert judge.setting(other, TARGET, H200) == (64, "tma")
    found = judge.evaluate(other, TARGET, H200)
    assert found.workloads[0].measured_s == 3e-4 and found.workloads[0].predicted_s == 2.5e-4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("m=64", "m=32", "tile m = 32 was not recorded; recorded are 64, 128"),
        ("stages=2", "stages=3", "stream stages = 3 was not recorded; all points have 2"),
        ("grouped(8)", "grouped(4)", "order = grouped(4) was not recorded; all points have grouped(8)"),
        ("stages=2", "stages=2\npersistent", "persistent = on was not recorded; all points have off"),
        ("stages=2", "stages=2\nfor gfx942: warps 8", "the schedule has directives that no recorded point has"),
        ("a * b", "a * b * 2.0", "the algorithm is not the one that was recorded"),
        ("stream k stages=2", "", "stream = none"),
    ],
)
def test_a_proposal_off_the_grid_is_answered_as_such(judge: RecordedEvaluator, old: str, new: str, said: str) -> None:
    found = judge.evaluate(PROGRAM.replace(old, new), TARGET, H200)
    assert (found.status, found.failed_gate) == (Status.NOT_RECORDED, "check")
    assert said in found.message
    assert not found.workloads and score(found).measured == 0.0, "nothing is guessed"


def test_what_failed_when_it_was_recorded_fails_again(judge: RecordedEvaluator) -> None:
    found = judge.evaluate(PROGRAM.replace("m=64", "m=128") + "load tma\n", TARGET, H200)
    assert found.status is Status.RESOURCE and "231,480 bytes" in found.message
    assert judge.evaluate("kernel", TARGET, H200).status is Status.PARSE_ERROR


def test_several_workloads_of_one_grid_are_judged_together(tmp_path: Path) -> None:
    written(tmp_path)
    points = [{**p, "s": [4 * s for s in p["s"]]} if "s" in p else p for p in content()["points"]]
    written(tmp_path, "long", sizes={**SIZES, "k": 8192}, points=points)
    judge = RecordedEvaluator(tmp_path)
    both = replace(TARGET, workloads=(Workload(SIZES), Workload({**SIZES, "k": 8192})))
    found = judge.evaluate(PROGRAM, both, H200)
    assert [w.measured_s for w in found.workloads] == [4e-4, 1.6e-3]
    assert judge.key != RecordedEvaluator(tmp_path / "square.json").key


def test_what_was_not_recorded_is_the_persons_to_mend(judge: RecordedEvaluator, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="--workload m=4096,n=4096,k=4096"):
        judge.evaluate(PROGRAM, replace(TARGET, workloads=(Workload({**SIZES, "k": 1024}),)), H200)
    with pytest.raises(TargetError, match="recorded on h200, not on b200"):
        judge.evaluate(PROGRAM, TARGET, hardware("b200"))
    written(tmp_path, "long", sizes={**SIZES, "k": 8192}, program=PROGRAM.replace("stages=2", "stages=3"))
    both = replace(TARGET, workloads=(Workload(SIZES), Workload({**SIZES, "k": 8192})))
    with pytest.raises(TargetError, match="different grids"):
        RecordedEvaluator(tmp_path).evaluate(PROGRAM, both, H200)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no table can be read"),
        ("[]", "no table of format 1"),
        (json.dumps(content(format=2)), "no table of format 1"),
        (json.dumps(content(points=[])), "0 points where the knobs make 4"),
        (json.dumps(content(program="kernel")), "incomplete"),
        (json.dumps(content(chip="abacus")), "a chip that this version does not know"),
    ],
)
def test_a_file_that_is_no_table_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(TableError, match=said):
        read_tables(tmp_path)


def test_without_a_path_or_with_two_tables_of_one_workload_nothing_begins(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="recorded:PATH"):
        RecordedEvaluator()
    with pytest.raises(TableError, match=r"no \*\.json"):
        RecordedEvaluator(tmp_path)
    written(tmp_path)
    written(tmp_path, "again")
    with pytest.raises(TableError, match="again and square are both of matmul"):
        RecordedEvaluator(tmp_path)


BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_the_recorders_tasks_import_what_the_device_worker_has() -> None:
    """They reach into the worker's own tasks; a rename there would show only on a machine with a GPU."""
    tasks = runpy.run_path(str(BENCHMARKS / "record_tasks.py"))["TASKS"]
    assert set(tasks) == {"table_screen", "table_round", "table_heat"}


@pytest.mark.slow
def test_a_few_points_are_recorded_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = runpy.run_path(str(BENCHMARKS / "record_table.py"))
    given = ["record_table.py", "--out", str(tmp_path), "--simulate", "--minutes", "3", "--only", "gemm_decode"]
    monkeypatch.setattr(sys, "argv", given)
    assert recorder["main"]() == 0
    text = (tmp_path / "gemm_16x8192x8192.json").read_text()
    assert text.count('"status":"ok"') == 4
