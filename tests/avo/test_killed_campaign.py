"""A campaign of the command line with the real judge, under `kill -9` of it and of its workers: the end is that of a
campaign which nobody disturbed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from test_resume import ending

from archive import ArchiveError, open_archive
from archive.upkeep import check_archive
from evaluators.process import descendants

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

STEPS, KILLS = 12, 50
_BEGIN = ["--target", "softmax", "--hw", "h200", "--steps", str(STEPS), "--jobs", "2"]


def campaign(folder: Path, *words: str) -> subprocess.Popen[str]:
    with (folder / "out.txt").open("a") as out:
        command = [sys.executable, "-m", "avo", "evolve", *words]
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, text=True)


def words(folder: Path) -> list[str]:
    """To begin the run, or to go on with it where the archive has one already."""
    where = folder / "avo.db"
    with contextlib.suppress(ArchiveError), open_archive(where, readonly=True) as archive:  # not there, or empty as yet
        if archive.runs():
            return ["--resume", "1"]
    return _BEGIN


def test_fifty_kills_of_the_parent_and_its_workers(tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for folder in (straight, killed):
        folder.mkdir()
    assert campaign(straight, *_BEGIN).wait(1800) == 0, (straight / "out.txt").read_text()[-2000:]
    rng, struck = random.Random(7), Counter[str]()
    child = campaign(killed, *words(killed))
    while sum(struck.values()) < KILLS:
        assert child.poll() in (None, 3), (killed / "out.txt").read_text()[-2000:]  # it has not come to its end
        if child.poll() == 3:  # killed too often for one program, which it says
            child = campaign(killed, *words(killed))
        of_worker = rng.random() < 0.6
        while of_worker and not descendants(child.pid) and child.poll() is None:
            time.sleep(0.05)
        time.sleep(rng.random() * 6)
        workers = sorted(descendants(child.pid))
        if of_worker and workers:
            struck["worker"] += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(workers), signal.SIGKILL)
            continue
        struck["parent"] += 1
        child.kill()
        child.wait()
        child = campaign(killed, *words(killed))
    while child.wait(3600) == 3:
        child = campaign(killed, *words(killed))
    assert child.returncode == 0, (killed / "out.txt").read_text()[-2000:]
    print(dict(struck))
    assert min(struck.values()) >= 5, struck
    assert "Traceback" not in (killed / "out.txt").read_text()
    with open_archive(straight / "avo.db") as one, open_archive(killed / "avo.db") as other:
        assert ending(other) == ending(one)
        assert other.candidates(1, pending=True) == [] and check_archive(other) == []
        record = other.run()
        assert (record.state, record.ended, record.holder, other.members(1)) == ("ended", "steps", None, [])
        assert len(other.runs()) == 1
