"""What an operator's run on a recorded table came to, as a page: its first brief, every answer and verdict, the counts.

python benchmarks/agents/transcript.py TABLE.json --archive run.db [--run 1] --briefs FOLDER > transcripts/NAME.md

FOLDER holds what the operator was shown, K.brief.md for proposal K; without it the first brief is made again.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from archive import open_archive
from avo.agents.brief_page import page, scored, tokens, verdict_row
from avo.agents.protocol import Judged
from avo.history import History
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
    print(f"- tokens of a brief: {min(sizes)} to {max(sizes)}\n")
    if shown:
        print("## The first brief\n\n~~~~\n" + shown[0].read_text(encoding="utf-8").rstrip() + "\n~~~~\n")
    print("## Proposals\n")
    for c in found:
        print(verdict_row(brief, c))
    print(f"\nThe best program ({scored(brief, best)}):\n\n```\n{best.text.rstrip()}\n```")
    return 0


if __name__ == "__main__":
    sys.exit(main())
