"""The tables, as they are at the newest schema version. `docs/archive.md` explains them.

Facts only. What follows from them (children, lineage, the best, what was committed, a hypothesis' actual gain, whether
a run is alive) is a query. One exception: an evaluation's search keys (status, scores, ...) repeat what its document
says, so that a list of 100,000 candidates opens no document; `scores.py` rebuilds them when the scoring rule changes.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)


class Utc(TypeDecorator[dt.datetime]):
    """An aware UTC time, kept without its zone. For people only: nothing is ever ordered by a clock."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        return None if value is None else value.astimezone(dt.UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> dt.datetime | None:
        return None if value is None else value.replace(tzinfo=dt.UTC)


metadata = MetaData()

# One row: which version of the schema this is, who wrote it, and by which rule the search keys were computed.
schema = Table(
    "avo_archive",
    metadata,
    Column("version", Integer, nullable=False),
    Column("score_rule", Integer, nullable=False),
    Column("created_by", String(64), nullable=False),
    Column("created_at", Utc, nullable=False),
)

# Programs, emitted sources, model requests and replies: each stored once, compressed by zlib.
texts = Table(
    "texts",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("target", String(200), nullable=False),
    Column("hardware", String(64), nullable=False),
    Column("agent", String(200), nullable=False),
    Column("seed", Integer, nullable=False),
    Column("jobs", Integer, nullable=False),
    Column("judge", String(64), nullable=False),  # evaluations are shared among runs with an equal one
    Column("config", Text, nullable=False),  # JSON: the resolved configuration
    Column("versions", Text, nullable=False),  # JSON: avo, Python, triton, torch, ...
    Column("created_at", Utc, nullable=False),
    Column("ended", String(32)),  # why the last session stopped; NULL while one writes, or when one was killed
    Column("message", Text, nullable=False, server_default=""),
    # Who writes: one process at a time. `beat` counts its writes and heartbeats, so that life shows without a clock.
    Column("holder", Text),  # JSON, see holder.py
    Column("token", String(32)),
    Column("beat", Integer, nullable=False, server_default="0"),
    Column("beat_at", Utc),
)

# Every process that writes a run, its holder among them: see members.py. `beat` counts its writes and heartbeats.
members = Table(
    "members",
    metadata,
    Column("token", String(32), primary_key=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("holder", Text, nullable=False),  # JSON, see holder.py
    Column("beat", Integer, nullable=False),
    Column("joined_at", Utc, nullable=False),
)

# Which member is at which task. Gone when it is done.
leases = Table(
    "leases",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("task", String(80), primary_key=True),
    Column("token", String(32), nullable=False),
)

# One row for each time that a process took a run up. wall_s comes from a monotonic clock.
sessions = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("started_at", Utc, nullable=False),
    Column("wall_s", Float, nullable=False, server_default="0"),
    Column("versions", Text, nullable=False),
    Column("ended", String(32)),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("judge", String(64), nullable=False),
    Column("source_sha", ForeignKey("texts.sha256")),
    Column("wall_s", Float, nullable=False, server_default="0"),
    Column("judged_at", Utc, nullable=False),
    # search keys
    Column("status", String(32), nullable=False),
    Column("mode", String(16), nullable=False),
    Column("failed_gate", String(32)),
    Column("message", Text, nullable=False),
    Column("predicted", Float),
    Column("measured", Float),
    Column("headroom", Float),
    Column("times", Text),  # see evaluators.times; NULL where nothing can be compared with it
    # Nothing is judged twice: the rule is here, not only in the code that follows it.
    UniqueConstraint("digest", "judge", name="uq_evaluation"),
    Index("ix_evaluations_predicted", "judge", "predicted"),
    Index("ix_evaluations_measured", "judge", "measured"),
)

# JSON of evaluators.evaluation.Evaluation, without its source. Apart, so that the rows above stay short.
documents = Table(
    "documents",
    metadata,
    Column("evaluation_id", ForeignKey("evaluations.id"), primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

# Verdicts that took the place of the judge's: a person's decision, or a rule that came later. The newest that is not
# undone holds; `document` is the evaluation as it then stands. Nothing is ever removed.
reviews = Table(
    "reviews",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("evaluation_id", ForeignKey("evaluations.id"), nullable=False),
    Column("by", String(60), nullable=False),
    Column("reason", Text, nullable=False),
    Column("status", String(32), nullable=False),
    Column("document", Text, nullable=False),
    Column("decided_at", Utc, nullable=False),
    Column("undone_at", Utc),
    Index("ix_reviews_evaluation", "evaluation_id"),
)

# A candidate without an evaluation has been proposed and not yet judged.
candidates = Table(
    "candidates",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("k", Integer, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("text_sha", ForeignKey("texts.sha256"), nullable=False),
    Column("agent", String(200), nullable=False),
    Column("rationale", Text, nullable=False, server_default=""),
    Column("prompts", String(64), nullable=False, server_default=""),  # which prompts the agent asked with
    Column("proposed_at", Utc, nullable=False),
    Column("evaluation_id", ForeignKey("evaluations.id")),
    Index("ix_candidates_evaluation", "evaluation_id", "run_id"),
    Index("ix_candidates_digest", "digest", "run_id"),
    Index("ix_candidates_run_digest", "run_id", "digest", "k"),
)

parents = Table(
    "parents",
    metadata,
    Column("run_id", Integer, primary_key=True),
    Column("k", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("parent_k", Integer, nullable=False),
    ForeignKeyConstraint(["run_id", "k"], ["candidates.run_id", "candidates.k"], ondelete="CASCADE"),
    ForeignKeyConstraint(["run_id", "parent_k"], ["candidates.run_id", "candidates.k"]),
    Index("ix_parents_parent", "run_id", "parent_k"),
)

# What an agent expected. k is the candidate that tries it; NULL where it was only nominated, at step `nominated_k`.
hypotheses = Table(
    "hypotheses",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("nominated_k", Integer, nullable=False),
    Column("k", Integer),
    Column("claim", Text, nullable=False),
    Column("bottleneck", String(64), nullable=False, server_default=""),
    Column("expected_gain", Float),
    Column("detail", Text, nullable=False, server_default="{}"),  # JSON: what the agent's triage said
    Index("ix_hypotheses_run", "run_id", "k"),
)

# Money, tokens, seconds. An entry for a model's reply is written before the request is sent, at the most that it can
# cost, and corrected when the reply comes: what a kill swallows is booked at its maximum without anybody's help.
ledger = Table(
    "ledger",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("k", Integer),
    Column("stage", String(32), nullable=False),  # propose, evaluate, unavailable, ...
    Column("model", String(200), nullable=False, server_default=""),
    Column("usd", Float),  # NULL: the price is unknown
    Column("tokens_in", Integer, nullable=False, server_default="0"),
    Column("tokens_out", Integer, nullable=False, server_default="0"),
    Column("tokens_cached", Integer, nullable=False, server_default="0"),
    Column("device_s", Float, nullable=False, server_default="0"),
    Column("wall_s", Float, nullable=False, server_default="0"),
    Column("settled", Boolean, nullable=False, server_default=text("true")),  # FALSE: a maximum, not yet the price
    Column("note", Text, nullable=False, server_default=""),
    Column("booked_at", Utc, nullable=False),
    Index("ix_ledger_run", "run_id", "k"),
)

# What was said to models and what they said: enough to run again without a network. `seq` counts within (run, k).
journal = Table(
    "journal",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("k", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("model", String(200), nullable=False),
    Column("request_sha", ForeignKey("texts.sha256"), nullable=False),
    Column("reply_sha", ForeignKey("texts.sha256")),
    Column("outcome", String(32)),  # NULL: no reply came; else ok, refused, truncated, failed, ...
    Column("ledger_id", ForeignKey("ledger.id"), nullable=False),
    Column("sent_at", Utc, nullable=False),
    Column("replied_at", Utc),
    UniqueConstraint("run_id", "k", "seq", name="uq_journal"),
)

# What agents chose to remember, and may read in a later step, run or target.
notes = Table(
    "notes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("k", Integer, nullable=False),
    Column("target", String(200), nullable=False),
    Column("topic", String(200), nullable=False, server_default=""),
    Column("body", Text, nullable=False),
    Column("written_at", Utc, nullable=False),
    Index("ix_notes_target", "target"),
    Index("ix_notes_run", "run_id", "k"),
)
