"""The field's figures over finished runs, as pure functions of report models. docs/report.md says what each means.

A task is a run; its attempts are its candidates after the seed, in the order of k. A speed-up is over the run's seed
program, in the score that decided the run (measured, or predicted: never both in one figure).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from avo.report.model import Candidate, ReportModel


def speedups(model: ReportModel) -> dict[str, float]:
    """Workload -> time of the seed over the time of the best; empty where either was not timed."""
    best, seed = model.best(model.kind), model.by_k(model.baseline)
    if best is None or seed is None:
        return {}
    before = {w.workload: getattr(w, f"{model.kind}_s") for w in seed.workloads}
    after = {w.workload: getattr(w, f"{model.kind}_s") for w in best.workloads}
    return {name: before[name] / s for name, s in after.items() if s and before.get(name)}


def attempts(model: ReportModel) -> list[float]:
    """The best speed-up after 1, 2, ... attempts, 1 while nothing was better than the seed (KernelBench's and
    muCUTLASS's curves start there, as a user would keep what he has)."""
    seed = model.by_k(model.baseline)
    first = _score(model, seed)
    if not first:
        return []
    points = {p.k: p.score for p in getattr(model.running_best, model.kind)}
    best, found = 1.0, []
    for k in model.ks:
        if k == model.baseline:
            continue
        best = max(best, points.get(k, 0.0) / first)
        found.append(best)
    return found


def _score(model: ReportModel, c: Candidate | None) -> float | None:
    return getattr(c.score, model.kind) if c is not None and c.outcome in ("committed", "passed", "repeat") else None


def geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def fast_p(values: Sequence[float], p: float) -> float | None:
    """The share of tasks that are correct and faster than `p` times the baseline (KernelBench, arXiv 2502.10517)."""
    return sum(v > p for v in values) / len(values) if values else None


def attempt_fast_p(curves: Sequence[Sequence[float]], p: float) -> list[float]:
    """fast_p after 1, 2, ... attempts over several tasks (arXiv 2603.29010); where one's curve ended, its last."""
    most = max(map(len, curves), default=0)
    reached = [[c[min(n, len(c) - 1)] if c else 1.0 for c in curves] for n in range(most)]
    return [sum(v > p for v in row) / len(row) for row in reached]


def sol_score(model: ReportModel) -> float | None:
    """The best's share of the speed of light, 0 to 1: geometric mean over the workloads of floor over time."""
    best = model.best(model.kind)
    if best is None:
        return None
    times = [(w.floor_s, getattr(w, f"{model.kind}_s")) for w in best.workloads]
    return geometric_mean([floor / s for floor, s in times if s and floor > 0])
