"""A PostgreSQL server of the tests' own: a new cluster in a temporary folder, reached by a socket in it alone.

The server refuses to run as root, so where the tests are root it runs as the user `postgres` or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote


def programs() -> Path | None:
    """The folder of the server's programs: on PATH, or where Debian and Red Hat put them."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places += sorted(Path("/usr").glob("pgsql-*/bin"), reverse=True)
    return next((p for p in places if all((p / name).exists() for name in ("initdb", "postgres", "pg_ctl"))), None)


def missing() -> str:
    """Why there can be no server here; "" where there can."""
    if programs() is None:
        return "no PostgreSQL server programs (apt-get install postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "no psycopg (pip install 'avo-kernels[postgres]')"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody"
    return ""


def _user() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@contextmanager
def server() -> Iterator[str]:
    """The URL of the server, without a database's name: add `/name`. Ended and removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="avo-pg-", dir="/tmp"))  # short: a socket's path has at most 107 characters
    user = _user() if os.geteuid() == 0 else None
    place = programs()
    assert place is not None
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)

    def run(*command: str) -> None:
        done = subprocess.run(
            [str(place / command[0]), *command[1:]],
            cwd=folder,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr.decode(errors='replace')}")

    data = str(folder / "data")
    try:
        run("initdb", "-D", data, "-U", "avo", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c max_connections=200"
        run("pg_ctl", "-D", data, "-w", "-t", "60", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://avo@/{{name}}?host={quote(str(folder), safe='')}"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
