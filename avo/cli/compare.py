"""`avo compare RUN RUN...`: what several runs reached, side by side, with the figures of the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from avo.report.model import ReportModel

RATIOS = (1.0, 1.1, 1.25, 1.5, 2.0)


def compare(
    runs: Annotated[list[int], typer.Argument(help="Two runs or more.", metavar="RUN RUN...")],
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare runs: best, speed-up over each one's seed, share of the speed of light, attempts.

    Example: avo compare 1 2
    """
    from avo.cli.console import entry, say, show_json, table, tame
    from avo.cli.options import reading
    from avo.errors import UserMistake
    from avo.report.build import build_model
    from avo.report.keeping import FULL

    if len(runs) < 2:
        raise UserMistake("name two runs or more: avo compare 1 2")
    with reading(archive) as store:
        models = [build_model(store, run, FULL) for run in runs]
    answer = _figures(models)
    if as_json:
        show_json(answer)
        return
    names = [str(m.run.id) for m in models]
    rows = [
        [label, *[tame(_shown(r[key])) for r in answer["runs"]]]
        for label, key in (
            ("target", "target"),
            ("chip", "chip"),
            ("agent", "agent"),
            ("times", "mode"),
            ("candidates", "candidates"),
            ("passed", "passed"),
            ("best score", "best"),
            ("x seed, geom. mean", "geometric_mean"),
            ("x seed, median", "median"),
            ("share of light", "sol_score"),
            ("attempts to best", "attempts_to_best"),
            ("minutes", "minutes"),
        )
    ]
    say(table(["", *[f"run {n}" for n in names]], rows))
    for name in sorted({w for r in answer["runs"] for w in r["speedups"]}) if answer["comparable"] else ():
        times = [r["seconds"].get(name) for r in answer["runs"]]
        say(tame(name))
        say(entry("", ", ".join("-" if t is None else f"{t * 1e6:.5g} us" for t in times)))
    if not answer["comparable"]:
        say("\nThe runs differ in target, chip or kind of time: their scores are not put beside each other.")
    shares = ", ".join(f"{v:.2f} at {p}" for p, v in answer["fast_p"].items() if v is not None)
    say("\n" + entry("fast_p", f"over these runs: {shares}"))


def _figures(models: list[ReportModel]) -> dict[str, Any]:
    from avo import metrics

    curves = [metrics.attempts(m) for m in models]
    runs = []
    for m, curve in zip(models, curves, strict=True):
        best, gains = m.best(m.kind), metrics.speedups(m)
        counts = m.outcomes()
        runs.append(
            {
                "run": m.run.id,
                "target": m.target.name,
                "chip": m.chip.name,
                "agent": m.run.agent,
                "mode": m.mode,
                "unit": m.target.unit,
                "candidates": m.total,
                "passed": counts.get("committed", 0) + counts.get("passed", 0),
                "best": getattr(best.score, m.kind) if best is not None else None,
                "digest": best.digest if best is not None else None,
                "speedups": gains,
                "seconds": {w.workload: getattr(w, f"{m.kind}_s") for w in best.workloads} if best is not None else {},
                "geometric_mean": metrics.geometric_mean(list(gains.values())),
                "median": metrics.median(list(gains.values())),
                "sol_score": metrics.sol_score(m),
                "attempts": curve,
                "attempts_to_best": best.k if best is not None else None,
                "minutes": m.budget.minutes_used,
            }
        )
    final = [curve[-1] if curve else 1.0 for curve in curves]
    return {
        "runs": runs,
        "comparable": len({(m.target.name, m.chip.name, m.kind) for m in models}) == 1,
        "fast_p": {str(p): metrics.fast_p(final, p) for p in RATIOS},
        "attempt_fast_p": {str(p): metrics.attempt_fast_p(curves, p) for p in RATIOS},
    }


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
