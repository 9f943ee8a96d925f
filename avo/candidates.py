"""A program by how a person names it: a file, or a candidate of an archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from avo.errors import UserMistake

if TYPE_CHECKING:
    from archive.records import Candidate, Run
    from dsl.syntax import Program
    from evaluators.evaluation import Evaluation


@dataclass(frozen=True)
class Named:
    """text: of the program. The rest is known only for a candidate. lineage: digests from the seed to it."""

    name: str
    text: str
    program: Program
    candidate: Candidate | None = None
    evaluation: Evaluation | None = None
    run: Run | None = None
    lineage: tuple[str, ...] = ()


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


def candidate(name: str, archive: str | None = None) -> Named:
    """A candidate of an archive by `RUN/K` or the start of its digest. Raises as `find` does."""
    from archive.archive import open_archive
    from avo.config import DEFAULT_ARCHIVE
    from dsl.diagnostics import ProgramError
    from dsl.parser import parse

    where = archive or DEFAULT_ARCHIVE
    if "://" not in where and not Path(where).exists():
        raise UserMistake(f"there is neither a file {name} nor an archive {where} with a candidate of that name")
    with open_archive(where, readonly=True) as store:
        found = store.candidate(name)
        evaluation = store.evaluation(found)
        run = store.run(found.run)
        lineage = tuple(c.digest for c in store.lineage(found.run, found.k))
    try:
        program = parse(found.text)
    except ProgramError:
        raise UserMistake(
            f"candidate {found.digest[:8]} is no program of the language: raw Python, or a text that does not parse. "
            f"`avo show {name} --program` prints it"
        ) from None
    return Named(found.digest[:8], found.text, program, found, evaluation, run, lineage)
