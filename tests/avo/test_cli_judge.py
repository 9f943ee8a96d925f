"""The command line with avo's own judge: real compilation for the chip, the emitted code run, times predicted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from avo.plugins import load


@pytest.fixture
def seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "softmax.avo"
    path.write_text(load("target", "softmax").seed)
    return path


def test_eval_accepts_with_evidence_of_every_gate(cli: Callable[..., Any], seed: Path) -> None:
    answer = cli("eval", seed, "--target", "softmax", "--hw", "b200", "--workload", "r=4096,c=2048", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    gates = ["parse", "check", "meaning", "compile", "correctness", "prediction", "floor"]
    assert [g["gate"] for g in found["gates"]] == gates and all(g["passed"] for g in found["gates"])
    assert found["mode"] == "predicted" and found["score"]["measured"] is None and found["score"]["predicted"] > 0
    (workload,) = found["workloads"]
    assert workload["workload"] == "r=4096,c=2048" and workload["predicted_s"] > workload["floor_s"]


def test_eval_rejects_and_says_why(cli: Callable[..., Any], seed: Path) -> None:
    wrong = seed.with_name("wrong.avo")
    wrong.write_text(seed.read_text().replace("softmax[c](x)", "softmax[c](x * 2)"))
    answer = cli("eval", wrong, "--target", "softmax")
    assert answer.code == 1 and "the schedule alone may be changed" in answer.out
    broken = seed.with_name("broken.avo")
    broken.write_text("kernel\n")
    answer = cli("eval", broken, "--target", "softmax")
    assert answer.code == 1 and "status: parse_error" in answer.out


def test_eval_on_the_host_claims_no_time(cli: Callable[..., Any], seed: Path) -> None:
    answer = cli("eval", seed, "--target", "softmax", "--hw", "cpu")
    assert answer.code == 0, answer.out + answer.err
    assert "correctness  ok" in answer.out and "predicted" not in answer.out and "score" not in answer.out


def test_a_target_of_ones_own_evolves_with_the_built_in_judge(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("init").code == 0
    answer = cli("evolve", "-c", "run.toml", "--steps", 1, "--hw", "h200")
    assert answer.code == 0, answer.out + answer.err
    assert "mode      predicted: " in answer.out and "[1/1]" in answer.out and "GB/s predicted" in answer.out
    page = (tmp_path / "avo-report-1.html").read_text()
    assert "my_target" in page and "predicted" in page
    source = cli("show", "1/0", "--triton")
    assert source.code == 0 and "@triton.jit" in source.out
    shown = cli("show", "1/0").out
    assert "registers" in shown and "nearest to its limit" in shown and max(map(len, shown.splitlines())) <= 80


def test_doctor_finds_this_machine_fit(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cli("doctor")
    assert answer.code == 0, answer.out
    for line in ("ok  compile b200", "ok  compile mi300x", "ok  interpreter", "ok  archive", "ok  triton", "ok  torch"):
        assert line in answer.out
    (tmp_path / "avo.db").write_text("no archive " * 200)
    answer = cli("doctor", "--quick")
    assert answer.code == 3 and "not an avo archive" in " ".join(answer.out.split())
