"""`avo replay` of what a device measured: no device is asked again, and every decision of the search is compared."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
