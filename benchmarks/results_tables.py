"""Tables of `avo bench` as they are stored: reading them, taking new ones up, and what was hoped for of each."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from avo.benchmark_page import interval
from dsl.hardware import hardware
from dsl.parser import parse
from evaluators.benchmark_result import Arm, Benchmark, Interval

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "benchmarks" / "data" / "bench"

# (target, set) -> what was hoped for: over what, at least what ratio of speeds, in words
_NORM = (("best", 1.0, "1.0x torch.compile"), ("copy", 0.9, "0.90 of a copy"))
GOALS: dict[tuple[str, str], tuple[tuple[str, float, str], ...]] = {
    ("attention", "public"): (("plain", 1.02, "1.02x the plain kernel's best setting"),),
    ("matmul", "public"): (("best", 0.95, "0.95x cuBLAS"),),
    ("matmul", "decode"): (("best", 1.0, "1.0x cuBLAS"),),
    ("rmsnorm", "public"): _NORM,
    ("layernorm", "public"): _NORM,
    ("softmax", "public"): _NORM,
    ("rmsnorm", "models"): _NORM,
    ("softmax", "models"): _NORM,
    ("gemm", "public"): (("best", 0.95, "0.95x cuBLAS"),),
    ("gemm", "decode"): (("best", 1.0, "1.0x cuBLAS"),),
}
# Where the copy beside the programs was none of the limits, as is told of each such table.
CEILING = "of what the card sustains, the copy was slow"
PLAIN = ("plain Triton", "plain lazy")
SEARCHED = "search"  # the part of tables whose program `avo evolve` found from the naive seed


def tables(chip: str) -> list[dict[str, Any]]:
    """Those at the public sizes first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((DATA / chip).glob("*.json"))]
    return sorted(found, key=lambda item: (item["set"] != "public", bool(item.get("part")), named(item)))


def named(item: dict[str, Any]) -> str:
    benchmark = item["benchmark"]
    if item.get("part") == SEARCHED:
        return f"{benchmark['target']}_{SEARCHED}" + (f"_{item['set']}" if item["set"] != "public" else "")
    return f"{benchmark['target']}_{item['set']}" + (f"_{item['part'].replace('=', '')}" if item.get("part") else "")


# Taking up ----------------------------------------------------------------------------------------


def take(paths: list[Path], cache: Path | None = None, predicting: bool = True) -> None:
    for path in paths:
        read = json.loads(path.read_text(encoding="utf-8"))
        for item in read if isinstance(read, list) else [searched(read)]:
            found = Benchmark.model_validate(item["benchmark"])
            if part := item.get("part") or part_of(found, item["set"]):
                item["part"] = part
            if predicting:
                item["predicted"] = predictions(found, cache)
            folder = DATA / found.hardware
            folder.mkdir(parents=True, exist_ok=True)
            place = folder / f"{named(item)}.json"
            place.write_text(json.dumps(item, separators=(",", ":")) + "\n", encoding="utf-8")
            print(f"{place.relative_to(ROOT)}: {len(found.rows)} workloads", flush=True)


def predict_missing(chip: str, cache: Path | None = None) -> None:
    """Predictions for the tables that were taken up without."""
    for path in sorted((DATA / chip).glob("*.json")):
        item = json.loads(path.read_text(encoding="utf-8"))
        if "predicted" not in item:
            item["predicted"] = predictions(Benchmark.model_validate(item["benchmark"]), cache)
            path.write_text(json.dumps(item, separators=(",", ":")) + "\n", encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: predicted", flush=True)


def searched(table: dict[str, Any]) -> dict[str, Any]:
    """A table of `avo bench` whose programs are what one run of `avo evolve` found, with the set of sizes that it has:
    its best program, or the few that together are fastest (`avo bench RUN/each`)."""
    from evaluators.targets import target

    found = Benchmark.model_validate(table)
    programs = [a.name for a in found.arms if a.program is not None]
    if not programs:
        raise SystemExit("a table of a search has a program")
    job, here = target(found.target), {r.workload for r in found.rows}
    sets = {"public": job.workloads} | {name: job.chosen(name).workloads for name in job.sets}
    chosen = next((name for name, sizes in sets.items() if here <= {w.name for w in sizes}), "public")
    return {"set": chosen, "part": SEARCHED, "benchmark": table}


def part_of(found: Benchmark, chosen: str) -> str:
    """What the workloads of a table have in common where they are only some of their set: `b=4`; else nothing."""
    from evaluators.targets import target

    job = target(found.target)
    whole = job.workloads if chosen == "public" else job.chosen(chosen).workloads
    kept = [w for w in whole if w.name in {r.workload for r in found.rows}]
    if len(kept) == len(whole):
        return ""
    for axis, extent in kept[0].sizes.items():
        if all(w.sizes[axis] == extent for w in kept) and any(w.sizes[axis] != extent for w in whole):
            return f"{axis}={extent}"
    return "some"


def predictions(found: Benchmark, cache: Path | None = None) -> dict[str, Any]:
    """What the model says of every point, with the compiler that is here. cache: a folder of machine code that is known
    already; what is not is put there."""
    from concurrent.futures import ThreadPoolExecutor
    from importlib import metadata

    from avo.workloads import workload
    from dsl.lowering import lower
    from dsl.work import work
    from evaluators.compiler import Compiler
    from evaluators.failures import WorkerFailure
    from evaluators.inputs import extents
    from evaluators.pool import WorkerPool
    from evaluators.prediction import predict
    from evaluators.process import cores
    from evaluators.targets import target

    chip, job = hardware(found.hardware), target(found.target)
    count = max(1, cores())
    with WorkerPool(count) as pool, ThreadPoolExecutor(count) as threads:
        compiler = Compiler(pool, cache=cache)

        def one(name: str, text: str, row: str) -> float | None:
            program = parse(text)
            lowered = lower(program, chip)
            size = workload(row, job)
            sizes = extents(program.algorithm, size)
            try:
                made = []
                for kernel in lowered.kernels:
                    launch = kernel.specialise(sizes, size.params)
                    code = compiler.compile(lowered.source, kernel.name, launch, chip)
                    made.append((launch, code, kernel.profile(sizes, size.params)))
            except WorkerFailure as failure:
                print(f"  {name}, {row}: {failure.message}", flush=True)
                return None
            return predict(made, chip, work(parse(job.seed), sizes, size.params)).seconds

        points = [(a.name, a.program, r.workload) for a in found.arms if a.program is not None for r in found.rows]
        asked = [threads.submit(one, *point) for point in points]
        seconds: dict[str, dict[str, float]] = {}
        for (name, _, row), answer in zip(points, asked, strict=True):
            if (told := answer.result()) is not None:
                seconds.setdefault(name, {})[row] = told
    return {"triton": metadata.version("triton"), "seconds": seconds}


# Figures of a table ------------------------------------------------------------------------------


def has_roles(arm: Arm) -> bool:
    """Whether it is a program with specialised warps, which lowers to Gluon."""
    return any(line.startswith("roles ") for line in (arm.program or "").splitlines())


def reached(found: Benchmark, over: str) -> float | None:
    """Ratio of speeds of the best programs over the best baselines, the plain kernel, a copy of the same bytes, or what
    the card sustains."""
    ratio = over_copy(found) if over == "copy" else over_plain(found) if over == "plain" else found.dispatched()
    if over == "ceiling" or (over == "copy" and ratio is None):
        best = [o.of_ceiling for _, o in found.best_programs()]
        whole = len(best) == len(found.rows) and all(best)
        return math.exp(sum(math.log(x) for x in best if x) / len(best)) if whole else None
    return None if ratio is None else ratio.value


def standing(found: Benchmark, over: str, ratio: float) -> tuple[str, str]:
    """What was reached of a goal, with its interval where it has one, and the verdict."""
    got = reached(found, over)
    if got is None:
        return "-", "not decided"
    known = {"best": found.dispatched, "plain": lambda: over_plain(found), "copy": lambda: over_copy(found)}[over]()
    verdict = "missed" if got < ratio else "reached"
    if known is None:
        return f"{got:.3f} ({CEILING})", verdict
    if verdict == "reached" and known.low < ratio:
        verdict = "reached, the interval holds less"
    return interval(known), verdict


def over_copy(found: Benchmark) -> Interval | None:
    """The best programs over a copy of the same bytes beside them, of sizes that memory limits. None where that copy
    was a memcpy alone, which is slow at some sizes: what it says of a program flatters."""
    limit = any(a.name == "copy" and "faster of" in a.about for a in found.arms)
    return found.dispatched("copy") if limit and {r.bottleneck for r in found.rows} == {"memory"} else None


def over_plain(found: Benchmark, roles: bool = True) -> Interval | None:
    """The best programs over the plain kernel at its best single setting for each of causal and not.

    None where its two settings were not both measured. roles: or else the best of the programs that lower to plain
    Triton, without specialised warps.
    """
    from evaluators.benchmark_result import mean_of, speed_between

    if not {*PLAIN} <= {a.name for a in found.arms}:
        return None
    best: dict[bool, str] = {}
    for causal in (False, True):
        rows = [r for r in found.rows if r.workload.endswith(f"causal={int(causal)}")]
        times = {n: [o.seconds for r in rows if (o := r.outcome(n)) and o.seconds] for n in PLAIN}
        whole = {n: sum(map(math.log, t)) for n, t in times.items() if len(t) == len(rows) and rows}
        if whole:
            best[causal] = min(whole, key=lambda n: whole[n])
    speeds = []
    kept = found if roles else found.model_copy(update={"arms": tuple(a for a in found.arms if not has_roles(a))})
    for row, outcome in kept.best_programs():
        causal = row.workload.endswith("causal=1")
        speeds.append(speed_between(row.measurement, outcome.arm, best.get(causal)))
    known = [s for s in speeds if s is not None]
    return mean_of(known) if len(known) == len(found.rows) else None
