"""Raw candidates' processes are copies of one template: each has its own, and nothing of another's."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from evaluators import forking
from evaluators.failures import Crash, OutOfMemory, TaskError
from evaluators.pool import WorkerPool

SOURCE = """
import os, random, sys, threading

def run(x):
    if "evaluators.integrity.nursery" not in sys.modules:
        raise ValueError("no copy")
    raise ValueError([os.getpid(), os.getcwd(), random.random(), len(os.listdir("."))])
"""


@pytest.fixture(scope="module")
def pool():
    if not os.path.exists("/proc/self/task"):
        pytest.skip("needs Linux")
    with WorkerPool(1) as one:
        yield one


def asked(session):
    session.call("raw_load", {"source": SOURCE})
    row = {"name": "x", "dtype": "f32", "shape": [1]}
    with pytest.raises(TaskError) as error:
        session.call("raw_run", {"inputs": [row], "params": {}}, [bytes(4)])
    return eval(error.value.message.splitlines()[-1].removeprefix("ValueError: "))


def test_each_candidate_has_a_process_a_folder_and_chances_of_its_own(pool):
    found = []
    for _ in range(3):
        with pool.session("raw-process") as session:
            found.append(asked(session))
    assert all(len({f[i] for f in found}) == 3 for i in (0, 1, 2))
    assert all(f[3] == 1 for f in found)  # its own source
    pool.settled()
    assert not any(os.path.exists(f[1]) for f in found)


def test_two_at_once_do_not_meet_and_end_alone(pool):
    with pool.session("raw-process") as first:
        with pool.session("raw-process") as second:
            assert asked(first)[0] != asked(second)[0]
            os.kill(asked(second)[0], 9)
            with pytest.raises(Crash, match="died"):
                second.call("raw_load", {"source": SOURCE})
        assert asked(first)
    pool.settled()
    assert len(pool.pids()) == 1


def test_copies_that_wait_are_taken_first_and_a_dead_one_is_not(pool):
    pool.prepare("raw-process", 2)
    pool.settled()
    waiting = set(pool.pids())
    with pool.session("raw-process") as session:
        assert asked(session)[0] in waiting
    pool.settled()
    (left,) = waiting & set(pool.pids()) - {pool.pids()[0]}
    os.kill(left, 9)
    end = time.monotonic() + 30
    while Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < end:
        time.sleep(0.01)
    with pool.session("raw-process") as session:
        assert asked(session)[0] not in waiting


def test_the_death_of_the_template_costs_who_was_there_and_no_other(pool):
    with pool.session("raw-process") as session:
        pid = asked(session)[0]
        template = next(p for p in pool.pids() if p != pid)
        os.kill(template, 9)
        with pytest.raises(Crash):
            session.call("raw_load", {"source": SOURCE})
            asked(session)
    with pool.session("raw-process") as session:
        assert asked(session)[0] != pid


def test_a_template_that_does_not_answer_in_time_is_not_asked_again(pool, monkeypatch):
    """Its late answer is no answer to the next question."""
    pool.warm(("raw-process",), wait=True)
    template = next(iter(pool.pids()))
    monkeypatch.setattr(forking, "ANSWER_S", 0.3)
    os.kill(template, signal.SIGSTOP)
    with pool.session("raw-process") as session:
        monkeypatch.undo()
        assert asked(session)[0] != template
    pool.settled()
    assert template not in pool.pids()


ORPHAN = """
import ctypes, os, time

{before}
named, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("/proc/self/comm", "w").write("avo-{name}")
        os.write(write, b"!")
        time.sleep(60)
        os._exit(0)
    os._exit(0)
os.wait()
os.read(named, 1)


def run(x):
    return x
"""


def called(name):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path("/proc", pid, "comm").read_text().strip() == name:
                found.append(pid)
        except OSError:
            pass
    return found


@pytest.mark.parametrize("before", ["", "ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)"], ids=["plain", "gives up its own"])
def test_a_process_whose_parents_have_gone_is_counted_and_ends_with_its_candidate(pool, before):
    name = f"{os.getpid()}-{len(before)}"
    with pool.session("raw-process") as session:
        session.call("raw_load", {"source": ORPHAN.format(before=before, name=name)})
        assert len(called(f"avo-{name}")) == 1
        assert session.family()[1] == (0 if before else 1)
    pool.settled()
    assert not called(f"avo-{name}")


TABLES = """
import mmap
import numpy as np

def run(x):
    m = mmap.mmap(-1, 600_000 << 21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
    m.madvise(mmap.MADV_NOHUGEPAGE)
    raise ValueError(int(np.frombuffer(m, dtype=np.uint8)[:: 1 << 21].sum()))
"""


@pytest.mark.slow
def test_memory_that_the_system_needs_to_know_where_memory_is_counts():
    with WorkerPool(1, memory_bytes=1200 << 20) as small, small.session("raw-process") as session:
        session.call("raw_load", {"source": TABLES})
        row = {"name": "x", "dtype": "f32", "shape": [1]}
        with pytest.raises(OutOfMemory):
            session.call("raw_run", {"inputs": [row], "params": {}}, [bytes(4)])
