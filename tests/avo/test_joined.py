"""Several processes at one run: each task is done once, one that is killed is replaced, and the end is that of one
process that did it all."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from loop_parts import HW, TARGET, HashEvaluator, WalkAgent
from test_resume import ending, undisturbed

from archive import Archive, Held, open_archive
from archive.members import Watch
from archive.upkeep import check_archive
from avo.run import begin

sys.path.insert(0, str(Path(__file__).parents[1] / "archive"))
from postgres_server import missing, server

pytestmark = pytest.mark.timeout(900)  # four processes and a server: minutes on a machine that is busy
_CHILD = Path(__file__).with_name("joined_run.py")
_NUMBER = itertools.count()
_POSTGRES = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=_POSTGRES)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty archive: a file, or a database of a real server."""
    if request.param == "sqlite":
        return str(tmp_path / "avo.db")
    import psycopg

    url, name = request.getfixturevalue("running"), f"joined_{next(_NUMBER)}"
    with psycopg.connect(url.format(name="postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return url.format(name=name)


def begun(archive: Archive, jobs: int) -> int:
    run = begin(archive, target=TARGET, hardware=HW, agent=WalkAgent(), evaluator=HashEvaluator(), seed=11, jobs=jobs)
    return run.id


def member(where: str, log: Path, steps: int, pause_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(_CHILD), where, str(log), str(steps), str(pause_s)]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


def go(*children: subprocess.Popen[str]) -> None:
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()


def finished(children: list[subprocess.Popen[str]]) -> list[int]:
    """How many programs each one judged, once all have ended."""
    told = [child.communicate(timeout=300) for child in children]
    assert [child.returncode for child in children] == [0] * len(children), [errors for _, errors in told]
    return [int(out.split()[-1]) for out, _ in told]


def test_several_processes_end_as_one_would(where: str, tmp_path: Path) -> None:
    steps, jobs, log = 40, 6, tmp_path / "done.log"
    expected = undisturbed(tmp_path / "straight.db", steps, jobs)
    with open_archive(where) as archive:
        run = begun(archive, jobs)
        children = [member(where, log, steps, 0.3) for _ in range(3)]
        go(*children)
        shares = finished(children)
        assert ending(archive) == expected
        record = archive.run(run)
        assert (record.state, record.ended, record.holder) == ("ended", "steps", None)
        assert archive.candidates(run, pending=True) == [] and check_archive(archive) == []
    assert all(shares), "one of them had nothing to do"
    done = Counter(log.read_text().split())
    assert set(done.values()) == {1}, "something was asked for, or judged, twice"
    assert sum(shares) == sum(not name.startswith("proposal") for name in done)


@pytest.mark.parametrize("first", [True, False], ids=["its holder", "a member"])
def test_one_that_is_killed_is_replaced(where: str, tmp_path: Path, first: bool) -> None:
    steps, jobs, log = 40, 6, tmp_path / "done.log"
    expected = undisturbed(tmp_path / "straight.db", steps, jobs)
    with open_archive(where) as archive:
        begun(archive, jobs)
        children = [member(where, log, steps, 0.3) for _ in range(3)]
        go(children[0])
        while not archive.run().holder:
            time.sleep(0.01)
        go(*children[1:])
        while sum(archive.counts(1).values()) < 12:
            time.sleep(0.05)
        struck = children.pop(0 if first else 1)
        struck.kill()
        struck.communicate()
        finished(children)
        assert ending(archive) == expected
        assert (archive.run().state, archive.run().ended) == ("ended", "steps")
        assert archive.candidates(1, pending=True) == [] and check_archive(archive) == []
    done = Counter(log.read_text().split())
    twice = [name for name, times in done.items() if times > 1]
    assert len(twice) <= jobs and max(done.values()) <= 2, "more was done again than was under way"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_members_that_come_and_go(where: str, tmp_path: Path) -> None:
    """Thirty kills among three processes, each replaced by a new one."""
    steps, jobs, log, rng = 200, 6, tmp_path / "done.log", random.Random(5)
    expected = undisturbed(tmp_path / "straight.db", steps, jobs)
    with open_archive(where) as archive:
        begun(archive, jobs)
        children = [member(where, log, steps, 0.1) for _ in range(3)]
        go(*children)
        for _ in range(30):
            time.sleep(rng.random())
            struck = children.pop(rng.randrange(3))
            struck.kill()
            struck.communicate()
            children.append(member(where, log, steps, 0.1))
            go(children[-1])
        finished(children)
        assert ending(archive) == expected
        assert archive.candidates(1, pending=True) == [] and check_archive(archive) == []


def test_whoever_does_not_join_is_told_who_is_there(where: str) -> None:
    with open_archive(where) as archive, open_archive(where) as other:
        run = begun(archive, 2)
        writer, guest = archive.claim(run), other.join(run)
        assert (writer.holds, guest.holds) == (True, False)
        assert len(writer.others()) == len(guest.others()) == 1
        with pytest.raises(Held, match=r"run 1 is being written by process \d+"):
            other.claim(run)
        assert writer.lease(0) and not guest.lease(0) and guest.lease(1)
        assert writer.lease("a" * 16) and not guest.lease("a" * 16)
        writer.add_candidate(0, "a" * 16, "text", agent="seed")
        assert not guest.lease(0), "a proposal that is recorded is nobody's task"
        writer.release("interrupted")
        assert guest.lease("a" * 16)
        assert guest.others() == [] and guest.holds
        assert archive.run(run).state == "running"
        guest.release("steps")
        assert (archive.run(run).state, archive.run(run).ended) == ("ended", "steps")


def test_one_on_another_host_is_known_by_its_beat(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can ask another host's process table: a member is gone when its beat has stood still for a while."""
    with open_archive(where) as archive, open_archive(where) as far:
        run = begun(archive, 2)
        asleep = far.join(run)
        assert asleep.lease(3)
        writer = archive.join(run)
        watch = Watch(run, writer._token, still_s=0.4)
        monkeypatch.setattr("archive.members.liveness", lambda holder: "unknown")
        assert len(watch.others(archive.database)) == 1
        time.sleep(0.5)
        asleep.beat()
        assert len(watch.others(archive.database)) == 1, "it moved"
        time.sleep(0.5)
        assert watch.others(archive.database) == []
        assert writer.lease(3)
        with pytest.raises(Held, match="taken over"):
            asleep.add_candidate(3, "b" * 16, "text", agent="walk")
        assert not writer.holds and writer.others() == [] and writer.holds
        writer.release("steps")
