"""`python joined_run.py ARCHIVE LOG STEPS PAUSE`: works at the archive's run beside whoever writes it, to the end.

What test_joined.py starts several of. Every finished judgement adds a line to LOG, and so does every proposal that was
asked for, which no transaction covers.
"""

from __future__ import annotations

import sys

from loop_parts import HW, TARGET, HashEvaluator, WalkAgent

from archive import open_archive
from avo.agents import Brief, Proposal
from avo.budget import Budget
from avo.run import Run, proceed


class Asked(WalkAgent):
    def __init__(self, pause_s: float, log: str) -> None:
        super().__init__(pause_s)
        self._log = log

    def propose(self, brief: Brief) -> Proposal:
        found = super().propose(brief)
        with open(self._log, "a") as file:
            file.write(f"proposal-{brief.k}\n")
        return found


def main(where: str, log: str, steps: str, pause: str) -> None:
    agent, evaluator = Asked(float(pause), log), HashEvaluator(pause_s=float(pause), log=log)
    parts = {"target": TARGET, "hardware": HW, "agent": agent, "evaluator": evaluator}
    with open_archive(where) as archive:
        run = Run(archive, archive.run().id)
        print("ready", flush=True)
        sys.stdin.readline()  # so that several begin at once
        proceed(run, budget=Budget(steps=int(steps)), join=True, **parts)  # type: ignore[arg-type]
        print(sum(evaluator.calls.values()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
