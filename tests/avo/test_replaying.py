"""`avo replay` of what a device measured: no device is asked again, and every decision of the search is compared."""

from __future__ import annotations

import lzma
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archive import open_archive

RUNS = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "runs"
RESUMED = RUNS / "h200_attention_resumed_2026_11_30.jsonl.xz"

CLOCK = '''
"""Measures, and never twice the same."""
import random

from dsl.parser import parse
from evaluators.evaluation import Evaluation, Status, WorkloadResult


class Clock:
    key = "a clock"

    def evaluate(self, text, target, hardware):
        parse(text)
        took = 1e-3 * random.SystemRandom().uniform(1, 2)
        row = WorkloadResult(
            workload="w", work=1e9, floor_s=1e-4, bottleneck="hbm", predicted_s=took, measured_s=took, limiter="hbm"
        )
        return Evaluation(status=Status.OK, mode="measured", unit=target.unit, workloads=(row,))

    def preview(self, text, target, hardware):
        return self.evaluate(text, target, hardware).model_copy(update={"mode": "predicted"})

    def close(self):
        pass
'''


def test_what_was_measured_is_replayed_from_the_record(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clock.py").write_text(CLOCK)
    run = ("--target", "softmax", "--hw", "h200", "--evaluator", "clock.py:Clock", "--steps", 14, "--agent", "random")
    done = cli("evolve", *run)
    assert done.code == 0, done.err
    Path("clock.py").unlink()  # the device is gone
    again = cli("replay", "1")
    assert again.code == 0, again.out
    assert "run 2 is run 1 again: 15 candidates, all the same" in again.out and "not measured again" in again.out
    assert cli("replay", "2").code == 0  # a replay can be done again too

    # another verdict, another search
    with sqlite3.connect("avo.db") as raw:
        raw.execute("UPDATE candidates SET rationale = 'another' WHERE run_id = 1 AND k = 9")
    raw.close()
    answer = cli("replay", "1")
    assert answer.code == 1 and "after 9 of 15 candidates: proposal 9: its rationale was another" in " ".join(
        answer.out.split()
    )


def test_the_committed_run_past_cudnn_is_done_again_without_a_gpu(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the naive seed, on an H200, in two sessions: the same search finds the same programs from the verdicts."""
    monkeypatch.chdir(tmp_path)
    Path("run.jsonl").write_bytes(lzma.decompress(RESUMED.read_bytes()))
    assert cli("archive", "import", "run.jsonl").code == 0
    with open_archive("avo.db", readonly=True) as store:
        assert store.run(1).agent == "heuristic" and len(store.candidates(1)) == 104
        best = store.best(1)
        assert best is not None and best.k == 2
        for line in ("roles load=1 mma=2", "rescale speculative", "hold q registers", "persistent"):
            assert line in best.text
    again = cli("replay", "1")
    assert again.code == 0 and "run 2 is run 1 again: 104 candidates, all the same" in again.out, again.out
