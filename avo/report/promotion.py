"""A promotion in words and rows: what came of a run's best when it was judged again, beside the seed program."""

from __future__ import annotations

import math
from typing import Any

from dsl.wording import counted
from evaluators.evaluation import Evaluation, Status

_SCALE = {"TFLOP/s": 1e-12, "GB/s": 1e-9}


def headline(evaluation: Evaluation) -> str:
    """One sentence: whether it is promoted, in which regime, and the gain over the seed program with its interval."""
    if evaluation.status is not Status.OK:
        return f"not promoted: {evaluation.message}"
    sizes = sum(1 for w in evaluation.workloads if w.detail.get("hidden"))
    said = f"promoted: right on fresh inputs and on {counted(sizes, 'hidden size', 'hidden sizes')}"
    timing = evaluation.gate("timing")
    if timing is None or evaluation.mode != "measured":
        return said
    e, regime = timing.evidence, evaluation.environment.get("regime", {})
    gain = f"{1 / e['ratio']:.3f}x the seed's speed [{1 / e['high']:.3f}, {1 / e['low']:.3f}]"
    lengths = " then ".join(
        f"{1e3 * regime[k]:g} ms {what}" for k, what in (("untimed_s", "untimed"), ("timed_s", "timed")) if k in regime
    )
    said = f"{said}; {gain}, {e['verdict']}, {e['regime']} regime: {counted(e['blocks'], 'round')} in turns, {lengths}"
    return "; ".join([said, *launch_bound(evaluation)])


def launch_bound(evaluation: Evaluation) -> list[str]:
    """What has to be known of sizes whose times may be those of launches, each with where."""
    where: dict[str, list[str]] = {}
    for w in evaluation.workloads:
        if said := w.detail.get("launch_bound"):
            where.setdefault(said, []).append(w.workload)
    return [f"{said} ({', '.join(sizes)})" for said, sizes in where.items()]


def rows(evaluation: Evaluation) -> list[dict[str, Any]]:
    """One a workload: hidden, seconds and rate of both arms, ratio over the seed with its interval, clocks and power of
    both arms (best, seed). Empty where nothing was measured."""
    found = []
    scale = _SCALE[evaluation.unit]
    for w in evaluation.workloads:
        versus = w.detail.get("versus")
        if not w.measured_s or not versus:
            continue
        states = versus.get("states", [{}, {}])
        found.append(
            {
                "workload": w.workload,
                "hidden": bool(w.detail.get("hidden")),
                "rounds": w.detail.get("rounds"),
                "seconds": w.measured_s,
                "rate": w.work * scale / w.measured_s,
                "seed_seconds": versus["seconds"],
                "seed_rate": w.work * scale / versus["seconds"],
                "speedup": 1 / versus["ratio"],
                "low": 1 / versus["high"],
                "high": 1 / versus["low"],
                "sm_mhz": [s.get("sm_mhz") for s in states],
                "watts": [s.get("watts") for s in states],
                "celsius": [s.get("celsius") for s in states],
            }
        )
    return found


def facts(evaluation: Evaluation) -> dict[str, Any]:
    """For the report: plain values, in words a reader knows."""
    found: dict[str, Any] = {"status": str(evaluation.status), "headline": headline(evaluation)}
    for hidden, name in ((False, "public sizes"), (True, "hidden sizes")):
        if (value := rate(evaluation, hidden)) is not None:
            found[f"{evaluation.unit}, {name}"] = value
    table = {r["workload"] + (" (hidden)" if r["hidden"] else ""): _row(r, evaluation.unit) for r in rows(evaluation)}
    return {**found, **({"workloads": table} if table else {})}


def _row(r: dict[str, Any], unit: str) -> dict[str, Any]:
    return {
        unit: r["rate"],
        f"{unit} of the seed": r["seed_rate"],
        "speedup": r["speedup"],
        "low": r["low"],
        "high": r["high"],
        "rounds": r["rounds"],
        "SM MHz": r["sm_mhz"][0],
        "SM MHz of the seed": r["sm_mhz"][1],
        "watts": r["watts"][0],
        "watts of the seed": r["watts"][1],
    }


def rate(evaluation: Evaluation, hidden: bool) -> float | None:
    """Geometric mean over the public or the hidden sizes, in the evaluation's unit; None where nothing was measured."""
    logs = [math.log(r["rate"]) for r in rows(evaluation) if r["hidden"] == hidden]
    return math.exp(sum(logs) / len(logs)) if logs else None


def cells(evaluation: Evaluation, labels: dict[str, str]) -> tuple[list[str], list[list[str]]]:
    """(heads, rows) of a table in a terminal."""

    def both(values: list[float | None]) -> str:
        return " / ".join("-" if v is None else f"{v:.0f}" for v in values)

    heads = ["workload", evaluation.unit, "seed", "x seed", "interval", "MHz", "W"]
    found = [
        [
            labels.get(r["workload"], r["workload"]) + (" (hidden)" if r["hidden"] else ""),
            f"{r['rate']:.4g}",
            f"{r['seed_rate']:.4g}",
            f"{r['speedup']:.3f}",
            f"{r['low']:.3f}-{r['high']:.3f}",
            both(r["sm_mhz"]),
            both(r["watts"]),
        ]
        for r in rows(evaluation)
    ]
    return heads, found
