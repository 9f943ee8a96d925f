"""The archive: what was tried, and what came of it. Reading is here; writing a run is `archive.writer.RunWriter`.

archive = open_archive("avo.db")
run = archive.create_run(target="attention", hardware="b200", agent="heuristic", seed=0, jobs=2, judge="...")
with archive.claim(run.id) as writer:
    writer.add_candidate(0, digest, text, agent="seed")
    writer.record_evaluation(0, evaluation)
archive.best(run.id), archive.lineage(run.id, 7), archive.candidate("3fa9")
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from sqlalchemy import bindparam, exists, func, literal, select

from archive.claims import join, take
from archive.database import BUSY_S, Database, now, text_name, unpack
from archive.documents import SCORE_RULE, from_document, plain, search_keys
from archive.errors import ArchiveError
from archive.holder import Holder, liveness
from archive.members import STILL_S
from archive.opening import open_database
from archive.queries import (
    outlined,
    promotions_of,
    select_candidates,
    select_evaluations,
    select_exchanges,
    select_runs,
    select_spend,
    standing_document,
    to_booking,
    to_exchange,
    to_run,
    to_spend,
    with_parents,
)
from archive.records import Booking, Candidate, Exchange, Hypothesis, Note, Outline, Review, Run, Spend, Tested
from archive.reviewing import decide, to_review, undo
from archive.tables import (
    candidates,
    documents,
    evaluations,
    hypotheses,
    journal,
    ledger,
    members,
    notes,
    parents,
    reviews,
    runs,
    schema,
)
from archive.writer import RunWriter
from evaluators.evaluation import Evaluation, Status

_IDS = 500  # values in one IN (...)


def open_archive(
    where: str | os.PathLike[str], *, readonly: bool = False, create: bool = True, busy_s: float = BUSY_S
) -> Archive:
    """Opens the archive at a path, an `sqlite:///` or a `postgresql://` URL; one that is not there is made where it is
    opened for writing, unless `create` is False.

    busy_s: how long to wait for another process's transaction. Raises ArchiveError, which says what to do, for a file
    that is no archive, is from a newer avo, cannot be read or written; nothing is changed then. An older archive is
    backed up and upgraded when it is opened for writing.
    """
    archive = Archive(open_database(where, readonly=readonly, create=create, busy_s=busy_s))
    if not readonly:
        archive.rebuild_search_keys()
    return archive


class Archive:
    """Safe to use from several threads. Every read is one short snapshot."""

    def __init__(self, database: Database) -> None:
        self._db = database

    @property
    def where(self) -> str:
        return self._db.where

    @property
    def database(self) -> Database:
        """For what works on whole tables: transfer and upkeep."""
        return self._db

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Runs -----------------------------------------------------------------------------------------

    def create_run(
        self,
        *,
        target: str,
        hardware: str,
        agent: str,
        seed: int,
        jobs: int,
        judge: str,
        config: Mapping[str, Any] | None = None,
        versions: Mapping[str, Any] | None = None,
    ) -> Run:
        """A new run, held by nobody. judge: a key of target, hardware and evaluator configuration; a program that was
        judged under an equal key is not judged again, in whichever run."""
        with self._db.writing() as connection:
            made = connection.execute(
                runs.insert().values(
                    target=target,
                    hardware=hardware,
                    agent=agent,
                    seed=seed,
                    jobs=jobs,
                    judge=judge,
                    config=json.dumps(plain(config or {})),
                    versions=json.dumps(plain(versions or {})),
                    created_at=now(),
                )
            )
            key = made.inserted_primary_key
            assert key is not None
        return self.run(key[0])

    def runs(self) -> list[Run]:
        """All runs, the oldest first."""
        with self._db.reading() as connection:
            return [to_run(row) for row in connection.execute(select_runs().order_by(runs.c.id))]

    def run(self, id: int | None = None) -> Run:
        """One run; the newest where no id is given."""
        query = (
            select_runs().where(runs.c.id == id)
            if id is not None
            else select_runs().order_by(runs.c.id.desc()).limit(1)
        )
        with self._db.reading() as connection:
            row = connection.execute(query).first()
            if row is not None:
                return to_run(row)
            known = [
                str(i) for i in connection.execute(select(runs.c.id).order_by(runs.c.id.desc()).limit(8)).scalars()
            ]
        if id is None:
            raise ArchiveError(f"{self.where} holds no run yet. `avo evolve` makes one")
        raise ArchiveError(
            f"{self.where} holds no run {id}; " + (f"the newest are {', '.join(known)}" if known else "it is empty")
        )

    def claim(self, run: int, *, versions: Mapping[str, Any] | None = None, watch_s: float = STILL_S) -> RunWriter:
        """Makes this process the run's only writer, until `release` or the end of the `with` block.

        Raises Held where another living process has it. One that was killed is replaced. Where its life cannot be asked
        for (another host), its beat is watched for watch_s seconds.
        """
        record = self.run(run)
        token, session = take(self._db, run, versions or {}, watch_s)
        return RunWriter(self._db, record, token, session)

    def join(self, run: int, *, versions: Mapping[str, Any] | None = None) -> RunWriter:
        """Makes this process one of several that write the run: it has to take each task by `RunWriter.lease`. Where
        nobody holds the run, it does."""
        record = self.run(run)
        token, session = join(self._db, run, versions or {})
        return RunWriter(self._db, record, token, session)

    def members(self, run: int) -> list[str]:
        """The processes that write a run, for people; those that are known to be dead are left out."""
        with self._db.reading() as connection:
            query = select(members.c.holder).where(members.c.run_id == run).order_by(members.c.joined_at)
            found = [Holder.from_json(text) for text in connection.execute(query).scalars()]
        return [str(holder) for holder in found if liveness(holder) != "dead"]

    # Candidates -----------------------------------------------------------------------------------

    def candidates(
        self,
        run: int,
        *,
        status: Status | None = None,
        agent: str | None = None,
        pending: bool | None = None,
        ks: Iterable[int] | None = None,
        since: int | None = None,
        sort: Literal["k", "-k", "predicted", "measured"] = "k",
        limit: int | None = None,
        offset: int = 0,
        text: bool = True,
    ) -> list[Candidate]:
        """Candidates of a run. sort: by number, newest first, or the best score first. pending: only those that are not
        judged yet (True) or are (False). since: from this k on. text False leaves `Candidate.text` empty, for lists."""
        query = select_candidates(text).where(candidates.c.run_id == run)
        if status is not None:
            query = query.where(evaluations.c.status == status.value)
        if agent is not None:
            query = query.where(candidates.c.agent == agent)
        if pending is not None:
            empty = candidates.c.evaluation_id.is_(None)
            query = query.where(empty if pending else ~empty)
        if ks is not None:
            query = query.where(candidates.c.k.in_(list(ks)))
        if since is not None:
            query = query.where(candidates.c.k >= since)
        order: tuple[Any, ...] = (candidates.c.k,)
        if sort == "-k":
            order = (candidates.c.k.desc(),)
        elif sort != "k":
            order = (evaluations.c[sort].desc().nulls_last(), candidates.c.k)
        query = query.order_by(*order)
        if limit is not None:
            query = query.limit(limit)
        if offset:
            query = query.offset(offset)
        with self._db.reading() as connection:
            return with_parents(connection, list(connection.execute(query)))

    def outline(self, run: int) -> list[Outline]:
        """Every candidate of a run by its plainest facts, in the order of k: fast enough for 100,000 of them."""
        with self._db.reading() as connection:
            found = outlined(connection, run)
            current = connection.execute(select(schema.c.score_rule)).scalar_one() == SCORE_RULE
        if current:
            return found
        # An upgrade that was cut off: the next opening for writing ends it, and until then the evidence is asked.
        judged = self.evaluations(self.candidates(run, text=False))
        keys = {c.k: search_keys(e) for c, e in judged}
        return [o._replace(times=keys[o.k]["times"]) if o.k in keys else o for o in found]

    def candidate(self, ref: str, run: int | None = None) -> Candidate:
        """A candidate by the start of its digest (at least 4 characters) or as `RUN/K`; `RUN/best` is the run's best.

        A digest that several runs or proposals share names the first proposal of it, in the newest run that has it
        (or in `run`). Raises ArchiveError where it names none, or candidates of several digests.
        """
        number, slash, k = ref.partition("/")
        if slash and number.isdecimal() and k == "best":
            best = self.best(int(number))
            if best is None:
                raise ArchiveError(f"run {number} has no best candidate: none is accepted and has a time")
            return best
        if slash and number.isdecimal() and k.isdecimal():
            found = self.candidates(int(number), ks=[int(k)])
            if not found:
                self.run(int(number))
                raise ArchiveError(f"run {number} has no candidate {k}")
            return found[0]
        if len(ref) < 4 or not ref.isalnum():
            raise ArchiveError(
                f"{ref!r}: name a candidate by at least 4 characters of its digest, or as RUN/K (3/17, 3/best)"
            )
        query = (
            select(candidates.c.digest, func.max(candidates.c.run_id))
            .where(candidates.c.digest >= ref.lower(), candidates.c.digest < ref.lower() + "g")
            .group_by(candidates.c.digest)
            .limit(6)
        )
        if run is not None:
            query = query.where(candidates.c.run_id == run)
        with self._db.reading() as connection:
            rows = connection.execute(query).all()
            if not rows:
                where = self.where if run is None else f"run {run}"
                raise ArchiveError(f"{where} has no candidate whose digest begins with {ref!r}. `avo log` lists them")
            if len(rows) > 1:
                names = ", ".join(r[0] for r in rows[:5]) + (", ..." if len(rows) > 5 else "")
                raise ArchiveError(f"{ref!r} is the start of several digests: {names}. Give more of it")
            first = (
                select_candidates(True)
                .where(candidates.c.run_id == rows[0][1], candidates.c.digest == rows[0][0])
                .order_by(candidates.c.k)
                .limit(1)
            )
            return with_parents(connection, list(connection.execute(first)))[0]

    def name_for(self, digest: str, text: str) -> str:
        """The digest; where a candidate with another text has it already, the whole SHA-256 of the text. Verdicts are
        shared by digest, and of two texts that were made for it 16 digits can be the same."""
        sha = text_name(text)
        other = exists().where(candidates.c.digest == digest, candidates.c.text_sha != sha)
        with self._db.reading() as connection:
            return sha if connection.execute(select(other)).scalar_one() else digest

    def evaluation(self, candidate: Candidate) -> Evaluation | None:
        """All that was found out about a candidate, emitted source included; None where it is not judged yet."""
        if candidate.evaluation_id is None:
            return None
        return self._evaluations([candidate.evaluation_id])[candidate.evaluation_id]

    def evaluations(self, found: Iterable[Candidate]) -> Iterator[tuple[Candidate, Evaluation]]:
        """The evaluations of many candidates, in their order; those that are not judged yet are left out."""
        judged = [c for c in found if c.evaluation_id is not None]
        for start in range(0, len(judged), _IDS):
            part = judged[start : start + _IDS]
            opened = self._evaluations([c.evaluation_id for c in part if c.evaluation_id is not None])
            for c in part:
                assert c.evaluation_id is not None
                yield c, opened[c.evaluation_id]

    def promotions(self, run: int) -> dict[str, Evaluation]:
        """digest -> what came of it when it was judged again as the best of its run; a failed one is not promoted."""
        judge = promotions_of(self.run(run).judge)
        ours = exists().where(candidates.c.digest == evaluations.c.digest, candidates.c.run_id == run)
        query = select_evaluations().add_columns(evaluations.c.digest).where(evaluations.c.judge == judge, ours)
        with self._db.reading() as connection:
            rows = connection.execute(query).all()
        return {row.digest: from_document(row.document, unpack(row.source)) for row in rows}

    def _evaluations(self, ids: list[int]) -> dict[int, Evaluation]:
        query = select_evaluations().where(evaluations.c.id.in_(ids))
        with self._db.reading() as connection:
            return {row.id: from_document(row.document, unpack(row.source)) for row in connection.execute(query)}

    def best(self, run: int, by: Literal["predicted", "measured"] | None = None) -> Candidate | None:
        """The correct candidate with the highest score, the earlier of equals; None where none is correct. One that was
        judged again as a winner and failed is none.

        by None: measured where the run measured anything, else predicted. The two are never ranked together.
        """
        judge = self.run(run).judge
        failed = (
            select(evaluations.c.digest)
            .where(evaluations.c.judge == promotions_of(judge), evaluations.c.status != Status.OK.value)
            .scalar_subquery()
        )
        keys = (by,) if by is not None else ("measured", "predicted")
        with self._db.reading() as connection:
            for key in keys:
                score = evaluations.c[key]
                ours = exists().where(candidates.c.evaluation_id == evaluations.c.id, candidates.c.run_id == run)
                correct = (
                    evaluations.c.judge == judge,
                    evaluations.c.status == Status.OK.value,
                    evaluations.c.digest.not_in(failed),
                )
                # Down the index by score until one belongs to this run; then the first candidate that has this score.
                top = connection.execute(
                    select(score).where(*correct, score.is_not(None), ours).order_by(score.desc()).limit(1)
                ).scalar()
                if top is not None:
                    first = select_candidates(True).where(candidates.c.run_id == run, *correct, score == top)
                    rows = connection.execute(first.order_by(candidates.c.k).limit(1)).all()
                    return with_parents(connection, list(rows))[0]
        return None

    def counts(self, run: int) -> dict[str, int]:
        """How many candidates have each status; "pending" for those that are not judged yet."""
        name = func.coalesce(evaluations.c.status, literal("pending"))
        query = (
            select(name, func.count())
            .select_from(candidates.outerjoin(evaluations, evaluations.c.id == candidates.c.evaluation_id))
            .where(candidates.c.run_id == run)
            .group_by(name)
        )
        with self._db.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    # Lineage --------------------------------------------------------------------------------------

    def lineage(self, run: int, k: int) -> list[Candidate]:
        """The candidate and all its ancestors, in the order of k."""
        line = select(literal(k).label("k")).cte("line", recursive=True)
        line = line.union(select(parents.c.parent_k).where(parents.c.run_id == run, parents.c.k == line.c.k))
        query = (
            select_candidates(True)
            .where(candidates.c.run_id == run, candidates.c.k.in_(select(line.c.k)))
            .order_by(candidates.c.k)
        )
        with self._db.reading() as connection:
            found = with_parents(connection, list(connection.execute(query)))
        if not found:
            raise ArchiveError(f"run {run} has no candidate {k}")
        return found

    def children(self, run: int, k: int) -> list[Candidate]:
        """The candidates that name this one as a parent, in the order of k."""
        named = select(parents.c.k).where(parents.c.run_id == run, parents.c.parent_k == k)
        query = (
            select_candidates(True)
            .where(candidates.c.run_id == run, candidates.c.k.in_(named))
            .order_by(candidates.c.k)
        )
        with self._db.reading() as connection:
            return with_parents(connection, list(connection.execute(query)))

    # What it cost, what was expected, what was said -------------------------------------------------

    def spend(self, run: int) -> Spend:
        """The sum of the ledger. usd is None where the price of anything is unknown. wall_s adds up what was done at
        the same time; the time that a run took is `Run.wall_s`."""
        with self._db.reading() as connection:
            return to_spend(connection.execute(select_spend().where(ledger.c.run_id == run)).one())

    def spend_by(
        self, run: int, column: Literal["stage", "model", "k"], ks: Iterable[int] | None = None
    ) -> dict[Any, Spend]:
        """The ledger's sums for each stage, model or step. ks: of these steps alone."""
        key = ledger.c[column]
        query = select_spend().add_columns(key.label("key")).where(ledger.c.run_id == run).group_by(key)
        if ks is not None:
            query = query.where(ledger.c.k.in_(list(ks)))
        with self._db.reading() as connection:
            return {row.key: to_spend(row) for row in connection.execute(query)}

    def costs(self, run: int) -> list[tuple[str, str, int, Spend, tuple[int, ...]]]:
        """(stage, model, entries, sum, the steps it was booked for) of everything in the ledger, most wall time first.

        Steps are given where a model was asked: there are as many as calls that cost something.
        """
        c = ledger.c
        query = select_spend().add_columns(c.stage, c.model, func.count().label("entries"))
        query = query.where(c.run_id == run).group_by(c.stage, c.model)
        steps = select(c.stage, c.model, c.k).where(c.run_id == run, c.model != "", c.k.is_not(None)).distinct()
        with self._db.reading() as connection:
            rows = connection.execute(query).all()
            booked: dict[tuple[str, str], list[int]] = {}
            for stage, model, k in connection.execute(steps):
                booked.setdefault((stage, model), []).append(k)
        found = [
            (r.stage, r.model, r.entries, to_spend(r), tuple(sorted(booked.get((r.stage, r.model), ())))) for r in rows
        ]
        return sorted(found, key=lambda row: -row[3].wall_s)

    def bookings(self, run: int) -> list[Booking]:
        with self._db.reading() as connection:
            query = select(ledger).where(ledger.c.run_id == run).order_by(ledger.c.id)
            return [to_booking(row) for row in connection.execute(query)]

    def expected(self, run: int) -> list[tuple[int, int | None, float | None]]:
        """Every hypothesis in the order it was made, in little: its number, the k that tries it, the expected gain."""
        c = hypotheses.c
        with self._db.reading() as connection:
            query = select(c.id, c.k, c.expected_gain).where(c.run_id == run).order_by(c.id)
            return [(row[0], row[1], row[2]) for row in connection.execute(query)]

    def hypotheses(self, run: int, ids: Iterable[int] | None = None) -> list[Tested]:
        """Every hypothesis in the order it was made, with the gain that its candidate brought. ids: only those, by the
        numbers that `expected` gives."""
        query = select(hypotheses).where(hypotheses.c.run_id == run).order_by(hypotheses.c.id)
        if ids is not None:
            query = query.where(hypotheses.c.id.in_(list(ids)))
        with self._db.reading() as connection:
            rows = connection.execute(query).all()
        values = self._tried(run, [row.k for row in rows if row.k is not None], all=ids is None) if rows else {}
        return [
            Tested(
                run=run,
                nominated_k=row.nominated_k,
                k=row.k,
                hypothesis=Hypothesis(row.claim, row.expected_gain, row.bottleneck),
                actual_gain=_gain(values, row.k),
                detail=json.loads(row.detail),
            )
            for row in rows
        ]

    def _tried(self, run: int, ks: list[int], all: bool) -> dict[int, Candidate]:
        """Those candidates and their parents, without texts."""
        found = {c.k: c for c in self.candidates(run, ks=None if all else ks, text=False)}
        above = {p for c in found.values() for p in c.parents} - found.keys()
        return found | ({c.k: c for c in self.candidates(run, ks=above, text=False)} if above else {})

    def exchanges(self, run: int, k: int | None = None) -> list[Exchange]:
        """The journal of model requests and replies, in the order of k and of asking."""
        query = select_exchanges().where(journal.c.run_id == run)
        if k is not None:
            query = query.where(journal.c.k == k)
        with self._db.reading() as connection:
            return [to_exchange(row) for row in connection.execute(query)]

    def notes(self, *, run: int | None = None, target: str | None = None) -> list[Note]:
        """What agents wrote down, of one run or one target, the oldest first."""
        query = select(notes).order_by(notes.c.id)
        if run is not None:
            query = query.where(notes.c.run_id == run)
        if target is not None:
            query = query.where(notes.c.target == target)
        with self._db.reading() as connection:
            return [
                Note(row.id, row.run_id, row.k, row.target, row.topic, row.body, row.written_at)
                for row in connection.execute(query)
            ]

    def last_note(self) -> int:
        """The id of the newest note, 0 where there is none: what was known when a run began."""
        with self._db.reading() as connection:
            return int(connection.execute(select(func.coalesce(func.max(notes.c.id), 0))).scalar_one())

    # Reviews --------------------------------------------------------------------------------------

    def review(self, candidate: Candidate, verdict: Evaluation, *, by: str, reason: str) -> None:
        """Puts a verdict in the place of the judge's, for every run that shares the evaluation; `undo_review` takes it
        back. Raises ArchiveError for a candidate that is not judged yet."""
        decide(self._db, self._judged(candidate), verdict, by, reason)

    def undo_review(self, candidate: Candidate) -> Review:
        """Takes the decision in force back and returns it. Raises ArchiveError where there is none."""
        return undo(self._db, self._judged(candidate))

    def reviews(self, candidate: Candidate | None = None) -> list[Review]:
        """Every decision, of one candidate or of all, the oldest first; those that were undone too."""
        query = select(reviews).order_by(reviews.c.id)
        if candidate is not None:
            query = query.where(reviews.c.evaluation_id == self._judged(candidate))
        with self._db.reading() as connection:
            return [to_review(row) for row in connection.execute(query)]

    def _judged(self, candidate: Candidate) -> int:
        if candidate.evaluation_id is None:
            raise ArchiveError(f"proposal {candidate.k} of run {candidate.run} is not judged yet")
        return candidate.evaluation_id

    # Upkeep -----------------------------------------------------------------------------------------

    def rebuild_search_keys(self) -> int:
        """Computes the search keys anew where the scoring rule has changed; how many evaluations that touched."""
        with self._db.reading() as connection:
            if connection.execute(select(schema.c.score_rule)).scalar_one() == SCORE_RULE:
                return 0
        with self._db.writing() as connection:
            ids = connection.execute(select(evaluations.c.id)).scalars().all()
            change = evaluations.update().where(evaluations.c.id == bindparam("the_id"))
            for start in range(0, len(ids), _IDS):
                standing = select(evaluations.c.id, standing_document()).join(documents)
                rows = connection.execute(standing.where(evaluations.c.id.in_(ids[start : start + _IDS])))
                keys = [{"the_id": row.id, **search_keys(from_document(row.document, ""))} for row in rows]
                connection.execute(change, keys)
            connection.execute(schema.update().values(score_rule=SCORE_RULE))
        return len(ids)


def _gain(values: Mapping[int, Candidate], k: int | None) -> float | None:
    child = values.get(k) if k is not None else None
    if child is None or not child.value:
        return None
    before = max((values[p].value for p in child.parents if p in values and values[p].mode == child.mode), default=0.0)
    return child.value / before if before else None
