"""The selects that several questions share, and how their rows become records."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, Select, case, exists, func, literal, select

from archive import holder as holders
from archive.database import unpack
from archive.errors import ArchiveError
from archive.records import Booking, Candidate, Exchange, Outline, Run, Spend
from archive.tables import candidates, documents, evaluations, journal, ledger, parents, reviews, runs, sessions, texts
from evaluators.evaluation import Score, Status

_IDS = 500  # values in one IN (...)


def select_runs() -> Select[Any]:
    wall = select(func.coalesce(func.sum(sessions.c.wall_s), 0.0)).where(sessions.c.run_id == runs.c.id)
    count = select(func.count()).select_from(sessions).where(sessions.c.run_id == runs.c.id)
    return select(runs, wall.scalar_subquery().label("wall_s"), count.scalar_subquery().label("sessions"))


def to_run(row: Row[Any]) -> Run:
    holder = holders.Holder.from_json(row.holder) if row.token is not None else None
    held = holder is not None and holders.liveness(holder) != "dead"
    if held:
        state = "running"
    elif row.ended not in (None, "interrupted"):
        state = "ended"
    else:
        state = "interrupted" if row.sessions else "new"
    return Run(
        id=row.id,
        target=row.target,
        hardware=row.hardware,
        agent=row.agent,
        seed=row.seed,
        jobs=row.jobs,
        judge=row.judge,
        config=json.loads(row.config),
        versions=json.loads(row.versions),
        created_at=row.created_at,
        state=state,  # type: ignore[arg-type]
        ended=row.ended,
        message=row.message,
        holder=str(holder) if held else None,
        wall_s=row.wall_s,
    )


def select_candidates(text: bool) -> Select[Any]:
    """Candidates with the search keys of their evaluations; with the program text where it is wanted."""
    earlier = candidates.alias("earlier")
    repeats = exists().where(
        earlier.c.run_id == candidates.c.run_id,
        earlier.c.digest == candidates.c.digest,
        earlier.c.k < candidates.c.k,
    )
    columns: list[Any] = [
        candidates,
        repeats.label("reused"),
        evaluations.c.status,
        evaluations.c.mode,
        evaluations.c.failed_gate,
        evaluations.c.message,
        evaluations.c.predicted,
        evaluations.c.measured,
        evaluations.c.headroom,
        evaluations.c.judged_at,
        evaluations.c.wall_s,
        texts.c.body if text else literal(None).label("body"),
    ]
    source = candidates.outerjoin(evaluations, evaluations.c.id == candidates.c.evaluation_id)
    if text:
        source = source.join(texts, texts.c.sha256 == candidates.c.text_sha)
    return select(*columns).select_from(source)


def outlined(connection: Connection, run: int) -> list[Outline]:
    """All candidates of a run, in the order of k."""
    above: dict[int, tuple[int, ...]] = {}
    query = select(parents.c.k, parents.c.parent_k).where(parents.c.run_id == run)
    for k, parent in connection.execute(query.order_by(parents.c.k, parents.c.position)):
        above[k] = (*above.get(k, ()), parent)
    e = evaluations.c
    rows = (
        select(candidates.c.k, candidates.c.digest, e.status, e.mode, e.failed_gate, e.predicted, e.measured, e.times)
        .select_from(candidates.outerjoin(evaluations, e.id == candidates.c.evaluation_id))
        .where(candidates.c.run_id == run)
        .order_by(candidates.c.k)
    )
    return [
        Outline(k, digest, above.get(k, ()), status, mode or "none", gate, predicted, measured, times)
        for k, digest, status, mode, gate, predicted, measured, times in connection.execute(rows)
    ]


def promotions_of(judge: Any) -> Any:
    """The judge's name (or a column of such) under which winners stand that were judged again: no run shares those."""
    return judge + "/promotion"


def standing_document() -> Any:
    """A column: the document of an evaluation as the review in force has it; NULL where it has lost its own."""
    reviewed = (
        select(reviews.c.document)
        .where(reviews.c.evaluation_id == evaluations.c.id, reviews.c.undone_at.is_(None))
        .order_by(reviews.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return case((documents.c.body.is_not(None), func.coalesce(reviewed, documents.c.body))).label("document")


def select_evaluations() -> Select[Any]:
    """id, document (as the review in force has it), source (packed, or NULL)."""
    return (
        select(evaluations.c.id, standing_document(), texts.c.body.label("source"))
        .join(documents, documents.c.evaluation_id == evaluations.c.id)
        .outerjoin(texts, texts.c.sha256 == evaluations.c.source_sha)
    )


def with_parents(connection: Connection, rows: list[Row[Any]]) -> list[Candidate]:
    """Rows of `select_candidates`, all of one run, as records."""
    found: dict[int, list[int]] = {row.k: [] for row in rows}
    ks = sorted(found)
    for start in range(0, len(ks), _IDS):
        part = ks[start : start + _IDS]
        query = select(parents.c.k, parents.c.parent_k).where(parents.c.run_id == rows[0].run_id)
        if part[-1] - part[0] < 2 * len(part):
            query = query.where(parents.c.k.between(part[0], part[-1]))
        else:
            query = query.where(parents.c.k.in_(part))
        for k, parent in connection.execute(query.order_by(parents.c.k, parents.c.position)):
            if k in found:
                found[k].append(parent)
    return [_candidate(row, tuple(found[row.k])) for row in rows]


def _status(row: Row[Any]) -> Status:
    try:
        return Status(row.status)
    except ValueError as error:
        raise ArchiveError(
            f"candidate {row.run_id}/{row.k} has the status {row.status!r}, which is none: this archive is damaged; "
            "`avo archive check` says where"
        ) from error


def _candidate(row: Row[Any], parents: tuple[int, ...]) -> Candidate:
    return Candidate(
        run=row.run_id,
        k=row.k,
        digest=row.digest,
        text=unpack(row.body),
        parents=parents,
        agent=row.agent,
        rationale=row.rationale,
        proposed_at=row.proposed_at,
        reused=bool(row.reused),
        evaluation_id=row.evaluation_id,
        status=_status(row) if row.status is not None else None,
        mode=row.mode or "none",
        failed_gate=row.failed_gate,
        message=row.message or "",
        score=Score(predicted=row.predicted, measured=row.measured, headroom=row.headroom),
        judged_at=row.judged_at,
        wall_s=row.wall_s or 0.0,
        prompts=row.prompts,
    )


def select_exchanges() -> Select[Any]:
    asked, said = texts.alias("asked"), texts.alias("said")
    return (
        select(journal, asked.c.body.label("request"), said.c.body.label("reply"))
        .join(asked, asked.c.sha256 == journal.c.request_sha)
        .outerjoin(said, said.c.sha256 == journal.c.reply_sha)
        .order_by(journal.c.k, journal.c.seq)
    )


def to_exchange(row: Row[Any]) -> Exchange:
    return Exchange(
        run=row.run_id,
        k=row.k,
        seq=row.seq,
        model=row.model,
        request=unpack(row.request),
        reply=None if row.reply is None else unpack(row.reply),
        outcome=row.outcome,
        sent_at=row.sent_at,
        replied_at=row.replied_at,
    )


def to_booking(row: Row[Any]) -> Booking:
    return Booking(
        id=row.id,
        run=row.run_id,
        k=row.k,
        stage=row.stage,
        model=row.model,
        spend=Spend(
            usd=row.usd,
            tokens_in=row.tokens_in,
            tokens_out=row.tokens_out,
            tokens_cached=row.tokens_cached,
            device_s=row.device_s,
            wall_s=row.wall_s,
        ),
        settled=row.settled,
        note=row.note,
        booked_at=row.booked_at,
    )


def select_spend() -> Select[Any]:
    """Sums over the ledger; `unknown` counts entries without a price."""
    c = ledger.c
    return select(
        func.coalesce(func.sum(c.usd), 0.0).label("usd"),
        func.coalesce(func.sum(c.tokens_in), 0).label("tokens_in"),
        func.coalesce(func.sum(c.tokens_out), 0).label("tokens_out"),
        func.coalesce(func.sum(c.tokens_cached), 0).label("tokens_cached"),
        func.coalesce(func.sum(c.device_s), 0.0).label("device_s"),
        func.coalesce(func.sum(c.wall_s), 0.0).label("wall_s"),
        (func.count() - func.count(c.usd)).label("unknown"),
    )


def to_spend(row: Row[Any]) -> Spend:
    return Spend(
        usd=None if row.unknown else row.usd,
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        tokens_cached=row.tokens_cached,
        device_s=row.device_s,
        wall_s=row.wall_s,
    )
