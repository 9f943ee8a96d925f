"""An archive in a PostgreSQL database, for several hosts that write to one archive. Needs `psycopg` (the extra
`postgres`).

Writers take one advisory lock for the length of a transaction, so that they follow each other as they do at SQLite's
lock, and nothing else in the archive has to know which database it is. Readers see one snapshot each and wait for
nobody. The tables stand in the first schema of the user's search path, which has to be empty or an archive already.
"""

from __future__ import annotations

from sqlalchemy import Connection, create_engine, event, func, inspect, select
from sqlalchemy.engine import URL

from archive.database import Database
from archive.errors import ArchiveError, explained
from archive.tables import metadata, schema

_LOCK = 0x61766F  # "avo": the key of the advisory lock


class PostgresDatabase(Database):
    """url: `postgresql://user@host/name`; the password may come from it, PGPASSWORD or ~/.pgpass."""

    def __init__(self, url: URL, *, readonly: bool, busy_s: float) -> None:
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise ArchiveError(
                "a PostgreSQL archive needs the package psycopg: pip install 'avo-kernels[postgres]'"
            ) from error
        url = url.set(drivername="postgresql+psycopg")
        wait = {"connect_timeout": max(2, round(min(busy_s, 10)))}
        read = create_engine(url, isolation_level="REPEATABLE READ", connect_args=wait, pool_size=4, max_overflow=60)
        write = None if readonly else create_engine(url, connect_args=wait, pool_size=1, max_overflow=0)
        name = url.set(drivername="postgresql").render_as_string(hide_password=True)

        @event.listens_for(read, "begin")
        def _reading(connection: Connection) -> None:
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")

        if write is not None:

            @event.listens_for(write, "begin")
            def _writing(connection: Connection) -> None:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(busy_s * 1000)}")
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")

        super().__init__(name, read, write, busy_s)

    def compact(self) -> None:
        engine = self.writer.execution_options(isolation_level="AUTOCOMMIT")
        with self._lock, explained(self.where, self.busy_s), engine.connect() as connection:
            for table in metadata.sorted_tables:
                connection.exec_driver_sql(f'VACUUM "{table.name}"')

    def size(self) -> int:
        with self.reading() as connection:
            sizes = (func.pg_total_relation_size(table.name) for table in metadata.sorted_tables)
            return sum(int(connection.execute(select(size)).scalar_one()) for size in sizes)

    def back_up(self, version: int) -> None:
        """Nothing: an upgrade is one transaction, and copies of a server's databases are its keeper's (`pg_dump`)."""

    def renumber(self, connection: Connection) -> None:
        for table in metadata.sorted_tables:
            if "id" not in table.c:
                continue
            sequence = func.pg_get_serial_sequence(table.name, "id")
            highest = select(func.coalesce(func.max(table.c.id), 0) + 1).scalar_subquery()
            connection.execute(select(func.setval(sequence, highest, False)))

    def _own_tables(self, connection: Connection) -> list[str]:
        there = inspect(connection).get_table_names()
        ours = {t.name for t in metadata.sorted_tables}
        if schema.name not in there and ours & set(there):
            raise ArchiveError(
                f"{self.where} has tables of somebody else ({', '.join(sorted(ours & set(there)))}). Name another "
                "database, or a schema of its own: ?options=-csearch_path%3Davo after CREATE SCHEMA avo"
            )
        return [name for name in there if name in ours]
