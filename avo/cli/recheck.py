"""`avo recheck`: judge the champions of an archive again, after a change of Triton, driver or chip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from avo.rejudging import Comparison


def recheck(
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Candidates instead of the best of each run.", metavar="[ID]..."),
    ] = None,
    hw: Annotated[
        str | None, typer.Option(help="Judge them on this chip instead of each run's own.", metavar="CHIP")
    ] = None,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge the best of every run again under what is installed now, and say what changed. Nothing is stored.

    1 where one is rejected, slower beyond noise or predicted otherwise; 3 where one could not be judged.

    Example: avo recheck --archive avo.db
    """
    from avo import choosing
    from avo.candidates import candidate
    from avo.cli.console import say, show_json, table
    from avo.cli.options import reading
    from avo.cli.reproduce import as_dict, lines
    from avo.errors import HarnessUnavailable, UserMistake
    from avo.rejudging import Comparison, again, compare

    with reading(archive) as store:
        champions = list(ids or [])
        if not champions:
            best = [(run, store.best(run.id)) for run in store.runs()]
            champions = [f"{run.id}/{c.k}" for run, c in best if c is not None]
    if not champions:
        raise UserMistake("no run of this archive has an accepted candidate")
    chip = choosing.chip(hw) if hw is not None else None
    found: list[tuple[str, Any, Comparison]] = []
    for name in champions:
        named = candidate(name, archive)
        if named.evaluation is None or named.run is None:
            raise UserMistake(f"candidate {name} is not judged yet")
        try:
            now, _, used = again(named, chip)
        except (HarnessUnavailable, UserMistake) as error:
            one = Comparison("unavailable", None, (str(error),))
        else:
            one = compare(named.evaluation, now, same_chip=used.name == named.run.hardware)
        found.append((name, named, one))
        if not as_json:
            say("\n".join(lines(name, one)))
    if as_json:
        show_json([{"candidate": name, "digest": named.candidate.digest, **as_dict(one)} for name, named, one in found])
    else:
        say()
        rows = [[name, n.run.target, chip.name if chip else n.run.hardware, one.outcome] for name, n, one in found]
        say(table(["candidate", "target", "chip", "verdict"], rows))
    if any(one.outcome in ("rejected", "slower", "different") for _, _, one in found):
        raise typer.Exit(1)
    if any(one.outcome == "unavailable" for _, _, one in found):
        raise typer.Exit(3)
