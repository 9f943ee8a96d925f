"""A program by how a person names it: a file, or a candidate of an archive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from avo.errors import UserMistake

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.records import Candidate, Run
    from dsl.syntax import Program
    from evaluators.evaluation import Evaluation

EACH = "each"  # RUN/each: a program for each size
WORTH = 0.003  # of the geometric mean, that one more program has to be worth


@dataclass(frozen=True)
class Named:
    """text: of the program. The rest is known only for a candidate. lineage: digests from the seed to it. promotion:
    what came of it when it was judged again as the best of its run."""

    name: str
    text: str
    program: Program
    candidate: Candidate | None = None
    evaluation: Evaluation | None = None
    run: Run | None = None
    lineage: tuple[str, ...] = ()
    promotion: Evaluation | None = None


def find(name: str, archive: str | None = None) -> Named:
    """The program of a file that is there (`x.avo`, or -), else the candidate `RUN/K` or the start of a digest.

    Raises UserMistake where it is neither, ProgramError where a file holds no program, archive.errors.ArchiveError.
    """
    from avo.files import read_program

    path = Path(name)
    if name == "-" or path.suffix or path.exists():
        text, program = read_program(name)
        return Named(path.stem if name != "-" else "program", text, program)
    return candidate(name, archive)


def find_all(names: Sequence[str], archive: str | None = None) -> list[Named]:
    """As `find`, each; `RUN/each` is the few candidates of a run that together are fastest over its sizes."""
    found: list[Named] = []
    for name in names:
        run, slash, word = name.partition("/")
        if slash and word == EACH and run.isdigit():
            found += [candidate(f"{run}/{k}", archive) for k in each(int(run), archive)]
        else:
            found.append(find(name, archive))
    return found


def each(run: int, archive: str | None = None) -> list[int]:
    """Numbers of the right candidates to dispatch to, the most telling first: each one more is worth WORTH of the
    geometric mean over the sizes, by the run's own times. One that failed when it was judged again as a winner is none.
    Raises UserMistake where the run has no right candidate."""
    from evaluators.evaluation import Status

    with _opened(f"{run}/{EACH}", archive) as store:
        store.run(run)
        failed = {d for d, again in store.promotions(run).items() if again.status is not Status.OK}
        times: dict[int, dict[str, float]] = {}
        modes: dict[int, str] = {}
        for c in store.candidates(run, status=Status.OK, text=False):
            if c.digest not in failed and (found := store.evaluation(c)) is not None:
                rows = (
                    (w.workload, w.measured_s if found.mode == "measured" else w.predicted_s) for w in found.workloads
                )
                times[c.k], modes[c.k] = {name: s for name, s in rows if s}, found.mode
    if "measured" in modes.values():
        times = {k: t for k, t in times.items() if modes[k] == "measured"}
    if not any(times.values()):
        raise UserMistake(f"run {run} has no right candidate with times yet")
    most = max(map(len, times.values()))
    whole = {k: sum(map(math.log, t.values())) for k, t in times.items() if len(t) == most}
    chosen = [min(whole, key=lambda k: whole[k])]
    best = dict(times[chosen[0]])
    while True:
        gains = {k: sum(math.log(s / min(s, t.get(n, s))) for n, s in best.items()) for k, t in times.items()}
        first = max(gains, key=lambda k: gains[k])
        if gains[first] / most < WORTH:
            return chosen
        chosen.append(first)
        best = {name: min(s, times[first].get(name, s)) for name, s in best.items()}


def candidate(name: str, archive: str | None = None) -> Named:
    """A candidate of an archive by `RUN/K` or the start of its digest. Raises as `find` does."""
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse

    with _opened(name, archive) as store:
        found = store.candidate(name)
        evaluation = store.evaluation(found)
        run = store.run(found.run)
        lineage = tuple(c.digest for c in store.lineage(found.run, found.k))
        promotion = store.promotions(found.run).get(found.digest)
    try:
        program = parse(found.text)
    except ProgramError:
        raise UserMistake(
            f"candidate {found.digest[:8]} is no program of the language: raw Python, or a text that does not parse. "
            f"`avo show {name} --program` prints it"
        ) from None
    return Named(found.digest[:8], found.text, program, found, evaluation, run, lineage, promotion)


def _opened(name: str, archive: str | None) -> Archive:
    """The archive to read from. Raises UserMistake where there is none."""
    from archive.archive import open_archive
    from avo.config import DEFAULT_ARCHIVE

    where = archive or DEFAULT_ARCHIVE
    if "://" not in where and not Path(where).exists():
        raise UserMistake(f"there is neither a file {name} nor an archive {where} with a candidate of that name")
    return open_archive(where, readonly=True)
