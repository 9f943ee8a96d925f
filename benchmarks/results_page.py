"""The results page and the champions, from stored data alone.

    python benchmarks/results_page.py                      writes docs/results/h200.md and configs/champions/h200/
    python benchmarks/results_page.py take RESULTS.json... takes tables of benchmarks/champions.py up into the data,
                                                           with what avo predicts for each of their points, or a table
                                                           of `avo bench` for the program that `avo evolve` found

Data: benchmarks/data/bench/CHIP/ (tables of `avo bench`, raw samples included) and benchmarks/data/runs/ (measured
runs). A table that was measured twice under the same name is kept as the newer one.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from one_run import sampled, section, sweep_facts
from published import Rates, published

from avo.benchmark_page import conditions, interval, markdown, sustained
from dsl.hardware import hardware
from dsl.parser import parse
from evaluators.benchmark import Benchmark, Interval

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "benchmarks" / "data" / "bench"
RUNS = ROOT / "benchmarks" / "data" / "runs"
PUBLISHED = ROOT / "benchmarks" / "data" / "published_attention.json"

# (target, set) -> what was hoped for: over what, at least what ratio of speeds, in words
_NORM = (("best", 1.0, "1.0x torch.compile"), ("ceiling", 0.9, "0.90 of a copy"))
GOALS: dict[tuple[str, str], tuple[tuple[str, float, str], ...]] = {
    ("attention", "public"): (("plain", 1.02, "1.02x the plain kernel's best setting"),),
    ("matmul", "public"): (("best", 0.95, "0.95x cuBLAS"),),
    ("matmul", "decode"): (("best", 1.0, "1.0x cuBLAS"),),
    ("rmsnorm", "public"): _NORM,
    ("layernorm", "public"): _NORM,
    ("softmax", "public"): _NORM,
}
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


def take(paths: list[Path]) -> None:
    for path in paths:
        read = json.loads(path.read_text(encoding="utf-8"))
        for item in read if isinstance(read, list) else [searched(read)]:
            found = Benchmark.model_validate(item["benchmark"])
            if part := part_of(found, item["set"]):
                item["part"] = part
            item["predicted"] = predictions(found)
            folder = DATA / found.hardware
            folder.mkdir(parents=True, exist_ok=True)
            place = folder / f"{named(item)}.json"
            place.write_text(json.dumps(item, separators=(",", ":")) + "\n", encoding="utf-8")
            print(f"{place.relative_to(ROOT)}: {len(found.rows)} workloads", flush=True)


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


def predictions(found: Benchmark) -> dict[str, Any]:
    """What the model says of every point, with the compiler that is here."""
    from importlib import metadata

    from avo.workloads import workload
    from dsl.lowering import lower
    from dsl.work import work
    from evaluators.compiler import Compiler
    from evaluators.failures import WorkerFailure
    from evaluators.inputs import extents
    from evaluators.pool import WorkerPool
    from evaluators.prediction import predict
    from evaluators.targets import target

    chip, job = hardware(found.hardware), target(found.target)
    seconds: dict[str, dict[str, float]] = {}
    with WorkerPool(2) as pool:
        compiler = Compiler(pool)
        for arm in found.arms:
            if arm.program is None:
                continue
            program = parse(arm.program)
            lowered = lower(program, chip)
            for row in found.rows:
                size = workload(row.workload, job)
                sizes = extents(program.algorithm, size)
                try:
                    made = []
                    for kernel in lowered.kernels:
                        launch = kernel.specialise(sizes, size.params)
                        code = compiler.compile(lowered.source, kernel.name, launch, chip)
                        made.append((launch, code, kernel.profile(sizes, size.params)))
                except WorkerFailure as failure:
                    print(f"  {arm.name}, {row.workload}: {failure.message}", flush=True)
                    continue
                needed = work(parse(job.seed), sizes, size.params)
                seconds.setdefault(arm.name, {})[row.workload] = predict(made, chip, needed).seconds
    return {"triton": metadata.version("triton"), "seconds": seconds}


# Champions ----------------------------------------------------------------------------------------


def champions(items: list[dict[str, Any]], folder: Path, chip: str = "h200") -> list[tuple[str, list[str]]]:
    """Writes each program that is the best somewhere, and beside each table its measurements. Returns what is where."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    made = []
    for item in items:
        found = Benchmark.model_validate(item["benchmark"])
        texts = {a.name: a for a in found.arms if a.program is not None}
        stem = named(item)
        won: dict[str, list[dict[str, Any]]] = {}
        for row, outcome in found.best_programs():
            state = outcome.state.model_dump(mode="json")
            won.setdefault(outcome.arm, []).append(
                {
                    "workload": row.workload,
                    "seconds": outcome.seconds,
                    "rate": outcome.rate,
                    "unit": found.unit,
                    "best_baseline": row.best_baseline,
                    "speed_over_it": outcome.speed.model_dump() if outcome.speed else None,
                    "of_floor": outcome.of_floor,
                    "of_ceiling": outcome.of_ceiling,
                    "state": state,
                    "samples_s": [s.seconds for s in row.measurement.of(outcome.arm)] if row.measurement else [],
                }
            )
        listed = []
        for name, rows in won.items():
            file = f"{stem}_{name}.avo"
            (folder / file).write_text(texts[name].program or "", encoding="utf-8")
            facts = {
                "program": file,
                "digest": texts[name].digest,
                "target": found.target,
                "hardware": found.hardware,
                "set": item["set"],
                "mode": "measured",
                "date": found.date,
                "device": found.device,
                "versions": found.versions,
                "regime": {**found.regime.facts(), "rounds": found.rounds},
                "ceilings": {k: found.ceilings[k] for k in ("flops", "bytes_per_s")},
                "workloads": rows,
            }
            (folder / f"{stem}_{name}.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            listed.append(f"{file} ({len(rows)})")
        made.append((stem, listed))
    return made + [kept for path in _sweeps(chip) for kept in _of_sweep(path, folder, chip)]


def _sweeps(chip: str) -> list[Path]:
    return sorted((DATA / chip / "sweeps").glob("*.json"))


_LINE = re.compile(r"(?P<label>.+): theirs (?P<theirs>\d+) \(1\.000(?:, 1\.000)?\), (?P<rest>.+)")
_FORM = re.compile(r"(?P<name>\S+) (?P<rate>\d+) \((?P<ratio>[\d.]+)(?:, [\d.]+)?\)")  # the second is of medians
_SIZES = re.compile(r"(?P<grouped>grouped )?(?P<kind>full|causal) ((?P<h>\d+)/(?P<g>\d+) )?(?P<b>\d+)x(?P<m>\d+)$")


def sweep(path: Path) -> list[tuple[str, float, dict[str, tuple[float, float]]]]:
    """(what, the library's TFLOP/s, form -> (TFLOP/s, ratio to the library)) of each line of a sweep."""
    found = []
    for line in sweep_facts(path)["lines"]:
        if one := _LINE.match(line):
            forms = {f["name"]: (float(f["rate"]), float(f["ratio"])) for f in _FORM.finditer(one["rest"])}
            found.append((one["label"], float(one["theirs"]), forms))
    return found


def _workload(label: str) -> tuple[str, str] | None:
    """(target, workload) of a sweep's line; None for one that is no public size."""
    if one := re.match(r"product (\d+)$", label):
        return "matmul", ",".join(f"{axis}={one[1]}" for axis in "mnk")
    if one := _SIZES.match(label):
        h, g = one["h"] or "16", one["g"] or "16"
        causal = int(one["kind"] == "causal")
        return "attention", f"b={one['b']},h={h},g={g},m={one['m']},n={one['m']},d=128,e=128,causal={causal}"
    return None


def _of_sweep(path: Path, folder: Path, chip: str) -> list[tuple[str, list[str]]]:
    """Champions of a sweep: seconds follow from a rate of three figures."""
    from avo.workloads import workload
    from dsl.printer import digest, print_program
    from dsl.work import work
    from evaluators.inputs import extents
    from evaluators.targets import target

    facts = sweep_facts(path)
    candidates = tomllib.loads((ROOT / "configs" / "candidates" / f"{chip}.toml").read_text(encoding="utf-8"))
    made = []
    for form, stem in facts.get("forms", {}).items():
        job_name, _, schedule = stem.partition("_")
        job = target(job_name)
        program = parse(job.seed.partition("schedule")[0] + "schedule\n" + candidates[job_name]["public"][schedule])
        rows = []
        for label, theirs, forms in sweep(path):
            known = _workload(label)
            if known is None or known[0] != job_name or form not in forms:
                continue
            size = workload(known[1], job)
            rate, ratio = forms[form]
            amount = work(parse(job.seed), extents(program.algorithm, size), size.params)
            rows.append(
                {
                    "workload": size.name,
                    "seconds": float(f"{sum(amount.flops.values()) / rate / 1e12:.3g}"),
                    "rate": rate,
                    "unit": "TFLOP/s",
                    "best_baseline": "cuDNN" if job_name == "attention" else "cuBLAS",
                    "baseline_rate": theirs,
                    "speed_over_it": {"value": ratio},
                    **sampled(facts, label, form),
                }
            )
        text = print_program(program)
        (folder / f"{stem}.avo").write_text(text, encoding="utf-8")
        told = {
            "program": f"{stem}.avo",
            "digest": digest(program),
            "target": job_name,
            "hardware": chip,
            "set": "public and grouped" if job_name == "attention" else "public",
            "mode": "measured",
            "date": facts["date"],
            "device": {"name": facts["device"], "driver": facts["driver"]},
            "versions": facts["versions"],
            "regime": {"name": "sustained", "untimed_s": 0.015, "timed_s": 0.03, "rounds": facts["count"]},
            "kept": facts["kept"],
            "command": facts["command"],
            "workloads": rows,
        }
        (folder / f"{stem}.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        made.append((f"{path.stem} (sweep)", [f"{stem}.avo ({len(rows)})"]))
    return made


# The page -----------------------------------------------------------------------------------------


def page(chip: str, items: list[dict[str, Any]], kept: list[tuple[str, list[str]]]) -> str:
    title = hardware(chip).title
    first = Benchmark.model_validate(items[0]["benchmark"])
    intro = (
        "Written by `python benchmarks/results_page.py` from `benchmarks/data/`; do not edit. Every ratio is of one "
        "run, in one regime, arms in turns, with its 95% interval; above 1 is faster. Programs are the schedules of "
        f"`configs/candidates/{chip}.toml`, written by hand from what is known to be good on the chip, but for sizes "
        "marked *search*: `avo evolve` found these programs from the naive seed (the runs are below). Those that were "
        f"the best somewhere are in `configs/champions/{chip}/`. They were chosen on the samples that are shown, which "
        "flatters a little, and an interval of so few rounds is narrower than the truth."
    )
    heads = [
        *("target", "sizes", "best programs over the best baseline", "over the plain kernel"),
        *("of what the card sustains", "hoped for", ""),
    ]
    lines = [
        *(f"# Results on one {title}, measured", "", intro, ""),
        *(f"First table: {conditions(first)}. {_capital(sustained(first))}.", ""),
        *("| " + " | ".join(heads) + " |", "|---|---|---|---|---:|---|---|"),
    ]
    for item in items:
        found = Benchmark.model_validate(item["benchmark"])
        lines.append(_summary(item, found))
    lines += [
        "",
        "Sizes: the target's public ones or one of its sets (`avo targets NAME`).",
        "",
    ]
    lines += sweeps(chip)
    lines += published(
        ROOT / "benchmarks" / "data" / "published_attention.json", _rates(chip), hardware(chip).name.upper()
    )
    lines += ["## What did not work", "", *[f"- {one}" for one in missing(items)], ""]
    notes = DATA / chip / "notes.md"
    if notes.exists():
        lines += ["## A miss, read from the machine code", "", notes.read_text(encoding="utf-8").strip(), ""]
    lines += ["## Prediction", "", *predicted(items), ""]
    if told := runs():
        lines += ["## Runs of the heuristic from the naive seed", "", *told, ""]
    if told := profiles(chip):
        lines += ["## Profiles", "", "By `avo profile`.", "", *told, ""]
    lines += ["## Champions", "", "| table | programs (sizes where each is the best) |", "|---|---|"]
    lines += [f"| {stem} | {', '.join(listed)} |" for stem, listed in kept]
    table = "--bench benchmarks/data/bench/h200/matmul_public.json"
    listed = next((listed for stem, listed in kept if stem == "matmul_public"), [])
    files = " ".join(f"configs/champions/h200/{one.partition(' ')[0]}" for one in listed)
    example = f"avo export {files} {table} -o matmul_h200"
    lines += ["", "Each has its measurements beside it as JSON. To ship them:", "", "```", example, "```", ""]
    lines += ["## Tables", ""]
    for item in items:
        found = Benchmark.model_validate(item["benchmark"])
        lines += [markdown(found).replace("### ", f"### {item['set']}: ", 1)]
    return "\n".join(lines).rstrip() + "\n"


def _rates(chip: str) -> Rates:
    """Workload -> arm -> TFLOP/s, of all sweeps; of two that have an arm the newer."""
    found: Rates = {}
    for path in sorted(_sweeps(chip), key=lambda p: (sweep_facts(p)["date"], "rounds" in sweep_facts(p))):
        for label, theirs, forms in sweep(path):
            here = found.setdefault(label, {})
            here |= {"theirs": theirs} | {name: rate for name, (rate, _) in forms.items()}
    return found


def sweeps(chip: str) -> list[str]:
    """Measurements with a script of their own: with all rounds, or kept as medians alone."""
    lines: list[str] = []
    for path in _sweeps(chip):
        facts = sweep_facts(path)
        versions = ", ".join(f"{k} {v}" for k, v in facts["versions"].items())
        lines += [f"## {facts['title']}", "", f"{facts['device']}, {facts['date']}; {versions}; `{facts['command']}`."]
        lines += [f"Kept: {facts['kept']}.", ""]
        if "run" in facts:
            lines += section(facts["run"])
            continue
        if means := _means_of(path) or _arms_of(path):
            lines += ["| geometric mean of the ratios | |", "|---|---:|", *means, ""]
        lines += ["```", *facts["lines"], "```", ""]
    return lines


def _arms_of(path: Path) -> list[str]:
    """Of lines `size: arm rate, arm rate`: the best arm with roles over cuDNN, and over the better plain kernel."""
    over: dict[str, list[float]] = {"cuDNN": [], "the plain kernel's better setting": []}
    for line in sweep_facts(path)["lines"]:
        rates = {name.strip(): float(rate) for name, rate in re.findall(r"([A-Za-z][\w ]*?) ([\d.]+)(?:,|$)", line)}
        roles = [rate for name, rate in rates.items() if name.startswith("roles")]
        if not roles or "cuDNN" not in rates or not {*PLAIN} <= set(rates):
            continue
        over["cuDNN"].append(max(roles) / rates["cuDNN"])
        over["the plain kernel's better setting"].append(max(roles) / max(rates[name] for name in PLAIN))
    means = {w: (len(x), math.exp(sum(map(math.log, x)) / len(x))) for w, x in over.items() if x}
    return [
        f"| best form with roles over {what} ({count} sizes) | {mean:.3f} |" for what, (count, mean) in means.items()
    ]


def _means_of(path: Path) -> list[str]:
    groups: dict[tuple[str, str], list[float]] = {}
    for label, _, forms in sweep(path):
        one = _SIZES.match(label)
        what = None
        if label.startswith("product"):
            what = "products of 4096 and 8192, bf16"
        elif one is not None:
            what = f"attention, {'grouped' if one['grouped'] else 'eight MHA sizes'}, {one['kind']}"
        for name, (_, ratio) in forms.items() if what else ():
            groups.setdefault((what or "", name), []).append(ratio)
    return [
        f"| {what}: {name} ({len(found)} sizes) | {math.exp(sum(map(math.log, found)) / len(found)):.3f} |"
        for (what, name), found in groups.items()
    ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _summary(item: dict[str, Any], found: Benchmark) -> str:
    goals = GOALS.get((found.target, item["set"]), ()) if item.get("part") in (None, "", SEARCHED) else ()
    if item.get("part") == SEARCHED and found.target == "attention":
        goals = (("best", 1.08, "1.08x cuDNN"), *goals)
    verdicts = []
    for over, ratio, _ in goals:
        reached = _reached(found, over)
        verdicts.append("not decided" if reached is None else "reached" if reached >= ratio else "missed")
    ceiling = _reached(found, "ceiling")
    sizes = item["set"] + (f", {item['part']}" if item.get("part") else "")
    cells = (
        *(found.target, f"{sizes} ({len(found.rows)})", interval(found.dispatched()), interval(over_plain(found))),
        *("-" if ceiling is None else f"{ceiling:.3f}", "; ".join(words for _, _, words in goals), "; ".join(verdicts)),
    )
    return "| " + " | ".join(cells) + " |"


def _reached(found: Benchmark, over: str) -> float | None:
    """Ratio of speeds of the best programs over the best baselines, the plain kernel, or what the card sustains."""
    if over == "ceiling":
        best = [o.of_ceiling for _, o in found.best_programs()]
        whole = len(best) == len(found.rows) and all(best)
        return math.exp(sum(math.log(x) for x in best if x) / len(best)) if whole else None
    ratio = over_plain(found) if over == "plain" else found.dispatched()
    return None if ratio is None else ratio.value


def over_plain(found: Benchmark) -> Interval | None:
    """The best programs over the plain kernel at its best single setting for each of causal and not.

    None where its two settings were not both measured.
    """
    from evaluators.benchmark import _mean, _speed

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
    for row, outcome in found.best_programs():
        causal = row.workload.endswith("causal=1")
        speeds.append(_speed(row.measurement, outcome.arm, best.get(causal)))
    known = [s for s in speeds if s is not None]
    return _mean(known) if len(known) == len(found.rows) else None


def missing(items: list[dict[str, Any]]) -> list[str]:
    from avo.benchmark_page import trouble

    said = []
    for item in items:
        found = Benchmark.model_validate(item["benchmark"])
        said += [f"{named(item)}: {one}" for one in trouble(found)]
        rested = [r.workload for r in found.rows if _rested(r)]
        if rested:
            said.append(
                f"{named(item)}: before {len(rested)} of {len(found.rows)} workloads the card had rested (it drew less "
                "than half of what it drew then), so that the first rounds ran at other clocks than the last; ratios "
                "are paired within rounds"
            )
        said += _neighbours(item, found)
        said += _no_limit(item, found)
    for goal in GOALS:
        said += _of_goals(items, *goal)
    said += _never(items)
    return said or ["Nothing that was tried."]


def _never(items: list[dict[str, Any]]) -> list[str]:
    """Targets, sets and libraries that no table has."""
    from evaluators import baselines
    from evaluators.targets import BUILTIN, target

    have = {(i["benchmark"]["target"], i["set"]) for i in items}
    sets = [f"{n} ({s})" for n in BUILTIN for s in ("public", *target(n).sets) if (n, s) not in have and s != "squares"]
    seen = {(i["benchmark"]["target"], a["name"]) for i in items for a in i["benchmark"]["arms"]}
    arms = [
        f"{b.name} ({n})"
        for n in dict.fromkeys(t for t, _ in sorted(have))
        for b in baselines.of(n)
        if (n, b.name) not in seen
    ]
    said = [f"Not measured at all: {', '.join(sets)}"] if sets else []
    return said + ([f"Libraries that were not run beside a target that was: {', '.join(arms)}"] if arms else [])


def _neighbours(item: dict[str, Any], found: Benchmark) -> list[str]:
    """Where all rounds had one order, each arm had one neighbour on the way there and another on the way back."""
    worst = (0.0, "")
    for row in found.rows:
        if row.measurement is None or len(row.measurement.names) < 3:
            continue
        count = 2 * len(row.measurement.names)
        rounds = [row.measurement.samples[i : i + count] for i in range(0, len(row.measurement.samples), count)]
        if len({tuple(s.arm for s in one) for one in rounds}) > 1:
            return []
        for place, name in enumerate(row.measurement.names):
            ways: tuple[list[float], list[float]] = ([], [])
            for one in rounds:
                pair = [s.seconds for s in one if s.arm == place]
                ways[0].append(math.log(pair[0]))
                ways[1].append(math.log(pair[1]))
            apart = abs(sum(ways[0]) - sum(ways[1])) / len(rounds)
            worst = max(worst, (apart, name))
    if worst[0] < 0.03:
        return []
    return [
        f"{named(item)}: all rounds had one order, and who ran before an arm is part of its time (after one that draws "
        f"little power it runs faster): up to {math.expm1(worst[0]):.1%} between its two turns ({worst[1]}). Later "
        "versions change the order from round to round"
    ]


def _of_goals(items: list[dict[str, Any]], target: str, chosen: str) -> list[str]:
    same = [i for i in items if i["benchmark"]["target"] == target and i["set"] == chosen and not i.get("part")]
    goals = GOALS[target, chosen]
    if not same:
        return [f"{target} ({chosen}): not measured; {words} was hoped for" for _, _, words in goals]
    found = Benchmark.model_validate(same[0]["benchmark"])
    worst, where = min(((o.speed.value, r.workload) for r, o in found.best_programs() if o.speed), default=(0.0, ""))
    said = []
    for over, ratio, words in goals:
        reached = _reached(found, over)
        if reached is None:
            one = interval(found.dispatched("plain Triton"))
            said.append(
                f"{target} ({chosen}): whether plain schedules reach {words} is not decided. The plain kernel ran at "
                f"one setting a kind there (lazy where not causal), over which the best programs are at {one}; on "
                "grouped heads, where both of its settings were measured, they miss it (table above). Schedules with "
                "roles reach it where both were measured (below them), on five of the eight sizes"
            )
        elif reached < ratio:
            more = f"; worst over the best baseline {worst:.3f} at {where}" if over == "best" else ""
            said.append(f"{target} ({chosen}): {reached:.3f} where {words} was hoped for{more}")
    return said


def _no_limit(item: dict[str, Any], found: Benchmark) -> list[str]:
    """Where a program moves more bytes a second than the copy beside it, the copy was none of the limits."""
    where = []
    for row, best in found.best_programs():
        copy = row.outcome("copy")
        if copy is not None and copy.seconds and best.seconds and copy.seconds > 1.05 * best.seconds:
            where.append(f"{row.workload} ({copy.seconds / best.seconds:.2f}x)")
    if not where:
        return []
    return [
        f"{named(item)}: faster than the copy of the same bytes, which was a memcpy and slow at such sizes, and so no "
        f"limit there: {', '.join(where)}. Later versions take the faster of a memcpy and a kernel"
    ]


def _rested(row: Any) -> bool:
    if row.measurement is None or row.measurement.before.watts is None:
        return False
    drew = [s.watts for s in row.measurement.samples if s.watts is not None]
    return bool(drew) and row.measurement.before.watts < 0.5 * sum(drew) / len(drew)


def predicted(items: list[dict[str, Any]]) -> list[str]:
    """Rank correlation and regret of the first choice, on every point that was measured."""
    heads = [
        *("table", "points", "Spearman", "regret of the first choice, mean", "worst"),
        "predicted / measured, geometric mean",
    ]
    lines = [
        "What avo predicts for every program and size above, with the compiler named below, held against the measured "
        "times: the rank correlation over all points of a table, and how much slower than the best program the one is "
        "that the prediction would choose (mean and worst over the sizes).",
        *("", "| " + " | ".join(heads) + " |", "|---|---:|---:|---:|---:|---:|"),
    ]
    versions = set()
    pooled: list[tuple[float, float]] = []
    for item in items:
        found = Benchmark.model_validate(item["benchmark"])
        told = item.get("predicted", {}).get("seconds", {})
        versions.add(item.get("predicted", {}).get("triton", "?"))
        points, regrets = [], []
        for row in found.rows:
            here = [
                (told[o.arm][row.workload], o.seconds)
                for o in row.outcomes
                if o.seconds and not o.reason and row.workload in told.get(o.arm, {})
            ]
            points += [(p / row.floor_s, m / row.floor_s) for p, m in here]
            if len(here) > 1:
                regrets.append(min(here)[1] / min(m for _, m in here) - 1)
        if len(points) < 3:
            continue
        pooled += points
        ratio = math.exp(sum(math.log(p / m) for p, m in points) / len(points))
        mean = f"{sum(regrets) / len(regrets):.1%}" if regrets else "-"
        worst = f"{max(regrets):.1%}" if regrets else "-"
        cells = (named(item), len(points), f"{spearman(points):.3f}", mean, worst, f"{ratio:.2f}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if pooled:
        lines.append(f"| all | {len(pooled)} | {spearman(pooled):.3f} | | | |")
    lines += [
        "",
        "Times are taken over the speed of light of their size, so that large sizes do not make the correlation.",
    ]
    told = ", ".join(sorted(versions))
    lines.append(f"Predicted from machine code of Triton {told}; measured with the version that each table names.")
    return lines


def spearman(points: list[tuple[float, float]]) -> float:
    a, b = (np.array(x) for x in zip(*points, strict=True))
    ranks = [np.argsort(np.argsort(x)) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def runs() -> list[str]:
    """What is kept of measured runs of `avo evolve`."""
    lines = []
    for path in sorted(RUNS.glob("h200_*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        good = [r for r in data["rows"] if r["status"] == "ok" and all(r["measured_s"])]
        if not good:
            continue
        best = min(good, key=lambda r: sum(map(math.log, r["measured_s"])))
        pairs = zip(good[0]["measured_s"], best["measured_s"], strict=True)
        gain = math.exp(sum(math.log(a / b) for a, b in pairs) / len(best["measured_s"]))
        lines.append(
            f"- {path.stem} ({data['date']}, Triton {data['versions'].get('triton', '?')}): `{data['command']}`, "
            f"{len(data['rows'])} candidates, {len(good)} timed at every size; the best is {gain:.2f}x the seed "
            f"(candidate {best['k']}: `{'; '.join(best['schedule'])}`)"
        )
    return lines


def profiles(chip: str) -> list[str]:
    """A line a stored profile of a champion."""
    from evaluators.profiling import Profile

    lines = []
    for path in sorted((DATA / chip / "profiles").glob("*.json")):
        found = Profile.model_validate_json(path.read_text(encoding="utf-8"))
        lines.append(
            f"- {path.stem}, {found.workload}: **{found.bottleneck}**, by {found.tool} ({found.date[:10]}): {found.why}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=["take"])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--hw", default="h200")
    flags = parser.parse_args()
    if flags.verb == "take":
        take(flags.paths)
    items = tables(flags.hw)
    kept = champions(items, ROOT / "configs" / "champions" / flags.hw, flags.hw)
    place = ROOT / "docs" / "results" / f"{flags.hw}.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(page(flags.hw, items, kept), encoding="utf-8")
    print(f"{place.relative_to(ROOT)}: {len(items)} tables, {sum(len(x) for _, x in kept)} champions")


if __name__ == "__main__":
    main()
