"""Verdicts that take the place of the judge's: recorded beside it, never over it, and undone by a word."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from archive.database import Database, now
from archive.documents import from_document, line, search_keys, to_document
from archive.errors import ArchiveError
from archive.queries import select_evaluations
from archive.records import Review
from archive.tables import evaluations, reviews
from evaluators.evaluation import Evaluation, Status

RULES = "rules"  # who decided, where a rule did


def decide(database: Database, id: int, verdict: Evaluation, by: str, reason: str) -> None:
    """Puts `verdict` in the place of evaluation `id`; it says in its environment what it was before."""
    with database.writing() as connection:
        before = _standing(connection, id)
        note = {"by": line(by), "reason": line(reason), "was": before.status.value}
        kept = verdict.model_copy(update={"environment": {**verdict.environment, "review": note}, "source": ""})
        connection.execute(
            reviews.insert().values(
                evaluation_id=id,
                by=line(by),
                reason=line(reason),
                status=kept.status.value,
                document=to_document(kept),
                decided_at=now(),
            )
        )
        refresh(connection, id)


def undo(database: Database, id: int) -> Review:
    """Takes the review in force of evaluation `id` back; the one before it, or the judge's own verdict, holds again.

    Raises ArchiveError where there is none.
    """
    with database.writing() as connection:
        query = select(reviews).where(reviews.c.evaluation_id == id, reviews.c.undone_at.is_(None))
        row = connection.execute(query.order_by(reviews.c.id.desc()).limit(1)).first()
        if row is None:
            raise ArchiveError("there is no decision to undo: the judge's own verdict holds")
        connection.execute(reviews.update().where(reviews.c.id == row.id).values(undone_at=now()))
        refresh(connection, id)
        return to_review(connection.execute(select(reviews).where(reviews.c.id == row.id)).one())


def to_review(row: Any) -> Review:
    return Review(
        id=row.id,
        evaluation_id=row.evaluation_id,
        by=row.by,
        reason=row.reason,
        status=Status(row.status),
        decided_at=row.decided_at,
        undone_at=row.undone_at,
    )


def _standing(connection: Connection, id: int) -> Evaluation:
    row = connection.execute(select_evaluations().where(evaluations.c.id == id)).first()
    if row is None:
        raise ArchiveError(f"there is no evaluation {id}")
    return from_document(row.document, "")


def refresh(connection: Connection, id: int) -> None:
    """The search keys follow the verdict that holds."""
    keys = search_keys(_standing(connection, id))
    connection.execute(evaluations.update().where(evaluations.c.id == id).values(**keys))
