"""An evaluator without a GPU: it replays what was measured before, every point of a recorded grid of schedules.

A table (benchmarks/record_table.py writes them) holds one workload on one chip: a program, some of its knobs with the
values that were tried, and a row for each combination. A proposal on the grid gets the row's verdict and its measured
time. One off the grid is `not_recorded`, with what would be on it: nothing is guessed between two rows.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsl.check import errors
from dsl.diagnostics import ProgramError
from dsl.hardware import HARDWARE
from dsl.knobs import knob_named, plain, set_knob, settings
from dsl.parser import parse
from dsl.printer import digest
from dsl.syntax import Block, Program, Schedule
from dsl.work import Work, work
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult
from evaluators.loading import seed_program
from evaluators.roofline import speed_of_light
from evaluators.target import Target, TargetError, Workload

if TYPE_CHECKING:
    from dsl.hardware import Hardware

FORMAT = 1
Value = int | str
Setting = tuple[Value, ...]  # in the order of a table's knobs
_FACTS = ("registers", "spills", "shared_bytes", "occupancy_blocks", "occupancy_limit", "code_bytes")


class TableError(ValueError):
    """A file is no table, or two tables contradict each other."""

    for_people = True  # the message is all that a person needs: no class, no line of ours


@dataclass(frozen=True)
class Row:
    """One point. samples: seconds a call of each segment, empty where it did not pass; `slow`: one short sample only.

    parts: predicted seconds by cause, as the prediction's evidence has them; empty where none is stored.
    """

    status: str
    message: str = ""
    samples: tuple[float, ...] = ()
    slow: bool = False
    predicted_s: float | None = None
    parts: Mapping[str, float] | None = None
    facts: Mapping[str, Any] | None = None

    @property
    def seconds(self) -> float | None:
        return statistics.median(self.samples) if self.samples else None


@dataclass(frozen=True)
class Table:
    """One recorded grid. knobs: name -> values; rows: setting -> row, all of them, in the grid's order.

    peers: name -> seconds of each sample of another implementation, taken in the same rounds. head: the rest of the
    file, as it stands (device, versions, date, regime, command).
    """

    name: str
    target: str
    chip: str
    workload: Workload
    program: Program
    knobs: Mapping[str, tuple[Value, ...]]
    rows: Mapping[Setting, Row]
    peers: Mapping[str, tuple[float, ...]]
    head: Mapping[str, Any]

    @property
    def best(self) -> Setting:
        """The fastest point by the median of its samples."""
        timed = {s: r.seconds for s, r in self.rows.items() if r.seconds is not None}
        if not timed:
            raise TableError(f"table {self.name}: no point of it was timed")
        return min(timed, key=lambda s: (timed[s], list(self.rows).index(s)))

    def at(self, setting: Setting) -> Program:
        """The program of one point."""
        hw, program = HARDWARE[self.chip], self.program
        for name, value in zip(self.knobs, setting, strict=True):
            program = set_knob(program, knob_named(program, hw, name), value)
        return program


def read_table(path: Path) -> Table:
    """One table from its file. Raises TableError where it is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TableError(f"{path}: no table can be read: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise TableError(f"{path}: no table of format {FORMAT} (found {found!r})")
    try:
        knobs = {str(k): tuple(v) for k, v in data["knobs"].items()}
        grid = list(itertools.product(*knobs.values()))
        causes = data.get("causes", [])
        rows = [_row(point, causes) for point in data["points"]]
        if len(rows) != len(grid):
            raise TableError(f"{path}: {len(rows)} points where the knobs make {len(grid)}")
        table = Table(
            name=str(data["table"]),
            target=str(data["target"]),
            chip=str(data["chip"]),
            workload=Workload(data["sizes"], data["params"]),
            program=parse(data["program"], str(path)),
            knobs=knobs,
            rows=dict(zip(grid, rows, strict=True)),
            peers={n: tuple(p["seconds"]) for n, p in data.get("peers", {}).items()},
            head={k: v for k, v in data.items() if k not in ("points", "knobs", "program", "peers")},
        )
    except (KeyError, TypeError, AttributeError, ProgramError) as error:
        raise TableError(f"{path}: the table is incomplete: {type(error).__name__}: {error}") from None
    if table.chip not in HARDWARE:
        raise TableError(f"{path}: recorded on {table.chip!r}, a chip that this version does not know")
    return table


def _row(point: Mapping[str, Any], causes: Sequence[str]) -> Row:
    parts = point.get("parts")
    return Row(
        status=str(point["status"]),
        message=str(point.get("message", "")),
        samples=tuple(point.get("s", ())),
        slow=bool(point.get("slow")),
        predicted_s=point.get("predicted_s"),
        parts=dict(zip(causes, parts, strict=True)) if parts else None,
        facts={k: point[k] for k in _FACTS if k in point},
    )


def read_tables(where: str | Path) -> list[Table]:
    """The table of a file, or those of a folder's `*.json`. Raises TableError."""
    place = Path(where)
    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not files:
        raise TableError(f"{place}: no *.json in this folder")
    return [read_table(path) for path in files]


def _rest(program: Program, knobs: Mapping[str, tuple[Value, ...]]) -> frozenset[object]:
    """All that a schedule says beside the knobs, defaults left out."""
    found: set[object] = set()
    schedule = plain(program).schedule
    for block in (Block((), schedule.pipeline), *schedule.blocks):
        for d in block.directives:
            items = [(i.key, i.value) for i in d.items if f"{d.name} {i.key or ''}".strip() not in knobs]
            if items or (d.name not in knobs and not d.items):
                bare = tuple(value for key, value in items if key is None)
                found.add((block.writes, d.chips, d.name, bare, frozenset(i for i in items if i[0] is not None)))
    return frozenset(found)


class RecordedEvaluator:
    """Replays tables; implements `evaluators.protocol.Evaluator`. Times are measured ones, taken when it says.

    tables: a file, a folder, or tables that were read. A target's workloads all have to be recorded, on one grid.
    """

    def __init__(self, tables: str | Path | Sequence[Table] = ()) -> None:
        if not tables:
            raise TableError("the evaluator 'recorded' replays tables: name a file or a folder, recorded:PATH")
        self.tables = read_tables(tables) if isinstance(tables, str | Path) else list(tables)
        self.key = hashlib.sha256(repr([(t.head, t.knobs, t.rows) for t in self.tables]).encode()).hexdigest()[:16]
        self._by_workload: dict[tuple[str, str], Table] = {}
        for table in self.tables:
            place = (table.target, table.workload.name)
            if place in self._by_workload:
                other = self._by_workload[place].name
                raise TableError(f"tables {other} and {table.name} are both of {table.target}, {table.workload.name}")
            self._by_workload[place] = table
        self._settings: dict[tuple[str, str], Setting | str] = {}
        self._floors: dict[tuple[str, str], tuple[Work, Any]] = {}
        self._lock = threading.Lock()

    def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        """The recorded verdict. Raises TargetError where a workload or the chip is none that was recorded."""
        tables = self._of(target, hardware)
        gates: list[GateResult] = []
        with self._lock:
            try:
                setting = self._locate(text, tables[0])
            except ProgramError as error:
                gates.append(GateResult(gate="parse", passed=False, message=str(error).splitlines()[0]))
                return self._ended(target, gates, Status.PARSE_ERROR, tables)
            gates.append(GateResult(gate="parse", passed=True))
            if isinstance(setting, str):
                recorded = {k: list(v) for k, v in tables[0].knobs.items()}
                evidence = {"recorded": recorded, "table": tables[0].name}
                gates.append(GateResult(gate="check", passed=False, message=setting, evidence=evidence))
                return self._ended(target, gates, Status.NOT_RECORDED, tables)
            return self._verdict(setting, target, gates, tables)

    def preview(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        """The predicted times that were stored beside the measured ones; NOT_RECORDED where none were."""
        found = self.evaluate(text, target, hardware)
        if any(w.predicted_s is None for w in found.workloads):
            return Evaluation(status=Status.NOT_RECORDED, mode="predicted", unit=target.unit)
        rows = tuple(w.model_copy(update={"measured_s": None}) for w in found.workloads)
        passed = tuple(g for g in found.gates if g.gate != "timing")
        return found.model_copy(update={"mode": "predicted", "workloads": rows, "gates": passed})

    def close(self) -> None:
        """Nothing is held open."""

    def described(self) -> str:
        """For people: what is replayed and when it was measured."""
        dates = sorted({str(t.head.get("date")) for t in self.tables})
        device = self.tables[0].head.get("device", {}).get("name", self.tables[0].chip)
        return f"{len(self.tables)} tables recorded on {device}, {', '.join(dates)}"

    def setting(self, text: str, target: Target, hardware: Hardware) -> Setting | str:
        """Where a program stands on the grid, or why it does not."""
        with self._lock:
            return self._locate(text, self._of(target, hardware)[0])

    # -- which tables ----------------------------------------------------------------------------------------------

    def _of(self, target: Target, hardware: Hardware) -> list[Table]:
        found = []
        for w in target.workloads:
            table = self._by_workload.get((target.name, w.name))
            if table is None:
                known = [f"--workload {n}" for t, n in self._by_workload if t == target.name]
                more = f"; recorded: {' '.join(known)}" if known else f"; nothing of {target.name} was recorded"
                raise TargetError(f"target {target.name}, workload {w.name}: there is no table of it{more}")
            if table.chip != hardware.name:
                raise TargetError(f"table {table.name} was recorded on {table.chip}, not on {hardware.name}")
            found.append(table)
        first = found[0]
        for table in found[1:]:
            if table.knobs != first.knobs or digest(table.program) != digest(first.program):
                raise TargetError(f"tables {first.name} and {table.name} have different grids: search them one by one")
        return found

    # -- where on the grid -----------------------------------------------------------------------------------------

    def _locate(self, text: str, table: Table) -> Setting | str:
        """The setting, or why there is none. Raises ProgramError for a text that does not parse."""
        key = (table.name, text)
        if key not in self._settings:
            self._settings[key] = self._located(parse(text), table)
        return self._settings[key]

    def _located(self, program: Program, table: Table) -> Setting | str:
        if replace(program, schedule=Schedule()) != replace(table.program, schedule=Schedule()):
            if wrong := errors(program):
                return f"line {wrong[0].span.line}: {wrong[0].message}"
            return "the algorithm is not the one that was recorded"
        hw = HARDWARE[table.chip]
        values = settings(program, hw)
        for name, recorded in table.knobs.items():
            if values.get(name) not in recorded:
                known = ", ".join(map(str, recorded))
                return f"{name} = {values.get(name, 'none')} was not recorded; recorded are {known}"
        setting = tuple(values[name] for name in table.knobs)
        if _rest(program, table.knobs) != _rest(table.program, table.knobs):
            held = settings(table.program, hw)
            for name, value in values.items():
                if name not in table.knobs and value != held.get(name):
                    return f"{name} = {value} was not recorded; all points have {held.get(name, 'none')}"
            return "the schedule has directives that no recorded point has"
        return setting

    # -- what was found there --------------------------------------------------------------------------------------

    def _verdict(self, setting: Setting, target: Target, gates: list[GateResult], tables: list[Table]) -> Evaluation:
        rows = [t.rows[setting] for t in tables]
        bad = next((r for r in rows if r.status != Status.OK.value), None)
        facts = [{**r.facts, "workloads": [t.workload.name]} for t, r in zip(tables, rows, strict=True) if r.facts]
        if bad is not None:
            known = bad.status in set(Status)
            status = Status(bad.status) if known else Status.NOT_RECORDED
            gate = "check" if status in (Status.CHECK_ERROR, Status.NOT_LOWERED, Status.NOT_RECORDED) else "compile"
            message = bad.message if known else "this point was not reached when the table was recorded"
            gates.append(GateResult(gate=gate, passed=False, message=message, evidence={"kernels": facts}))
            return self._ended(target, gates, status, tables)
        gates.append(GateResult(gate="check", passed=True))
        gates.append(GateResult(gate="compile", passed=True, evidence={"kernels": facts}))
        results = []
        for table, row in zip(tables, rows, strict=True):
            needed, floor = self._floor(target, table)
            assert row.seconds is not None
            detail: dict[str, Any] = {
                "regime": table.head.get("regime", {}).get("name", ""),
                "interval_s": [min(row.samples), max(row.samples)],
                "samples": [{"seconds": s} for s in row.samples],
            }
            results.append(
                WorkloadResult(
                    workload=table.workload.name,
                    work=needed.total_flops if target.unit == "TFLOP/s" else needed.bytes,
                    floor_s=floor.floor_s,
                    bottleneck=floor.bottleneck,
                    predicted_s=row.predicted_s,
                    measured_s=row.seconds,
                    limiter=max(row.parts, key=lambda c: row.parts[c]) if row.parts else "",  # type: ignore[index]
                    detail={**detail, "parts": dict(row.parts or {})},
                )
            )
        evidence = {"tables": [t.name for t in tables], "samples": [len(r.samples) for r in rows]}
        gates.append(GateResult(gate="timing", passed=True, evidence=evidence))
        return self._evaluation(target, gates, Status.OK, tables, tuple(results))

    def _floor(self, target: Target, table: Table) -> tuple[Work, Any]:
        key = (target.name, table.name)
        if key not in self._floors:
            needed = work(seed_program(target), table.workload.sizes, table.workload.params)
            self._floors[key] = (needed, speed_of_light(needed, HARDWARE[table.chip]))
        return self._floors[key]

    def _ended(self, target: Target, gates: list[GateResult], status: Status, tables: list[Table]) -> Evaluation:
        return self._evaluation(target, gates, status, tables, (), gates[-1].message)

    def _evaluation(
        self,
        target: Target,
        gates: list[GateResult],
        status: Status,
        tables: list[Table],
        results: tuple[WorkloadResult, ...],
        message: str = "",
    ) -> Evaluation:
        kept = ("chip", "device", "versions", "date", "regime")
        return Evaluation(
            status=status,
            mode="measured",
            unit=target.unit,
            gates=tuple(gates),
            workloads=results,
            environment={"recorded": [{k: t.head[k] for k in kept if k in t.head} for t in tables]},
            message=message,
        )
