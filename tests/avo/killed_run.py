"""`python killed_run.py ARCHIVE LOG STEPS JOBS PAUSE`: begins the archive's run, or goes on with it, to the end.

What test_resume.py kills. Every finished judgement adds a line to LOG, which no transaction covers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from loop_parts import HW, TARGET, HashEvaluator, WalkAgent

from archive import open_archive
from avo.budget import Budget
from avo.run import Run, begin, proceed


def main(where: str, log: str, steps: str, jobs: str, pause: str) -> None:
    agent = WalkAgent(pause_s=float(pause))
    evaluator = HashEvaluator(pause_s=float(pause), log=log)
    made = Path(where).exists()
    with open_archive(where) as archive:
        if made and archive.runs():
            run = Run(archive, archive.run().id)
        else:
            run = begin(archive, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, seed=11, jobs=int(jobs))
        print("ready", flush=True)
        proceed(run, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, budget=Budget(steps=int(steps)))


if __name__ == "__main__":
    main(*sys.argv[1:])
