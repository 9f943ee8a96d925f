"""What follows from the plain facts of a run: ids, one-line changes, running best, commits, the score of the floor."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from avo.report.decisions import decisions
from avo.report.differences import change, line_diff
from avo.report.model import (
    GATE_OF_STATUS,
    BestPoint,
    Candidate,
    Commit,
    Kind,
    ReportModel,
    RunningBest,
    WorkloadInfo,
)
from evaluators.evaluation import Status

Gain = tuple[float | None, float | None, float | None]  # ratio, and the interval that the noise leaves

_SCALE = {"TFLOP/s": 1e-12, "GB/s": 1e-9}


def short_ids(digests: Iterable[str], of: Iterable[str] | None = None, least: int = 8) -> dict[str, str]:
    """Each digest's shortest prefix, of at least `least` characters, that names it alone among `digests`. of: only
    theirs are wanted."""
    distinct = sorted(set(digests))
    ids = {}
    for digest in distinct if of is None else set(of):
        i = bisect.bisect_left(distinct, digest)
        length = least
        for other in (*distinct[max(0, i - 1) : i], *distinct[i + 1 : i + 2]):
            same = next((n for n, (a, b) in enumerate(zip(digest, other, strict=False)) if a != b), len(digest))
            length = max(length, same + 1)
        ids[digest] = digest[:length]
    return ids


def failed_gate(status: Status | None, named: str | None) -> str | None:
    """The gate that ended the judgement: the one that the evidence names, else the one that the status belongs to."""
    if status is None or status is Status.OK:
        return None
    if status is Status.UNAVAILABLE:
        return "harness"
    return named or GATE_OF_STATUS.get(status, "check")


def running_best(candidates: Iterable[Candidate]) -> RunningBest:
    """Per kind of score, the steps of the running maximum over proposals; a tie keeps the earlier candidate."""
    ordered = sorted(candidates, key=lambda c: c.k)

    def steps(kind: Kind) -> tuple[BestPoint, ...]:
        points: list[BestPoint] = []
        for c in ordered:
            value = getattr(c.score, kind)
            if value and c.status is Status.OK and c.repeats is None and (not points or value > points[-1].score):
                points.append(BestPoint(k=c.k, score=value, digest=c.digest))
        return tuple(points)

    return RunningBest(measured=steps("measured"), predicted=steps("predicted"))


def ancestors(candidates: Iterable[Candidate], k: int | None) -> set[int]:
    """A proposal and all that it descends from, by number."""
    parents = {c.k: c.parents for c in candidates}
    found: set[int] = set()
    waiting = [k] if k in parents else []
    while waiting:
        at = waiting.pop()
        if at is not None and at not in found:
            found.add(at)
            waiting += parents.get(at, ())
    return found


def commits(candidates: Sequence[Candidate], kind: Kind, gains: Mapping[int, Gain] | None = None) -> tuple[Commit, ...]:
    """The committed candidates in order. gains: k -> what it gained on its lineage's best; else on its last committed
    ancestor. The line is that of the best of all."""
    ordered = sorted(candidates, key=lambda c: c.k)
    points = getattr(running_best(ordered), kind)
    line = ancestors(ordered, points[-1].k if points else None)
    scores = {c.k: getattr(c.score, kind) for c in ordered if c.committed and getattr(c.score, kind)}
    first = next((scores[c.k] for c in ordered if c.k in scores and not c.parents), None)
    rows: list[Commit] = []
    last: dict[int, int | None] = {}  # the newest committed ancestor of each; parents come before their children
    for c in ordered:
        above = [k for p in c.parents for k in (p if p in scores else None, last.get(p)) if k is not None]
        before = last[c.k] = max(above, default=None)
        if c.k not in scores:
            continue
        gain: Gain = (scores[c.k] / scores[before], None, None) if before is not None else (None, None, None)
        gain = (gains or {}).get(c.k, gain)
        rows.append(
            Commit(
                digest=c.digest,
                k=c.k,
                kind=kind,
                score=scores[c.k],
                gain=gain[0],
                gain_low=gain[1],
                gain_high=gain[2],
                over_seed=scores[c.k] / first if first and c.parents else None,
                line=c.k in line,
                change=c.change,
                reason=c.rationale,
            )
        )
    return tuple(rows)


def speed_of_light(workloads: Sequence[WorkloadInfo], unit: str) -> float | None:
    """The score at the floor: geometric mean over the workloads of work / floor_s, in `unit`."""
    rates = [w.work * _SCALE[unit] / w.floor_s for w in workloads if w.floor_s > 0 and w.work > 0]
    return math.exp(sum(map(math.log, rates)) / len(rates)) if rates else None


def workload_infos(names: Sequence[str], facts: dict[str, tuple[float, float, str]]) -> tuple[list[WorkloadInfo], str]:
    """Workloads with labels that hold only what differs, and the text of what all of them share.

    facts: name -> (work, floor seconds, bottleneck).
    """
    split = [dict(part.partition("=")[::2] for part in name.split(",")) for name in names]
    common = {
        key: value
        for key, value in (split[0] if len(split) > 1 else {}).items()
        if all(other.get(key) == value for other in split)
    }
    infos = []
    for name, parts in zip(names, split, strict=True):
        label = " ".join(f"{k}={v}" if v else k for k, v in parts.items() if k not in common)
        work, floor, bottleneck = facts[name]
        infos.append(WorkloadInfo(name=name, label=label or name, work=work, floor_s=floor, bottleneck=bottleneck))
    return infos, " ".join(f"{k}={v}" if v else k for k, v in common.items())


def finished(
    c: Candidate, known: Mapping[int, tuple[str, str]], ids: Mapping[str, str], first: Mapping[str, int]
) -> Candidate:
    """With what follows from the others: its id, gate and repeat, and the change and difference to its first parent.

    known: k -> (digest, text) of its parents, "" for a text that is not at hand. ids, first: digest -> its short form,
    and the first proposal of it.
    """
    parent = next((known[p] for p in c.parents if p in known and known[p][1]), None)
    earlier = first[c.digest]
    update: dict[str, Any] = {
        "id": ids[c.digest],
        "failed_gate": failed_gate(c.status, c.failed_gate),
        "repeats": earlier if earlier != c.k else None,
    }
    if parent is not None and parent[1] != c.text:
        digest, text = parent
        update["change"] = change(text, c.text)
        update["diff"] = line_diff(text, c.text, ids[digest], ids[c.digest])
    return c.model_copy(update=update)


def complete(
    candidates: Sequence[Candidate],
    gains: Mapping[int, Gain] | None = None,
    others: Mapping[int, tuple[str, str]] | None = None,
    **facts: Any,
) -> ReportModel:
    """A model from candidates that carry plain facts only; the rest is derived here, once, and the same for everybody.

    `facts` are the other fields of ReportModel. others: k -> (digest, text) of candidates that are only counted; the
    text is "" where it is nobody's parent. Fills ids, failed gates, repeats, changes and differences.
    """
    known = {c.k: (c.digest, c.text) for c in candidates} | dict(others or {})
    ids = short_ids(
        (digest for digest, _ in known.values()),
        {c.digest for c in candidates} | {digest for digest, text in known.values() if text},
    )
    first: dict[str, int] = {}
    for k in sorted(known):
        first.setdefault(known[k][0], k)
    done = [finished(c, known, ids, first) for c in sorted(candidates, key=lambda c: c.k)]
    seen: dict[str, tuple[float, float, str]] = {}
    for c in done:
        for w in c.workloads:
            seen.setdefault(w.workload, (w.work, w.floor_s, w.bottleneck))
    infos, shared = workload_infos(list(seen), seen)
    kind: Kind = "measured" if facts.get("mode") == "measured" else "predicted"
    reached = running_best(done)
    points = getattr(reached, kind)
    best = next((c for c in done if points and c.k == points[-1].k), None)
    derived: dict[str, Any] = {
        "workloads": tuple(infos),
        "shared": shared,
        "speed_of_light": speed_of_light(infos, facts["target"].unit),
        "baseline": next((c.k for c in done if not c.parents), None),
        "commits": commits(done, kind, gains),
        "running_best": reached,
        "decisions": decisions(done, kind, best),
    }
    return ReportModel(candidates=tuple(done), **{**derived, **facts})
