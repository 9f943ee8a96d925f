"""From the name of an archive to its database: a path or `sqlite:///` URL is a file, `postgresql://` a server's."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from archive.database import BUSY_S, Database, check_version
from archive.errors import ArchiveError


def locate(where: str | os.PathLike[str]) -> Path | URL:
    """The file that a path or an `sqlite:///` URL names, or the URL of a database on a PostgreSQL server."""
    given = os.fspath(where)
    if "://" not in given:
        return Path(given).expanduser()
    try:
        url = make_url(given)
    except ArgumentError as error:
        raise ArchiveError(f"{given!r} is not a path and not a URL that SQLAlchemy understands") from error
    if url.get_backend_name() == "postgresql":
        return url
    if url.get_backend_name() != "sqlite":
        raise ArchiveError(
            f"{url.render_as_string(hide_password=True)}: an archive is an SQLite file or a PostgreSQL database. "
            "Name a file, or a URL such as sqlite:///runs/avo.db or postgresql://user@host/avo"
        )
    if url.query:
        raise ArchiveError(f"{given}: options such as {next(iter(url.query))!r} in an archive's URL are not supported")
    if not url.database or url.database == ":memory:":
        raise ArchiveError(f"{given}: an archive has to be a file, so that a run can be resumed")
    return Path(url.database).expanduser()


def open_database(
    where: str | os.PathLike[str], *, readonly: bool, create: bool = True, busy_s: float = BUSY_S
) -> Database:
    """Opens, and for writing creates (unless `create` is False) or upgrades. Refuses, with the
    reason, whatever is not an archive of ours."""
    found = locate(where)
    database: Database
    if isinstance(found, URL):
        from archive.postgres import PostgresDatabase

        database = PostgresDatabase(found, readonly=readonly, busy_s=busy_s)
    else:
        from archive.sqlite import SqliteDatabase

        database = SqliteDatabase(found, readonly=readonly, create=create, busy_s=busy_s)
    try:
        if not readonly:
            database.prepare()
        with database.reading() as connection:
            check_version(connection, database.where, exact=True)
    except BaseException:
        database.close()
        raise
    return database
