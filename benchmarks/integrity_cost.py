"""What programs in the language pay for integrity, as a part of their judgement: `python benchmarks/integrity_cost.py`.

They run in the warm worker, so what is left is guard zones, poison, and looking whether inputs and zones are as they
were. Every target's seed is judged with the pool warm; its runs are recorded and made again in one process, alternately
with these parts and without. Processor seconds all along, for those do not depend on what else the machine does.

The judgement: this process's and its workers' user and system time. Integrity: the difference of the sums of the least
times of each run, and beside it the time within the functions themselves, copies of the inputs included, which would
have to be made anyway.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def spent(pids: list[int]) -> float:
    """Processor seconds of these processes so far."""
    total = 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / TICKS
    return total


def record(names: list[str], repeats: int, into: Path) -> dict[str, float]:
    """Target -> processor seconds of a judgement, the least of some; what was run goes to a file."""
    from dsl.hardware import hardware
    from evaluators.judge import LocalEvaluator
    from evaluators.pool import WorkerPool
    from evaluators.targets import target

    runs: dict[str, list[Any]] = {}
    judged: dict[str, float] = {}
    call = WorkerPool.call

    def recorded(self: WorkerPool, task: str, payload: Any, blobs: Any = (), *rest: Any, **more: Any) -> Any:
        if task == "interpret":
            runs[name].append((payload, list(blobs)))
        return call(self, task, payload, blobs, *rest, **more)

    WorkerPool.call = recorded  # type: ignore[method-assign]
    with WorkerPool(1) as pool:
        pool.warm(("compile", "interpret"), wait=True)
        chip = hardware("h200")
        for name in names:
            job = target(name)
            assert job.seed is not None
            times = []
            for turn in range(repeats + 1):  # the first imports and fills caches
                runs[name] = []
                judge = LocalEvaluator(seed=turn, pool=pool)
                for cache in Path(str(pool._home)).glob("*/triton"):  # a new program is compiled
                    shutil.rmtree(cache, ignore_errors=True)
                before = time.process_time() + spent(pool.pids())
                found = judge.evaluate(job.seed, job, chip)
                times.append(time.process_time() + spent(pool.pids()) - before)
                assert found.status == "ok", f"{name}: {found.message}"
            judged[name] = min(times[1:])
    WorkerPool.call = call  # type: ignore[method-assign]
    into.write_bytes(pickle.dumps(runs))  # our own, read by the process below
    return judged


def again(file: Path, repeats: int) -> None:
    """In a process of its own, with the interpreter: prints target, runs, seconds with and without, within."""
    import numpy as np
    import torch

    from evaluators import cpu, guards

    torch.set_num_threads(1)
    within = 0.0

    def booked(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            nonlocal within
            began = time.thread_time()
            try:
                return function(*args, **named)
            finally:
                within += time.thread_time() - began

        return run

    class Plain(guards.Arena):
        """The inputs in memory of their own, and nothing more."""

        def place(self, name: str, dtype: torch.dtype, shape: tuple[int, ...], data: bytes) -> torch.Tensor:
            contents = np.frombuffer(bytearray(data), dtype=np.uint8)
            self.kept = [*getattr(self, "kept", []), contents]
            return torch.from_numpy(contents).view(dtype).reshape(shape)

        def patched(self) -> Any:
            import contextlib

            return contextlib.nullcontext()

        def zone_of(self, tensor: torch.Tensor) -> None:
            return None

    guarded = guards.Arena

    class Booked(guarded):  # type: ignore[valid-type, misc]
        place, guard, strayed = (booked(getattr(guarded, n)) for n in ("place", "guard", "strayed"))
        zone_of = booked(guarded.zone_of)

    strict = zip

    def once(payload: Any, blobs: Any, arena: Any) -> float:
        guards.Arena = arena  # type: ignore[misc]
        began = time.thread_time()
        # Without zones there is nothing to compare the inputs with.
        cpu.zip = strict if arena is not Plain else (lambda *a, **k: strict(*a))  # type: ignore[attr-defined]
        cpu.interpret_task(payload, blobs)
        return time.thread_time() - began

    for name, runs in pickle.loads(file.read_bytes()).items():
        least: dict[str, float] = {"with": 0.0, "without": 0.0, "within": 0.0}
        for payload, blobs in runs:
            rows: dict[str, list[float]] = {key: [] for key in least}
            for turn in range(repeats):
                for key in ("with", "without") if turn % 2 else ("without", "with"):
                    rows[key].append(once(payload, blobs, guarded if key == "with" else Plain))
                within = 0.0
                once(payload, blobs, Booked)
                rows["within"].append(within)
            for key in least:
                least[key] += min(rows[key])
        print(name, len(runs), *(f"{least[key]:.6f}" for key in least), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--targets", default="", help="with commas between; all where it is empty")
    parser.add_argument("--again", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.again is not None:
        again(given.again, given.repeats)
        return
    from evaluators.targets import BUILTIN

    names = given.targets.split(",") if given.targets else list(BUILTIN)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder, "runs")
        judged = record(names, 3, runs)
        command = [sys.executable, __file__, "--again", str(runs), "--repeats", str(given.repeats)]
        environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    head = ("judgement", 10), ("runs", 6), ("more with", 11), ("part", 8), ("within", 9), ("part", 8)
    print(f"{'processor milliseconds':24}" + "".join(f"{name:>{width}}" for name, width in head))
    totals = [0.0, 0.0, 0.0]
    for line in said.splitlines():
        name, count, more, less, inside = line.split()
        row = [judged[name], float(more) - float(less), float(inside)]
        totals = [a + b for a, b in zip(totals, row, strict=True)]
        print(_row(name, row, count))
    print(_row("all", totals, ""))


def _row(name: str, row: list[float], count: str) -> str:
    whole, difference, inside = row
    parts = f"{1e3 * difference:>11.2f}{difference / whole:>8.2%}{1e3 * inside:>9.2f}{inside / whole:>8.2%}"
    return f"{name:24}{1e3 * whole:>10.0f}{count:>6}{parts}"


if __name__ == "__main__":
    main()
