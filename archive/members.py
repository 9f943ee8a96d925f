"""Several processes at one run: who they are, and which of them is at which task.

Every process that writes a run is a member of it; one of them also holds it, and ends it. A task is proposal k
(`propose 17`) or the judgement of a program (its digest); a lease says whose it is, so that nothing is asked for or
judged twice. A member that died loses its leases to the others: on the same host the process table tells, on another a
beat that stood still for a while. One that was only asleep finds that it is a member no longer, and may not write.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from archive.database import Database, insert_new, now
from archive.holder import Holder, liveness, this_process
from archive.tables import candidates, leases, members, runs, sessions

STILL_S = 20.0  # a beat that stands still for so long belongs to nobody


def task_of(k: int) -> str:
    """The name of the task to make proposal k; that of a judgement is the program's digest."""
    return f"propose {k}"


def enter(connection: Connection, run: int, token: str) -> None:
    connection.execute(
        members.insert().values(token=token, run_id=run, holder=this_process().to_json(), beat=0, joined_at=now())
    )


def leave(connection: Connection, run: int, token: str | None) -> None:
    """With all its leases."""
    connection.execute(leases.delete().where(leases.c.run_id == run, leases.c.token == token))
    connection.execute(members.delete().where(members.c.run_id == run, members.c.token == token))


def lease(connection: Connection, run: int, task: str, token: str) -> bool:
    """Takes a task; False where another member has it."""
    connection.execute(insert_new(connection, leases), {"run_id": run, "task": task, "token": token})
    query = select(leases.c.token).where(leases.c.run_id == run, leases.c.task == task)
    return bool(connection.execute(query).scalar_one() == token)


def drop(connection: Connection, run: int, task: str) -> None:
    connection.execute(leases.delete().where(leases.c.run_id == run, leases.c.task == task))


def recorded(connection: Connection, run: int, k: int) -> bool:
    query = select(candidates.c.k).where(candidates.c.run_id == run, candidates.c.k == k)
    return connection.execute(query).first() is not None


@dataclass
class Watch:
    """What one member sees of the others over time: which of them live, by their beats and this process' clock."""

    run: int
    token: str
    still_s: float = STILL_S
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)  # token -> beat, since when

    def others(self, database: Database) -> list[Holder]:
        """The members that live; those that died have been removed, and what they were at is free again."""
        with database.reading() as connection:
            query = select(members.c.token, members.c.holder, members.c.beat).where(members.c.run_id == self.run)
            rows = connection.execute(query.where(members.c.token != self.token)).all()
        living = []
        for row in rows:
            holder = Holder.from_json(row.holder)
            if self._dead(holder, row.token, row.beat):
                self._remove(database, row.token, row.beat)
            else:
                living.append(holder)
        return living

    def _dead(self, holder: Holder, token: str, beat: int) -> bool:
        state = liveness(holder)
        if state != "unknown":
            return state == "dead"
        before, since = self._seen.get(token, (None, 0.0))
        if before != beat:
            self._seen[token] = (beat, time.monotonic())
            return False
        return time.monotonic() - since > self.still_s

    def _remove(self, database: Database, token: str, beat: int) -> None:
        with database.writing() as connection:
            still = connection.execute(
                select(members.c.token).where(members.c.token == token, members.c.beat == beat)
            ).first()
            if still is not None:
                leave(connection, self.run, token)


def hold(connection: Connection, run: int, token: str, versions: str) -> int | None:
    """Makes a member the holder where the one that was has gone; the id of its session, None where there is one."""
    row = connection.execute(select(runs.c.token).where(runs.c.id == run)).one()
    there = select(members.c.token).where(members.c.token == row.token)
    if row.token is not None and connection.execute(there).first() is not None:
        return None
    connection.execute(
        runs.update()
        .where(runs.c.id == run)
        .values(holder=this_process().to_json(), token=token, beat=runs.c.beat + 1, beat_at=now(), ended=None)
    )
    made = connection.execute(sessions.insert().values(run_id=run, started_at=now(), versions=versions))
    key = made.inserted_primary_key
    assert key is not None
    return int(key[0])
