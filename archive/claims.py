"""Taking a run to write it: one process at a time, and a killed one is replaced."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from archive.database import Database, now
from archive.documents import plain
from archive.errors import Held
from archive.holder import Holder, liveness, new_token, this_process
from archive.members import enter, hold, leave
from archive.tables import runs, sessions


def take(database: Database, run: int, versions: Mapping[str, Any], watch_s: float) -> tuple[str, int]:
    """Makes this process the run's writer; returns its token and the new session's id. The run has to exist.

    Raises Held where another living process has it. Where its life cannot be asked for (another host), its beat is
    watched for watch_s seconds.
    """
    token = new_token()
    row = _holder(database, run)
    if row.token is not None:
        _check_dead(database, run, row, watch_s)
    with database.writing() as connection:
        taken = connection.execute(
            runs.update()
            # What was looked at above has to be still so: of several that try, one gets it.
            .where(runs.c.id == run, runs.c.token.is_not_distinct_from(row.token), runs.c.beat == row.beat)
            .values(holder=this_process().to_json(), token=token, beat=row.beat + 1, beat_at=now(), ended=None)
        )
        if taken.rowcount != 1:
            raise Held(f"run {run} has just been taken up by another process")
        leave(connection, run, row.token)
        enter(connection, run, token)
        made = connection.execute(
            sessions.insert().values(run_id=run, started_at=now(), versions=json.dumps(plain(versions)))
        )
        key = made.inserted_primary_key
        assert key is not None
        return token, int(key[0])


def join(database: Database, run: int, versions: Mapping[str, Any]) -> tuple[str, int | None]:
    """Makes this process a member of the run beside those that are at it, and its holder where nobody holds it.

    Returns its token, and the new session's id where it holds the run."""
    token = new_token()
    with database.writing() as connection:
        enter(connection, run, token)
        return token, hold(connection, run, token, json.dumps(plain(versions)))


def _holder(database: Database, run: int) -> Any:
    with database.reading() as connection:
        return connection.execute(select(runs.c.holder, runs.c.token, runs.c.beat).where(runs.c.id == run)).one()


def _check_dead(database: Database, run: int, row: Any, watch_s: float) -> None:
    holder = Holder.from_json(row.holder)
    state = liveness(holder)
    end = time.monotonic() + watch_s
    while state == "unknown" and time.monotonic() < end:
        time.sleep(min(0.2, watch_s))
        seen = _holder(database, run)
        if (seen.token, seen.beat) != (row.token, row.beat):
            state = "alive"
    if state == "alive":
        raise Held(
            f"run {run} is being written by {holder}. Wait for it, stop it, work beside it (--join), "
            "or start a run of your own"
        )
