"""When a run stalls, and the page for the one who is asked what else could be tried.

Triggers are counters and digests over the verdicts, never what anybody wrote. The reviewer sees the record alone, not
the conversation that ran into the rut; it says directions and does nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from avo.agents.brief_page import change, profile, scored, verdict_row
from avo.agents.protocol import Brief, Judged
from evaluators.failures import quoted

PATIENCE = 8  # proposals without a better best
REPEATED = 3  # the same edit, among the last PATIENCE
FAILURES = 5  # rejected in a row
_SHOWN = 40


def stalled(brief: Brief, patience: int = PATIENCE) -> str:
    """Why the run counts as stalled just now; "" where it does not. After one call there is none for `patience` more.

    A function of the verdicts, in their order, so a resumed run is advised at the same steps.
    """
    last = 0
    found = ""
    best, gained = 0.0, 0
    for n, c in enumerate(brief.candidates, 1):
        if c.committed and c.value > best:
            best, gained = c.value, n
        found = _why(brief, brief.candidates[:n], n - gained, patience) if n - last >= patience else ""
        if found:
            last = n
    return found


def _why(brief: Brief, seen: Sequence[Judged], stale: int, patience: int) -> str:
    if stale >= patience:
        return f"no better program in {stale} proposals"
    window = seen[-patience:]
    digests = Counter(c.digest for c in window)
    digest, times = digests.most_common(1)[0]
    if times >= REPEATED:
        return f"the program {digest[:8]} was proposed {times} times in {len(window)}"
    edits = Counter(e for c in window if c.parents and (e := change(brief, c)))
    if edits and (found := edits.most_common(1)[0])[1] >= REPEATED:
        return f"the edit `{found[0]}` was made {found[1]} times in {len(window)}"
    failed = 0
    for c in reversed(seen):
        if c.status.value == "ok":
            break
        failed += 1
    if failed >= FAILURES:
        return f"{failed} proposals in a row were rejected, the last as {seen[-1].status}"
    return ""


def record(brief: Brief, why: str) -> str:
    """What the reviewer sees: the facts, on a page of its own."""
    parent = brief.parent
    notes = [f"- {quoted(n.topic)}: {quoted(n.body, 600)}" for n in brief.notes if n.target == brief.target.name][-10:]
    return "\n".join(
        [
            f"# `{brief.target.name}` on {brief.hardware.title}: {why}",
            "",
            f"The best program, proposal {brief.best.k} (`{brief.best.digest[:8]}`), {scored(brief, brief.best)}:",
            "```",
            brief.best.text.rstrip(),
            "```",
            "",
            f"What limits proposal {parent.k}: {profile(parent)}",
            "",
            "## Its decisions, with the values that are legal",
            "",
            *_decisions(brief),
            "",
            "## The record",
            "",
            *(verdict_row(brief, c) for c in brief.candidates[-_SHOWN:]),
            *(["", "## Their notes", "", *notes] if notes else []),
        ]
    )


def _decisions(brief: Brief) -> list[str]:
    from avo.agents.brief_page import knobs

    return [f"- {k.name} {k.value}: {' '.join(map(str, k.legal))}" for k in knobs(brief)]
