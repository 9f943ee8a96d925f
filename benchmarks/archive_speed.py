"""How fast an archive of many candidates is: adding one, listing, showing, lineage, and the verbs of the command line
that read it, as processes of their own. Prints a table; fails over a limit.

python benchmarks/archive_speed.py [--candidates 100000] [--archive FILE]
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

from archive import Archive, Hypothesis, RunWriter, Spend, open_archive
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult

_ADD_MS = 5.0
_READ_MS = 200.0
_REPORT_S = 5.0
_VERBS = (("report",), ("log", "1"), ("log", "1", "--best"), ("show", "1/{some}"), ("status",), ("tree", "--committed"))
_FLOOR_S = 1e-4  # of the first workload
_PROGRAM = "\n".join(f"line {n} of a program that is about as long as programs are" for n in range(25))
_SOURCE = "\n".join(f"    acc_{n} = tl.dot(q_{n}, k_{n}, acc_{n})" for n in range(200))


def evaluation(k: int, rng: random.Random, pace: float) -> Evaluation:
    """About as large as a real one: seven gates with evidence, eight workloads. pace: seconds of the first workload."""
    luck = rng.random()
    evidence = {f"fact {n}": rng.random() for n in range(12)}
    gates = [GateResult(gate=g, passed=True, evidence=evidence) for g in ("parse", "check", "meaning", "compile")]
    gates.append(GateResult(gate="correctness", passed=luck < 0.6 or luck > 0.999, evidence=evidence))
    if luck > 0.999:
        gates.append(GateResult(gate="integrity", passed=False, evidence=evidence))
        return Evaluation(status=Status.GAMING, mode="predicted", gates=tuple(gates), message="it reads a clock")
    if luck >= 0.6:
        return Evaluation(status=Status.INCORRECT, mode="predicted", gates=tuple(gates), message="rows differ")
    workloads = tuple(
        WorkloadResult(
            workload=f"b=8,h=16,m={4096 * n},n={4096 * n},d=128,causal=1",
            work=1e12 * n,
            floor_s=_FLOOR_S * n,
            bottleneck="matrix",
            predicted_s=n * pace * (1 + 0.001 * rng.random()),
            limiter="latency",
            detail={f"part {i}": rng.random() for i in range(6)},
        )
        for n in range(1, 9)
    )
    return Evaluation(
        status=Status.OK, mode="predicted", gates=tuple(gates), workloads=workloads, source=f"# {k}\n{_SOURCE}"
    )


def fill(writer: RunWriter, count: int, rng: random.Random) -> list[tuple[float, ...]]:
    """Adds candidates with their verdicts; of the last tenth, the seconds (wall, own) of each of the two calls.

    As in a search: four of five build on the best, the others on something recent; few are faster than what they build
    on, and each comes with a hypothesis and its costs."""
    taken = []
    best, pace, paces = 0, 4e-4, {0: 4e-4}
    for k in range(count):
        parents = sorted({best if rng.random() < 0.8 else max(0, k - rng.randrange(1, 30))}) if k else []
        if k and rng.random() < 0.05:
            parents = sorted({*parents, rng.randrange(k)})
        above = paces[parents[0]] if k else pace
        # a gain is the rarer, and the smaller, the less is left above the floor
        mine = paces[k] = above * (1 + abs(rng.gauss(0, 0.05)) - 0.002 * (above / _FLOOR_S - 1)) if k else pace
        verdict = evaluation(k, rng, mine) if k else evaluation(0, random.Random(1), mine)
        text = f"{_PROGRAM}\n{k}"
        hypothesis = Hypothesis("a deeper pipeline hides the latency", 1.05, "latency") if k else None
        start, began = time.perf_counter(), time.process_time()
        writer.add_candidate(
            k,
            f"{rng.getrandbits(64):016x}",
            text,
            agent="walk",
            parents=parents,
            rationale="why",
            hypothesis=hypothesis,
            spend=Spend(wall_s=0.1) if k else None,
        )
        middle, half = time.perf_counter(), time.process_time()
        writer.record_evaluation(k, verdict, Spend(wall_s=1.0))
        if k >= count * 0.9:
            end, done = time.perf_counter(), time.process_time()
            taken.append((middle - start, half - began, end - middle, done - half))
        if verdict.status is Status.OK and mine < pace:
            best, pace = k, mine
        if k % 10_000 == 0 and k:
            print(f"  {k:,} added", file=sys.stderr, flush=True)
    return taken


def clock(act: Callable[[], object], times: int = 5) -> tuple[float, float]:
    """Median milliseconds: of the wall, and of this process' own work, which a busy machine does not stretch."""
    wall, own = [], []
    for _ in range(times):
        start, began = time.perf_counter(), time.process_time()
        act()
        wall.append((time.perf_counter() - start) * 1e3)
        own.append((time.process_time() - began) * 1e3)
    return median(wall), median(own)


def reads(archive: Archive, run: int, count: int, rng: random.Random) -> dict[str, Callable[[], object]]:
    found = archive.best(run)
    best = found.k if found is not None else 0

    def some() -> int:
        return rng.randrange(count)

    def look_up() -> object:
        candidate = archive.candidate(f"{run}/{some()}")
        return archive.evaluation(archive.candidate(candidate.digest[:10]))

    def straight(k: int) -> object:
        return archive.children(run, k)

    return {
        "runs": archive.runs,
        "log: the last 50": lambda: archive.candidates(run, sort="-k", limit=50, text=False),
        "log: the best 50": lambda: archive.candidates(run, sort="predicted", limit=50, text=False),
        "log: 50 of a status, far in": lambda: archive.candidates(
            run, status=Status.INCORRECT, limit=50, offset=count // 4, text=False
        ),
        "best": lambda: archive.best(run),
        "counts by status": lambda: archive.counts(run),
        "show: by number and by digest": look_up,
        f"lineage of the best: {len(archive.lineage(run, best)):,}": lambda: archive.lineage(run, best),
        "children": lambda: straight(some()),
        "spend": lambda: archive.spend(run),
        "pending": lambda: archive.candidates(run, pending=True),
    }


def command(path: Path, words: Sequence[str], folder: str) -> tuple[float, float]:
    """Seconds, of the wall and of the processor, that `avo` takes with these words on the archive."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    line = [sys.executable, "-m", "avo", *words, "--archive", str(path.resolve())]
    subprocess.run(line, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, own


def show(name: str, wall_ms: float, own_ms: float, more: str = "") -> None:
    print(f"{name:32} {wall_ms:8.2f} ms   {own_ms:8.2f} ms of it our own work   {more}".rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--archive", help="keep the archive here; one that is there is measured as it is")
    options = parser.parse_args()
    rng = random.Random(0)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.archive or Path(folder) / "speed.db")
        there = path.exists()
        with open_archive(path) as archive:
            if not there:
                run = archive.create_run(target="t", hardware="b200", agent="walk", seed=0, jobs=2, judge="j")
                with archive.claim(run.id) as writer:
                    taken = fill(writer, options.candidates, rng)
                for place, name in ((0, "add a candidate"), (2, "record its verdict")):
                    wall, own = ([row[place + n] * 1e3 for row in taken] for n in (0, 1))
                    show(name, median(wall), median(own), f"99%: {quantiles(wall, n=100)[98]:.1f} ms")
                    if median(wall) > _ADD_MS:
                        failed.append(name)
        with open_archive(path, readonly=True) as archive:
            run = archive.run()
            count = sum(archive.counts(run.id).values())
            for name, act in reads(archive, run.id, count, rng).items():
                wall_ms, own_ms = clock(act)
                show(name, wall_ms, own_ms)
                if wall_ms > _READ_MS:
                    failed.append(name)
        for words in _VERBS:
            asked = [w.format(some=count // 2) for w in words]
            wall_s, own_s = min(command(path, asked, folder) for _ in range(3))
            show("avo " + " ".join(asked), 1e3 * wall_s, 1e3 * own_s)
            if words == ("report",) and wall_s > _REPORT_S:
                failed.append("avo report")
        for page in Path(folder).glob("*.html"):
            print(f"the page: {page.stat().st_size / 1e6:.1f} MB")
        print(f"{count:,} candidates, {path.stat().st_size / 2**20:.0f} MiB")
    for name in failed:
        print(f"over the limit: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
