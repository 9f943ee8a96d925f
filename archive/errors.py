"""One error for people: what is wrong with the archive, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError


class ArchiveError(Exception):
    """The archive cannot do what was asked; the message says what to do. What was recorded before is intact."""


class Held(ArchiveError):
    """Another living process writes this run."""


_SQLITE = {
    "SQLITE_FULL": "the disk is full, so nothing more could be stored in {where}. All that was recorded before is "
    "intact: free some space, then continue with --resume",
    "SQLITE_BUSY": "{where} has been locked by another process for {busy:.0f} s. Wait for it or end it (a backup or an "
    "`sqlite3` shell with an open transaction does this){then}",
    "SQLITE_LOCKED": "{where} is locked by another connection of this process",
    "SQLITE_READONLY": "{where} is read-only. Change its permissions and those of its folder, or name another archive "
    "with --archive",
    "SQLITE_PERM": "{where} may not be opened by this user. Change its permissions, or name another archive with "
    "--archive",
    "SQLITE_CANTOPEN": "{where} cannot be opened: its folder must exist, and be readable and writable",
    "SQLITE_NOTADB": "{where} is not an avo archive, nor any SQLite database. Name another file with --archive",
    "SQLITE_CORRUPT": "{where} is damaged (the database says: {text}). Keep the file, and restore a copy or a backup "
    "(*.backup beside it); `sqlite3 FILE .recover` saves what is readable",
    "SQLITE_IOERR": "reading or writing {where} failed ({name}). Look at the disk; a network folder may not "
    "support the locks that SQLite needs: use a local one",
    "SQLITE_CONSTRAINT": "{where} refused a record that contradicts another ({text})",
}

# What is said to who writes a run, and is nothing to who only looks.
_THEN = ", then continue with --resume"
_INTACT = ". All that was recorded before is intact: continue with --resume"

# The start of PostgreSQL's SQLSTATE -> the message; a longer start comes first.
_POSTGRES = {
    "53100": "the disk of the server is full, so nothing more could be stored in {where}. All that was recorded before "
    "is intact: free some space there, then continue with --resume",
    "53": "the server of {where} has no more room for this ({text})",
    "55P03": "{where} has been locked by another process for {busy:.0f} s. Wait for it or end it{then}",
    "25006": "{where} is read-only for this user",
    "42501": "this user may not do that in {where} ({text}). Grant it CREATE on the schema and all on its tables",
    "28": "{where} refuses this user ({text}). Give the user in the URL and the password in PGPASSWORD or ~/.pgpass",
    "23": "{where} refused a record that contradicts another ({text})",
    "57": "the server of {where} ended the connection ({text}). All that was recorded before is intact: wait until it "
    "is back{then}",
    "08": "{where} cannot be reached ({text}). `createdb` makes a database that is not there; the password may stand "
    "in PGPASSWORD or ~/.pgpass{intact}",
}


def explain(error: BaseException, where: str, busy_s: float = 0.0, writes: bool = True) -> ArchiveError:
    """The ArchiveError for an error of SQLAlchemy or the database driver. where: names the archive. writes: it was
    opened for that, so there may be a run to take up again."""
    original = getattr(error, "orig", None) or error
    text = str(original)
    name = getattr(original, "sqlite_errorname", "") or ""
    told = {"where": where, "busy": busy_s, "text": text, "name": name}
    told |= {"then": _THEN if writes else "", "intact": _INTACT if writes else ""}
    for prefix, message in _SQLITE.items():
        if name.startswith(prefix):
            return ArchiveError(message.format(**told))
    state = getattr(original, "sqlstate", None) or ("08" if type(original).__module__.startswith("psycopg") else "")
    for prefix, message in _POSTGRES.items():
        if state.startswith(prefix):
            return ArchiveError(message.format(**told | {"text": " ".join(text.split())}))
    return ArchiveError(f"{where}: the database refused: {text}")


@contextmanager
def explained(where: str, busy_s: float = 0.0, writes: bool = True) -> Iterator[None]:
    """Turns the database's errors within into an ArchiveError."""
    try:
        yield
    except (DBAPIError, SQLAlchemyError) as error:
        raise explain(error, where, busy_s, writes) from error
