# ruff: noqa: E501  (sentences of a page)
"""Writes docs/results/evidence.md and its figure from what is committed under benchmarks/data: no GPU, no network.

python benchmarks/evidence_page.py
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dsl.work import work
from evaluators.recorded import Table, read_tables
from evaluators.timing import bootstrap

sys.path.insert(0, str(Path(__file__).resolve().parent))
from evidence_claims import claims_part, library_losses
from evidence_peers import faults_part, helion_part, kernelbench_part, peer_losses

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
PAGE = HERE.parent / "docs" / "results" / "evidence.md"
FIGURE = HERE.parent / "docs" / "images" / "search_efficiency.svg"
ARMS = ("heuristic", "blind", "random", "TPE")
COLOURS = {"heuristic": "#246", "blind": "#69c", "random": "#bbb", "TPE": "#c63"}


def tflops(table: Table, seconds: float) -> float:
    return work(table.program, table.workload.sizes, table.workload.params).total_flops / seconds * 1e-12


def duel(table: Table, peer: str) -> tuple[float, float, float] | None:
    """The peer's time over the best point's, with its interval, of the ABBA blocks that were run after all others."""
    found = table.head.get("duels", {}).get(peer)
    if not found or not found["best"]:
        return None
    best, other = (np.log(found[k]).reshape(-1, 2).mean(axis=1) for k in ("best", "peer"))
    ratio = bootstrap(list(other - best), seed=0)
    return ratio.value, ratio.low, ratio.high


def tables_part(tables: list[Table]) -> list[str]:
    lines = [
        "## Recorded tables",
        "",
        "| table | points | timed | refused by the check | not reached | best, TFLOP/s | within 2% | best over a vendor's kernel |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for t in tables:
        states = [r.status for r in t.rows.values()]
        best = t.rows[t.best].seconds
        assert best is not None
        near = sum(r.seconds is not None and r.seconds <= best / 0.98 for r in t.rows.values())
        duels = []
        for peer in t.head.get("duels", {}):
            if (d := duel(t, peer)) is not None:
                duels.append(f"{peer} {d[0]:.3f} [{d[1]:.3f}, {d[2]:.3f}]")
        lines.append(
            f"| {t.name} | {len(states)} | {states.count('ok')} | {states.count('check_error')} | "
            f"{sum(s in ('compiled', 'not reached') for s in states)} | {tflops(t, best):.0f} | {near} | {'; '.join(duels)} |"
        )
    head = tables[0].head
    device, regime = head["device"], head["regime"]
    samples = [len(r.samples) for t in tables for r in t.rows.values() if r.samples]
    missed = sum(r.status in ("compiled", "not reached") for t in tables for r in t.rows.values())
    clocks = sorted(
        m
        for path in sorted((DATA / "tables").glob("*.json"))
        for p in json.loads(path.read_text())["points"]
        for m in p.get("mhz", [])
        if m
    )
    lines += [
        "",
        f"{device['name']}, driver {device['driver']}, {head['date']}; torch {device['torch']}, triton "
        f"{head['versions']['triton']}, cuDNN {device['cudnn']}. Regime: {regime['name']}, {1e3 * regime['untimed_s']:g} ms "
        f"untimed and {1e3 * regime['timed_s']:g} ms timed a segment, matrix products in between; mean power "
        f"{regime['watts']} W, SM clock {clocks[0]} to {clocks[-1]} MHz (median {clocks[len(clocks) // 2]}). Commands: "
        f"{', then '.join(f'`{run}`' for run in head.get('runs', [head['command']]))}. Each point was held against the reference "
        "on the device before it was timed.",
        "",
        f"What is weak here: {np.mean(np.array(samples) == 1):.0%} of the timed points have a single segment, so the clock that they "
        "happened to run at is part of their time (up to a tenth); those near a table's best have two to "
        f"{max(samples)}, of two cards on one day, and their median counts. "
        + (
            f"{missed} points were not reached, by chance (the order was shuffled), and no search below can propose them. "
            if missed
            else ""
        )
        + "Where a point takes more than twice the best so far its segment is a short one. The last column is of 6 later ABBA "
        "blocks of the best point against the vendor's kernel.",
        "",
    ]
    return lines


def search_part() -> list[str]:
    path = DATA / "search_on_tables.json"
    if not path.exists():
        return []
    data = json.loads(path.read_text())
    lines = [
        "## Evaluations that a search needs",
        "",
        f"To a point with {data['share']:.0%} of the table's best measured speed, the seed program counted: median with the 95% "
        "interval of its bootstrap, and the number of seeds.",
        "",
        "| table | within 2% | " + " | ".join(ARMS) + " | heuristic over TPE |",
        "|---|---:|" + "---|" * (len(ARMS) + 1),
    ]
    ratios = []
    for name, row in data["tables"].items():
        cells = []
        for arm in ARMS:
            a = row["arms"].get(arm)
            cells.append(f"{a['median']:g} [{a['low']:.3g}, {a['high']:.3g}], {len(a['counts'])}" if a else "not run")
        both = [row["arms"].get(a) for a in ("heuristic", "TPE")]
        ratio = both[0]["median"] / both[1]["median"] if both[0] and both[1] else math.nan
        if not math.isnan(ratio):
            ratios.append(ratio)
        lines.append(
            f"| {name} | {row['good']} of {row['legal']} | "
            + " | ".join(cells)
            + f" | {'-' if math.isnan(ratio) else f'{ratio:.2f}'} |"
        )
    mean = math.exp(np.mean(np.log(ratios))) if ratios else math.nan
    kept = sum(r <= 0.5 for r in ratios)
    fewer = any(len(a["counts"]) < 100 for t in data["tables"].values() for a in t["arms"].values())
    lines += [
        "",
        f"Hoped for: at most half of TPE's. It is so on {kept} of {len(ratios)} tables; geometric mean {mean:.2f}.",
        "",
        "**These rows flatter the heuristic**: what exp2 and descriptors save was set after a look at the attention tables, and its arithmetic of products and rows "
        "was changed on the day of the measurements by people who had the tables at hand. A grid of another kernel or card, recorded after that, would be the test."
        + (" Where a cell counts fewer than 100 seeds, time for more was lacking." if fewer else ""),
        "",
        f"`heuristic`: as it is, one proposal at a time (`--jobs 1`): previews of 8 programs before a proposal. `blind`: without "
        f"arithmetic, predicted causes and previews. `random`: without repetition. `TPE`: Optuna's, multivariate, "
        f"{data['startup']} start-up trials. Neither pays for a point that the check refuses, or that was never measured. The "
        f"heuristic draws little at random, so its intervals are narrow and resample the same few paths; a search that took {data['most']} was ended. With "
        "more than four proposals under way (`--jobs`) the heuristic previews nothing, and these figures do not hold.",
        "",
        "![evaluations to 98% of the best](../images/search_efficiency.svg)",
        "",
        "Command: `python benchmarks/search_on_tables.py --write`, no GPU."
        + (
            f" The tables answer {data['speed']['new']:.0f} programs a second that they have not seen, "
            f"{data['speed']['seen']:.0f} that they have (of one core's time)."
            if "speed" in data
            else ""
        ),
        "",
    ]
    return lines


def figure(data: dict[str, Any]) -> str:
    """Medians with intervals, a group of bars for each table, on a logarithmic scale."""
    height, left, bottom, bar, gap = 220, 44, 300, 16, 34
    names = list(data["tables"])
    width = left + len(names) * (len(ARMS) * bar + gap) + 10
    top = float(data["most"])

    def y(value: float) -> float:
        return bottom - height * math.log10(max(1.0, value)) / math.log10(top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 60}" font-family="sans-serif" '
        'font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{left}" y="22" font-weight="bold">evaluations to {data["share"]:.0%} of the best measured</text>'
    ]
    for value in (1, 2, 5, 10, 20, 50, 100, 200):
        parts.append(
            f'<path d="M{left} {y(value):.1f}H{width - 6}" stroke="#e4e4e4"/>'
            f'<text x="{left - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>'
        )
    for i, arm in enumerate(ARMS):
        x = left + i * 100
        parts.append(f'<rect x="{x}" y="34" width="11" height="11" fill="{COLOURS[arm]}"/>')
        parts.append(f'<text x="{x + 15}" y="44">{arm}</text>')
    for n, name in enumerate(names):
        x0 = left + 12 + n * (len(ARMS) * bar + gap)
        for i, arm in enumerate(ARMS):
            a = data["tables"][name]["arms"].get(arm)
            if a is None:
                continue
            x, middle = x0 + i * bar, y(a["median"])
            parts.append(
                f'<rect x="{x}" y="{middle:.1f}" width="{bar - 3}" height="{bottom - middle:.1f}" fill="{COLOURS[arm]}"/>'
                f'<path d="M{x + bar / 2 - 1.5} {y(a["low"]):.1f}V{y(a["high"]):.1f}" stroke="black"/>'
            )
        words = name.replace("attention_", "attn ").replace("_causal", " causal").replace("gemm_", "gemm ")
        parts.append(f'<text x="{x0}" y="{bottom + 16}" font-size="9">{words}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def prediction_part() -> list[str]:
    path = DATA / "prediction_on_tables.json"
    if not path.exists():
        return []
    data = json.loads(path.read_text())
    lines = [
        "## Predicted times against measured ones",
        "",
        "On every point of the tables that was timed; none of them was used to fit the prediction's constants.",
        "",
        "| table | points | Spearman | within 1.5x of the best | regret of the first | of the best of 8 | first within 2% |",
        "|---|---:|---|---|---:|---:|---:|",
    ]
    for name, r in data["tables"].items():
        low, high = r["interval"]
        lines.append(
            f"| {name} | {r['points']} | {r['spearman']:.3f} [{low:.3f}, {high:.3f}] | {r['spearman_near']:.3f} ({r['near']}) | "
            f"{r['regret']:.1%} | {r['regret_of_8']:.1%} | place {r['first_good']} |"
        )
    lines += [
        "",
        "Calibration, with half of the tables kept out: one factor a target from the others' points near the best.",
        "",
    ]
    for kind, k in data["held_out"].items():
        for name, e in k["kept_out"].items():
            lines.append(
                f"- {kind}: predicted {k['factor']:.2f}x of what the seen tables measured; on {name}, kept out, the median error "
                f"near the best is {e['error_before']:.1%}, and {e['error_after']:.1%} after dividing by that factor."
            )
    lines += [
        "",
        "So the order is good, the level is right to about 10%, and one factor does not mend it. What the order is worth to a "
        "search is the column `blind` above beside `heuristic`.",
        "",
        "![predicted over measured](../images/prediction_calibration.svg)",
        "",
        "Command: `python benchmarks/prediction_on_tables.py --write`, no GPU.",
        "",
    ]
    return lines


def runs_part() -> list[str]:
    lines = ["## Whole runs on the card", ""]
    for path in sorted((DATA / "runs").glob("*.json")):
        data = json.loads(path.read_text())
        sizes = [dict(x.split("=") for x in w.split(",")) for w in data["workloads"]]
        if data["target"] != "attention":
            continue
        flops = [
            4.0
            * int(s["b"])
            * int(s["h"])
            * int(s["m"])
            * int(s["n"])
            * int(s["d"])
            * (0.5 if s["causal"] == "1" else 1)
            for s in sizes
        ]
        best: tuple[float, dict[str, Any]] | None = None
        for row in data["rows"]:
            if row["status"] == "ok" and all(row["measured_s"]):
                speed = math.exp(
                    np.mean([math.log(f / t * 1e-12) for f, t in zip(flops, row["measured_s"], strict=True)])
                )
                if best is None or speed > best[0]:
                    best = (speed, row)
        if best is not None:
            lines.append(
                f"- `{data['command']}`, {data['date']}, {data['device'].get('name')}: {len(data['rows'])} judged, the best "
                f"{best[0]:.0f} TFLOP/s by its races (geometric mean of {len(sizes)} sizes), candidate {best[1]['k']}: "
                f"`{'; '.join(best[1]['schedule'])}`."
            )
    lines += [
        "",
        "Seconds of these races are the incumbent's times a paired ratio, so what each pair is off by adds up along the chain, and a pair of "
        "short segments is off by up to a few percent: the kernel that ran before sets the clock. The winner in turns beside the libraries, "
        "sustained, is what counts: [the page of the H200](h200.md) has it.",
        "",
    ]
    return lines


def losses_part(tables: list[Table]) -> list[str]:
    lines = ["## Where avo loses", ""]
    for t in tables:
        for peer in t.head.get("duels", {}):
            d = duel(t, peer)
            if d is not None and d[0] < 1:
                lines.append(
                    f"- {t.name}: the best point of the grid takes {1 / d[0]:.2f} times as long as {peer} "
                    f"({d[0]:.3f} [{d[1]:.3f}, {d[2]:.3f}]). The grid has no warps with roles."
                )
    lines += [
        "- A prediction of a kernel far from the best may be wrong by half (the product of 16 rows).",
        *library_losses(),
        "- Why, and what else was missed: [the page of the H200](h200.md). With warps in roles most of these are won there; the tall products are not.",
        *search_losses(),
        *peer_losses(),
        "",
    ]
    return lines


def search_losses() -> list[str]:
    path = DATA / "search_on_tables.json"
    if not path.exists():
        return []
    lines, behind = [], []
    for name, row in json.loads(path.read_text())["tables"].items():
        mine, other, alone = (row["arms"].get(a) for a in ("heuristic", "TPE", "blind"))
        if alone and other and alone["median"] >= other["median"]:
            behind.append(f"{name} ({alone['median']:g} and {other['median']:g})")
        if mine and other and mine["median"] > 0.5 * other["median"]:
            lines.append(
                f"- {name}: the heuristic needs {mine['median']:g} evaluations where TPE needs {other['median']:g}: not half as many."
            )
    if behind:
        lines.append(
            f"- without prediction and arithmetic (`blind`) the heuristic needs no fewer evaluations than TPE on {', '.join(behind)}."
        )
    return lines


def page() -> str:
    tables = read_tables(DATA / "tables")
    lines = [
        "# Evidence",
        "",
        "Written by `python benchmarks/evidence_page.py` from `benchmarks/data/`; do not edit. Anybody can replay any search on "
        "the tables without a GPU: `--evaluator recorded:PATH` ([how](../prediction.md#recorded-tables)).",
        "",
        *claims_part(),
        *tables_part(tables),
        *search_part(),
        *prediction_part(),
        *kernelbench_part(),
        *helion_part(),
        *faults_part(),
        *runs_part(),
        *losses_part(tables),
    ]
    return "\n".join(lines)


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    search = DATA / "search_on_tables.json"
    if search.exists():
        FIGURE.write_text(figure(json.loads(search.read_text(encoding="utf-8"))), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
