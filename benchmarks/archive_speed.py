"""How fast an archive of many candidates is: adding one, listing, showing, lineage. Prints a table; fails over a limit.

python benchmarks/archive_speed.py [--candidates 100000] [--archive FILE]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

from archive import Archive, RunWriter, Spend, open_archive
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult

_ADD_MS = 5.0
_READ_MS = 200.0
_PROGRAM = "\n".join(f"line {n} of a program that is about as long as programs are" for n in range(25))
_SOURCE = "\n".join(f"    acc_{n} = tl.dot(q_{n}, k_{n}, acc_{n})" for n in range(200))


def evaluation(k: int, rng: random.Random) -> Evaluation:
    """About as large as a real one: seven gates with evidence, eight workloads."""
    good = rng.random() < 0.6
    evidence = {f"fact {n}": rng.random() for n in range(12)}
    gates = [GateResult(gate=g, passed=True, evidence=evidence) for g in ("parse", "check", "meaning", "compile")]
    gates.append(GateResult(gate="correctness", passed=good, evidence=evidence))
    if not good:
        return Evaluation(status=Status.INCORRECT, mode="predicted", gates=tuple(gates), message="rows differ")
    workloads = tuple(
        WorkloadResult(
            workload=f"b=8,h=16,m={4096 * n},n={4096 * n},d=128,causal=1",
            work=1e12 * n,
            floor_s=1e-4 * n,
            bottleneck="matrix",
            predicted_s=n * 1e-4 * (1 + rng.random()),
            limiter="latency",
            detail={f"part {i}": rng.random() for i in range(6)},
        )
        for n in range(1, 9)
    )
    return Evaluation(
        status=Status.OK, mode="predicted", gates=tuple(gates), workloads=workloads, source=f"# {k}\n{_SOURCE}"
    )


def fill(writer: RunWriter, count: int, rng: random.Random) -> list[float]:
    """Adds candidates with their verdicts; returns the seconds that each of the two calls took, in the last tenth."""
    taken = []
    for k in range(count):
        verdict = evaluation(k, rng)
        parents = sorted({max(0, k - rng.randrange(1, 30)), rng.randrange(k)}) if k else []
        text = f"{_PROGRAM}\n{k}"
        start = time.perf_counter()
        writer.add_candidate(k, f"{rng.getrandbits(64):016x}", text, agent="walk", parents=parents, rationale="why")
        middle = time.perf_counter()
        writer.record_evaluation(k, verdict, Spend(wall_s=1.0))
        if k >= count * 0.9:
            taken += [middle - start, time.perf_counter() - middle]
        if k % 10_000 == 0 and k:
            print(f"  {k:,} added", file=sys.stderr, flush=True)
    return taken


def clock(act: Callable[[], object], times: int = 5) -> float:
    """Median milliseconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        found.append((time.perf_counter() - start) * 1e3)
    return median(found)


def reads(archive: Archive, run: int, count: int, rng: random.Random) -> dict[str, Callable[[], object]]:
    def some() -> int:
        return rng.randrange(count)

    def show() -> object:
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
        "show: by number and by digest": show,
        "lineage: 1,000 deep": lambda: archive.lineage(run, min(1000, count - 1)),
        "children": lambda: straight(some()),
        "spend": lambda: archive.spend(run),
        "pending": lambda: archive.candidates(run, pending=True),
    }


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
                    taken = [s * 1e3 for s in fill(writer, options.candidates, rng)]
                adding = taken[0::2]
                rows = [("add a candidate", adding), ("record its verdict", taken[1::2])]
                for name, each in rows:
                    print(f"{name:32} {median(each):8.2f} ms   99%: {quantiles(each, n=100)[98]:.2f} ms")
                    if median(each) > _ADD_MS:
                        failed.append(name)
        with open_archive(path, readonly=True) as archive:
            run = archive.run()
            count = sum(archive.counts(run.id).values())
            for name, act in reads(archive, run.id, count, rng).items():
                took = clock(act)
                print(f"{name:32} {took:8.2f} ms")
                if took > _READ_MS:
                    failed.append(name)
        print(f"{count:,} candidates, {path.stat().st_size / 2**20:.0f} MiB")
    for name in failed:
        print(f"over the limit: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
