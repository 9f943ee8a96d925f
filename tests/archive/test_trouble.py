"""A full disk, a lock, two processes, a killed writer, a clock that jumps: a clear error or none, and no damage."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from archive_parts import bad, ok
from sqlalchemy import event

from archive import Archive, ArchiveError, Held, Run, open_archive
from archive import holder as holders
from archive import writer as writers

_HOLD = """
import sys, time
from archive import open_archive
archive = open_archive(sys.argv[1])
writer = archive.claim(int(sys.argv[2]), watch_s=0)
print("held", flush=True)
while True:
    time.sleep(0.05)
    if len(sys.argv) > 3:
        writer.beat()
"""


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with open_archive(tmp_path / "avo.db", busy_s=0.3) as opened:
        yield opened


@pytest.fixture
def run(archive: Archive) -> Run:
    return archive.create_run(target="t", hardware="h", agent="a", seed=0, jobs=1, judge="j")


@pytest.fixture
def elsewhere(archive: Archive, run: Run) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run."""
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, archive.where, str(run.id)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def whole(archive: Archive) -> bool:
    connection = sqlite3.connect(archive.where)
    try:
        foreign = connection.execute("PRAGMA foreign_key_check").fetchall()
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)] and not foreign
    finally:
        connection.close()


class TestFullDisk:
    def limit(self, archive: Archive, more_pages: int) -> None:
        engine = archive._db._write
        assert engine is not None
        with engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + more_pages}")

    @pytest.mark.parametrize("more_pages", [0, 1, 3])
    def test_says_so_and_keeps_what_was_recorded(self, archive: Archive, run: Run, more_pages: int) -> None:
        with archive.claim(run.id) as writer:
            writer.add_candidate(0, "0" * 16, "first", agent="a")
            writer.record_evaluation(0, ok(1.0))
            self.limit(archive, more_pages)
            with pytest.raises(ArchiveError, match=r"disk is full.*free some space, then continue with --resume"):
                for k in range(1, 200):
                    writer.add_candidate(k, f"{k:016x}", os.urandom(2000).hex(), agent="a", parents=[0])
                    writer.record_evaluation(k, ok(1.0, source=os.urandom(2000).hex()))
            stored = archive.candidates(run.id)
            assert archive.evaluation(stored[0]) == ok(1.0)
            assert [c.k for c in stored] == list(range(len(stored)))
            assert whole(archive)
            self.limit(archive, 1000)  # somebody has made room
            writer.add_candidate(500, "f" * 16, "last", agent="a", parents=[0])
        assert archive.candidates(run.id)[-1].k == 500

    def test_a_run_cannot_be_begun_either(self, archive: Archive) -> None:
        self.limit(archive, 0)
        with pytest.raises(ArchiveError, match="disk is full"):
            for _ in range(500):
                archive.create_run(
                    target="t", hardware="h", agent="a", seed=0, jobs=1, judge="j", config={"x": "y" * 999}
                )
        assert whole(archive)


class TestLocks:
    def test_a_long_transaction_elsewhere_is_named_after_the_wait(self, archive: Archive, run: Run) -> None:
        writer = archive.claim(run.id)
        other = sqlite3.connect(archive.where, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        with pytest.raises(ArchiveError, match=r"has been locked by another process for 0 s.*--resume"):
            writer.add_candidate(0, "0" * 16, "text", agent="a")
        assert 0.2 < time.monotonic() - start < 20
        assert archive.candidates(run.id) == []  # and reading goes on meanwhile
        other.execute("ROLLBACK")
        writer.add_candidate(0, "0" * 16, "text", agent="a")
        writer.release("done")

    def test_readers_and_the_writer_do_not_wait_for_each_other(self, archive: Archive, run: Run) -> None:
        with archive.claim(run.id) as writer:
            writer.add_candidate(0, "0" * 16, "text", agent="a")
            reader = sqlite3.connect(f"file:{archive.where}?mode=ro", uri=True, isolation_level=None)
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM candidates").fetchone() == (1,)
            start = time.monotonic()
            for k in range(1, 20):  # with a reader in the middle of its transaction
                writer.add_candidate(k, f"{k:016x}", "text", agent="a")
                writer.record_evaluation(k, bad())
            assert time.monotonic() - start < 20
            assert reader.execute("SELECT count(*) FROM candidates").fetchone() == (1,)  # its snapshot stands
            reader.execute("COMMIT")
            assert reader.execute("SELECT count(*) FROM candidates").fetchone() == (20,)
            with open_archive(archive.where, readonly=True, busy_s=0.1) as other, writer._writing():
                assert len(other.candidates(run.id)) == 20  # while the writer holds SQLite's write lock

    def test_reading_while_somebody_writes_all_the_time(self, archive: Archive, run: Run) -> None:
        stop = threading.Event()
        failures: list[BaseException] = []

        def read() -> None:
            try:
                with open_archive(archive.where, readonly=True) as other:
                    while not stop.is_set():
                        found = other.candidates(run.id)
                        assert [c.k for c in found] == list(range(len(found)))
                        for c, evaluation in other.evaluations(found):
                            assert evaluation == ok(1.0 + c.k)
                        other.counts(run.id)
                        other.best(run.id)
            except BaseException as error:
                failures.append(error)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        with archive.claim(run.id) as writer:
            for k in range(60):
                writer.add_candidate(k, f"{k:016x}", f"text {k}", agent="a", parents=[k - 1] if k else [])
                writer.record_evaluation(k, ok(1.0 + k))
        stop.set()
        for reader in readers:
            reader.join()
        assert failures == []

    def test_a_reader_writes_not_a_byte(self, archive: Archive, run: Run) -> None:
        with archive.claim(run.id) as writer:
            writer.add_candidate(0, "0" * 16, "text", agent="a")
            files = {
                p.name: p.read_bytes() for p in Path(archive.where).parent.iterdir() if not p.name.endswith("-shm")
            }
            with open_archive(archive.where, readonly=True) as other:
                other.candidates(run.id)
                with pytest.raises(ArchiveError, match="opened for reading only"):
                    other.create_run(target="t", hardware="h", agent="a", seed=0, jobs=1, judge="j")
            now = {p.name: p.read_bytes() for p in Path(archive.where).parent.iterdir() if not p.name.endswith("-shm")}
            assert now == files


class TestTwoProcesses:
    def test_the_second_is_told_who_holds_the_run(
        self, archive: Archive, run: Run, elsewhere: subprocess.Popen[str]
    ) -> None:
        with pytest.raises(Held, match=f"run {run.id} is being written by process {elsewhere.pid} on "):
            archive.claim(run.id)
        assert archive.run(run.id).state == "running"
        assert archive.run(run.id).holder is not None
        other = archive.create_run(target="t", hardware="h", agent="a", seed=1, jobs=1, judge="j")
        archive.claim(other.id).release("done")  # another run of the same archive is free

    def test_one_that_is_stopped_still_holds_it(
        self, archive: Archive, run: Run, elsewhere: subprocess.Popen[str]
    ) -> None:
        elsewhere.send_signal(signal.SIGSTOP)
        with pytest.raises(Held):
            archive.claim(run.id)

    def test_after_kill_9_the_next_takes_over(
        self, archive: Archive, run: Run, elsewhere: subprocess.Popen[str]
    ) -> None:
        elsewhere.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, elsewhere.pid, os.WEXITED | os.WNOWAIT)  # not reaped: a zombie has ended too
        assert archive.run(run.id).state == "interrupted"
        start = time.monotonic()
        with archive.claim(run.id) as writer:
            assert time.monotonic() - start < 10
            writer.add_candidate(0, "0" * 16, "text", agent="a")
        assert archive.run(run.id).state == "ended"

    def test_only_one_of_many_gets_it(self, archive: Archive, run: Run) -> None:
        got: list[object] = []
        refused: list[object] = []

        def claim() -> None:
            try:
                got.append(archive.claim(run.id))
            except ArchiveError as error:
                refused.append(error)

        threads = [threading.Thread(target=claim) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(got), len(refused)) == (1, 5)


class TestHolders:
    def hold_as(
        self, archive: Archive, run: Run, change: Callable[[holders.Holder], holders.Holder]
    ) -> writers.RunWriter:
        """As if another process had claimed the run."""
        writer = archive.claim(run.id)
        connection = sqlite3.connect(archive.where)
        connection.execute("UPDATE runs SET holder = ?", (change(holders.this_process()).to_json(),))
        connection.commit()
        connection.close()
        return writer

    @pytest.mark.parametrize(
        ("change", "state"),
        [
            ({}, "alive"),
            ({"boot": "another boot"}, "dead"),
            ({"started": "1"}, "dead"),
            ({"pid": 2**22 + 1}, "dead"),
            ({"host": "another host"}, "unknown"),
            ({"namespace": "another container"}, "unknown"),
        ],
    )
    @pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less")
    def test_liveness(self, change: dict[str, object], state: str) -> None:
        assert holders.liveness(replace(holders.this_process(), **change)) == state  # type: ignore[arg-type]

    def test_the_number_of_a_dead_process_that_went_to_another_does_not_hold_the_run(
        self, archive: Archive, run: Run
    ) -> None:
        self.hold_as(archive, run, lambda h: replace(h, boot="before the last start of the machine"))
        archive.claim(run.id).release("done")

    def test_on_another_host_a_beat_that_goes_on_holds_it(self, archive: Archive, run: Run) -> None:
        writer = self.hold_as(archive, run, lambda h: replace(h, host="far"))
        timer = threading.Timer(0.3, writer.beat)
        timer.start()
        with pytest.raises(Held, match=r"process \d+ on far"):
            archive.claim(run.id, watch_s=30)
        timer.join()

    def test_and_one_that_stands_still_does_not(self, archive: Archive, run: Run) -> None:
        before = self.hold_as(archive, run, lambda h: replace(h, host="far"))
        after = archive.claim(run.id, watch_s=0.5)
        after.add_candidate(0, "0" * 16, "text", agent="a")
        # the one before was only asleep: it may not write any more, not even its end
        for act in (
            before.beat,
            lambda: before.add_candidate(1, "1" * 16, "text", agent="a"),
            lambda: before.release("x"),
        ):
            with pytest.raises(Held, match="taken over by another process"):
                act()
        assert [c.k for c in archive.candidates(run.id)] == [0]
        assert archive.run(run.id).ended is None
        after.release("done")

    def test_a_holder_round_trips(self) -> None:
        me = holders.this_process()
        assert holders.Holder.from_json(me.to_json()) == me
        assert json.loads(me.to_json())["pid"] == os.getpid()


class TestClocks:
    def test_jumps_change_no_order_and_no_duration(
        self, archive: Archive, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        jumps = iter(start + dt.timedelta(days=d) for d in (9000 * (-1) ** n * n for n in range(1000)))
        monkeypatch.setattr(writers, "now", lambda: max(next(jumps), dt.datetime(1, 1, 1, tzinfo=dt.UTC)))
        with archive.claim(run.id) as writer:
            for k in range(8):
                writer.add_candidate(k, f"{k:016x}", f"text {k}", agent="a", parents=[k - 1] if k else [])
                writer.record_evaluation(k, ok(1.0))
                writer.beat()
        found = archive.candidates(run.id)
        assert [c.k for c in found] == list(range(8))
        assert [c.k for c in archive.lineage(run.id, 7)] == list(range(8))
        assert len({c.proposed_at for c in found}) > 1
        assert 0 < archive.run(run.id).wall_s < 30


def test_wall_time_adds_up_over_sessions(archive: Archive, run: Run) -> None:
    for _ in range(3):
        with archive.claim(run.id) as writer:
            time.sleep(0.05)
            assert writer.wall_s >= 0.05
    assert 0.15 <= archive.run(run.id).wall_s < 5


def test_adding_is_one_transaction(archive: Archive, run: Run) -> None:
    engine = archive._db._write
    assert engine is not None
    commits: list[object] = []
    event.listen(engine, "commit", commits.append)
    with archive.claim(run.id) as writer:
        before = len(commits)
        writer.add_candidate(0, "0" * 16, "text", agent="a")
        assert len(commits) == before + 1
        writer.record_evaluation(0, ok(1.0))
        assert len(commits) == before + 2
