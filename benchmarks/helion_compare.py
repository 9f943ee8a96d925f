"""Helion's autotuner and avo's heuristic on the same job, the same H200, the same seconds; both results in turns.

python benchmarks/helion_compare.py --case gemm --seconds 150 --out DIR       with an H200, helion installed
python benchmarks/helion_compare.py --case attention --seconds 150 --out DIR
python benchmarks/helion_compare.py --case faults --out DIR                   what a candidate that faults costs each
python benchmarks/helion_compare.py --results FILE --out DIR                  times in turns what FILE has as found
python benchmarks/helion_compare.py --case gemm --dry --out DIR               without a GPU: what can be tried there

Each tool gets the whole card and all cores for that many seconds by the clock on the wall, its own start included:
Helion through `autotune_budget_seconds`, with every other setting at its default (effort full, LFBOTreeSearch,
benchmarks in a worker of their own); avo as `avo evolve` does, from the naive seed program, its promotion included.
Helion's kernels are in `helion_kernels.py`, avo's programs are the seeds of `matmul` and `attention`. The two winners
and the vendor's kernel are then timed in turns in the sustained regime, in a third process. Where a part stops, what
the others found is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from evaluators.device import held
from evaluators.target import Workload

HERE = Path(__file__).resolve().parent

CASES = {
    "gemm": ("matmul", Workload({"m": 4096, "n": 4096, "k": 4096})),
    "attention": (
        "attention",
        Workload({"b": 4, "h": 16, "g": 16, "m": 8192, "n": 8192, "d": 128, "e": 128}, {"causal": False}),
    ),
}
PROMOTION_S = {"gemm": 15.0, "attention": 42.0}  # kept back from avo's seconds for its promotion
START_S = 12.0  # kept back from Helion's for importing and making inputs


def inputs(case: str, device: str, turn: int = 0, small: bool = False) -> list[Any]:
    """One set of bf16 inputs of the case."""
    import torch

    w = CASES[case][1]
    rng = torch.Generator(device=device).manual_seed(turn + 1)

    def made(*shape: int) -> Any:
        shape = tuple(min(n, 256) for n in shape) if small else shape
        return torch.randn(shape, generator=rng, device=device).to(torch.bfloat16)

    s = w.sizes
    if case == "gemm":
        return [made(s["m"], s["k"]), made(s["k"], s["n"])]
    return [made(s["b"], s["h"], s[axis], s["d"]) for axis in ("m", "n", "n")]


def flops(case: str) -> float:
    s = CASES[case][1].sizes
    return 2.0 * s["m"] * s["n"] * s["k"] if case == "gemm" else 4.0 * s["b"] * s["h"] * s["m"] * s["n"] * s["d"]


# Helion ---------------------------------------------------------------------------------------------------------------


def kernel(case: str, **settings: Any) -> Any:
    import helion  # type: ignore[import-not-found,unused-ignore]
    import helion_kernels

    function = getattr(helion_kernels, {"gemm": "matmul"}.get(case, case))
    return helion.kernel(function, static_shapes=True, autotune_progress_bar=False, **settings)


def by_helion(case: str, seconds: float, out: Path, dry: bool) -> None:
    """Runs in a process of its own; writes helion_CASE.json with the configuration and what came when."""
    began = time.time()
    log = out / f"helion_{case}_log"
    budget = max(20, round(seconds - START_S))
    found = kernel(case, autotune_budget_seconds=budget, autotune_log=str(log), autotune_random_seed=8)
    args = inputs(case, "cpu" if dry else "cuda", small=dry)
    bound = found.bind(tuple(args))
    config = bound.config_spec.default_config() if dry else bound.autotune(tuple(args), force=True)
    row = {
        "seconds": time.time() - began,
        "budget_s": budget,
        "config": dict(config.config),
        "source": bound.to_triton_code(config),
        "version": version("helion"),
    }
    (out / f"helion_{case}.json").write_text(json.dumps({**row, **_timeline(log.with_suffix(".csv"), began)}, indent=1))


def _timeline(file: Path, began: float) -> dict[str, Any]:
    """From Helion's own log: how many configurations of which status, and each that was faster than all before it."""
    if not file.is_file():
        return {}
    states: dict[str, int] = {}
    steps: list[tuple[float, float]] = []
    first = None
    with file.open(newline="") as text:
        for row in csv.DictReader(text):
            states[row["status"]] = states.get(row["status"], 0) + 1
            at = float(row["timestamp_s"] or 0)
            first = at if first is None else first
            at = at - began if at > 1e8 else at
            if row["status"] == "ok" and row["perf_ms"] and (not steps or float(row["perf_ms"]) < steps[-1][1]):
                steps.append((round(at, 2), float(row["perf_ms"])))
    return {"statuses": states, "best_so_far": steps}


# avo ------------------------------------------------------------------------------------------------------------------


def by_avo(case: str, seconds: float, out: Path, dry: bool) -> None:
    """Runs in a process of its own; writes avo_CASE.json with the program and what came when."""
    began = time.monotonic()
    from avo import evolve
    from avo.events import Committed, Verdict

    target, workload = CASES[case]
    steps: list[tuple[float, float]] = []
    states: dict[str, int] = {}
    best = math.inf

    def watch(event: Any) -> None:
        nonlocal best
        if isinstance(event, Verdict):
            status = str(event.candidate.evaluation.status)
            states[status] = states.get(status, 0) + 1
        if isinstance(event, Committed) and event.best:
            found = event.candidate.evaluation.workloads
            took = (found[0].measured_s or found[0].predicted_s) if found else None
            if took and took < best:
                best = took
                steps.append((round(time.monotonic() - began, 2), took * 1e3))

    archive = out / f"avo_{case}.db"
    archive.unlink(missing_ok=True)
    minutes = max(0.3, (seconds - PROMOTION_S[case] - (time.monotonic() - began)) / 60)
    with evolve(
        target,
        "h200",
        minutes=None if dry else minutes,
        steps=4 if dry else None,
        seed=8,
        agent="heuristic",
        evaluator="predicted" if dry else "measured",
        workloads=[workload],
        archive=archive,
        observer=watch,
    ) as run:
        found = run.best
        assert found is not None
        row = {
            "seconds": time.monotonic() - began,
            "program": found.text,
            "k": found.k,
            "candidates": sum(states.values()),
            "statuses": states,
            "best_so_far": steps,
        }
    for each in (archive, archive.with_suffix(".db-wal"), archive.with_suffix(".db-shm")):
        each.unlink(missing_ok=True)
    (out / f"avo_{case}.json").write_text(json.dumps(row, indent=1))


def source(text: str, case: str) -> tuple[str, str]:
    """(what a program lowers to, its entry)."""
    from dsl.hardware import hardware
    from dsl.lowering import lower
    from dsl.parser import parse
    from evaluators.gates import Case, exact_sizes
    from evaluators.loading import complete, seed_program
    from evaluators.targets import target

    job = complete(target(CASES[case][0]))
    chip = hardware("h200")
    asked = Case(text=text, target=job, wanted=seed_program(job), hardware=chip, program=parse(text))
    import triton

    found = lower(asked.sure, chip, exact_sizes(asked), triton=triton.__version__)
    return found.source, found.entry


# Both -----------------------------------------------------------------------------------------------------------------


def measured(case: str, out: Path, dry: bool) -> None:
    """The two results and the vendor's kernel in turns; writes measured_CASE.json."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from evaluators.compiler import load_source
    from evaluators.sustained import measure, rotation

    device = "cpu" if dry else "cuda"
    one = inputs(case, device, small=dry)
    sets = 1 if dry else rotation(sum(x.numel() * x.element_size() for x in one))
    every = [one, *(inputs(case, device, turn, small=dry) for turn in range(1, sets))]
    arms: dict[str, Callable[[int], Any]] = {}
    mine, theirs = out / f"avo_{case}.json", out / f"helion_{case}.json"
    wanted: Any

    def vendor(i: int) -> Any:
        if case == "gemm":
            return torch.matmul(*every[i])
        with sdpa_kernel(SDPBackend.MATH if dry else SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(*every[i])

    if mine.is_file():
        text, entry = source(json.loads(mine.read_text())["program"], case)
        call = getattr(load_source(text), entry)
        params = {"causal": False} if case == "attention" else {}
        arms["avo"] = lambda i: call(*every[i], **params)
    if theirs.is_file():
        import helion  # type: ignore[import-not-found,unused-ignore]

        config = json.loads(theirs.read_text())["config"]
        if dry:
            config.pop("host_tensor_descriptors", None)  # without CUDA there are none to choose
        run = kernel(case).bind(tuple(one)).compile_config(helion.Config(**config))
        arms["helion"] = lambda i: run(*every[i])
    arms["vendor"] = vendor
    wanted = vendor(0).double()
    if dry:
        print("arms:", list(arms))
        return
    errors = {}
    for name, arm in list(arms.items()):
        try:
            got = arm(0).double()
            errors[name] = float((got - wanted).norm() / wanted.norm())
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"[:200]
            del arms[name]
    found = measure(arms, sets=sets)
    rows = {}
    for name in arms:
        seconds = found.seconds(name)
        rows[name] = {
            "ms": seconds * 1e3,
            "tflops": flops(case) / seconds * 1e-12,
            "clocks": found.clocks(name).model_dump(mode="json"),
        }
        if name != "vendor":
            ratio = found.ratio("vendor", over=name)
            rows[name]["of_vendor"] = [ratio.value, ratio.low, ratio.high]
    if {"avo", "helion"} <= set(arms):
        ratio = found.ratio("helion", over="avo")
        rows["avo"]["of_helion"] = [ratio.value, ratio.low, ratio.high]
    whole = {"errors": errors, "rows": rows, "device": torch.cuda.get_device_name()}
    (out / f"measured_{case}.json").write_text(json.dumps(whole | {"measurement": found.model_dump(mode="json")}))
    for name, row in rows.items():
        print(f"    {name:<8}{row['ms']:9.4f} ms {row['tflops']:8.1f} TFLOP/s  of the vendor's {row.get('of_vendor')}")
    print("    avo over helion:", rows.get("avo", {}).get("of_helion"), "errors", errors)


# Faults ---------------------------------------------------------------------------------------------------------------


def faults(out: Path, dry: bool) -> None:
    """Three configurations in Helion of which the middle one faults, with its worker and without; then avo's faults."""
    lines = []
    for isolated in (True, False):
        began = time.monotonic()
        name = out / f"helion_fault_{'worker' if isolated else 'in_process'}.txt"
        with name.open("w") as file:
            code = subprocess.run(
                [sys.executable, __file__, "--part", "fault", "--out", str(out), *(["--dry"] if dry else [])],
                env=_environment() | {"HELION_AUTOTUNE_BENCHMARK_SUBPROCESS": str(int(isolated))},
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=150,
                check=False,
            ).returncode
        text = name.read_text().strip().splitlines()
        lines.append(
            f"Helion, {'its worker' if isolated else 'in process'}: {time.monotonic() - began:.1f} s, exit {code}"
        )
        lines += [f"    {line[:220]}" for line in text[-6:]]
    if not dry:
        done = subprocess.run(
            [sys.executable, str(HERE / "device_smoke.py"), "--only-faults", "--faults", "3"],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        lines += ["avo:", *(f"    {line[:220]}" for line in done.stdout.splitlines() if "fault" in line)]
    (out / "faults.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def one_fault(out: Path, dry: bool) -> None:
    """Helion chooses among three configurations; the second reads an illegal address."""
    import helion  # type: ignore[import-not-found,unused-ignore]
    import torch

    configs = [helion.Config(block_sizes=[size], far=far) for size, far in ((1024, 0), (1024, 1), (512, 0))]
    log = out / f"helion_fault_{os.environ['HELION_AUTOTUNE_BENCHMARK_SUBPROCESS']}"
    found = kernel("copy", configs=configs, autotune_log=str(log))
    x = torch.randn(1 << 16, device="cpu" if dry else "cuda")
    bound = found.bind((x,))
    began = time.monotonic()
    if dry:
        print([len(bound.to_triton_code(c)) for c in configs])
        return
    chosen = bound.autotune((x,), force=False)
    print(f"chose {dict(chosen.config)} after {time.monotonic() - began:.1f} s; right: {torch.equal(found(x), x)}")
    print("statuses", _timeline(log.with_suffix(".csv"), 0.0).get("statuses"))


# Running --------------------------------------------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    paths = [str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "helion": lambda f: by_helion(f.case, f.seconds, f.out, f.dry),
    "avo": lambda f: by_avo(f.case, f.seconds, f.out, f.dry),
    "measure": lambda f: measured(f.case, f.out, f.dry),
    "fault": lambda f: one_fault(f.out, f.dry),
}


def _part(part: str, case: str, flags: argparse.Namespace, limit: float) -> tuple[int, float]:
    """(exit status, seconds) of one part in a process of its own, which has been ended after `limit` seconds (-1)."""
    began = time.monotonic()
    command = [sys.executable, __file__, "--part", part, "--case", case, "--seconds", str(flags.seconds)]
    command += ["--out", str(flags.out), *(["--dry"] if flags.dry else [])]
    own = contextlib.nullcontext() if part == "avo" or flags.dry else held()  # avo's judge takes its own
    with own, (flags.out / f"{part}_{case}.txt").open("w") as file:
        try:
            code = subprocess.run(
                command, env=_environment(), stdout=file, stderr=subprocess.STDOUT, timeout=limit, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    return code, round(time.monotonic() - began, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=(*CASES, "faults"), default="gemm")
    parser.add_argument("--seconds", type=float, default=150.0, help="of the card, for each tool")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--results", type=Path, help="such as benchmarks/data/peers/helion_h200.json")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    if flags.results:
        for case, kept in json.loads(flags.results.read_text())["cases"].items():
            for tool, needed in (("avo", "program"), ("helion", "config")):
                if needed in kept[tool]:
                    (flags.out / f"{tool}_{case}.json").write_text(json.dumps(kept[tool]))
            code, wall = _part("measure", case, flags, 120.0)
            print(f"{case}: exit {code} after {wall} s")
            print("\n".join((flags.out / f"measure_{case}.txt").read_text().splitlines()[-8:]), flush=True)
        return 0
    if flags.part:
        PARTS[flags.part](flags)
        return 0
    if flags.case == "faults":
        faults(flags.out, flags.dry)
        return 0
    walls = {}
    for part, limit in (("avo", flags.seconds + 60), ("helion", flags.seconds + 60), ("measure", 90.0)):
        code, walls[part] = _part(part, flags.case, flags, limit)
        print(f"{part}: exit {code} after {walls[part]} s", flush=True)
        if code or part == "measure":
            print("\n".join((flags.out / f"{part}_{flags.case}.txt").read_text().splitlines()[-8:]), flush=True)
    for part in ("avo", "helion"):
        file = flags.out / f"{part}_{flags.case}.json"
        if file.is_file():
            row = json.loads(file.read_text())
            print(
                f"{part}: {row['seconds']:.1f} s; {row.get('statuses')}; best so far (s, ms): {row.get('best_so_far')}"
            )
    found: dict[str, Any] = {"asked_s": flags.seconds, "date": time.strftime("%Y-%m-%d", time.gmtime())}
    for part in ("avo", "helion", "measured"):
        file = flags.out / f"{part}_{flags.case}.json"
        found[part] = json.loads(file.read_text()) if file.is_file() else {"failed": "no result"}
        found[part]["wall_s"] = walls["measure" if part == "measured" else part]
    found["versions"] = {package: version(package) for package in ("helion", "torch", "triton")}
    (flags.out / f"compare_{flags.case}.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
