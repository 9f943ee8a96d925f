"""Writing a run: one process at a time, each call one short transaction that happens wholly or not at all."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Select, func, select

from archive.database import Database, as_stored, now, put_text, unpack
from archive.documents import from_document, line, plain, search_keys, to_document
from archive.errors import ArchiveError, Held
from archive.members import Watch, drop, hold, lease, leave, recorded, task_of
from archive.queries import promotions_of, select_evaluations
from archive.records import Hypothesis, Run, Spend
from archive.tables import (
    candidates,
    documents,
    evaluations,
    hypotheses,
    journal,
    ledger,
    members,
    notes,
    runs,
    sessions,
)
from archive.tables import parents as parents_table
from evaluators.evaluation import Evaluation, Status


class RunWriter:
    """The right to write one run, given by `Archive.claim`. Safe to use from several threads.

    Every write first asserts that this process still holds the run, in the same transaction; after a take-over it
    raises Held and changes nothing.
    """

    def __init__(self, database: Database, run: Run, token: str, session: int | None) -> None:
        """session: None for a member of the run that does not hold it."""
        self._db = database
        self.run = run
        self._token = token
        self._session = session
        self._watch = Watch(run.id, token)
        self._since = time.monotonic()
        self._released = False

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None:
            self.release("ended")
        else:
            with contextlib.suppress(ArchiveError):  # the first error is the one to show
                self.release("failed", f"{kind.__name__}: {error}")

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._db.writing() as connection:
            mine = members.c.token == self._token
            held = connection.execute(members.update().where(mine).values(beat=members.c.beat + 1)).rowcount == 1
            if held and self.holds:
                held = (
                    connection.execute(
                        runs.update()
                        .where(runs.c.id == self.run.id, runs.c.token == self._token)
                        .values(beat=runs.c.beat + 1, beat_at=now())
                    ).rowcount
                    == 1
                )
            if not held:
                raise Held(f"run {self.run.id} has been taken over by another process; this one must stop writing it")
            yield connection

    # Several processes at one run -------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether this process ends the run; one that joined it does not, while the one that does is there."""
        return self._session is not None

    def others(self) -> list[str]:
        """The other processes that write this run, and live. Those that died lose their tasks, and the run, here."""
        living = self._watch.others(self._db)
        if not self.holds:
            with self._writing() as connection:
                versions = json.dumps(plain(self.run.versions))
                self._session = hold(connection, self.run.id, self._token, versions)
        return [str(holder) for holder in living]

    def lease(self, task: int | str) -> bool:
        """Takes a task: proposal k, or the judgement of a digest. False where another process is at it, or has done it;
        a verdict that is there is then this run's too."""
        with self._writing() as connection:
            if isinstance(task, int):
                if recorded(connection, self.run.id, task):
                    return False
                return lease(connection, self.run.id, task_of(task), self._token)
            known = connection.execute(self._verdict_on(task)).first()
            if known is not None:
                self._give(connection, task, known.id)
                return False
            return lease(connection, self.run.id, task, self._token)

    def unlease(self, k: int) -> None:
        """Nothing is proposed for k after all."""
        with self._writing() as connection:
            drop(connection, self.run.id, task_of(k))

    # Candidates -------------------------------------------------------------------------------------

    def add_candidate(
        self,
        k: int,
        digest: str,
        text: str,
        *,
        agent: str,
        parents: Sequence[int] = (),
        rationale: str = "",
        hypothesis: Hypothesis | None = None,
        spend: Spend | None = None,
        model: str = "",
        prompts: str = "",
    ) -> Evaluation | None:
        """Records proposal k before it is judged. Returns the evaluation where an equal program has one under the run's
        judge already: then there is nothing to judge. spend: what the proposal cost, if it is not booked yet."""
        with self._writing() as connection:
            known = connection.execute(self._verdict_on(digest)).first()
            connection.execute(
                candidates.insert().values(
                    run_id=self.run.id,
                    k=k,
                    digest=digest,
                    text_sha=put_text(connection, text),
                    agent=agent,
                    rationale=line(rationale),
                    prompts=prompts,
                    proposed_at=now(),
                    evaluation_id=None if known is None else known.id,
                )
            )
            for position, parent in enumerate(parents):
                connection.execute(
                    parents_table.insert().values(run_id=self.run.id, k=k, position=position, parent_k=parent)
                )
            if hypothesis is not None:
                self._nominate(connection, k, k, hypothesis, {})
            if spend is not None:
                self._book(connection, k, "propose", spend, model=model)
            drop(connection, self.run.id, task_of(k))
        return None if known is None else from_document(known.document, unpack(known.source))

    def record_evaluation(self, k: int, evaluation: Evaluation, spend: Spend | None = None) -> Evaluation:
        """Records the verdict on proposal k, and on every other of this run with the same digest. Returns it as the
        archive will give it back. Where another process has judged an equal program meanwhile, the first verdict holds.

        Raises ValueError for UNAVAILABLE: that is the harness's fault and never a candidate's verdict.
        """
        if evaluation.status is Status.UNAVAILABLE:
            raise ValueError("UNAVAILABLE is no verdict on a candidate; book the time and try again")
        spend = spend or Spend()
        document = to_document(evaluation)
        with self._writing() as connection:
            digest = connection.execute(
                select(candidates.c.digest).where(candidates.c.run_id == self.run.id, candidates.c.k == k)
            ).scalar_one()
            first = connection.execute(self._verdict_on(digest)).first()
            if first is None:
                source = as_stored(evaluation.source)
                kept = from_document(document, source)
                made = connection.execute(
                    evaluations.insert().values(
                        digest=digest,
                        judge=self.run.judge,
                        source_sha=put_text(connection, evaluation.source) if evaluation.source else None,
                        wall_s=spend.wall_s,
                        judged_at=now(),
                        **search_keys(kept),
                    )
                )
                key = made.inserted_primary_key
                assert key is not None
                id = key[0]
                connection.execute(documents.insert().values(evaluation_id=id, body=document))
            else:
                id, kept = first.id, from_document(first.document, unpack(first.source))
            self._give(connection, digest, id)
            self._book(connection, k, "evaluate", spend)
            drop(connection, self.run.id, digest)
        return kept

    def _give(self, connection: Connection, digest: str, id: int) -> None:
        """A verdict to every proposal of this program that waits for one."""
        c = candidates.c
        waiting = (c.run_id == self.run.id, c.digest == digest, c.evaluation_id.is_(None))
        connection.execute(candidates.update().where(*waiting).values(evaluation_id=id))

    def _verdict_on(self, digest: str) -> Select[Any]:
        return select_evaluations().where(evaluations.c.digest == digest, evaluations.c.judge == self.run.judge)

    def adopt(self) -> int:
        """Gives proposals that wait for a verdict the one that another run has found for an equal program meanwhile;
        returns how many."""
        found = (
            select(evaluations.c.id)
            .where(evaluations.c.digest == candidates.c.digest, evaluations.c.judge == self.run.judge)
            .scalar_subquery()
        )
        with self._writing() as connection:
            adopted = connection.execute(
                candidates.update()
                .where(candidates.c.run_id == self.run.id, candidates.c.evaluation_id.is_(None), found.is_not(None))
                .values(evaluation_id=found)
            )
            return adopted.rowcount

    def record_promotion(self, k: int, evaluation: Evaluation, spend: Spend | None = None) -> None:
        """Records what came of proposal k when it was judged again as the run's best: beside its verdict, which stays.
        A later promotion of the same program takes the place of the earlier one.

        Raises ValueError for UNAVAILABLE, as `record_evaluation` does.
        """
        if evaluation.status is Status.UNAVAILABLE:
            raise ValueError("UNAVAILABLE is no verdict on a candidate; book the time and try again")
        spend = spend or Spend()
        judge = promotions_of(self.run.judge)
        with self._writing() as connection:
            digest = connection.execute(
                select(candidates.c.digest).where(candidates.c.run_id == self.run.id, candidates.c.k == k)
            ).scalar_one()
            document = to_document(evaluation)
            old = select(evaluations.c.id).where(evaluations.c.digest == digest, evaluations.c.judge == judge)
            connection.execute(documents.delete().where(documents.c.evaluation_id.in_(old)))
            connection.execute(evaluations.delete().where(evaluations.c.digest == digest, evaluations.c.judge == judge))
            made = connection.execute(
                evaluations.insert().values(
                    digest=digest,
                    judge=judge,
                    source_sha=put_text(connection, evaluation.source) if evaluation.source else None,
                    wall_s=spend.wall_s,
                    judged_at=now(),
                    **search_keys(from_document(document, as_stored(evaluation.source))),
                )
            )
            key = made.inserted_primary_key
            assert key is not None
            connection.execute(documents.insert().values(evaluation_id=key[0], body=document))
            self._book(connection, k, "promote", spend)

    # Ledger, journal, hypotheses, notes -------------------------------------------------------------

    def book(self, k: int | None, stage: str, spend: Spend, *, model: str = "", note: str = "") -> int:
        """Adds a line to the ledger; returns its id."""
        with self._writing() as connection:
            return self._book(connection, k, stage, spend, model=model, note=note)

    def ask(self, k: int, model: str, request: str, maximum: Spend) -> int:
        """Journals a request before it is sent and books the most that it can cost; returns the journal's id."""
        with self._writing() as connection:
            entry = self._book(connection, k, "propose", maximum, model=model, settled=False)
            seq = connection.execute(
                select(func.coalesce(func.max(journal.c.seq), -1) + 1).where(
                    journal.c.run_id == self.run.id, journal.c.k == k
                )
            ).scalar_one()
            made = connection.execute(
                journal.insert().values(
                    run_id=self.run.id,
                    k=k,
                    seq=seq,
                    model=model,
                    request_sha=put_text(connection, request),
                    ledger_id=entry,
                    sent_at=now(),
                )
            )
            key = made.inserted_primary_key
            assert key is not None
            return int(key[0])

    def answered(self, exchange: int, reply: str, outcome: str, spend: Spend) -> None:
        """Journals the reply to a request (or what came instead of one) and books its true cost."""
        with self._writing() as connection:
            entry = connection.execute(select(journal.c.ledger_id).where(journal.c.id == exchange)).scalar_one()
            connection.execute(
                journal.update()
                .where(journal.c.id == exchange)
                .values(reply_sha=put_text(connection, reply), outcome=outcome, replied_at=now())
            )
            connection.execute(ledger.update().where(ledger.c.id == entry).values(settled=True, **asdict(spend)))

    def nominate(self, k: int, hypothesis: Hypothesis, detail: Mapping[str, Any] | None = None) -> None:
        """Records a hypothesis that step k considered and did not try; once, also where the step is taken twice."""
        with self._writing() as connection:
            same = (hypotheses.c.run_id == self.run.id) & (hypotheses.c.nominated_k == k) & hypotheses.c.k.is_(None)
            claim = hypotheses.c.claim == line(hypothesis.claim)
            if connection.execute(select(hypotheses.c.id).where(same, claim)).first() is not None:
                return
            self._nominate(connection, k, None, hypothesis, detail or {})

    def note(self, k: int, body: str, topic: str = "") -> None:
        """Keeps a note for later steps, runs and targets. One that step k wrote already is not written again, since a
        step that a kill cut off is taken from its start."""
        with self._writing() as connection:
            same = (notes.c.run_id == self.run.id) & (notes.c.k == k) & (notes.c.topic == line(topic))
            if connection.execute(select(notes.c.id).where(same, notes.c.body == line(body))).first() is not None:
                return
            connection.execute(
                notes.insert().values(
                    run_id=self.run.id,
                    k=k,
                    target=self.run.target,
                    topic=line(topic),
                    body=line(body),
                    written_at=now(),
                )
            )

    # Life -------------------------------------------------------------------------------------------

    @property
    def wall_s(self) -> float:
        """Seconds that the run has taken over all its sessions, this one included."""
        return self.run.wall_s + time.monotonic() - self._since

    def beat(self) -> None:
        """Shows that this process lives and writes down the time used. Call it every few seconds."""
        with self._writing() as connection:
            self._clock(connection, None)

    def release(self, ended: str, message: str = "") -> None:
        """Gives the run back and says why: "steps", "minutes", "interrupted", ... Later calls do nothing."""
        if self._released:
            return
        with self._writing() as connection:
            self._clock(connection, ended)
            leave(connection, self.run.id, self._token)
            if self.holds:
                connection.execute(
                    runs.update()
                    .where(runs.c.id == self.run.id)
                    .values(holder=None, token=None, ended=ended, message=line(message))
                )
        self._released = True

    def _clock(self, connection: Connection, ended: str | None) -> None:
        connection.execute(
            sessions.update()
            .where(sessions.c.id == self._session)
            .values(wall_s=time.monotonic() - self._since, ended=ended)
        )

    def _book(
        self,
        connection: Connection,
        k: int | None,
        stage: str,
        spend: Spend,
        *,
        model: str = "",
        settled: bool = True,
        note: str = "",
    ) -> int:
        made = connection.execute(
            ledger.insert().values(
                run_id=self.run.id,
                k=k,
                stage=stage,
                model=model,
                settled=settled,
                note=line(note),
                booked_at=now(),
                **asdict(spend),
            )
        )
        key = made.inserted_primary_key
        assert key is not None
        return int(key[0])

    def _nominate(
        self, connection: Connection, step: int, k: int | None, hypothesis: Hypothesis, detail: Mapping[str, Any]
    ) -> None:
        connection.execute(
            hypotheses.insert().values(
                run_id=self.run.id,
                nominated_k=step,
                k=k,
                claim=line(hypothesis.claim),
                bottleneck=line(hypothesis.bottleneck),
                expected_gain=hypothesis.expected_gain,
                detail=json.dumps(plain(detail)),
            )
        )
