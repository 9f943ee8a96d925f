"""Numbered steps from one schema version to the next. A new archive starts at the newest; an older one is walked up.

To change the schema: change `tables.py`, raise VERSION, add the step here in literal SQL (never by way of `tables.py`,
which will have moved on when the step runs), and keep a dump of the old version under tests/archive/.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, text

VERSION = 5


def _prompts(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE candidates ADD COLUMN prompts VARCHAR(64) DEFAULT '' NOT NULL"))


def _reviews(connection: Connection) -> None:
    connection.execute(
        text(
            "CREATE TABLE reviews (id INTEGER NOT NULL, evaluation_id INTEGER NOT NULL, by VARCHAR(60) NOT NULL, "
            "reason TEXT NOT NULL, status VARCHAR(32) NOT NULL, document TEXT NOT NULL, decided_at DATETIME NOT NULL, "
            "undone_at DATETIME, PRIMARY KEY (id), FOREIGN KEY(evaluation_id) REFERENCES evaluations (id))"
        )
    )
    connection.execute(text("CREATE INDEX ix_reviews_evaluation ON reviews (evaluation_id)"))


def _times(connection: Connection) -> None:
    # Filled when the search keys are computed anew, which the rule of this version asks for.
    connection.execute(text("ALTER TABLE evaluations ADD COLUMN times TEXT"))


def _members(connection: Connection) -> None:
    time = "DATETIME" if connection.dialect.name == "sqlite" else "TIMESTAMP"
    connection.execute(
        text(
            "CREATE TABLE members (token VARCHAR(32) NOT NULL, run_id INTEGER NOT NULL, holder TEXT NOT NULL, "
            f"beat INTEGER NOT NULL, joined_at {time} NOT NULL, PRIMARY KEY (token), "
            "FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE)"
        )
    )
    connection.execute(text("CREATE INDEX ix_members_run_id ON members (run_id)"))
    connection.execute(
        text(
            "CREATE TABLE leases (run_id INTEGER NOT NULL, task VARCHAR(80) NOT NULL, token VARCHAR(32) NOT NULL, "
            "PRIMARY KEY (run_id, task), FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE)"
        )
    )


# version reached -> step from the version before; one transaction runs them all
STEPS: dict[int, Callable[[Connection], None]] = {2: _prompts, 3: _reviews, 4: _times, 5: _members}


def migrate(connection: Connection, version: int) -> None:
    """Runs the steps above `version` and writes down the version reached."""
    for number in range(version + 1, VERSION + 1):
        STEPS[number](connection)
        connection.execute(text("UPDATE avo_archive SET version = :number"), {"number": number})
