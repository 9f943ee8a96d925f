"""Older archives are backed up and upgraded, newer ones refused, and what is no archive is left alone."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_parts import ok
from sqlalchemy import Connection, text

from archive import Archive, ArchiveError, Held, Hypothesis, Spend, migrations, open_archive
from archive.database import unpack
from archive.documents import SCORE_RULE
from evaluators.evaluation import Status, score

DUMPS = [Path(__file__).with_name(f"v{version}.sql") for version in range(1, migrations.VERSION)]


@pytest.fixture(params=DUMPS, ids=lambda dump: dump.stem)
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """An archive as an older version wrote it."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript(request.param.read_text())
    connection.close()
    return path


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    found: int = connection.execute("SELECT version FROM avo_archive").fetchone()[0]
    connection.close()
    return found


def shape(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Columns and indices of every table."""
    connection = sqlite3.connect(path)
    tables = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found: dict[str, list[tuple[object, ...]]] = {}
    for table in tables:
        found[table] = sorted(r[1:] for r in connection.execute(f"PRAGMA table_info({table})"))
        found[table] += sorted(r[1:4] for r in connection.execute(f"PRAGMA index_list({table})"))
        found[table] += sorted(r[2:7] for r in connection.execute(f"PRAGMA foreign_key_list({table})"))
    connection.close()
    return found


def check_contents(archive: Archive) -> None:
    run = archive.run()
    assert (run.target, run.config, run.versions, run.ended) == ("attention", {"steps": 3}, {"torch": "2.9"}, "ended")
    found = archive.candidates(1)
    assert [c.status for c in found] == [Status.OK, Status.OK, Status.INCORRECT, None]
    assert [c.parents for c in found] == [(), (0,), (1, 0), (1,)]
    assert [c.text for c in found] == [f"kernel {x}\n" for x in "abcd"]
    assert archive.evaluation(found[1]) == ok(0.5)
    assert archive.hypotheses(1)[0].hypothesis == Hypothesis("wider tile", 1.2, "memory")
    assert archive.spend(1) == Spend(usd=pytest.approx(0.3), tokens_in=10, wall_s=2.0)  # type: ignore[arg-type]
    assert [(x.request, x.reply) for x in archive.exchanges(1)] == [("request", "reply")]
    assert archive.notes()[0].body == "a note"


def test_what_older_versions_wrote_is_read_today(old: Path) -> None:
    with open_archive(old) as archive:
        check_contents(archive)
    with open_archive(old, readonly=True) as archive:
        check_contents(archive)


def test_an_upgraded_archive_has_the_shape_of_a_new_one(old: Path, tmp_path: Path) -> None:
    open_archive(old).close()
    open_archive(tmp_path / "new.db").close()
    assert shape(old) == shape(tmp_path / "new.db")


def test_every_version_has_its_step() -> None:
    assert sorted(migrations.STEPS) == list(range(2, migrations.VERSION + 1))


@pytest.fixture
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The avo after the next: two more steps."""
    then = migrations.VERSION

    def add_column(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE runs ADD COLUMN mood TEXT NOT NULL DEFAULT 'good'"))

    def use_column(connection: Connection) -> None:
        connection.execute(text("UPDATE runs SET mood = 'better' WHERE mood = 'good'"))

    monkeypatch.setattr(migrations, "VERSION", then + 2)
    monkeypatch.setattr(migrations, "STEPS", {**migrations.STEPS, then + 1: add_column, then + 2: use_column})


@pytest.mark.usefixtures("tomorrow")
def test_an_older_archive_is_upgraded_after_a_backup(old: Path) -> None:
    written = version(old)
    with pytest.raises(
        ArchiveError, match=rf"schema version {written}, this avo needs \d+\. Opening it for writing upgrades it"
    ):
        open_archive(old, readonly=True)
    with open_archive(old) as archive:
        check_contents(archive)
    assert sqlite3.connect(old).execute("SELECT mood FROM runs").fetchall() == [("better",)]
    assert sqlite3.connect(old).execute("SELECT version FROM avo_archive").fetchall() == [(migrations.VERSION,)]
    (backup,) = old.parent.glob(f"old.db.v{written}.backup")
    assert version(backup) == written
    assert sqlite3.connect(backup).execute("SELECT count(*) FROM candidates").fetchall() == [(4,)]
    with open_archive(old, readonly=True) as archive:
        check_contents(archive)
    assert len(list(old.parent.glob("*.backup*"))) == 1


@pytest.mark.usefixtures("tomorrow")
def test_a_step_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: Connection) -> None:
        connection.execute(text("DELETE FROM candidates"))
        connection.execute(text("no SQL at all"))

    monkeypatch.setitem(migrations.STEPS, migrations.VERSION, broken)
    written = version(old)
    with pytest.raises(ArchiveError, match="the database refused"):
        open_archive(old)
    connection = sqlite3.connect(old)
    assert version(old) == written
    assert connection.execute("SELECT count(*) FROM candidates").fetchall() == [(4,)]
    assert "mood" not in [r[1] for r in connection.execute("PRAGMA table_info(runs)")]


@pytest.mark.usefixtures("tomorrow")
def test_without_a_backup_there_is_no_upgrade(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    written = version(old)
    with pytest.raises(ArchiveError, match=r"backup that has to come first failed .*make room for \d+ MiB"):
        open_archive(old)
    assert version(old) == written
    assert list(old.parent.glob("*.backup*")) == []


def test_an_archive_in_use_is_not_upgraded_under_its_writer(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = open_archive(old).claim(1)
    monkeypatch.setattr(migrations, "VERSION", migrations.VERSION + 1)
    monkeypatch.setitem(migrations.STEPS, migrations.VERSION, lambda connection: None)
    with pytest.raises(Held, match=r"run 1 is being written by process \d+ .*cannot be upgraded until it ends"):
        open_archive(old)
    writer.release("done")
    open_archive(old).close()


def test_a_newer_archive_is_refused_and_left_alone(old: Path) -> None:
    connection = sqlite3.connect(old)
    connection.execute("UPDATE avo_archive SET version = 99")
    connection.execute("ALTER TABLE runs RENAME TO searches")
    connection.commit()
    connection.close()
    before = old.read_bytes()
    for readonly in (True, False):
        with pytest.raises(ArchiveError, match=r"schema version 99, from a newer avo.*pip install -U avo-kernels"):
            open_archive(old, readonly=readonly)
    connection = sqlite3.connect(old)
    assert connection.execute("SELECT count(*) FROM searches").fetchall() == [(1,)]
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    assert len(old.read_bytes()) == len(before)


def test_a_changed_scoring_rule_needs_no_rerun(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = sqlite3.connect(old)
    connection.execute("UPDATE avo_archive SET score_rule = 0")
    connection.execute("UPDATE evaluations SET predicted = 7, status = 'crash', message = 'old'")
    connection.commit()
    connection.close()
    with open_archive(old) as archive:
        for c, e in archive.evaluations(archive.candidates(1)):
            assert (c.status, c.score, c.message, c.failed_gate) == (e.status, score(e), e.message, e.failed_gate)
        assert archive.rebuild_search_keys() == 0


def test_the_scoring_rule_is_the_one_that_has_this_number() -> None:
    # Fails where `score` changes its mind. Then raise SCORE_RULE, so that archives follow, and put new figures here.
    assert SCORE_RULE == 3
    assert score(ok(0.5)).model_dump() == {
        "predicted": pytest.approx(2.0),
        "measured": None,
        "headroom": pytest.approx(5.0),
    }


class TestNotAnArchive:
    @pytest.mark.parametrize("readonly", [True, False])
    def test_a_file_of_another_kind(self, tmp_path: Path, readonly: bool) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("these are my notes, and they are long enough for a header\n" * 5)
        with pytest.raises(ArchiveError, match="not an avo archive, nor any SQLite database"):
            open_archive(path, readonly=readonly)
        assert path.read_text().startswith("these are my notes")
        assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]

    @pytest.mark.parametrize("readonly", [True, False])
    def test_somebody_elses_database(self, tmp_path: Path, readonly: bool) -> None:
        path = tmp_path / "places.sqlite"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE places (url)")
        connection.commit()
        connection.close()
        with pytest.raises(ArchiveError, match="an SQLite database, but not an avo archive"):
            open_archive(path, readonly=readonly)
        assert sqlite3.connect(path).execute("SELECT name FROM sqlite_master").fetchall() == [("places",)]

    def test_a_damaged_one(self, old: Path) -> None:
        blob = bytearray(old.read_bytes())
        blob[100:] = b"\xee" * (len(blob) - 100)
        old.write_bytes(blob)
        with pytest.raises(ArchiveError, match=r"is damaged|not an avo archive"):
            open_archive(old)
        assert old.read_bytes() == bytes(blob)

    def test_none_there(self, tmp_path: Path) -> None:
        with pytest.raises(ArchiveError, match=r"there is no archive at .*`avo evolve` makes one"):
            open_archive(tmp_path / "avo.db", readonly=True)
        (tmp_path / "empty.db").touch()
        with pytest.raises(ArchiveError, match="there is no archive"):
            open_archive(tmp_path / "empty.db", readonly=True)
        assert [p.name for p in tmp_path.iterdir()] == ["empty.db"]
        open_archive(tmp_path / "empty.db").close()  # an empty file is a place for a new one

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ArchiveError, match="is a folder; name a file in it"):
            open_archive(tmp_path)

    def test_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ArchiveError, match="cannot be made"):
            open_archive(tmp_path / "file" / "avo.db")

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            ("mysql://u:secret@host/avo", r"mysql://u:\*\*\*@host/avo: an archive is an SQLite file or"),
            ("sqlite://", "has to be a file"),
            ("sqlite:///:memory:", "has to be a file"),
            ("sqlite:///a.db?mode=ro", "options such as 'mode'"),
            ("nonsense://", "is an SQLite file or a PostgreSQL|not a URL"),
            ("://", "not a path and not a URL"),
        ],
    )
    def test_urls(self, where: str, message: str) -> None:
        with pytest.raises(ArchiveError, match=message) as caught:
            open_archive(where)
        assert "secret" not in str(caught.value)


@pytest.fixture
def locked_out(old: Path) -> Iterator[Path]:
    """The archive of an ordinary user, in a folder of theirs; root steps down to be one."""
    folder = Path(tempfile.mkdtemp())
    path = folder / "old.db"
    open_archive(old).close()  # upgraded: who may not write cannot do that
    connection = sqlite3.connect(old)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    path.write_bytes(old.read_bytes())
    root = os.geteuid() == 0
    if root:
        for each in (folder, path):
            os.chown(each, 65534, -1)
        os.seteuid(65534)
    yield path
    if root:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
class TestPermissions:
    def test_a_read_only_file_can_be_read_and_not_written(self, locked_out: Path) -> None:
        locked_out.chmod(0o444)
        with pytest.raises(ArchiveError, match=r"is read-only\. Change its permissions"):
            open_archive(locked_out)
        with open_archive(locked_out, readonly=True) as archive:
            check_contents(archive)

    @pytest.mark.parametrize("wal", [False, True])
    def test_so_can_one_in_a_read_only_folder(self, locked_out: Path, wal: bool) -> None:
        if wal:
            open_archive(locked_out).close()
        locked_out.parent.chmod(0o555)
        with open_archive(locked_out, readonly=True) as archive:
            check_contents(archive)
        with pytest.raises(ArchiveError, match=r"is read-only\.|cannot be opened: its folder must"):
            open_archive(locked_out).create_run(target="t", hardware="h", agent="a", seed=0, jobs=1, judge="j")
        with pytest.raises(ArchiveError, match=r"cannot be made|cannot be opened: its folder must"):
            open_archive(locked_out.parent / "more" / "new.db")

    def test_one_that_may_not_be_read(self, locked_out: Path) -> None:
        locked_out.chmod(0)
        for readonly in (True, False):
            with pytest.raises(ArchiveError, match="may not be opened by this user"):
                open_archive(locked_out, readonly=readonly)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER helper AFTER INSERT ON documents BEGIN UPDATE evaluations SET status = 'ok'; END",
        "CREATE VIEW other AS SELECT 'ok' AS status",
        "ALTER TABLE evaluations ADD COLUMN better TEXT AS ('ok')",
    ],
)
@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_that_does_more_than_keep_rows_is_not_opened(tmp_path: Path, statement: str, readonly: bool) -> None:
    path = tmp_path / "a.db"
    open_archive(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute(statement)
    raw.close()
    with pytest.raises(ArchiveError, match="which no archive of avo's has"):
        open_archive(path, readonly=readonly)


def test_a_text_that_unpacks_to_more_than_any_program_is_damaged() -> None:
    assert unpack(zlib.compress(b"x" * 1000)) == "x" * 1000
    for body in (zlib.compress(bytes(65 << 20)), zlib.compress(b"x" * 1000)[:-6], b""):
        with pytest.raises(ArchiveError, match="is damaged"):
            unpack(body)
