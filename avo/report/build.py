"""From the archive to a report: reads one run, read-only, and says nothing about how it will look."""

from __future__ import annotations

import functools
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from avo.committing import Committing
from avo.report.decisions import decisions
from avo.report.derive import Gain, complete, failed_gate, finished, short_ids
from avo.report.keeping import FULL, TRIED, best, gap, telling, told
from avo.report.model import (
    FLAGGED,
    KINDS,
    BudgetInfo,
    Candidate,
    ChipInfo,
    Cost,
    ReportModel,
    RunInfo,
    TargetInfo,
    Tried,
    outcome,
)
from avo.report.promotion import facts
from evaluators.evaluation import Evaluation, Status
from evaluators.times import Times

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.records import Outline, Run, Spend

_AT_ONCE = 5000  # numbers in one question to the archive
_IN_ROOM = 500  # candidates with all their texts that are held at once


def build_model(
    archive: Archive, run: int | None = None, full: int | None = None, also: Iterable[int] = ()
) -> ReportModel:
    """The report of a run, of the newest where none is named. Raises ArchiveError where there is no such run.

    full: of a run with more candidates than that, only what a page has room for (commits, their ancestors, flagged
    ones, the best, the last `full`) and the rest counted; all of it where it is None. A page, a table or a tree that is
    drawn from either is the same up to what is left out, and 100,000 candidates take seconds instead of minutes. also:
    candidates to keep whatever they are.
    """
    return _model(_Source(archive, run), full, also)


def _model(source: _Source, full: int | None, also: Iterable[int] = ()) -> ReportModel:
    row, outline, rule, expected = source.row, source.outline, source.rule, source.expected
    if full is None:
        tried = tuple(source.tried(range(len(expected))))
    else:
        tried = tuple(source.tried(_telling(outline, expected)))
    spoken = {t.k for t in told(tried) if t.k is not None}
    keep = _kept(outline, rule, len(outline) if full is None else full, spoken.union(also))
    read = [pair for part in _parts(keep, _AT_ONCE) for pair in source.candidates(part)]
    evaluations = [evaluation for _, evaluation in read if evaluation is not None]
    mode = _mode(outline)
    left = [o for o in outline if o.k not in keep]
    texts = source.texts({p for c, _ in read for p in c.parents[:1]} - keep)
    model = complete(
        [c for c, _ in read],
        source.gains,
        {o.k: (o.digest, texts.get(o.k, "")) for o in left},
        run=_run(row),
        target=TargetInfo(name=row.target, unit=_unit(evaluations)),
        chip=ChipInfo(name=row.hardware),
        mode=mode,
        mode_reason=_reason(evaluations, mode),
        budget=_budget(row, max((o.k for o in outline), default=0), _spent(source.archive.spend(row.id))),
        versions={str(k): str(v) for k, v in row.versions.items()},
        tried=tried,
        tried_total=len(expected),
        omitted=dict(Counter(_outcome(o, rule) for o in left)),
        above={o.k: next(iter(o.parents), None) for o in left},
    )
    return model.model_copy(update={"costs": _costs(source.ledger, model)})


def read_whole(archive: Archive, run: int | None = None) -> tuple[ReportModel, Iterator[Candidate], Iterator[Tried]]:
    """The report of a run in full, for as little memory as its page: the page's model, then every candidate and every
    hypothesis in order, each read when it is asked for.

    Raises as `build_model` does; the archive has to stay open until the last is read.
    """
    source = _Source(archive, run)
    model = _model(source, FULL)
    if model.above:
        told = decisions(source.scored(), model.kind, model.best(model.kind))
        model = model.model_copy(update={"omitted": {}, "above": {}, "decisions": told})
    return model, source.whole(), source.tried()


class _Source:
    """One run in the archive: what is read once, and what is asked for in parts."""

    def __init__(self, archive: Archive, run: int | None) -> None:
        self.row = archive.run(run)
        self.outline = archive.outline(self.row.id)
        self.rule, self.gains = _folded(self.outline)
        self.expected = archive.expected(self.row.id)
        self.ledger = archive.costs(self.row.id)
        self.archive = archive
        self._models = {k: name for _, name, _, _, steps in self.ledger for k in steps if name}
        self._promotions = archive.promotions(self.row.id)
        self._hypotheses = {k: id for id, k, _ in self.expected if k is not None}

    def candidates(self, ks: Sequence[int]) -> list[tuple[Candidate, Evaluation | None]]:
        """The plain facts of some, in the order of k."""
        archive, run = self.archive, self.row.id
        found = archive.candidates(run, ks=ks)
        judged = {c.k: evaluation for c, evaluation in archive.evaluations(found)}
        costs = archive.spend_by(run, "k", ks)
        ids = [self._hypotheses[k] for k in ks if k in self._hypotheses]
        tested = {t.k: t for t in archive.hypotheses(run, ids)} if ids else {}
        read = []
        for c in found:
            evaluation = judged.get(c.k)
            made = Candidate(
                digest=c.digest,
                id="",
                k=c.k,
                parents=c.parents,
                agent=c.agent,
                model=self._models.get(c.k, ""),
                status=c.status,
                failed_gate=c.failed_gate,
                message=c.message,
                committed=self.rule.committed[c.k],
                score=c.score,
                text=c.text,
                rationale=c.rationale,
                hypothesis=_told(tested[c.k]) if c.k in tested else {},
                cost=_spent(costs[c.k]) if c.k in costs else {},
                promotion=facts(self._promotions[c.digest]) if c.digest in self._promotions else {},
                gates=evaluation.gates if evaluation is not None else (),
                workloads=evaluation.workloads if evaluation is not None else (),
                source=evaluation.source if evaluation is not None else "",
            )
            read.append((made, evaluation))
        return read

    def texts(self, ks: Iterable[int]) -> dict[int, str]:
        """k -> its text."""
        return {c.k: c.text for part in _parts(ks, _AT_ONCE) for c in self.archive.candidates(self.row.id, ks=part)}

    @functools.cached_property
    def _first(self) -> dict[str, int]:
        """digest -> the first proposal of it."""
        return {o.digest: o.k for o in reversed(self.outline)}

    def scored(self) -> Iterator[Candidate]:
        """Those that passed every gate, each program once, in the order of k: with text and score alone."""
        good = [o.k for o in self.outline if o.status == Status.OK.value and self._first[o.digest] == o.k]
        for part in _parts(good, _AT_ONCE):
            for c in self.archive.candidates(self.row.id, ks=part):
                yield Candidate(digest=c.digest, id="", k=c.k, status=c.status, score=c.score, text=c.text)

    def whole(self) -> Iterator[Candidate]:
        """Every candidate, complete, in the order of k."""
        digests = {o.k: o.digest for o in self.outline}
        ids, first = short_ids(digests.values()), self._first
        for part in _parts(digests, _IN_ROOM):
            made = [c for c, _ in self.candidates(part)]
            texts = {c.k: c.text for c in made}
            texts |= self.texts({p for c in made for p in c.parents[:1]} - texts.keys())
            known = {k: (digests[k], text) for k, text in texts.items()}
            yield from (finished(c, known, ids, first) for c in made)

    def tried(self, places: Iterable[int] | None = None) -> Iterator[Tried]:
        """The hypotheses in the order they were made. places: of these alone, counted from 0."""
        for part in _parts(range(len(self.expected)) if places is None else places, _AT_ONCE):
            for t in self.archive.hypotheses(self.row.id, [self.expected[place][0] for place in part]):
                yield Tried(
                    k=t.k,
                    claim=t.hypothesis.claim,
                    bottleneck=t.hypothesis.bottleneck,
                    expected=t.hypothesis.expected_gain,
                    actual=t.actual_gain,
                )


def _folded(outline: list[Outline]) -> tuple[Committing, dict[int, Gain]]:
    """What was committed, and what each commit gained on its lineage's best: ratio and interval of speeds."""
    rule = Committing()
    gains: dict[int, Gain] = {}
    digests = {o.k: o.digest for o in outline}
    for o in outline:
        while len(rule.committed) < o.k:
            rule.skip()
        if o.status is None:
            rule.skip()
            continue
        above = [digests[p] for p in o.parents if digests[p] in rule.first]
        ok = o.status == Status.OK.value
        times = Times.from_text(o.times) if ok and o.times is not None else None
        if rule.fold(o.digest, above, ok, o.value, times):
            against = rule.compared(o.k, above)
            if against is not None:
                noisy = o.mode == "measured"
                low, high = (1 / against.high, 1 / against.low) if noisy else (None, None)
                gains[o.k] = (1 / against.ratio, low, high)
    return rule, gains


def _kept(outline: list[Outline], rule: Committing, full: int, also: Iterable[int]) -> set[int]:
    flagged = {s.value for s in FLAGGED}
    others = set(also) | {o.k for o in outline if o.status in flagged or not o.parents}
    for kind in KINDS:
        good = [o for o in outline if o.status == Status.OK.value and rule.first[o.digest] == o.k and getattr(o, kind)]
        high = 0.0
        for o in good:
            if getattr(o, kind) > high:
                high = getattr(o, kind)
                others.add(o.k)
        others.update(best((o.k, getattr(o, kind)) for o in good))
    commits = (o.k for o in outline if rule.committed[o.k])
    return telling({o.k: o.parents for o in outline}, full, commits=commits, others=others)


def _outcome(o: Outline, rule: Committing) -> str:
    status = Status(o.status) if o.status is not None else None
    repeat = rule.first.get(o.digest, o.k) != o.k
    return outcome(status, repeat, failed_gate(status, o.failed_gate), rule.committed[o.k])


def _telling(outline: list[Outline], expected: list[tuple[int, int | None, float | None]]) -> list[int]:
    """The places of the hypotheses that a page tells."""
    known = {o.k: o for o in outline}

    def far(place: int) -> tuple[float, int]:
        _, k, gain = expected[place]
        return (-gap(gain, _gain(known, k)), k if k is not None else -1)

    return heapq.nsmallest(TRIED, range(len(expected)), key=far)


def _gain(known: dict[int, Outline], k: int | None) -> float | None:
    """As `archive.records.Tested.actual_gain`."""
    child = known.get(k) if k is not None else None
    if child is None or not child.value:
        return None
    before = max((known[p].value for p in child.parents if known[p].mode == child.mode), default=0.0)
    return child.value / before if before else None


def _parts(numbers: Iterable[int], most: int) -> Iterator[list[int]]:
    ordered = sorted(numbers)
    for start in range(0, len(ordered), most):
        yield ordered[start : start + most]


def _costs(ledger: list[tuple[str, str, int, Spend, tuple[int, ...]]], model: ReportModel) -> tuple[Cost, ...]:
    """The ledger by stage and model; a model's gain is that of the winning line's commits that it was asked for."""
    gains = {c.k: c.gain for c in model.commits if c.line and c.gain}
    found = []
    for stage, name, entries, spend, steps in ledger:
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
    steps, minutes = row.given.get("steps"), row.given.get("minutes")
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


def _mode(outline: list[Outline]) -> Any:
    """How the times of this run came about: where it measured anything, measured decides."""
    counts = Counter(o.mode for o in outline if o.status is not None)
    return next((mode for mode in ("measured", "predicted") if counts[mode]), "none")


def _reason(evaluations: list[Evaluation], mode: str) -> str:
    """How times were measured, or why not: in the evaluator's own words where it left some in the environment."""
    if not evaluations:
        return ""
    if mode == "measured":
        return _regime(next((e.environment for e in evaluations if e.mode == "measured"), {}))
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
