"""How well predicted times order what was measured, on every recorded point: Spearman, regret, calibration.

python benchmarks/prediction_on_tables.py             the table of figures
python benchmarks/prediction_on_tables.py --refresh   predicts every point anew, from the machine code that was recorded
                                                      with the tables, and puts times and causes into them
python benchmarks/prediction_on_tables.py --write     also benchmarks/data/prediction_on_tables.json and the figure

The constants of the prediction were fitted once, on a hand-written attention (benchmarks/calibrate.py): none of these
points was among that. What is fitted here, one factor for each workload kind, is fitted on one half of the tables
("seen": attention of 8 x 4096 and the square product) and judged on the other.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.work import work
from evaluators import gates
from evaluators.evaluation import Status
from evaluators.gates import Case
from evaluators.inputs import extents
from evaluators.loading import complete, seed_program
from evaluators.machine import MachineCode
from evaluators.prediction import predict
from evaluators.recorded import Table, read_tables
from evaluators.targets import target

HERE = Path(__file__).resolve().parent
TABLES = HERE / "data" / "tables"
RESULT = HERE / "data" / "prediction_on_tables.json"
FIGURE = HERE.parent / "docs" / "images" / "prediction_calibration.svg"
SEEN = ("attention_8x4096", "attention_8x4096_causal", "gemm_4096")
GRID_OF = {"gemm_4096": "gemm_square", "gemm_16x8192x8192": "gemm_decode"}
Array = NDArray[np.float64]


def refresh(table: Table, machines: dict[str, Any]) -> None:
    """Writes predicted seconds and their causes into the table's file."""
    path = TABLES / f"{table.name}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    hw = hardware(table.chip)
    wanted = replace(complete(target(table.target)), workloads=(table.workload,))
    needed = work(seed_program(wanted), table.workload.sizes, table.workload.params)
    causes: list[str] = []
    found: list[tuple[float, dict[str, float]] | None] = []
    for setting, point in zip(table.rows, data["points"], strict=True):
        key = f"{GRID_OF.get(table.name, 'attention')} {json.dumps(setting)} {json.dumps(dict(table.workload.params))}"
        if point["status"] in (Status.CHECK_ERROR.value, Status.NOT_LOWERED.value) or key not in machines:
            found.append(None)
            continue
        program = table.at(setting)
        case = Case(text="", target=wanted, wanted=program, hardware=hw, program=program)
        kernel = lower(program, hw, gates.exact_sizes(case)).kernels[0]
        sizes, params = extents(program.algorithm, table.workload), dict(table.workload.params)
        machine = MachineCode.model_validate(machines[key])
        said = predict([(kernel.specialise(sizes, params), machine, kernel.profile(sizes, params))], hw, needed)
        found.append((said.seconds, dict(said.parts)))
        causes += [c for c in said.parts if c not in causes]
    lines = []
    for point, said in zip(data.pop("points"), found, strict=True):
        point.pop("parts", None)
        if said is not None:
            point["predicted_s"] = float(f"{said[0]:.5g}")
            point["parts"] = [float(f"{said[1].get(c, 0.0):.3g}") for c in causes]
        lines.append(json.dumps(point, separators=(",", ":")))
    data["causes"] = causes
    head = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in data.items())
    path.write_text("{" + head + ',\n"points": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


def pairs(table: Table) -> tuple[Array, Array]:
    """(predicted, measured) seconds of every point that has both."""
    found = [(r.predicted_s, r.seconds) for r in table.rows.values() if r.seconds and r.predicted_s]
    predicted, measured = (np.array(x) for x in zip(*found, strict=True))
    return predicted, measured


def spearman(x: Array, y: Array) -> float:
    """Rank correlation; equal values share their mean rank."""

    def ranks(v: Array) -> Array:
        _, inverse, counts = np.unique(v, return_inverse=True, return_counts=True)
        last = np.cumsum(counts)
        found: Array = (last - (counts - 1) / 2)[inverse]
        return found

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def row(table: Table, share: float = 0.98) -> dict[str, Any]:
    """The figures of one table."""
    predicted, measured = pairs(table)
    order = np.argsort(predicted, kind="stable")
    near = measured <= 1.5 * measured.min()
    good = measured <= measured.min() / share
    rng = np.random.default_rng(0)
    picks = rng.integers(0, measured.size, size=(1000, measured.size))
    drawn = [spearman(predicted[i], measured[i]) for i in picks]
    ratio = np.log(predicted / measured)
    return {
        "points": int(measured.size),
        "spearman": spearman(predicted, measured),
        "interval": [float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))],
        "near": int(near.sum()),
        "spearman_near": spearman(predicted[near], measured[near]),
        "regret": float(measured[order[0]] / measured.min() - 1),
        "regret_of_8": float(measured[order[:8]].min() / measured.min() - 1),
        "first_good": int(np.argmax(good[order])) + 1,
        "factor": float(np.exp(np.median(ratio))),
        "factor_near": float(np.exp(np.median(ratio[near]))),
        "spread": float(np.std(ratio)),
        "spread_near": float(np.std(ratio[near])),
    }


def held_out(tables: list[Table]) -> dict[str, Any]:
    """One factor a target, fitted on the seen tables' points near their best, judged on the others'."""
    found = {}
    for kind in sorted({t.target for t in tables}):
        mine = [t for t in tables if t.target == kind]

        def logs(table: Table) -> Array:
            predicted, measured = pairs(table)
            near = measured <= 1.5 * measured.min()
            values: Array = np.log(predicted / measured)[near]
            return values

        seen = np.concatenate([logs(t) for t in mine if t.name in SEEN])
        factor = float(np.median(seen))
        kept_out = [(t.name, logs(t)) for t in mine if t.name not in SEEN]
        found[kind] = {
            "factor": math.exp(factor),
            "kept_out": {
                name: {
                    "error_before": float(np.median(np.abs(np.exp(v) - 1))),
                    "error_after": float(np.median(np.abs(np.exp(v - factor) - 1))),
                }
                for name, v in kept_out
            },
        }
    return found


def figure(tables: list[Table]) -> str:
    """Predicted over measured for every point, one panel a table: an SVG without a library."""
    size, gap, left, top = 200, 46, 46, 34
    columns = 3
    rows = math.ceil(len(tables) / columns)
    width, height = left + columns * (size + gap), top + rows * (size + gap + 14)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    for n, table in enumerate(tables):
        x0, y0 = left + n % columns * (size + gap), top + n // columns * (size + gap + 14)
        predicted, measured = pairs(table)
        low = min(predicted.min(), measured.min()) / 1.1
        high = min(max(predicted.max(), measured.max()) * 1.1, 30 * low)

        def at(value: float, low: float = low, high: float = high) -> float:
            return size * math.log(min(max(value, low), high) / low) / math.log(high / low)

        parts.append(f'<text x="{x0}" y="{y0 - 8}" font-weight="bold">{table.name}</text>')
        parts.append(f'<rect x="{x0}" y="{y0}" width="{size}" height="{size}" fill="none" stroke="#888"/>')
        parts.append(f'<path d="M{x0} {y0 + size}L{x0 + size} {y0}" stroke="#c33" stroke-dasharray="4 3"/>')
        dots = "".join(
            f"M{x0 + at(m):.1f} {y0 + size - at(p):.1f}h1.6v1.6h-1.6z" for p, m in zip(predicted, measured, strict=True)
        )
        parts.append(f'<path d="{dots}" fill="#246" fill-opacity="0.55"/>')
        for value in (low * 1.1, math.sqrt(low * high), high / 1.1):
            mark = f"{value * 1e3:.2g}"
            parts.append(
                f'<text x="{x0 + at(value):.0f}" y="{y0 + size + 13}" text-anchor="middle">{mark}</text>'
                f'<text x="{x0 - 4}" y="{y0 + size - at(value) + 4:.0f}" text-anchor="end">{mark}</text>'
            )
        parts.append(f'<text x="{x0 + size / 2}" y="{y0 + size + 27}" text-anchor="middle">measured, ms</text>')
    parts.append(f'<text x="12" y="{height / 2}" transform="rotate(-90 12 {height / 2})">predicted, ms</text></svg>\n')
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refresh", action="store_true")
    parser.add_argument("--write", action="store_true")
    flags = parser.parse_args()
    if flags.refresh:
        with gzip.open(TABLES / "machine_code.json.gz") as file:
            machines = json.load(file)
        for table in read_tables(TABLES):
            refresh(table, machines)
            print(f"predicted {table.name} anew", flush=True)
    tables = read_tables(TABLES)
    found = {t.name: row(t) for t in tables}
    print(
        f"{'table':28}{'points':>7}{'Spearman':>22}{'near best':>11}{'regret':>9}{'of 8':>8}{'first good':>12}"
        f"{'factor':>8}{'spread':>8}"
    )
    for name, r in found.items():
        low, high = r["interval"]
        print(
            f"{name:28}{r['points']:7}{r['spearman']:8.3f} [{low:.3f}, {high:.3f}]{r['spearman_near']:11.3f}"
            f"{r['regret']:9.1%}{r['regret_of_8']:8.1%}{r['first_good']:12}{r['factor_near']:8.2f}{r['spread_near']:8.2f}"
        )
    kept = held_out(tables)
    for kind, k in kept.items():
        for name, e in k["kept_out"].items():
            print(
                f"{kind}: factor {k['factor']:.2f} from the seen tables; {name}, kept out: median error near the best "
                f"{e['error_before']:.1%} before, {e['error_after']:.1%} after"
            )
    if flags.write:
        RESULT.write_text(json.dumps({"tables": found, "held_out": kept}, indent=1) + "\n", encoding="utf-8")
        FIGURE.write_text(figure(tables), encoding="utf-8")
        print(f"wrote {RESULT} and {FIGURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
