"""Recorded tables: what records them still fits the worker that it runs in, and what replays them guesses nothing."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

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
