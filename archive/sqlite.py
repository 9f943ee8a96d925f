"""An archive in one SQLite file, in WAL mode: one writer at a time, readers on their own read-only connections that
neither wait for it nor make it wait. `synchronous=NORMAL`: a killed process loses nothing that was committed; a power
cut may lose the last commits but damages nothing.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from archive.database import Database
from archive.errors import ArchiveError, explained

_MAGIC = b"SQLite format 3\x00"


class SqliteDatabase(Database):
    def __init__(self, path: Path, *, readonly: bool, create: bool = True, busy_s: float) -> None:
        self.path = path
        if look_at(path, readonly, create):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ArchiveError(
                    f"the folder {path.parent} cannot be made: {error.strerror}. Use --archive"
                ) from error
        write = None if readonly else _engine(path, "rwc", "BEGIN IMMEDIATE", busy_s)
        super().__init__(str(path), _engine(path, _reading_mode(path), "BEGIN", busy_s), write, busy_s)

    def compact(self) -> None:
        engine = self.writer
        with self._lock, explained(self.where, self.busy_s):
            connection = engine.raw_connection()  # outside any transaction: VACUUM makes its own
            try:
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()

    def size(self) -> int:
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(p.stat().st_size for p in files if p.exists())

    def renumber(self, connection: Connection) -> None:
        """Nothing: SQLite gives the number above the highest."""

    def back_up(self, version: int) -> Path:
        return _back_up(self.path, version)


def look_at(path: Path, readonly: bool, create: bool = True) -> bool:
    """True where there is nothing yet and one may be made. Raises for what cannot be an archive, before SQLite touches
    it."""
    try:
        if path.is_dir():
            raise ArchiveError(f"{path} is a folder; name a file in it, such as {path / 'avo.db'}")
        if not path.exists() or path.stat().st_size == 0:
            if readonly or not create:
                raise ArchiveError(f"there is no archive at {path}. `avo evolve` makes one; --archive names another")
            return True
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except PermissionError as error:
        raise ArchiveError(f"{path} may not be opened by this user. Change its permissions or use --archive") from error
    except OSError as error:
        raise ArchiveError(f"{path} cannot be used as an archive: {error.strerror or error}") from error
    if head != _MAGIC:
        raise ArchiveError(f"{path} is not an avo archive, nor any SQLite database. Name another file with --archive")
    if not readonly and not _writable(path):
        raise ArchiveError(f"{path} is read-only. Change its permissions, or name another archive with --archive")
    return False


def _back_up(path: Path, version: int) -> Path:
    """A complete copy beside the archive, WAL included, under its final name only when it is whole."""
    final = path.with_name(f"{path.name}.v{version}.backup")
    number = 1
    while final.exists():
        number += 1
        final = path.with_name(f"{path.name}.v{version}.{number}.backup")
    partial = final.with_name(final.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        source = sqlite3.connect(path)
        copy = sqlite3.connect(partial)
        try:
            source.backup(copy)
        finally:
            copy.close()
            source.close()
        partial.rename(final)
    except (OSError, sqlite3.Error) as error:
        partial.unlink(missing_ok=True)
        raise ArchiveError(
            f"{path} needs an upgrade, and the backup that has to come first failed ({error}). Nothing was changed: "
            f"make room for {path.stat().st_size / 2**20:.0f} MiB in {path.parent}, then try again"
        ) from error
    return final


def _reading_mode(path: Path) -> str:
    """Read-only; for a file in a folder that cannot be written (where SQLite cannot keep its WAL index) immutable."""
    wal = path.with_name(path.name + "-wal")
    if not _writable(path.parent) and not (wal.exists() and wal.stat().st_size):
        return "ro&immutable=1"
    return "ro"


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _insist_plain(connection: sqlite3.Connection, path: Path) -> None:
    """Raises ArchiveError for a file that does more than keep rows. A trigger runs whenever a verdict is written, a
    view or a computed column whenever one is read: whoever made the file decides then what the verdict is."""
    connection.execute("PRAGMA trusted_schema=OFF")
    found = "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'"
    acting = connection.execute(found).fetchone()
    if acting is None:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            kinds = connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,))
            acting = acting or next((("computed column", f"{table}.{n}") for n, hidden in kinds if hidden), None)
    if acting is not None:
        raise ArchiveError(f"{path} has a {acting[0]} '{acting[1]}', which no archive of avo's has: it is not opened")


def _engine(path: Path, mode: str, begin: str, busy_s: float) -> Engine:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(uri, uri=True, timeout=busy_s, check_same_thread=False),
        poolclass=QueuePool,
        pool_size=1 if mode == "rwc" else 4,
        max_overflow=0 if mode == "rwc" else 60,
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves: the driver's own rules would do it too late
        _insist_plain(connection, path)
        if mode != "rwc":
            return
        found = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if found != "wal":
            raise ArchiveError(f"{path}: this file system cannot do SQLite's WAL mode; put the archive on a local disk")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
