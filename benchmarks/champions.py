"""Measures the schedules of configs/candidates/CHIP.toml beside the libraries, and writes the best ones as champions.

    python benchmarks/champions.py measure --hw h200 -o results.json [--seconds 330]   (on a machine with the GPU)
    python benchmarks/champions.py measure --plan found --found DIR -o results.json      (DIR: their runs, see --found)
    python benchmarks/results_page.py take results.json  (anywhere: champions, docs/results/h200.md)

`measure` works down a plan, the most telling first, and stops where the time is up; what it has by then is in the file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dsl.hardware import hardware
from dsl.parser import parse
from evaluators import baselines
from evaluators.benchmark import Bench, Entry, program_entry
from evaluators.benchmark_result import Arm, Benchmark
from evaluators.target import Target
from evaluators.targets import target
from evaluators.timing import Regime

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Step:
    """One table. chosen: a set of the target's sizes. where: only workloads whose name has one of these. only: arms of
    the libraries. candidates: of which table of the file, the same as `chosen` if left out; `matmul.tall`: of another
    target whose axes are these."""

    target: str
    chosen: str = ""
    where: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    candidates: str = ""
    seed: bool = False
    rounds: int = 4
    leave: tuple[str, ...] = ()  # candidates that are not worth the time
    pick: tuple[str, ...] = ()  # the candidates that are, if only some


PLAIN = ("plain Triton", "plain lazy")
# Of the lists of bf16 products, for types that have none of their own:
DECODE = ("16x64", "16x128", "16x32s6", "64x32s6", "64x64s6", "64x128r", "64x128s3")
TALL = ("roles", "roles128", "stages4", "128x128", "64x64")
PLANS = {
    "main": (
        Step("attention", only=("cuDNN", "FA2", *PLAIN), seed=True),
        Step("matmul", only=("cuBLAS",), seed=True),
        Step("rmsnorm", only=("eager", "torch.compile", "copy"), seed=True),
        Step("matmul", "decode", only=("cuBLAS", "copy"), rounds=3),
        Step("softmax", only=("eager", "torch.compile", "copy")),
        Step("layernorm", only=("eager", "torch.compile", "copy")),
        Step("attention", "grouped", where=("b=4",), only=("cuDNN", "FA2", *PLAIN), candidates="public"),
        Step("cross_entropy", only=("eager", "torch.compile", "copy")),
        Step("swiglu", only=("eager", "torch.compile")),
        Step("gemm", only=("cuBLAS", "cuBLAS addmm", "torch.compile")),
        Step("matmul_fp8", only=("torch rowwise", "cuBLAS")),
        Step("matmul_f16", where=("m=4096", "m=8192"), only=("cuBLAS",)),
        Step("attention", "d64", where=("b=4",), only=("cuDNN", "FA2", *PLAIN)),
        Step("attention", "d256", where=("b=4",), only=("cuDNN", "FA2", *PLAIN)),
        Step("attention", where=("b=2",), only=("cuDNN", "FlexAttention")),
        Step("matmul", where=("m=4096",), only=("cuBLAS", "max-autotune")),
    ),
    "roles": (  # two minutes: specialised warps beside plain schedules and the libraries
        Step("attention", only=("cuDNN", "FA2", *PLAIN), leave=("lazy", "causal_lazy")),
        Step(
            *("attention", "grouped", ("b=4",), ("cuDNN", *PLAIN), "public"),
            leave=("lazy", "causal_lazy", "roles_lazy"),
            rounds=3,
        ),
        Step("matmul", only=("cuBLAS",), leave=("stages3", "square"), rounds=3),
        Step("attention", "d64", where=("b=4",), only=("cuDNN", "FA2", "plain Triton"), leave=("n128",), rounds=3),
        Step("attention", "d256", where=("b=4",), only=("cuDNN", "FA2", "plain Triton"), leave=("lazy",), rounds=3),
        Step("cross_entropy", where=("r=8192",), only=("eager", "copy"), rounds=3),
    ),
    "peers": (  # four minutes: libraries that had not run here, and the sets that had no table
        Step(
            "attention",
            where=("b=4",),
            only=("cuDNN", "FA2", "FlexAttention", *PLAIN, "SageAttention"),
            leave=("lazy", "causal_lazy", "roles_shared"),
            rounds=3,
        ),
        Step("attention", "d64", where=("b=4",), only=("cuDNN", "FA2", "FlexAttention", "plain Triton"), rounds=3),
        Step("attention", "d256", where=("b=4",), only=("cuDNN", "FA2", "FlexAttention", "plain Triton"), rounds=3),
        Step("matmul", "tall", only=("cuBLAS", "copy"), rounds=3),
        Step("matmul_fp8", where=("m=4096", "m=8192"), only=("torch rowwise", "cuBLAS"), rounds=3),
        Step("matmul_f16", where=("m=4096", "m=8192"), only=("cuBLAS",), rounds=3),
        Step("matmul", where=("m=4096",), only=("cuBLAS", "max-autotune"), rounds=3),
        Step("swiglu", where=("r=8192",), only=("eager", "torch.compile"), rounds=3),
        Step("cross_entropy", only=("eager", "torch.compile", "copy"), rounds=3),
    ),
    "tuned": (  # five minutes: torch.compile's own search; the short kernels, whose first table began on a cold card
        Step("matmul", only=("cuBLAS", "max-autotune"), rounds=3),
        Step("rmsnorm", only=("eager", "torch.compile", "copy")),
        Step("softmax", only=("eager", "torch.compile", "copy")),
        Step("layernorm", only=("eager", "torch.compile", "copy")),
        Step("gemm", only=("cuBLAS", "cuBLAS addmm", "torch.compile", "max-autotune"), rounds=3),
        Step("matmul", "decode", only=("cuBLAS", "max-autotune", "copy"), where=("m=16",), rounds=3),
        Step("swiglu", where=("r=4096",), only=("eager", "torch.compile", "max-autotune"), rounds=3),
    ),
    "again": (  # four minutes: sets whose first tables had too few candidates, kernels that ran on a rested card
        *(
            Step(name, only=("eager", "torch.compile", "copy"), leave=("p8",), rounds=3)
            for name in ("layernorm", "softmax", "rmsnorm")
        ),
        Step(
            *("matmul", "decode", (), ("cuBLAS", "copy")),
            rounds=2,
            pick=("16x64", "16x128", "64x128", "64x128r", "64x128s3", "64x64s6", "64x32s6", "16x32s6", "16x64k256"),
        ),
        Step(
            *("attention", "grouped", ("b=4",), ("cuDNN", *PLAIN), "public"),
            leave=("lazy", "causal_lazy", "roles_lazy", "roles_shared"),
            rounds=3,
        ),
        Step("gemm", only=("cuBLAS", "cuBLAS addmm", "torch.compile"), rounds=3),
        Step("matmul", only=("cuBLAS",), leave=("stages3", "square"), rounds=3),
        Step(
            *("matmul", "tall", (), ("cuBLAS", "copy")),
            rounds=3,
            leave=("roles256", "128x128w4", "64x32", "64x128", "64x64"),
        ),
        Step("attention", "d256", where=("b=4",), only=("cuDNN", *PLAIN), leave=("lazy", "roles32"), rounds=3),
    ),
    "found": (  # four minutes: of the run in each archive the few programs that together are fastest
        Step("matmul", "tall", only=("cuBLAS", "copy"), rounds=3),
        Step("attention", "d256", only=("cuDNN", *PLAIN), rounds=3),
        *(Step(name, only=("torch.compile", "copy"), rounds=3) for name in ("softmax", "rmsnorm")),
        Step("swiglu", only=("eager", "torch.compile"), rounds=3),
        *(Step(name, only=("torch.compile", "copy"), rounds=3) for name in ("cross_entropy", "layernorm")),
        Step("matmul", "decode", only=("cuBLAS", "copy"), rounds=3),
    ),
    "rest": (  # four minutes: what was not decided, and sets that no table has
        Step("attention", only=("cuDNN", *PLAIN), leave=("roles_shared", "roles_lazy"), rounds=3),
        *(
            Step(name, chosen, only=("torch.compile", "copy"), candidates=candidates, pick=pick, rounds=3)
            for name, chosen, candidates, pick in (
                ("softmax", "models", "", ()),
                ("rmsnorm", "models", "public", ("w8", "w16", "r4w16", "tma8")),
                ("rmsnorm", "decode", "public", ("w4", "w8", "w16", "tma8")),
                ("softmax", "decode", "", ()),
                ("layernorm", "decode", "public", ("w4", "w8", "w16")),
                ("cross_entropy", "long", "public", ("c1024_tma", "c4096_tma", "c8192_2_8")),
            )
        ),
        Step("gemm", "decode", (), ("cuBLAS", "cuBLAS addmm"), "matmul.decode", rounds=2, pick=DECODE),
        Step("gemm", "tall", (), ("cuBLAS", "cuBLAS addmm"), "matmul.tall", rounds=2, pick=TALL),
    ),
    "more": (  # four minutes: other types, and torch.compile's own search
        Step("swiglu", "decode", only=("eager", "torch.compile"), rounds=2),
        Step("matmul_fp8", "decode", (), ("cuBLAS", "copy"), "matmul.decode", rounds=2, pick=DECODE),
        Step("matmul_fp8", "tall", (), ("cuBLAS", "copy"), "matmul.tall", rounds=2, pick=TALL),
        Step("matmul_f16", "decode", (), ("cuBLAS", "copy"), "matmul.decode", rounds=2, pick=DECODE),
        Step("matmul_f16", "tall", (), ("cuBLAS", "copy"), "matmul.tall", rounds=2, pick=TALL),
        Step("swiglu", where=("r=4096",), only=("eager", "torch.compile", "max-autotune"), rounds=3),
        Step("matmul_f16", where=("m=4096",), only=("cuBLAS", "max-autotune"), rounds=3),
    ),
    "heads": (  # what a minute is enough for
        Step("attention", "grouped", where=("b=4",), only=("cuDNN", "FA2", *PLAIN), candidates="public", rounds=3),
        Step("attention", where=("b=4",), only=("cuDNN", *PLAIN), rounds=3),
        Step("attention", "d64", where=("b=4",), only=("cuDNN", "FA2", *PLAIN), rounds=3),
        Step("attention", "d256", where=("b=4",), only=("cuDNN", "FA2", *PLAIN), rounds=3),
        Step("matmul_fp8", where=("m=4096", "m=8192"), only=("torch rowwise", "cuBLAS"), rounds=3),
        Step("cross_entropy", where=("r=8192",), only=("eager", "copy"), rounds=3),
    ),
}


def job_of(step: Step) -> Target:
    found = target(step.target)
    found = found.chosen(step.chosen) if step.chosen else found
    if step.where:
        kept = tuple(w for w in found.workloads if any(f"{part}," in f"{w.name}," for part in step.where))
        found = replace(found, workloads=kept)
    return found


def archive_of(step: Step, folder: Path) -> Path:
    """Where a run of the step's sizes was put: TARGET.db, TARGET_SET.db."""
    return folder / f"{'_'.join(part for part in (step.target, step.chosen) if part)}.db"


def entries_of(step: Step, job: Target, chip: str, found: Path | None = None) -> list[Entry]:
    """The arms. found: a folder with an archive of a run of each target, whose programs stand in for the candidates."""
    if found is not None:
        from avo.candidates import find_all

        texts = {one.name: one.text for one in find_all(["1/each"], str(archive_of(step, found)))}
    else:
        table = tomllib.loads((ROOT / "configs" / "candidates" / f"{chip}.toml").read_text())
        owner, _, chosen = (step.candidates or step.chosen or "public").rpartition(".")
        schedules = table[owner or step.target].get(chosen, {})
        algorithm = job.seed.partition("schedule")[0]
        texts = {
            name: text.lstrip() if text.lstrip().startswith("kernel ") else f"{algorithm}schedule\n{text}"
            for name, text in schedules.items()
            if name not in step.leave and name in (step.pick or schedules)
        }
    if step.seed:
        texts["seed"] = job.seed
    made = [program_entry(name, text, parse(text), job, hardware(chip)) for name, text in texts.items()]
    known = [b for b in baselines.of(job.name) if b.name in step.only]
    return made + [Entry(Arm(name=b.name, kind=b.role, about=b.about)) for b in known]


def measure(chip: str, plan: str, output: Path, seconds: float, simulate: bool, archives: Path | None = None) -> None:
    from avo.benchmark_page import BEST, summary, trouble

    began, found = time.monotonic(), []
    output.parent.mkdir(parents=True, exist_ok=True)

    def said(what: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)

    def watch(so_far: Benchmark) -> None:
        row = so_far.rows[-1]
        done = ", ".join(f"{o.arm} {o.rate:.4g}{'*' if o.reason else ''}" for o in row.outcomes if o.rate is not None)
        said(f"  {row.workload}: {done}")
        now = {**named, "benchmark": so_far.model_dump(mode="json")}
        output.write_text(json.dumps([*found, now]))  # whatever ends this, the rows that are there stay

    more = {}
    if simulate:
        from evaluators.device import DeviceFacts

        more = {"devices": [DeviceFacts(name="simulated", uuid="GPU-none")], "simulate": True}
    with Bench(hardware(chip), **more) as card:
        steps = [(step, job_of(step)) for step in PLANS[plan]]
        if archives is not None:
            steps = [(step, job) for step, job in steps if archive_of(step, archives).exists()]
            if not steps:
                wanted = ", ".join(archive_of(step, archives).name for step in PLANS[plan])
                raise SystemExit(f"{archives} has no archive of a run that this plan knows: {wanted}")
        card.compile(*((job, entries_of(step, job, chip, archives)) for step, job in steps))
        said("compiled")
        for step, job in steps:
            if time.monotonic() - began > seconds:
                said(f"time is up before {step}")
                break
            regime = Regime()
            if simulate:
                few = tuple(replace(w, sizes=_small(w.sizes)) for w in job.workloads[:2])
                job, regime = replace(job, workloads=few), Regime(untimed_s=0.0, timed_s=1e-3)
            named = {"set": step.chosen or "public"} | ({"part": "search"} if archives is not None else {})
            said(f"{job.name} {named['set']}")
            try:
                one = card.run(
                    job, entries_of(step, job, chip, archives), rounds=step.rounds, regime=regime, watch=watch
                )
            except Exception as error:  # the next table may still be had
                said(f"  FAILED {type(error).__name__}: {error}")
                continue
            found.append({**named, "benchmark": one.model_dump(mode="json")})
            output.write_text(json.dumps(found))
            for line in summary(one):
                said("  " + "  ".join(line))
            for line in trouble(one):
                said(f"  ! {line}")
    print(f"\n{'target':<14} {'set':<8} best program over the best baseline, and of the ceiling")
    for item in found:
        one = Benchmark.model_validate(item["benchmark"])
        last = next((r for r in summary(one) if r[0] == BEST), None) or summary(one)[0]
        print(f"{one.target:<14} {item['set']:<8} {last[2]:>8} {one.unit}  {last[3]}  {last[5]}")


def _small(sizes: dict[str, int]) -> dict[str, int]:
    """For a run in the interpreter."""
    kept = {a: min(n, 64 if a in "mnkrf" else 2) for a, n in sizes.items()}
    return {**kept, **{a: min(sizes[a], 64) for a in ("d", "e", "c") if a in sizes}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("measure")
    one.add_argument("--hw", default="h200")
    one.add_argument("--plan", choices=PLANS, default="main")
    one.add_argument("-o", "--output", type=Path, required=True)
    one.add_argument("--seconds", type=float, default=330.0)
    one.add_argument("--found", type=Path, help="measure what runs found: a folder with TARGET.db, TARGET_SET.db")
    one.add_argument("--simulate", action="store_true", help="tiny sizes in the interpreter, to try the plan itself")
    flags = parser.parse_args()
    measure(flags.hw, flags.plan, flags.output, flags.seconds, flags.simulate, flags.found)


if __name__ == "__main__":
    main()
