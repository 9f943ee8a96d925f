"""What each decision of the best program is worth: beside it, those of its run that decided one thing otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from avo.report.differences import changes, statements
from avo.report.model import Candidate, Decision, Kind
from evaluators.evaluation import Status

MOST = 24
NEAR = 6  # lines of the schedule in which a program may differ to be compared
_HEAD = "\nschedule\n"


def decisions(candidates: Iterable[Candidate], kind: Kind, best: Candidate | None) -> tuple[Decision, ...]:
    """The programs that differ from the best in one decision, the worst first; then, for what nobody decided otherwise
    alone but the best and its seed did, the nearest that differs in that too. best: of the candidates, None where none
    is. Empty where texts are no programs."""
    if best is None or _HEAD not in best.text:
        return ()
    head, _, schedule = best.text.partition(_HEAD)
    lines = frozenset(statements(schedule))
    alone: list[Decision] = []
    nearest: dict[str, Decision] = {}
    for c in candidates:
        if c.status is not Status.OK or c.repeats is not None or not getattr(c.score, kind):
            continue
        other_head, _, other = c.text.partition(_HEAD)
        if c.k == best.k or other_head != head or len(lines.symmetric_difference(statements(other))) > 2 * NEAR:
            continue
        items = changes(schedule, other)
        ratio = getattr(c.score, kind) / getattr(best.score, kind)
        for item in items:
            found = Decision(instead=item, k=c.k, ratio=ratio, others=len(items) - 1)
            known = nearest.get(_directive(item))
            if known is None or (found.others, -found.ratio) < (known.others, -known.ratio):
                nearest[_directive(item)] = found
            if len(items) == 1:
                alone.append(found)
    seen = {_directive(d.instead) for d in alone}
    together = [d for name, d in nearest.items() if name not in seen]
    ordered = [*sorted(alone, key=lambda d: d.ratio), *sorted(together, key=lambda d: (d.others, d.ratio))]
    return tuple(ordered[:MOST])


def _directive(item: str) -> str:
    return item.lstrip("+− ").split()[0].rstrip(":")
