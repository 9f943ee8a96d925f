"""Attacks that work against a grader as many are written, and what stops each of them here."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.integrity import sandbox
from evaluators.integrity.corpus import Judged, read
from evaluators.integrity.raw import RawEvaluator

HERE = Path(__file__).parent
ATTACKS = [item for item in read(HERE) if item.kind == "attacks"]
LEFT_BEHIND = (Path("/dev/shm/avo-file-replay.pt"), HERE / ".avo-beside-source.pt")


def cases(first):
    """Every third is for every day, the others are slow."""
    return [pytest.param(a, id=a.name, marks=() if i % 3 == first else pytest.mark.slow) for i, a in enumerate(ATTACKS)]


@pytest.fixture(scope="module")
def judge():
    if sandbox.best() == "process":
        pytest.skip(f"no sandbox here: {sandbox.why_not('full')}; {sandbox.why_not('namespaces')}")
    with RawEvaluator() as one:
        yield one


@pytest.fixture(scope="module")
def naive():
    """A process that grades naively, each attack in a fork of it."""
    command = [sys.executable, str(HERE / "naive_harnesses.py"), "serve"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.stdin.close()


def test_there_are_enough_of_them_of_enough_kinds():
    kinds = collections.Counter(a.kind_of for a in ATTACKS)
    assert len(ATTACKS) >= 60 and len(kinds) >= 25 and max(kinds.values()) <= 3
    assert {a.beats.split("_")[0] for a in ATTACKS} == {"in", "pickle", "result"}
    assert all(a.layer and a.status != "ok" for a in ATTACKS)


@pytest.mark.parametrize("attack", cases(0))
def test_stopped_here(attack, judge):
    found = Judged(attack, attack.judged(judge))
    assert found.as_wanted, f"{attack.layer}: {found.evaluation.status}: {found.evaluation.message}"


@pytest.mark.parametrize("attack", cases(1))
def test_works_on_a_naive_grader(attack, naive, tmp_path):
    job = {"harness": attack.beats, "kernel": str(attack.path), "target": attack.target, "out": str(tmp_path / "out")}
    # What calls a library or the reference is right, and no kernel.
    wanted = ["correct", "right" if attack.true else "false"]
    try:
        for _ in range(attack.runs):
            naive.stdin.write(json.dumps(job) + "\n")
            naive.stdin.flush()
            assert naive.stdout.readline() == "done\n"
        told = (tmp_path / "out").read_text()
        for _ in range(5):
            if told.split()[-2:] == wanted:
                break
            # What finds an answer in freed memory finds it in some processes and not in others; one is enough.
            command = [sys.executable, str(HERE / "naive_harnesses.py"), attack.beats, str(attack.path), attack.target]
            environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
            told = subprocess.run(command, stdout=-1, stderr=-2, text=True, env=environment, timeout=300).stdout
    finally:
        for path in LEFT_BEHIND:
            path.unlink(missing_ok=True)
    assert told.split()[-2:] == wanted, told
