"""The database behind an archive: opening it, checking that it is one, short transactions.

SQLite in WAL mode: one writer at a time, readers on their own read-only connections that neither wait for it nor make
it wait. `synchronous=NORMAL`: a killed process loses nothing that was committed; a power cut may lose the last commits
but damages nothing.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Insert, Table, create_engine, event, inspect, select
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from archive import migrations
from archive.documents import SCORE_RULE
from archive.errors import ArchiveError, Held, explained
from archive.holder import Holder, liveness
from archive.tables import metadata, runs, schema, texts

BUSY_S = 30.0
_INSERTS: dict[str, Any] = {"sqlite": sqlite_insert}
_MAGIC = b"SQLite format 3\x00"


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Database:
    """Engines for one archive file. `write` is None where it was opened for reading only."""

    def __init__(self, path: Path, *, readonly: bool, busy_s: float) -> None:
        self.path = path
        self.where = str(path)
        self.busy_s = busy_s
        self._lock = threading.RLock()
        self._write: Engine | None = None
        if not readonly:
            self._write = _engine(path, "rwc", "BEGIN IMMEDIATE", busy_s)
        self._read = _engine(path, _reading_mode(path), "BEGIN", busy_s)

    @property
    def readonly(self) -> bool:
        return self._write is None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot. Keep it short: an old snapshot keeps the WAL file from being cut."""
        with explained(self.where, self.busy_s), self._read.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, all or nothing. Threads of this process queue here, processes at SQLite's own lock."""
        if self._write is None:
            raise ArchiveError(f"{self.where} was opened for reading only")
        with self._lock, explained(self.where, self.busy_s), self._write.begin() as connection:
            yield connection

    def compact(self) -> None:
        """Gives the room of removed rows back to the disk. Outside any transaction: VACUUM makes its own."""
        if self._write is None:
            raise ArchiveError(f"{self.where} was opened for reading only")
        with self._lock, explained(self.where, self.busy_s):
            connection = self._write.raw_connection()
            try:
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()

    def close(self) -> None:
        self._read.dispose()
        if self._write is not None:
            self._write.dispose()


def locate(where: str | os.PathLike[str]) -> Path:
    """The file that a path or an `sqlite:///` URL names."""
    given = os.fspath(where)
    if "://" not in given:
        return Path(given).expanduser()
    try:
        url = make_url(given)
    except ArgumentError as error:
        raise ArchiveError(f"{given!r} is not a path and not a URL that SQLAlchemy understands") from error
    if url.get_backend_name() != "sqlite":
        raise ArchiveError(
            f"{url.render_as_string(hide_password=True)}: only SQLite archives are supported so far. "
            "Name a file, or a URL such as sqlite:///runs/avo.db"
        )
    if url.query:
        raise ArchiveError(f"{given}: options such as {next(iter(url.query))!r} in an archive's URL are not supported")
    if not url.database or url.database == ":memory:":
        raise ArchiveError(f"{given}: an archive has to be a file, so that a run can be resumed")
    return Path(url.database).expanduser()


def open_database(where: str | os.PathLike[str], *, readonly: bool, busy_s: float = BUSY_S) -> Database:
    """Opens, and for writing creates or upgrades. Refuses, with the reason, whatever is not an archive of ours."""
    path = locate(where)
    fresh = _look_at(path, readonly)
    if fresh and not readonly:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArchiveError(f"the folder {path.parent} cannot be made: {error.strerror}. Use --archive") from error
    database = Database(path, readonly=readonly, busy_s=busy_s)
    try:
        if not readonly:
            _prepare(database)
        with database.reading() as connection:
            _check_version(connection, database.where, exact=True)
    except BaseException:
        database.close()
        raise
    return database


def _look_at(path: Path, readonly: bool) -> bool:
    """True where there is nothing yet. Raises for what cannot be an archive, before SQLite touches it."""
    try:
        if path.is_dir():
            raise ArchiveError(f"{path} is a folder; name a file in it, such as {path / 'avo.db'}")
        if not path.exists() or path.stat().st_size == 0:
            if readonly:
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


def _prepare(database: Database) -> None:
    """Creates the tables in an empty file, or upgrades an older archive after a backup."""
    with database.writing() as connection:
        if not inspect(connection).get_table_names():
            metadata.create_all(connection)
            connection.execute(
                schema.insert().values(
                    version=migrations.VERSION,
                    score_rule=SCORE_RULE,
                    created_by="avo",
                    created_at=now(),
                )
            )
            return
        version = _check_version(connection, database.where, exact=False)
    if version < migrations.VERSION:
        upgrade(database, version)


def _check_version(connection: Connection, where: str, *, exact: bool) -> int:
    if schema.name not in inspect(connection).get_table_names():
        raise ArchiveError(f"{where} is an SQLite database, but not an avo archive. Name another file with --archive")
    version = connection.execute(select(schema.c.version)).scalar_one()
    if version > migrations.VERSION:
        raise ArchiveError(
            f"{where} has schema version {version}, from a newer avo; this one knows {migrations.VERSION}. "
            "Nothing was changed. Upgrade avo (pip install -U avo-kernels), or name another archive with --archive"
        )
    if exact and version < migrations.VERSION:
        raise ArchiveError(
            f"{where} has schema version {version}, this avo needs {migrations.VERSION}. Opening it for writing "
            "upgrades it, after a backup: any `avo evolve --archive` does"
        )
    return version


def upgrade(database: Database, version: int) -> Path:
    """Backs the archive up, then runs the migrations above `version` in one transaction. Returns the backup's path."""
    with database.reading() as connection:
        _check_unused(connection, database.where)
    backup = _back_up(database.path, version)
    with database.writing() as connection:
        _check_unused(connection, database.where)
        migrations.migrate(connection, _check_version(connection, database.where, exact=False))
    return backup


def _check_unused(connection: Connection, where: str) -> None:
    """A process that writes with the older schema would find another one under its feet."""
    for id, text in connection.execute(select(runs.c.id, runs.c.holder).where(runs.c.token.is_not(None))):
        holder = Holder.from_json(text)
        if liveness(holder) == "alive":
            raise Held(
                f"run {id} is being written by {holder}, with an older avo: {where} cannot be upgraded until it ends"
            )


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


def _engine(path: Path, mode: str, begin: str, busy_s: float) -> Engine:
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
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


def put_text(connection: Connection, text: str) -> str:
    """Stores a text once and returns its SHA-256, the key to read it by."""
    raw = text.encode("utf-8", "replace")
    name = hashlib.sha256(raw).hexdigest()
    connection.execute(insert_new(connection, texts), {"sha256": name, "body": zlib.compress(raw)})
    return name


def insert_new(connection: Connection, table: Table) -> Insert:
    """An INSERT that leaves rows alone whose key is there already."""
    return _INSERTS[connection.dialect.name](table).on_conflict_do_nothing()


def as_stored(text: str) -> str:
    """What `unpack` will give for a text that `put_text` took: a lone surrogate has become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def unpack(body: bytes | None) -> str:
    return "" if body is None else zlib.decompress(body).decode("utf-8")
