"""What an operator's run on a recorded table came to, as a page: its first brief, every answer and verdict, the counts.

python benchmarks/agents/transcript.py TABLE.json --archive run.db [--run 1] --briefs FOLDER > transcripts/NAME.md

FOLDER holds what the operator was shown, K.brief.md for proposal K; without it the first brief is made again. Of a run
whose agent asks a model, the requests and replies come from its journal: of each request what no earlier one held.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from statistics import median

from archive import open_archive
from archive.records import Exchange
from avo.agents.brief_page import page, scored, tokens, verdict_row
from avo.agents.protocol import Judged
from avo.history import History
from avo.models import Reply, Request
from avo.models.calling import REPLIED
from avo.outside import brief_of
from evaluators.evaluation import Status
from evaluators.recorded import Table, read_tables

FREE = (Status.NOT_RECORDED,)  # the table cannot answer: not counted, as for every other arm


def evaluations_to(share: float, table: Table, found: list[Judged]) -> int | None:
    """Counted judgements, the seed program among them, until one has this share of the table's best speed."""
    best = min(r.seconds for r in table.rows.values() if r.seconds)
    count = 0
    for c in found:
        if c.status in FREE:
            continue
        count += 1
        seconds = c.evaluation.workloads[0].measured_s if c.evaluation.workloads else None
        if seconds is not None and seconds <= best / share:
            return count
    return None


def talk(asked: list[Exchange]) -> list[str]:
    """Each request, of its messages what no earlier request held and of a page no line that stood before, with its
    reply."""
    seen: set[str] = set()
    rows: list[str] = []
    for n, e in enumerate(asked, 1):
        told = []
        for message in Request.from_json(e.request).messages:
            parts = [message.text, *(r.text for r in message.results)] if message.role == "user" else []
            for line in "\n".join(parts).splitlines():
                if line not in seen:
                    told.append(line)
                    seen.add(line)
        reply = Reply.from_json(e.reply or "")
        said = [reply.text.strip(), *(f"call {c.name} {c.arguments}" for c in reply.calls)]
        rows.append(f"### {n}, for proposal {e.k}\n\n~~~~\n" + "\n".join(told).strip() + "\n~~~~\n\nReply:\n\n~~~~\n")
        rows[-1] += "\n".join(s for s in said if s) + "\n~~~~"
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--run", type=int)
    parser.add_argument("--briefs", type=Path)
    given = parser.parse_args()
    (table,) = read_tables(given.table)
    with open_archive(given.archive, readonly=True) as store:
        record = store.run(given.run)
        found = list(History.of(store, record.id, whole=True).all())
        brief = brief_of(store, record)
        asked = [e for e in store.exchanges(record.id) if e.outcome in REPLIED]
    shown = sorted(given.briefs.glob("*.brief.md"), key=lambda p: int(p.name.split(".")[0])) if given.briefs else []
    sizes = [tokens(p.read_text(encoding="utf-8")) for p in shown] or [tokens(page(brief))]
    best = max(found, key=lambda c: c.value)
    fastest = min(r.seconds for r in table.rows.values() if r.seconds)
    seconds = best.evaluation.workloads[0].measured_s or math.inf
    invalid = [c for c in found[1:] if c.status in (Status.PARSE_ERROR, Status.CHECK_ERROR)]
    free = [c for c in found if c.status in FREE]
    by = ", ".join(sorted({c.agent for c in found[1:]}))
    print(f"# {table.name}: proposals by {by}\n")
    print(f"- table: {given.table.name}, measured {table.head.get('date')} on {table.chip}; judged by the table alone")
    print(f"- proposals: {len(found) - 1}, of them {len(free)} that the table does not hold, {len(invalid)} illegal")
    for share in (0.95, 0.98):
        n = evaluations_to(share, table, found)
        print(f"- evaluations to {share:.0%} of the best recorded: {n if n is not None else 'not reached'}")
    share = f"{fastest / seconds:.1%} of the table's best"
    print(f"- best: proposal {best.k}, {best.value:.5g} {best.evaluation.unit}, {share}")
    print(f"- tokens of a brief: {min(sizes)} to {max(sizes)}")
    if asked:
        sent = [sum(tokens(e.request) for e in asked if e.k == c.k) for c in found[1:]]
        print(
            f"- requests a proposal: {len(asked) / max(1, len(sent)):.1f}; tokens sent a proposal: {median(sent):,.0f}"
        )
    print()
    if shown:
        print("## The first brief\n\n~~~~\n" + shown[0].read_text(encoding="utf-8").rstrip() + "\n~~~~\n")
    print("## Proposals\n")
    for c in found:
        print(verdict_row(brief, c))
    if asked:
        print("\n## The talk\n\n" + "\n\n".join(talk(asked)))
    print(f"\nThe best program ({scored(brief, best)}):\n\n```\n{best.text.rstrip()}\n```")
    return 0


if __name__ == "__main__":
    sys.exit(main())
