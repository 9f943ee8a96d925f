"""The database behind an archive, whichever it is: short transactions, versions, texts that are stored once.

`SqliteDatabase` (archive.sqlite) is one file; `PostgresDatabase` (archive.postgres) is for several hosts that write to
one run. `archive.opening.open_database` chooses by the name.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from sqlalchemy import Connection, Engine, Insert, Table, inspect, select

from archive import migrations
from archive.documents import SCORE_RULE
from archive.errors import ArchiveError, Held, explained
from archive.holder import Holder, liveness
from archive.tables import metadata, runs, schema, texts

BUSY_S = 30.0


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Database(ABC):
    """Engines for one archive. write: None where it was opened for reading only. where: its name, for people, without
    any password. busy_s: how long to wait for another process's transaction."""

    def __init__(self, where: str, read: Engine, write: Engine | None, busy_s: float) -> None:
        self.where = where
        self.busy_s = busy_s
        self._read = read
        self._write = write
        self._lock = threading.RLock()

    @property
    def readonly(self) -> bool:
        return self._write is None

    @property
    def writer(self) -> Engine:
        """The engine that writes. Raises ArchiveError where the archive was opened for reading only."""
        if self._write is None:
            raise ArchiveError(f"{self.where} was opened for reading only")
        return self._write

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot. Keep it short: the database keeps for it what others have replaced meanwhile."""
        with explained(self.where, self.busy_s, not self.readonly), self._read.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, all or nothing. Threads of this process queue here, processes at the database's lock."""
        engine = self.writer
        with self._lock, explained(self.where, self.busy_s), engine.begin() as connection:
            yield connection

    def close(self) -> None:
        self._read.dispose()
        if self._write is not None:
            self._write.dispose()

    @abstractmethod
    def compact(self) -> None:
        """Gives the room of removed rows back to the disk."""

    @abstractmethod
    def size(self) -> int:
        """Bytes that the archive takes on the disk."""

    @abstractmethod
    def back_up(self, version: int) -> object:
        """Keeps a whole copy, before an upgrade from `version`. Raises ArchiveError where that fails."""

    @abstractmethod
    def renumber(self, connection: Connection) -> None:
        """After rows came in with numbers of their own: the next row gets the next free one."""

    def prepare(self) -> None:
        """Creates the tables in an empty database, or upgrades an older archive after a backup."""
        with self.writing() as connection:
            if not self._own_tables(connection):
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
            version = check_version(connection, self.where, exact=False)
        if version < migrations.VERSION:
            upgrade(self, version)

    def _own_tables(self, connection: Connection) -> list[str]:
        """The tables that are there already, ours or somebody else's."""
        return inspect(connection).get_table_names()


def check_version(connection: Connection, where: str, *, exact: bool) -> int:
    there = inspect(connection).get_table_names()
    if not there:
        raise ArchiveError(f"{where} is empty: who makes it has not come so far. `avo evolve --archive` fills one")
    if schema.name not in there:
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


def upgrade(database: Database, version: int) -> object:
    """Backs the archive up, then runs the migrations above `version` in one transaction. Returns the backup's place."""
    with database.reading() as connection:
        _check_unused(connection, database.where)
    backup = database.back_up(version)
    with database.writing() as connection:
        _check_unused(connection, database.where)
        migrations.migrate(connection, check_version(connection, database.where, exact=False))
    return backup


def _check_unused(connection: Connection, where: str) -> None:
    """A process that writes with the older schema would find another one under its feet."""
    for id, text in connection.execute(select(runs.c.id, runs.c.holder).where(runs.c.token.is_not(None))):
        holder = Holder.from_json(text)
        if liveness(holder) == "alive":
            raise Held(
                f"run {id} is being written by {holder}, with an older avo: {where} cannot be upgraded until it ends"
            )


def put_text(connection: Connection, text: str) -> str:
    """Stores a text once and returns its SHA-256, the key to read it by."""
    raw, name = text.encode("utf-8", "replace"), text_name(text)
    connection.execute(insert_new(connection, texts), {"sha256": name, "body": zlib.compress(raw)})
    return name


def text_name(text: str) -> str:
    """The SHA-256 under which a text is stored."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def insert_new(connection: Connection, table: Table) -> Insert:
    """An INSERT that leaves rows alone whose key is there already."""
    # By its name: either of them takes a while to load, and an archive needs one.
    insert: Any = import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert
    made: Insert = insert(table).on_conflict_do_nothing()
    return made


def as_stored(text: str) -> str:
    """What `unpack` will give for a text that `put_text` took: a lone surrogate has become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


_LONGEST = 64 << 20  # bytes of a text: no program, source or conversation comes near it


def unpack(body: bytes | None) -> str:
    """The text that was packed. Raises ArchiveError where the bytes are not what was written."""
    if body is None:
        return ""
    try:
        packed = zlib.decompressobj()
        text = packed.decompress(body, _LONGEST)
        if not packed.eof:
            raise zlib.error("it has no end, or not within 64 MiB")
        return text.decode("utf-8")
    except (zlib.error, UnicodeDecodeError) as error:
        raise ArchiveError("a text in this archive is damaged; `avo archive check` says which") from error
