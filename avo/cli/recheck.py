"""`avo recheck`: judge champions again, of an archive or of files, after a change of Triton, driver or chip."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from avo.rejudging import Comparison
    from dsl.hardware import Hardware


def recheck(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            help="Candidates, or program files with their measurements beside them, instead of the best of each run.",
            metavar="[ID]...",
        ),
    ] = None,
    hw: Annotated[
        str | None, typer.Option(help="Judge them on this chip instead of each run's own.", metavar="CHIP")
    ] = None,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge the best of every run again, or champions in files, and say what changed. Nothing is stored.

    1 where one is rejected, slower beyond noise or predicted otherwise; 3 where one could not be judged.

    Example: avo recheck configs/champions/h200/*.avo
    """
    from archive.errors import ArchiveError
    from avo import choosing
    from avo.cli.console import say, show_json, table
    from avo.cli.options import reading
    from avo.cli.reproduce import as_dict, lines
    from avo.errors import HarnessUnavailable, UserMistake
    from avo.rejudging import Comparison
    from evaluators.failures import Unavailable
    from evaluators.target import TargetError

    champions = list(ids or [])
    if not champions:
        with reading(archive) as store:
            best = [(run, store.best(run.id)) for run in store.runs()]
        champions = [f"{run.id}/{c.k}" for run, c in best if c is not None]
    if not champions:
        raise UserMistake("no run of this archive has an accepted candidate")
    chip = choosing.chip(hw) if hw is not None else None
    found: list[tuple[str, Comparison]] = []
    for name in champions:
        try:
            one = _again(name, archive, chip)
        except (HarnessUnavailable, Unavailable) as error:
            one = Comparison("unavailable", None, (str(error),))
        except (UserMistake, TargetError, ArchiveError) as error:  # of a run whose target file was moved, say
            if len(champions) == 1:
                raise
            one = Comparison("unavailable", None, (str(error),))
        found.append((name, one))
        if not as_json:
            say("\n".join(lines(name, one)))
    if as_json:
        show_json([{"candidate": name, **as_dict(one)} for name, one in found])
    elif len(found) > 1:
        say("\n" + table(["candidate", "verdict"], [[name, one.outcome] for name, one in found]))
    if any(one.outcome in ("rejected", "slower", "different") for _, one in found):
        raise typer.Exit(1)
    if any(one.outcome == "unavailable" for _, one in found):
        raise typer.Exit(3)


def _again(name: str, archive: str | None, chip: Hardware | None) -> Comparison:
    from avo.candidates import candidate
    from avo.errors import UserMistake
    from avo.rejudging import again, again_file, compare

    path = Path(name)
    if path.is_dir():
        raise UserMistake(f"{name} is a folder: name its program files, as in `avo recheck {path / '*.avo'}`")
    if path.suffix == ".avo" or path.is_file():
        return again_file(path, chip)
    named = candidate(name, archive)
    if named.evaluation is None or named.run is None:
        raise UserMistake(f"candidate {name} is not judged yet")
    now, _, used = again(named, chip)
    return compare(named.evaluation, now, same_chip=used.name == named.run.hardware)
