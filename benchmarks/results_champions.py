"""Champions of the results page, and its sweeps: measurements with a script of their own."""

from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

from one_run import sampled, section, sweep_facts
from published import Rates
from results_tables import DATA, PLAIN, ROOT, named

from dsl.parser import parse
from evaluators.benchmark_result import Benchmark


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


# On the page -------------------------------------------------------------------------------------


def rates(chip: str) -> Rates:
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
