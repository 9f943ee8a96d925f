"""`kill -9` at random moments, then resume: the end is that of a run which nobody disturbed."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from loop_parts import HW, TARGET, HashEvaluator, WalkAgent

from archive import Archive, deterministic, open_archive
from avo.budget import Budget
from avo.run import Run, begin, proceed

_CHILD = Path(__file__).with_name("killed_run.py")


def ending(archive: Archive) -> list[dict[str, Any]]:
    """All that has to be equal, in the order of k: digests, parents, statuses, evidence, scores, hypotheses."""
    run = archive.run().id
    found = archive.candidates(run)
    evaluations = {c.k: deterministic(e) for c, e in archive.evaluations(found)}
    tested = {t.k: (t.hypothesis, t.actual_gain) for t in archive.hypotheses(run)}
    committed = {c.k: c.committed for c in Run(archive, run).history().all()}
    return [
        {
            "k": c.k,
            "digest": c.digest,
            "text": c.text,
            "parents": c.parents,
            "agent": c.agent,
            "rationale": c.rationale,
            "status": c.status,
            "score": c.score,
            "reused": c.reused,
            "committed": committed[c.k],
            "hypothesis": tested.get(c.k),
            "evidence": evaluations[c.k],
        }
        for c in found
    ]


def undisturbed(where: Path, steps: int, jobs: int) -> list[dict[str, Any]]:
    with open_archive(where) as archive:
        agent, evaluator = WalkAgent(), HashEvaluator()
        run = begin(archive, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, seed=11, jobs=jobs)
        proceed(run, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, budget=Budget(steps=steps))
        return ending(archive)


def judged(where: Path) -> set[str]:
    """Hashes of the texts whose verdicts the archive holds."""
    with open_archive(where, readonly=True) as archive:
        found = archive.candidates(1, pending=False) if archive.runs() else []
    return {hashlib.sha256(c.text.encode()).hexdigest() for c in found}


def disturb(folder: Path, steps: int, jobs: int, kills: int, rng: random.Random, pause_s: float) -> int:
    """Runs to the end under kills; returns how many struck. Asserts after each that nothing recorded is done again."""
    where, log = folder / "killed.db", folder / "judged.log"
    command = [sys.executable, str(_CHILD), str(where), str(log), str(steps), str(jobs), str(pause_s)]
    struck = 0
    while True:
        before = judged(where) if where.exists() else set()
        written = log.read_text().split() if log.exists() else []
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout is not None
        if struck < kills:
            if child.stdout.readline():
                time.sleep(rng.random() * 0.3)
            child.kill()
        _, errors = child.communicate(timeout=300)
        again = log.read_text().split()[len(written) :] if log.exists() else []
        assert not before & set(again), "a program whose verdict was recorded was judged again"
        assert len(again) == len(set(again))
        lost = len(set(written) & set(again))
        assert lost <= jobs, "more was lost than was under way"
        if child.returncode == 0:
            return struck
        assert child.returncode == -9, errors
        struck += 1


def check(folder: Path, steps: int, jobs: int, kills: int, seed: int, pause_s: float) -> None:
    expected = undisturbed(folder / "straight.db", steps, jobs)
    struck = disturb(folder, steps, jobs, kills, random.Random(seed), pause_s)
    assert struck >= min(kills, 2), "the kills came too late to strike"
    with open_archive(folder / "killed.db") as archive:
        assert ending(archive) == expected
        record = archive.run()
        assert (record.state, record.ended, record.holder) == ("ended", "steps", None)
        assert archive.candidates(1, pending=True) == []
        assert len(archive.runs()) == 1


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_killed_run_ends_as_an_undisturbed_one(tmp_path: Path, jobs: int) -> None:
    check(tmp_path, steps=40, jobs=jobs, kills=3, seed=jobs, pause_s=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 4, 8])
def test_fifty_kills(tmp_path: Path, jobs: int) -> None:
    check(tmp_path, steps=400, jobs=jobs, kills=50, seed=100 + jobs, pause_s=0.05)
