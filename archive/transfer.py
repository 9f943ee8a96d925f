"""An archive as JSON Lines and back: to keep it in a repository, to send it, to gather what several machines did.

The first line says what the file is; every other line is one row, `{"table": ..., column: value, ...}`, after the rows
that it refers to. Texts are written as text, times in ISO 8601 (UTC). Nothing is left out but which process holds a
run, which means something only on its own machine: an exported run is held by nobody. The last line has the number of
rows of each table, so that a file that was cut is known by it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from sqlalchemy import Column, Connection, Table, func, select

from archive import migrations
from archive.archive import Archive
from archive.database import insert_new, unpack
from archive.errors import ArchiveError
from archive.reviewing import refresh
from archive.tables import Utc, documents, evaluations, leases, members, metadata, reviews, runs, schema, texts

FORMAT = "avo archive"
_ORDER = tuple(t for t in metadata.sorted_tables if t not in (schema, members, leases))
_PLACE = {t.name: place for place, t in enumerate(_ORDER)}
_HOLDER = ("holder", "token", "beat", "beat_at")  # of `runs`: which process writes it
# Two runs with the same values here are one run: created at the same microsecond, for the same search.
_IDENTITY = ("created_at", "target", "hardware", "agent", "seed", "jobs", "judge", "config")
_BATCH = 500
_IMPORTED = ".imported"


@dataclass
class Imported:
    """What an import did. runs, known: number in the file -> number here, of new runs and of those that were here
    already and were left alone. rows: how many rows each table gained."""

    runs: dict[int, int] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


def export_archive(archive: Archive, out: TextIO) -> dict[str, int]:
    """Writes one snapshot of the whole archive and returns how many rows of each table it has. Disturbs no run."""
    counts = dict.fromkeys(_PLACE, 0)
    with archive.database.reading() as connection:
        rule = connection.execute(select(schema.c.score_rule)).scalar_one()
        _write(out, {"format": FORMAT, "version": migrations.VERSION, "score_rule": rule})
        for table in _ORDER:
            rows = connection.execute(select(table).order_by(*table.primary_key).execution_options(yield_per=_BATCH))
            for row in rows:
                _write(out, {"table": table.name, **_as_json(table, row._mapping)})
                counts[table.name] += 1
        _write(out, {"end": counts})
    return counts


def _write(out: TextIO, value: Mapping[str, Any]) -> None:
    out.write(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")


def _as_json(table: Table, row: Mapping[Any, Any]) -> dict[str, Any]:
    found = {c.name: row[c.name] for c in table.columns if not (table is runs and c.name in _HOLDER)}
    for name, value in found.items():
        if isinstance(value, dt.datetime):
            found[name] = value.isoformat()
        elif isinstance(value, bytes):
            found[name] = unpack(value)
    return found


def import_archive(archive: Archive, lines: Iterable[str], name: str, *, trusted: bool = False) -> Imported:
    """Adds what `export_archive` wrote, all or nothing. name: of the file, for messages. trusted: its verdicts are as
    good as those that were found here, and new runs share them; else they hold for the runs that they come with alone,
    for whoever wrote the file may have written anything.

    An empty archive becomes equal to the exported one. Elsewhere new runs get the next free numbers, a run that is
    there already is left alone, and a verdict that is there already is shared, as it is among runs of one archive.
    Raises ArchiveError with the line for a file that is not whole, or is of another version.
    """
    with archive.database.writing() as connection:
        reader = _Reader(connection, name, trusted)
        reader.read(lines)
        archive.database.renumber(connection)
    return reader.done


def importable(lines: Iterable[str], name: str) -> Iterator[str]:
    """The same lines, once the first of them says that `import_archive` can read the rest: to be asked before an
    archive is made for them. Raises ArchiveError where it does not."""
    rest = iter(lines)
    read: list[str] = []
    for text in rest:
        read.append(text)
        if text.strip():
            break
    first = next(_rows(read, name), None)
    if first is None:
        raise ArchiveError(f"{name} is empty; `avo archive export` writes a file to import")
    _check_head(first[1], name)
    return itertools.chain(read, rest)


def _rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for count, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except ValueError as error:
            raise _bad(name, count, f"not JSON ({error}); the file may have been cut") from error
        if not isinstance(row, dict):
            raise _bad(name, count, "not a JSON object")
        yield count, row


def _bad(name: str, count: int, what: str) -> ArchiveError:
    return ArchiveError(f"{name}, line {count}: {what}. Nothing was imported")


def _check_head(head: Mapping[str, Any], name: str) -> None:
    if head.get("format") != FORMAT:
        raise ArchiveError(f"{name} was not written by `avo archive export`: its first line does not say so")
    if head.get("version") != migrations.VERSION:
        raise ArchiveError(
            f"{name} has schema version {head.get('version')}, this avo knows {migrations.VERSION}. Import it "
            "with the avo that wrote it, or export it again after an upgrade. Nothing was imported"
        )


class _Reader:
    """Rows on their way in: their numbers are kept where they are free, and follow the rows that they refer to."""

    def __init__(self, connection: Connection, name: str, trusted: bool) -> None:
        self.connection = connection
        self.name = name
        self.trusted = trusted
        self.done = Imported(rows=dict.fromkeys(_PLACE, 0))
        self.numbers: dict[str, dict[int, int]] = {t.name: {} for t in _ORDER if "id" in t.c}
        self.free = {t: 1 + self._count(_ORDER[_PLACE[t]].c.id) for t in self.numbers}
        self.fresh = self.free["evaluations"] == 1
        self.decided: set[int] = set()  # evaluations, by their number here, that decisions come with
        self.shared: set[int] = set()  # evaluations, by their number in the file, that were here already

    def _count(self, column: Column[Any]) -> int:
        return int(self.connection.execute(select(func.coalesce(func.max(column), 0))).scalar_one())

    def _texts(self) -> int:
        return int(self.connection.execute(select(func.count()).select_from(texts)).scalar_one())

    def read(self, lines: Iterable[str]) -> None:
        before = self._texts()
        rows = _rows(lines, self.name)
        first = next(rows, None)
        if first is None:
            raise ArchiveError(f"{self.name} is empty; `avo archive export` writes a file to import")
        self._check_head(first[1])
        place = 0
        batch: list[dict[str, Any]] = []
        seen = dict.fromkeys(_PLACE, 0)
        end: Any = None
        for count, row in rows:
            if end is not None:
                raise _bad(self.name, count, "a row after the end")
            end = row.get("end")
            if end is not None:
                continue
            at = _PLACE.get(str(row.pop("table", "")))
            if at is None or at < place:
                raise _bad(self.name, count, "no table of an archive, or not in its turn")
            seen[_ORDER[at].name] += 1
            if at > place or len(batch) == _BATCH:
                self._insert(_ORDER[place], batch)
                place, batch = at, []
            try:
                made = self._taken(_ORDER[at], row)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise _bad(self.name, count, f"a row of {_ORDER[at].name} that is not whole ({error!r})") from error
            if made is not None:
                batch.append(made)
        self._insert(_ORDER[place], batch)
        if end != seen:
            raise ArchiveError(f"{self.name} is not whole: its last lines are missing. Nothing was imported")
        for evaluation in self.decided:
            refresh(self.connection, evaluation)
        self.done.rows["texts"] = self._texts() - before  # those that were here already are not new

    def _check_head(self, head: dict[str, Any]) -> None:
        _check_head(head, self.name)
        if head.get("score_rule") != self.connection.execute(select(schema.c.score_rule)).scalar_one():
            # Search keys by another rule: have them all computed anew at the next opening.
            self.connection.execute(schema.update().values(score_rule=-1))

    def _taken(self, table: Table, row: dict[str, Any]) -> dict[str, Any] | None:
        """The row as it goes in; None where it is here already."""
        if "run_id" in table.c and row["run_id"] in self.done.known:
            return None
        if table is texts:
            raw = row["body"].encode("utf-8")
            if hashlib.sha256(raw).hexdigest() != row["sha256"]:
                raise ValueError("its text does not have the SHA-256 that it is stored under")
            return {"sha256": row["sha256"], "body": zlib.compress(raw)}
        made = {c.name: self._value(c, row[c.name]) for c in table.columns if not (table is runs and c.name in _HOLDER)}
        if "judge" in made and not self.trusted:
            made["judge"] = imported(made["judge"])
        if table is runs and self._known_run(row["id"], made):
            return None
        if table is evaluations and self._known_verdict(row["id"], made):
            return None
        if table is documents and row["evaluation_id"] in self.shared:
            return None
        if table is reviews and self._known_review(made):
            return None
        if table.name in self.numbers:
            made["id"] = max(row["id"], self.free[table.name])
            self.free[table.name] = made["id"] + 1
            self.numbers[table.name][row["id"]] = made["id"]
            if table is runs:
                self.done.runs[row["id"]] = made["id"]
        return made

    def _value(self, column: Column[Any], value: Any) -> Any:
        if value is None:
            return None
        if isinstance(column.type, Utc):
            return dt.datetime.fromisoformat(value)
        target = _refers_to(column)
        if target is not None:
            return self.numbers[target][value]
        return value

    def _known_run(self, number: int, made: Mapping[str, Any]) -> bool:
        same = [runs.c[name] == made[name] for name in _IDENTITY if name != "judge"]
        judges = (made["judge"], made["judge"].removesuffix(_IMPORTED), imported(made["judge"]))
        same.append(runs.c.judge.in_(judges))
        found = self.connection.execute(select(runs.c.id).where(*same).limit(1)).scalar()
        if found is not None:
            self.done.known[number] = found
            self.numbers["runs"][number] = found
        return found is not None

    def _known_verdict(self, number: int, made: Mapping[str, Any]) -> bool:
        if self.fresh:
            return False
        query = select(evaluations.c.id)
        found = self.connection.execute(
            query.where(evaluations.c.digest == made["digest"], evaluations.c.judge == made["judge"])
        ).scalar()
        if found is not None:
            self.numbers["evaluations"][number] = found
            self.shared.add(number)
        return found is not None

    def _known_review(self, made: Mapping[str, Any]) -> bool:
        same = (reviews.c[name] == made[name] for name in ("evaluation_id", "by", "reason", "decided_at"))
        known = self.connection.execute(select(reviews.c.id).where(*same).limit(1)).scalar() is not None
        if not known:
            self.decided.add(made["evaluation_id"])
        return known

    def _insert(self, table: Table, batch: list[dict[str, Any]]) -> None:
        if not batch:
            return
        if table is texts:
            self.connection.execute(insert_new(self.connection, table), batch)
        else:
            self.connection.execute(table.insert(), batch)
        self.done.rows[table.name] += len(batch)


def imported(judge: str) -> str:
    """The judge's name (or that of its promotions) for verdicts that came with a file: no run that begins here has it.
    Runs that came with them go on under it."""
    name, slash, more = judge.partition("/")
    return f"{name.removesuffix(_IMPORTED)}{_IMPORTED}{slash}{more}"


def _refers_to(column: Column[Any]) -> str | None:
    """The table whose `id` a column holds, by way of as many foreign keys as it takes."""
    for key in column.foreign_keys:
        target = key.column
        return str(target.table.name) if target.name == "id" else _refers_to(target)
    return None
