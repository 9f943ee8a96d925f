"""The same contract on a real PostgreSQL server, and what only a server can do: several hosts, and not being there."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archive_parts import bad, ok
from postgres_server import missing, server
from test_contract import ArchiveContract
from test_transfer import fill, rows

from archive import ArchiveError, open_archive
from archive.transfer import export_archive, import_archive
from archive.upkeep import check_archive, collect

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]

_NUMBER = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture
def url(running: str) -> str:
    """Of a new, empty database."""
    import psycopg

    name = f"avo_{next(_NUMBER)}"
    with psycopg.connect(running.format(name="postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return running.format(name=name)


class TestPostgres(ArchiveContract):
    @pytest.fixture
    def opened(self, url: str) -> Any:
        return lambda: open_archive(url)


def test_archives_travel_between_a_file_and_a_server(url: str, tmp_path: Path) -> None:
    with (
        open_archive(tmp_path / "one.db") as file,
        open_archive(url) as there,
        open_archive(tmp_path / "two.db") as back,
    ):
        fill(file)
        fill(file, seed=4)
        first, second = io.StringIO(), io.StringIO()
        export_archive(file, first)
        import_archive(there, io.StringIO(first.getvalue()), "one.jsonl", trusted=True)
        assert rows(there) == rows(file) and check_archive(there) == []
        export_archive(there, second)
        assert second.getvalue() == first.getvalue()
        import_archive(back, io.StringIO(second.getvalue()), "two.jsonl", trusted=True)
        assert rows(back) == rows(file)
        # numbers go on above what came in
        assert there.create_run(target="t", hardware="h", agent="a", seed=0, jobs=1, judge="j").id == 3
        fill(there, seed=7)
        freed = collect(there, drop=(2, 3))
        assert freed.runs == 2 and freed.after > 0 and check_archive(there) == []


def test_processes_write_one_archive_at_once(url: str) -> None:
    """Four writers of four runs that share a judge: nothing is judged twice, nothing is lost."""
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
from archive import open_archive
from archive_parts import ok
with open_archive({url!r}) as archive:
    run = archive.create_run(target="t", hardware="h", agent="a", seed=int(sys.argv[1]), jobs=1, judge="same")
    with archive.claim(run.id) as writer:
        for k in range(25):
            if writer.add_candidate(k, f"{{k:016x}}", f"text {{k}}", agent="a") is None:
                writer.record_evaluation(k, ok(1.0 + k))
"""
    with open_archive(url) as archive:
        writers = [subprocess.Popen([sys.executable, "-c", code, str(n)]) for n in range(4)]
        assert [w.wait(300) for w in writers] == [0] * 4
        assert [archive.counts(r.id) for r in archive.runs()] == [{"ok": 25}] * 4
        assert len(rows(archive)["evaluations"]) == 25
        assert check_archive(archive) == []


def test_readers_wait_for_nobody(url: str) -> None:
    with open_archive(url) as archive:
        fill(archive)
        with archive.database.writing() as connection:
            connection.exec_driver_sql("UPDATE runs SET message = 'half way'")
            with open_archive(url, readonly=True) as reader:
                assert reader.run(1).message == "done"
                with pytest.raises(ArchiveError, match="was opened for reading only"):
                    reader.create_run(target="t", hardware="h", agent="a", seed=0, jobs=1, judge="j")


def test_a_lock_that_is_held_is_told(url: str) -> None:
    held = pytest.raises(ArchiveError, match=r"has been locked by another process for 0 s")
    with open_archive(url) as one, open_archive(url, busy_s=0.2) as two, one.database.writing(), held:
        two.create_run(target="t", hardware="h", agent="a", seed=0, jobs=1, judge="j")


def test_what_cannot_be_an_archive_is_told(running: str, url: str) -> None:
    with pytest.raises(ArchiveError, match=r"cannot be reached .*nowhere.* `createdb` makes"):
        open_archive(running.format(name="nowhere"))
    with pytest.raises(ArchiveError, match="cannot be reached"):
        open_archive("postgresql://avo:hush@127.0.0.1:1/avo")
    for readonly in (False, True):
        with pytest.raises(ArchiveError) as told:
            open_archive("postgresql://avo:hush@127.0.0.1:1/avo", readonly=readonly)
        assert "hush" not in str(told.value)
        assert ("--resume" in str(told.value)) is not readonly, "who only looks has nothing to resume"
    with pytest.raises(ArchiveError, match="is empty: who makes it has not come so far"):
        open_archive(url, readonly=True)
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE notes (x int)")
    with pytest.raises(ArchiveError, match="has tables of somebody else"):
        open_archive(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE notes")
    with open_archive(url):
        pass
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE avo_archive SET version = 99")
    with pytest.raises(ArchiveError, match="from a newer avo"):
        open_archive(url)


def test_texts_of_any_kind_come_back(url: str) -> None:
    with open_archive(url) as archive:
        run = archive.create_run(target="t", hardware="h", agent="a", seed=0, jobs=1, judge="j")
        with archive.claim(run.id) as writer:
            writer.add_candidate(0, "a" * 16, "nul \x00, ünï, 核\n", agent="a", rationale="nul \x00")
            writer.record_evaluation(0, bad("nul \x00 in a message"))
            writer.add_candidate(1, "b" * 16, "b", agent="a", parents=[0])
            writer.record_evaluation(1, ok(0.5))
        assert archive.candidates(run.id)[0].text == "nul \x00, ünï, 核\n"
        assert check_archive(archive) == []
