"""How many evaluations each search needs where every answer was measured: recorded tables, no GPU.

python benchmarks/search_on_tables.py [--tables DIR] [--seeds 100] [--arms ...] [--write]

Counted is every evaluation, the seed program among them, until a point has 98% of the table's best measured speed. The
seed program is the first point of the grid, the naive one. All arms see the same knobs and values, and none pays for a
point that avo's check refuses: random draws the others without repetition; Optuna's TPE, with as many start-up trials
as the heuristic gives its own sampler, is told that a refused point is bad and asked again. The heuristic "blind" has
the arithmetic and the prediction's evidence taken away: what it knows then is what was measured. "misjudging", which is
run where it is asked for, has every constant of its arithmetic wrong by a random factor between 1/4 and 4.

python benchmarks/search_on_tables.py --tables benchmarks/data/tables_plain --share 0.95 --arms heuristic misjudging ...
is the same on the eighty settings of a hand-written attention that were known before any of this was written.

--write puts the figures into benchmarks/data/search_on_tables.json, from which docs/results/evidence.md is made.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from avo.agents import appraisal
from avo.agents.heuristic import HeuristicAgent
from avo.agents.protocol import Brief, Judged
from avo.agents.sampler import STARTUP
from dsl.hardware import hardware
from dsl.parser import parse
from dsl.printer import digest, print_program
from evaluators.evaluation import Evaluation, score
from evaluators.process import cores
from evaluators.recorded import RecordedEvaluator, Setting, Table, read_tables
from evaluators.target import Target

HERE = Path(__file__).resolve().parent
TABLES = HERE / "data" / "tables"
RESULT = HERE / "data" / "search_on_tables.json"
SHARE = 0.98
FREE = ("check_error", "not_lowered", "compiled", "not reached")  # refused by the check, or never measured
MOST = 250  # evaluations after which a search counts as having taken so many


class Case:
    """One table as a job for a search."""

    def __init__(self, table: Table, share: float = SHARE) -> None:
        self.table = table
        self.hw = hardware(table.chip)
        self.seed = print_program(table.program)
        w = (table.workload,)
        self.target = Target(table.target, _no_reference, self.seed, w, w, w)
        self.evaluator = RecordedEvaluator([table])
        best = table.rows[table.best].seconds
        assert best is not None
        self.enough_s = best / share
        self.agents = {True: HeuristicAgent(), False: HeuristicAgent()}  # what they keep only saves time
        self.legal = [s for s, r in table.rows.items() if r.status not in FREE]

    def found(self, setting: Setting) -> bool:
        seconds = self.table.rows[setting].seconds
        return seconds is not None and seconds <= self.enough_s

    @property
    def start(self) -> Setting:
        return next(iter(self.table.rows))

    def preview(self, text: str) -> Evaluation:
        return self.evaluator.preview(text, self.target, self.hw)

    def judged(self, k: int, text: str, parents: tuple[str, ...]) -> Judged:
        found = self.evaluator.evaluate(text, self.target, self.hw)
        return Judged(k, digest(parse(text)), text, parents, "heuristic", found, score(found), committed=True)


def _no_reference(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("a table is replayed, nothing is computed")


def heuristic(case: Case, seed: int, prediction: bool = True) -> int:
    agent = case.agents[prediction]
    done = [case.judged(0, case.seed, ())]
    options = {"knobs": dict(case.table.knobs), **({} if prediction else {"prediction": False})}
    while len(done) < MOST:
        at = case.evaluator.setting(done[-1].text, case.target, case.hw)
        if not isinstance(at, str) and case.found(at):
            return len(done)
        best = max(done, key=lambda j: j.value)
        k = len(done)
        brief = Brief(k, seed, case.target, case.hw, best, best, tuple(done), options=options, preview=case.preview)
        proposal = agent.propose(brief)
        if proposal is None:
            return MOST
        done.append(case.judged(len(done), proposal.text, proposal.parents))
    return MOST


def blind(case: Case, seed: int) -> int:
    return heuristic(case, seed, prediction=False)


def misjudging(case: Case, seed: int) -> int:
    rng = random.Random(f"guesses {seed}")
    right = appraisal.GUESSES
    appraisal.GUESSES = appraisal.Guesses(**{n: v * 4 ** rng.uniform(-1, 1) for n, v in vars(right).items()})
    try:
        return heuristic(case, seed)
    finally:
        appraisal.GUESSES = right


def at_random(case: Case, seed: int) -> int:
    """The seed program, then the legal points without repetition."""
    order = [s for s in case.legal if s != case.start]
    random.Random(seed).shuffle(order)
    return 1 + next((i for i, s in enumerate([case.start, *order]) if case.found(s)), MOST)


def tpe(case: Case, seed: int) -> int:
    """Optuna's sampler, multivariate, from the same seed program."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    knobs = case.table.knobs
    space: dict[str, Any] = {
        n: optuna.distributions.IntDistribution(0, len(v) - 1)
        if all(isinstance(x, int) for x in v)
        else optuna.distributions.CategoricalDistribution(list(v))
        for n, v in knobs.items()
    }
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    worst = np.log(1 / max(r.seconds for r in case.table.rows.values() if r.seconds)) - 1

    def place(setting: Setting) -> dict[str, Any]:
        return {
            n: v.index(x) if all(isinstance(y, int) for y in v) else x
            for (n, v), x in zip(knobs.items(), setting, strict=True)
        }

    def value(setting: Setting) -> float:
        seconds = case.table.rows[setting].seconds
        return float(worst) if seconds is None else float(np.log(1 / seconds))

    study.add_trial(optuna.trial.create_trial(params=place(case.start), distributions=space, value=value(case.start)))
    count, seen = 1, {case.start}
    while count < MOST:
        trial = study.ask(space)
        setting = tuple(
            v[trial.params[n]] if all(isinstance(y, int) for y in v) else trial.params[n] for n, v in knobs.items()
        )
        free = setting in seen or case.table.rows[setting].status in FREE
        study.tell(trial, value(setting))
        if free:
            continue
        seen.add(setting)
        count += 1
        if case.found(setting):
            return count
    return MOST


ARMS: dict[str, Callable[[Case, int], int]] = {
    "heuristic": heuristic,
    "blind": blind,
    "random": at_random,
    "TPE": tpe,
    "misjudging": misjudging,
}
USUAL = [name for name in ARMS if name != "misjudging"]
_cases: dict[str, Case] = {}


def _one(job: tuple[str, str, str, int, float]) -> int:
    arm, where, name, seed, share = job
    if name not in _cases:
        for table in read_tables(where):
            _cases[table.name] = Case(table, share)
    return ARMS[arm](_cases[name], seed)


def interval(counts: Sequence[int], seed: int = 0, draws: int = 5000) -> tuple[float, float]:
    """The percentile interval of the median's bootstrap, 95%."""
    rng = np.random.default_rng(seed)
    array = np.asarray(counts)
    medians = np.median(array[rng.integers(0, array.size, size=(draws, array.size))], axis=1)
    return float(np.quantile(medians, 0.025)), float(np.quantile(medians, 0.975))


def keep(name: str, share: float, facts: dict[str, int], arms: dict[str, Any]) -> None:
    """Puts the figures of some arms on one table into the result, beside what other runs found."""
    data = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    data |= {"share": share, "startup": STARTUP, "most": MOST}
    row = data.setdefault("tables", {}).setdefault(name, {})
    row |= facts
    row["arms"] = row.get("arms", {}) | arms
    RESULT.write_text(json.dumps(data, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=str(TABLES))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--arms", nargs="*", default=USUAL, choices=list(ARMS))
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--minutes", type=float, default=600.0, help="after which the seeds that are done are counted")
    parser.add_argument("--write", action="store_true")
    flags = parser.parse_args()
    cases = {t.name: Case(t, flags.share) for t in read_tables(flags.tables) if not flags.only or t.name in flags.only}
    # Seed by seed over all tables and arms: a run that is ended has the first seeds of each, whatever they took.
    pairs = [(name, arm) for name in cases for arm in flags.arms]
    jobs = [(arm, flags.tables, name, seed, flags.share) for seed in range(flags.seeds) for name, arm in pairs]
    counts: dict[tuple[str, str], list[int]] = {pair: [] for pair in pairs}
    began = time.monotonic()
    with multiprocessing.get_context("fork").Pool(flags.jobs) as pool:
        coming = pool.imap(_one, jobs)
        for arm, _, name, _, _ in jobs:
            try:
                counts[name, arm].append(coming.next(timeout=began + 60 * flags.minutes - time.monotonic()))
            except multiprocessing.TimeoutError:
                break
        pool.terminate()
    print(f"evaluations to {flags.share:.0%} of the best measured, median [95% interval] and number of seeds")
    print(f"{'table':32}{'good':>10}" + "".join(f"{a:>24}" for a in flags.arms))
    for name, case in cases.items():
        good = sum(case.found(s) for s in case.legal)
        cells, row = [], {}
        for arm in flags.arms:
            found = counts[name, arm]
            if not found:
                cells.append(f"{'-':>24}")
                continue
            low, high = interval(found)
            row[arm] = {"counts": found, "median": median(found), "low": low, "high": high}
            cells.append(f"{f'{median(found):g} [{low:g}, {high:g}] {len(found)}':>24}")
        print(f"{name:32}{f'{good}/{len(case.legal)}':>10}" + "".join(cells))
        if flags.write:
            keep(name, flags.share, {"good": good, "legal": len(case.legal), "points": len(case.table.rows)}, row)
    print(f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
