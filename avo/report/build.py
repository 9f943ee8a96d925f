"""From the archive to a report: reads one run, read-only, and says nothing about how it will look."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from avo.history import History
from avo.report.derive import Gain, complete
from avo.report.model import BudgetInfo, Candidate, ChipInfo, Cost, ReportModel, RunInfo, TargetInfo, Tried
from avo.report.promotion import facts
from evaluators.evaluation import Evaluation

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.records import Run


def build_model(archive: Archive, run: int | None = None) -> ReportModel:
    """The report of a run, of the newest where none is named. Raises ArchiveError where there is no such run."""
    row = archive.run(run)
    found = archive.candidates(row.id)
    judged = {c.k: evaluation for c, evaluation in archive.evaluations(found)}
    history = History.of(archive, row.id, whole=True)
    committed: set[int] = set()
    gains: dict[int, Gain] = {}
    for past in history.all():
        if past.committed:
            committed.add(past.k)
            against = history.compared(past)
            if against is not None:
                measured = past.evaluation.mode == "measured"
                low, high = (1 / against.high, 1 / against.low) if measured else (None, None)
                gains[past.k] = (1 / against.ratio, low, high)
    tested_all = archive.hypotheses(row.id)
    hypotheses = {t.k: t for t in tested_all if t.k is not None}
    promotions = archive.promotions(row.id)
    costs = archive.spend_by(row.id, "k")
    candidates = []
    for c in found:
        evaluation = judged.get(c.k)
        tested = hypotheses.get(c.k)
        candidates.append(
            Candidate(
                digest=c.digest,
                id="",
                k=c.k,
                parents=c.parents,
                agent=c.agent,
                status=c.status,
                failed_gate=c.failed_gate,
                message=c.message,
                committed=c.k in committed,
                score=c.score,
                text=c.text,
                rationale=c.rationale,
                hypothesis=_told(tested) if tested is not None else {},
                cost=_spent(costs[c.k]) if c.k in costs else {},
                promotion=facts(promotions[c.digest]) if c.digest in promotions else {},
                gates=evaluation.gates if evaluation is not None else (),
                workloads=evaluation.workloads if evaluation is not None else (),
                source=evaluation.source if evaluation is not None else "",
            )
        )
    evaluations = list(judged.values())
    mode = _mode(evaluations)
    model = complete(
        candidates,
        gains,
        run=_run(row),
        target=TargetInfo(name=row.target, unit=_unit(evaluations)),
        chip=ChipInfo(name=row.hardware),
        mode=mode,
        mode_reason=_reason(evaluations, mode),
        budget=_budget(row, max((c.k for c in found), default=0), _spent(archive.spend(row.id))),
        versions={str(k): str(v) for k, v in row.versions.items()},
        tried=tuple(
            Tried(
                k=t.k,
                claim=t.hypothesis.claim,
                bottleneck=t.hypothesis.bottleneck,
                expected=t.hypothesis.expected_gain,
                actual=t.actual_gain,
            )
            for t in tested_all
        ),
    )
    return model.model_copy(update={"costs": _costs(archive, row.id, model)})


def _costs(archive: Archive, run: int, model: ReportModel) -> tuple[Cost, ...]:
    """The ledger by stage and model; a model's gain is that of the winning line's commits that it was asked for."""
    gains = {c.k: c.gain for c in model.commits if c.line and c.gain}
    found = []
    for stage, name, entries, spend, steps in archive.costs(run):
        gained = math.prod(gains[k] for k in steps if k in gains) if name else None
        found.append(Cost(stage=stage, model=name, entries=entries, gained=gained, **asdict(spend)))
    return tuple(found)


def _run(row: Run) -> RunInfo:
    return RunInfo(
        id=row.id,
        state=row.state,
        ended=row.ended or "",
        agent=row.agent,
        seed=row.seed,
        jobs=row.jobs,
        created=row.created_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _budget(row: Run, steps_used: int, spend: dict[str, Any]) -> BudgetInfo:
    given = row.config.get("given", row.config)
    steps, minutes = given.get("steps"), given.get("minutes")
    return BudgetInfo(
        # a run that was taken up again with more steps has passed the limit that it began with
        steps=steps if isinstance(steps, int) and steps >= steps_used else None,
        steps_used=steps_used,
        minutes=float(minutes) if isinstance(minutes, int | float) else None,
        minutes_used=row.wall_s / 60,
        spend=spend,
    )


def _spent(spend: Any) -> dict[str, Any]:
    """What was used at all. An unknown price is said, not counted as nothing."""
    values = {k: v for k, v in asdict(spend).items() if v}
    return {**values, "usd": "unknown"} if spend.usd is None else values


def _told(tested: Any) -> dict[str, Any]:
    facts = {
        "claim": tested.hypothesis.claim,
        "bottleneck": tested.hypothesis.bottleneck,
        "expected_gain": tested.hypothesis.expected_gain,
        "actual_gain": tested.actual_gain,
        **tested.detail,
    }
    return {k: v for k, v in facts.items() if v not in (None, "", {})}


def _mode(evaluations: list[Evaluation]) -> Any:
    """How the times of this run came about: where it measured anything, measured decides."""
    counts = Counter(e.mode for e in evaluations)
    return next((mode for mode in ("measured", "predicted") if counts[mode]), "none")


def _reason(evaluations: list[Evaluation], mode: str) -> str:
    """How times were measured, or why not: in the evaluator's own words where it left some in the environment."""
    if not evaluations:
        return ""
    if mode == "measured":
        return _regime(next(e.environment for e in evaluations if e.mode == "measured"))
    said = next((str(e.environment["mode_reason"]) for e in evaluations if e.environment.get("mode_reason")), "")
    return said or ("nothing was timed on a device" if mode == "predicted" else "correctness alone, no claim of speed")


def _regime(environment: dict[str, Any]) -> str:
    """Device and timing regime, which stand beside every measured figure."""
    device, regime = environment.get("device"), environment.get("regime")
    said = [str(device["name"])] if isinstance(device, dict) and device.get("name") else []
    if isinstance(regime, dict) and regime.get("name"):
        times = [f"{1e3 * regime[k]:g} ms {k[:-2]}" for k in ("untimed_s", "timed_s") if regime.get(k)]
        said.append(f"{regime['name']} regime" + (f", {' then '.join(times)}" if times else ""))
    return "; ".join(said)


def _unit(evaluations: list[Evaluation]) -> Any:
    return next((e.unit for e in evaluations if e.workloads), evaluations[0].unit if evaluations else "TFLOP/s")
