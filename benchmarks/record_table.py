"""Records full grids of schedules on the chip that is here: every point compiled, checked, timed in one regime.

python benchmarks/record_table.py --out DIR [--minutes 9] [--only NAME...]         on a machine with an H200
python benchmarks/record_table.py --out DIR --resume DIR                          what earlier runs left, the near best
python benchmarks/record_table.py --out DIR --simulate                            a few small points on the CPU

The grids are those of `record_grids`: values that a person would write down before any search, each point a program of
the language that goes through avo's own check, lowering and compiler. Compile workers on all cores feed one warm
worker. Each point is held against the reference on the device, then timed in the sustained regime: at least 15 ms
untimed and 30 ms timed back to back, in rounds over shuffled batches, the vendor's kernels in every batch, matrix
products wherever the device would wait. What takes more than twice the best so far gets one short sample; what is close
to the best gets a sample in every round. The tables are written again every half minute, so that an ended run has its
points.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import math
import queue
import random
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from record_grids import GRIDS, Grid, small

from dsl.hardware import hardware
from dsl.parser import parse
from evaluators import errors, gates
from evaluators.compiler import Compiler
from evaluators.device import held, local_devices, matching
from evaluators.device_jobs import job
from evaluators.evaluation import Status
from evaluators.failures import WorkerFailure
from evaluators.gates import Bench, Case, Rejected
from evaluators.inputs import generator
from evaluators.judge import environment
from evaluators.loading import complete, seed_program
from evaluators.pool import WorkerPool
from evaluators.process import cores
from evaluators.slots import DEVICE_MEMORY
from evaluators.target import Target, Workload
from evaluators.targets import target

HERE = Path(__file__).resolve().parent
UNTIMED_S, TIMED_S = 0.015, 0.030
SLOW = 2.0  # times the best so far: one short sample is enough to know that
NEAR_AGAIN = 1.25  # times the best: whose points a resumed run loads again
NEAR = (1.1, 1.25, 1.1, 1.5, 1.1)  # times the best: who gets a sample in the first, second, ... and all further rounds
MOST_SAMPLES = 9
BATCH = 20
COMPILE_S = 60.0
FACTS = ("registers", "spills", "shared_bytes", "occupancy_blocks", "code_bytes")


@dataclass
class Row:
    """What is known of one point on one workload. samples: segments as the worker gave them."""

    status: str = ""
    message: str = ""
    samples: list[dict[str, Any]] = field(default_factory=list)
    slow: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    predicted_s: float | None = None
    source: dict[str, str] | None = None

    @property
    def seconds(self) -> float:
        return float(np.median([s["seconds"] for s in self.samples])) if self.samples else math.inf


@dataclass
class Table:
    name: str
    grid: Grid
    workload: Workload
    job: dict[str, Any]
    rows: dict[tuple[int | str, ...], Row]
    peers: dict[str, Row]
    duels: dict[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> float:
        return min((r.seconds for r in self.rows.values()), default=math.inf)


class Recorder:
    """One run: tables, compile workers, the device's worker, and the files that come of it."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self.began = time.monotonic()
        self.ends = self.began + 60 * flags.minutes
        self.out = Path(flags.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.hw = hardware("h200")
        self.rng = random.Random(8)
        self.command = f"python benchmarks/record_table.py --minutes {flags.minutes:g}"
        devices = [] if flags.simulate else matching(local_devices(), self.hw)
        self.device: dict[str, Any] = devices[0].model_dump(mode="json") if devices else {}
        self.cache = Path(tempfile.mkdtemp(prefix="avo-table-"))
        self.compilers = max(1, min(cores() - 2, 32))
        self.compile_pool = WorkerPool(self.compilers, settings={"TRITON_CACHE_DIR": str(self.cache)})
        settings = {"TRITON_CACHE_DIR": str(self.cache)}
        settings |= {"CUDA_VISIBLE_DEVICES": self.device.get("uuid", "")}
        if flags.simulate:
            settings["TRITON_INTERPRET"] = "1"
        self.device_pool = WorkerPool(
            1, memory_bytes=DEVICE_MEMORY, settings=settings, extra=HERE / "record_tasks.py", recycle_after=1 << 30
        )
        self.bench = Bench(self.compile_pool, Compiler(self.compile_pool, timeout=COMPILE_S), 8, COMPILE_S)
        self.machines: dict[str, dict[str, Any]] = {}
        self.ready: queue.Queue[tuple[Grid, tuple[int | str, ...], list[Table]]] = queue.Queue()
        self.busy_s = 0.0
        self.missed = 0
        self.lock = threading.Lock()
        self.targets = {g.name: complete(target(g.target)) for g in GRIDS}
        grids = [small(g) if flags.simulate else g for g in GRIDS]
        grids = [g for g in grids if not flags.only or g.name in flags.only]
        self.tables = [self._table(g, name, w) for g in grids for name, w in g.workloads.items()]
        self.runs: list[str] = []
        if flags.resume:
            for table in self.tables:
                self._take(table, json.loads((Path(flags.resume) / f"{table.name}.json").read_text()))
            with gzip.open(Path(flags.resume) / "machine_code.json.gz") as file:
                self.machines = json.load(file)
        self.runs.append(self.command + (" --resume benchmarks/data/tables" if flags.resume else ""))

    def _table(self, grid: Grid, name: str, workload: Workload) -> Table:
        rng = generator(8, "table", name)
        wanted = self.targets[grid.name]
        work = job(wanted, parse(wanted.seed), workload, "normal", int(rng.integers(2**62)), rng, rotate=True)
        return Table(name, grid, workload, work, {p: Row() for p in grid.points()}, {p: Row() for p in grid.peers})

    def _take(self, table: Table, data: dict[str, Any]) -> None:
        """What an earlier run found; a point that it did not come to is open again."""
        self.runs = list(data.get("runs", [data["command"]]))
        for row, point in zip(table.rows.values(), data["points"], strict=True):
            if point["status"] in ("compiled", "not reached"):
                continue
            row.status, row.message, row.slow = point["status"], point.get("message", ""), point.get("slow", False)
            row.predicted_s = point.get("predicted_s")
            row.facts = {k: point[k] for k in FACTS if k in point}
            clocks = point.get("mhz", [])
            row.samples = [{"seconds": s, "sm_mhz": m} for s, m in zip(point.get("s", []), clocks, strict=True)]
        for name, peer in data["peers"].items():
            pairs = zip(peer["seconds"], peer["mhz"], strict=True)
            table.peers[name].samples = [{"seconds": s, "sm_mhz": m} for s, m in pairs]

    def open(self, table: Table, point: tuple[int | str, ...]) -> bool:
        """Whether this run has to look at the point: nobody has, or it is near the best."""
        row = table.rows[point]
        return not row.status or row.seconds <= NEAR_AGAIN * table.best

    def said(self, *what: object) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s ", *what, flush=True)

    @property
    def duels_s(self) -> float:
        return 1.5 * sum(len(t.peers) for t in self.tables)

    @property
    def left(self) -> float:
        return self.ends - time.monotonic()

    # -- compiling -----------------------------------------------------------------------------------------------

    def compile(self, grid: Grid, point: tuple[int | str, ...], tables: list[Table]) -> None:
        """Through check, lowering and compiler for the tables of one setting of params; then they may be timed."""
        rows = [t.rows[point] for t in tables]
        if self.left < 20:
            return
        wanted: Target = replace(self.targets[grid.name], workloads=tuple(t.workload for t in tables))
        case = Case(text=grid.text(point), target=wanted, wanted=seed_program(wanted), hardware=self.hw)
        status, message = Status.OK, ""
        try:
            for gate in (gates.parse_gate, gates.check_gate, gates.compile_gate, gates.prediction_gate):
                gate(case, self.bench)
        except Rejected as no:
            status, message = no.status, str(no)
        except WorkerFailure as failure:
            status, message = failure.status or Status.CRASH, failure.message
        except Exception as bug:  # one point's trouble is not the table's end
            status, message = Status.UNAVAILABLE, f"{type(bug).__name__}: {bug}"
        machines = [m for launches in case.launches.values() for _, m, _ in launches]
        if machines:
            m = machines[0]
            key = f"{grid.name} {json.dumps(point)} {json.dumps(dict(tables[0].workload.params))}"
            with self.lock:
                self.machines[key] = m.model_dump(mode="json", exclude={"texts"}, exclude_defaults=True)
            facts = {name: getattr(m, name) for name in FACTS}
            for row in rows:
                row.facts = facts
        for row, result in zip(rows, case.results, strict=False):
            row.predicted_s = result.predicted_s
        for row in rows:
            if status is Status.OK and case.lowered is not None:
                row.status = row.status or "compiled"
                row.source = {"source": case.lowered.source, "entry": case.lowered.entry, "name": json.dumps(point)}
            else:
                row.status, row.message = str(status), message[:200]
        if status is Status.OK:
            self.ready.put((grid, point, tables))

    # -- the device ----------------------------------------------------------------------------------------------

    def call(self, task: str, payload: dict[str, Any], seconds: float) -> dict[str, Any]:
        began = time.monotonic()
        try:
            return self.device_pool.call(task, payload, timeout=seconds, kind="device").result
        finally:
            self.busy_s += time.monotonic() - began

    def screen(self, table: Table, point: tuple[int | str, ...]) -> None:
        row = table.rows[point]
        payload = {"job": table.job, "point": row.source, "untimed_s": UNTIMED_S, "timed_s": TIMED_S}
        try:
            found = self.call("table_screen", {**payload, "slow_s": SLOW * min(table.best, 1e9)}, 60.0)
        except WorkerFailure as failure:
            row.status, row.message = str(failure.status or Status.INCORRECT), failure.message[:200]
            self.said(table.name, point, row.status, row.message)
            return
        reasons = [
            why for f in found["figures"] for why in errors.judge(f, table.job["outputs"][f["output"]]["dtype"]).reasons
        ]
        row.status = "incorrect" if reasons else "ok"
        if reasons:
            row.message = reasons[0][:200]
            self.said(table.name, point, row.message)
            return
        row.samples.append(found["sample"])
        row.slow = found["slow"]
        self.missed = found["missed"]

    def round(self, near: float) -> int:
        """One more sample of what is so near its table's best, in batches that begin with the vendor's kernels."""
        batches: list[tuple[Table, list[Row]]] = []
        for table in self.tables:
            chosen = [
                r
                for r in table.rows.values()
                if r.source is not None and r.seconds <= near * table.best and len(r.samples) < MOST_SAMPLES
            ]
            self.rng.shuffle(chosen)
            batches += [(table, chosen[i : i + BATCH]) for i in range(0, len(chosen), BATCH)]
        self.rng.shuffle(batches)
        count = 0
        for table, batch in batches:
            if self.left < self.duels_s + 6:
                break
            peers = [r for r in table.peers.values() if r.source is not None]
            rows = [*peers, *batch]
            for row, sample in zip(rows, self._samples(table, rows), strict=False):
                row.samples.append(sample)
            count += len(batch)
        return count

    def _samples(self, table: Table, rows: list[Row]) -> list[dict[str, Any]]:
        points = [r.source for r in rows]
        payload = {"job": table.job, "points": points, "untimed_s": UNTIMED_S, "timed_s": TIMED_S}
        try:
            return list(self.call("table_round", payload, 120.0)["samples"])
        except WorkerFailure as failure:
            self.said(table.name, "a round failed:", failure.message[:200])
            return []

    def duel(self, table: Table) -> None:
        """The best point against each of the vendor's kernels in ABBA blocks."""
        best = min(table.rows.values(), key=lambda r: r.seconds)
        for name, peer in table.peers.items():
            if peer.source is None or not best.samples:
                continue
            samples = self._samples(table, [best, peer, peer, best] * 6)
            table.duels[name] = {"best": [], "peer": []}
            for i, s in enumerate(samples):
                table.duels[name]["best" if i % 4 in (0, 3) else "peer"].append(_short(s["seconds"]))

    def start_peers(self) -> None:
        for table in self.tables:
            for name, row in table.peers.items():
                row.source = {"source": table.grid.peers[name], "entry": "entry", "name": name}
                if not self._samples(table, [row]):
                    row.source, row.message = None, "does not run here"

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        cases: list[tuple[Grid, tuple[int | str, ...], list[Table]]] = []
        for grid in {t.grid.name: t.grid for t in self.tables}.values():
            kinds: dict[str, list[Table]] = {}
            for table in (t for t in self.tables if t.grid.name == grid.name):
                kinds.setdefault(json.dumps(dict(table.workload.params)), []).append(table)
            cases += [
                (grid, point, wanted)
                for point in grid.points()
                for tables in kinds.values()
                if (wanted := [t for t in tables if self.open(t, point)])
            ]
        self.rng.shuffle(cases)
        cases.sort(key=lambda case: all(t.rows[case[1]].status for t in case[2]))  # what nobody looked at comes first
        self.said(len(cases), "kernels to compile for", sum(len(t.rows) for t in self.tables), "points")
        self.compile_pool.warm(("compile",))
        facts = self.call("device_facts", {}, 180.0)
        self.device = {**self.device, **facts}
        self.said("device", facts.get("name"))
        threads = ThreadPoolExecutor(self.compilers)
        waiting = [threads.submit(self.compile, *case) for case in cases]
        self.start_peers()
        self.said("heated:", self.call("table_heat", {}, 60.0))
        written, screened = time.monotonic(), 0
        while self.left > self.duels_s + 8:
            try:
                _, point, tables = self.ready.get(timeout=0.02)
            except queue.Empty:
                if all(w.done() for w in waiting) and self.ready.empty():
                    break
                continue
            for table in tables:
                self.screen(table, point)
                screened += 1
            if time.monotonic() - written > 30:
                self.write()
                written = time.monotonic()
                done = sum(w.done() for w in waiting)
                self.said(f"{done} compiled, {self.missed} on the device, {screened} timed once")
        self.said(f"all looked at: {screened} timed once, device {self.busy_s:.0f} s busy")
        for w in waiting:
            w.cancel()
        self.write()
        for turn in itertools.count():
            found = self.round(NEAR[min(turn, len(NEAR) - 1)])
            self.said(f"round {turn + 1}: {found} points")
            if not found or self.left < self.duels_s + 8:
                break
        self.write()
        for table in self.tables:
            self.duel(table)
        self.write()
        threads.shutdown(wait=False, cancel_futures=True)
        self.summary()

    def write(self) -> None:
        """Every table as it stands; whole files take the place of whole files."""
        with self.lock:
            machines = dict(self.machines)
        for table in self.tables:
            _replace(self.out / f"{table.name}.json", self.content(table).encode())
        packed = gzip.compress(json.dumps(machines, separators=(",", ":")).encode(), mtime=0)
        _replace(self.out / "machine_code.json.gz", packed)

    def content(self, table: Table) -> str:
        """The table as JSON: one line a point, in the order of the grid."""
        grid = table.grid
        kept = ("name", "driver", "power_limit_w", "max_sm_mhz", "sms", "torch", "runtime", "cudnn")
        watts = [s["watts"] for r in table.rows.values() for s in r.samples if s.get("watts")]
        head = {
            "format": 1,
            "table": table.name,
            "target": grid.target,
            "chip": self.hw.name,
            "device": {k: self.device[k] for k in kept if k in self.device},
            "versions": environment(self.hw)["versions"],
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "command": self.runs[0],
            "runs": self.runs,
            "regime": {
                "name": "sustained",
                "untimed_s": UNTIMED_S,
                "timed_s": TIMED_S,
                "rounds": f"shuffled batches; up to {MOST_SAMPLES} samples for what is near the best",
                "slow": f"one short sample for what takes more than {SLOW:g} times the best so far",
                "watts": round(float(np.mean(watts))) if watts else None,
            },
            "sizes": dict(table.workload.sizes),
            "params": dict(table.workload.params),
            "program": grid.text(grid.points()[0]),
            "knobs": {k: list(v) for k, v in grid.knobs.items()},
            "peers": {
                name: {"seconds": [_short(s["seconds"]) for s in r.samples], "mhz": [s["sm_mhz"] for s in r.samples]}
                for name, r in table.peers.items()
                if r.samples
            },
            "duels": table.duels,
        }
        lines = []
        for row in table.rows.values():
            line: dict[str, Any] = {"status": row.status or "not reached"}
            if row.message:
                line["message"] = row.message
            if row.samples:
                line["s"] = [_short(s["seconds"]) for s in row.samples]
                line["mhz"] = [s["sm_mhz"] for s in row.samples]
            if row.slow:
                line["slow"] = True
            if row.predicted_s is not None:
                line["predicted_s"] = _short(row.predicted_s)
            lines.append(json.dumps({**line, **row.facts}, separators=(",", ":")))
        facts = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items()]
        return "{" + ",\n".join(facts) + ',\n"points": [\n' + ",\n".join(lines) + "\n]}\n"

    def summary(self) -> None:
        for table in self.tables:
            states: dict[str, int] = {}
            for row in table.rows.values():
                states[row.status or "not reached"] = states.get(row.status or "not reached", 0) + 1
            ok = {p: r for p, r in table.rows.items() if r.samples}
            if not ok:
                self.said(table.name, states)
                continue
            best = min(ok, key=lambda p: ok[p].seconds)
            near = sum(r.seconds <= table.best / 0.98 for r in ok.values())
            peers = {n: round(r.seconds * 1e6, 2) for n, r in table.peers.items() if r.samples}
            self.said(
                f"{table.name}: {states}; best {table.best * 1e6:.2f} us at {best} ({len(ok[best].samples)} samples); "
                f"{near} within 2%; peers {peers}"
            )

    def close(self) -> None:
        for pool in (self.device_pool, self.compile_pool):
            pool.close()
        shutil.rmtree(self.cache, ignore_errors=True)


def _short(seconds: float) -> float:
    return float(f"{seconds:.5g}")


def _replace(path: Path, content: bytes) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", nargs="*", default=[], help="names of grids: " + ", ".join(g.name for g in GRIDS))
    parser.add_argument("--resume", metavar="DIR", help="go on from the tables of an earlier run")
    parser.add_argument("--simulate", action="store_true")
    flags = parser.parse_args()
    with contextlib.nullcontext() if flags.simulate else held():
        recorder = Recorder(flags)
        try:
            recorder.run()
        finally:
            with contextlib.suppress(Exception):
                recorder.write()
            recorder.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
