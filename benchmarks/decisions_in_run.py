"""What single decisions did in a measured run: pairs of its candidates that differ in one knob, median ratio of times.

python benchmarks/decisions_in_run.py [benchmarks/data/runs/NAME.json]     (Markdown)

Only candidates that were timed at every size; those that lost at their first look have one short sample a size (0.9%
of deviation), so a median of few pairs says a percent or two. Ratios are of times, old over new: above 1 the new value
is faster. Pairs share programs, so they are no independent samples.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dsl.hardware import hardware
from dsl.knobs import settings
from dsl.parser import parse
from evaluators.targets import seed_text

RUNS = Path(__file__).resolve().parent / "data" / "runs"
Setting = dict[str, Any]
BETTER = ("next_contraction", "per_thread", "speculative", "registers", "on", "masked", "tma", "longest_first")


def timed(run: dict[str, Any]) -> list[tuple[Setting, list[float]]]:
    """Settings and seconds of the candidates that have a time at every size."""
    algorithm = seed_text(run["target"]).partition("\nschedule\n")[0]
    found = []
    for row in run["rows"]:
        if row["status"] == "ok" and row["measured_s"] and all(row["measured_s"]):
            program = parse(algorithm + "\nschedule\n" + "\n".join(row["schedule"]) + "\n")
            found.append((settings(program, hardware(run["chip"])), row["measured_s"]))
    return found


def rank(value: Any) -> tuple[bool, bool, Any]:
    """Where a value stands: numbers by size, words by the alphabet, what is usually better last."""
    return value in BETTER, isinstance(value, str), value


def decisions(run: dict[str, Any]) -> dict[tuple[str, bool, Any, Any], list[list[float]]]:
    """(knob, with roles, old, new) -> for each pair the ratio of times at every size."""
    found: dict[tuple[str, bool, Any, Any], list[list[float]]] = defaultdict(list)
    every = timed(run)
    for i, (a, mine) in enumerate(every):
        for b, other in every[i + 1 :]:
            if a.keys() != b.keys():
                continue
            names = [n for n in a if a[n] != b[n]]
            if len(names) == 1:
                (name,) = names
                old, new, before, after = a[name], b[name], mine, other
                if rank(old) > rank(new):
                    old, new, before, after = new, old, after, before
                ratios = [x / y for x, y in zip(before, after, strict=True)]
                found[name, bool(a.get("roles mma")), old, new].append(ratios)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", default=RUNS / "h200_attention_roles_2026_11.json")
    flags = parser.parse_args()
    run = json.loads(flags.run.read_text(encoding="utf-8"))
    kinds = [("causal=1" in w) for w in run["workloads"]]
    split = any(kinds) and not all(kinds)
    print("| knob | from | to | roles | pairs | " + ("full | causal |" if split else "all sizes |"))
    print("|---|---|---|---|---:|" + "---:|" * (1 + split))
    for (name, roles, old, new), pairs in sorted(decisions(run).items(), key=lambda p: (not p[0][1], str(p[0]))):
        cells = []
        for kind in (False, True) if split else (None,):
            logs = [
                statistics.fmean(math.log(r) for r, k in zip(p, kinds, strict=True) if kind is None or k == kind)
                for p in pairs
            ]
            cells.append(f"{math.exp(statistics.median(logs)):.3f}")
        said = "yes" if roles else "no"
        print(f"| {name} | {old} | {new} | {said} | {len(pairs)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
