"""Looking whether an archive is whole, and giving back the room of what nothing refers to."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, exists, select

from archive.archive import Archive
from archive.database import unpack
from archive.documents import SCORE_RULE, from_document, search_keys
from archive.errors import ArchiveError, Held
from archive.queries import promotions_of, standing_document
from archive.tables import candidates, documents, evaluations, metadata, parents, reviews, runs, schema, texts

_SHOWN = 20  # faults of one kind that are told one by one


def check_archive(archive: Archive) -> list[str]:
    """Every fault that is found, in words; none where the archive is whole. Reads everything, changes nothing.

    The database's own check, references between rows, each text against its SHA-256, each document against its search
    keys, parents before children, verdicts on the program that has them.
    """
    found: list[str] = []
    with archive.database.reading() as connection:
        if connection.dialect.name == "sqlite":
            found += [
                f"the database says: {row[0]}" for row in _pragma(connection, "integrity_check") if row[0] != "ok"
            ]
            found += [
                f"a row of {row[0]} (rowid {row[1]}) refers to one of {row[2]} that is not there"
                for row in _pragma(connection, "foreign_key_check")
            ]
        found += _bad_texts(connection)
        found += _bad_verdicts(connection)
        late = select(parents.c.run_id, parents.c.k, parents.c.parent_k).where(parents.c.parent_k >= parents.c.k)
        found += [
            f"candidate {run}/{k} has the parent {run}/{parent}, which is not before it"
            for run, k, parent in connection.execute(late)
        ]
        judged = select(candidates.c.run_id, candidates.c.k, candidates.c.digest, evaluations.c.digest.label("judged"))
        others = judged.join(evaluations, candidates.c.evaluation_id == evaluations.c.id)
        found += _few(
            [
                f"candidate {row.run_id}/{row.k} is {row.digest[:8]}, and its verdict is on {row.judged[:8]}"
                for row in connection.execute(others.where(candidates.c.digest != evaluations.c.digest))
            ]
        )
    return found


def _pragma(connection: Connection, name: str) -> list[Any]:
    return list(connection.exec_driver_sql(f"PRAGMA {name}"))


def _bad_texts(connection: Connection) -> list[str]:
    found = []
    for row in connection.execute(select(texts).execution_options(yield_per=500)):
        try:
            whole = hashlib.sha256(unpack(row.body).encode("utf-8")).hexdigest() == row.sha256
        except ArchiveError:
            whole = False
        if not whole:
            found.append(f"the text {row.sha256[:12]} is damaged")
    return _few(found)


def _bad_verdicts(connection: Connection) -> list[str]:
    found = []
    current = connection.execute(select(schema.c.score_rule)).scalar_one() == SCORE_RULE
    query = select(evaluations, standing_document()).outerjoin(documents, documents.c.evaluation_id == evaluations.c.id)
    for row in connection.execute(query.execution_options(yield_per=500)):
        if row.document is None:
            found.append(f"verdict {row.id} on {row.digest[:8]} has lost its evidence")
            continue
        try:
            keys = search_keys(from_document(row.document, ""))
        except (ArchiveError, json.JSONDecodeError) as error:
            found.append(f"verdict {row.id} on {row.digest[:8]} cannot be read: {error}")
            continue
        wrong = [name for name, value in keys.items() if not _same(row._mapping[name], value)]
        if wrong and current:
            found.append(f"verdict {row.id} on {row.digest[:8]}: {', '.join(wrong)} differ from its evidence")
    return _few(found)


def _same(kept: Any, value: Any) -> bool:
    """Equal; scores but for the last digits, in which the sums of different versions of Python differ."""
    if isinstance(kept, float) and isinstance(value, float):
        return math.isclose(kept, value, rel_tol=1e-12)
    return bool(kept == value)


def _few(found: list[str]) -> list[str]:
    more = len(found) - _SHOWN
    return found if more <= 0 else [*found[:_SHOWN], f"... and {more} more of this kind"]


@dataclass(frozen=True)
class Freed:
    """What `collect` removed, in rows, and the size of the file in bytes before and after (0: not a file)."""

    runs: int
    verdicts: int
    texts: int
    before: int
    after: int


def collect(archive: Archive, drop: tuple[int, ...] = ()) -> Freed:
    """Removes the runs `drop` with all that is theirs, then every verdict and text that nothing refers to, and gives
    the room back to the disk. Raises Held where a process writes one of them, ArchiveError where one is not there."""
    for number in drop:
        run = archive.run(number)
        if run.state == "running":
            raise Held(f"run {number} is being written by {run.holder}. Stop it before it is dropped")
    before = archive.database.size()
    with archive.database.writing() as connection:
        # Not left to the cascade from runs: a server looks at the other end of these before it gets there.
        connection.execute(parents.delete().where(parents.c.run_id.in_(drop)))
        gone = connection.execute(runs.delete().where(runs.c.id.in_(drop))).rowcount
        promotion = exists().where(  # of a candidate that is still there; no candidate points to it
            candidates.c.digest == evaluations.c.digest,
            candidates.c.run_id == runs.c.id,
            promotions_of(runs.c.judge) == evaluations.c.judge,
        )
        unused = ~exists().where(candidates.c.evaluation_id == evaluations.c.id) & ~promotion
        evidence = documents.c.evaluation_id.in_(select(evaluations.c.id).where(unused))
        connection.execute(documents.delete().where(evidence))
        decided = reviews.c.evaluation_id.in_(select(evaluations.c.id).where(unused))
        connection.execute(reviews.delete().where(decided))
        verdicts = connection.execute(evaluations.delete().where(unused)).rowcount
        unread = [~exists().where(column == texts.c.sha256) for column in _readers()]
        removed = connection.execute(texts.delete().where(*unread)).rowcount
    archive.database.compact()
    return Freed(gone, verdicts, removed, before, archive.database.size())


def _readers() -> list[Column[Any]]:
    """The columns, of whichever table, that name a text."""
    return [c for t in metadata.sorted_tables for c in t.columns if c.references(texts.c.sha256)]
