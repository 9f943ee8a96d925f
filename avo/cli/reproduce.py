"""`avo reproduce ID`: judge a candidate again as its run did, and say whether it comes out the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from avo.rejudging import Comparison


def reproduce(
    id: Annotated[str, typer.Argument(help="The start of a digest, or RUN/K such as 1/17.", metavar="ID")],
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a candidate again as its run did: same, within noise, or different. Nothing is stored.

    A measured one needs its chip; a predicted one has to give the same evidence. 0 the same or within noise, 1 not.

    Example: avo reproduce 1/17
    """
    from avo.candidates import candidate
    from avo.cli.console import say, show_json
    from avo.errors import UserMistake
    from avo.rejudging import again, compare

    if Path(id).suffix or Path(id).is_file():
        raise UserMistake(
            f"{id} is a file, and only a candidate has a verdict to compare with: name it RUN/K, or by its digest. "
            "`avo eval FILE --target T --hw X` judges a file, `avo recheck FILE` one with measurements beside it"
        )
    named = candidate(id, archive)
    if named.evaluation is None:
        raise UserMistake(f"candidate {named.name} is not judged yet")
    now, _, _ = again(named)
    found = compare(named.evaluation, now)
    if as_json:
        show_json({"candidate": named.name, **as_dict(found), "evaluation": now.model_dump(mode="json")})
    else:
        say("\n".join(lines(named.name, found)))
    if found.outcome == "unavailable":
        raise typer.Exit(3)
    if found.outcome not in ("same", "within noise"):
        raise typer.Exit(1)


def lines(name: str, found: Comparison) -> list[str]:
    """A verdict in words: what it is, by how much, why, and what is not as it was."""
    from avo.cli.console import tame

    told = [f"{name}: {found.outcome}"]
    if found.ratio is not None:
        value, low, high = found.ratio
        told[0] += f", {value:.3f}x the speed then [{low:.3f}, {high:.3f}]"
    told += [f"  {tame(one)}" for one in found.differences[:12]]
    if len(found.differences) > 12:
        told.append(f"  and {len(found.differences) - 12} more")
    told += [f"  changed since: {tame(one)}" for one in found.changes]
    return told


def as_dict(found: Comparison) -> dict[str, Any]:
    return {
        "outcome": found.outcome,
        "ratio": None if found.ratio is None else dict(zip(("value", "low", "high"), found.ratio, strict=True)),
        "differences": list(found.differences),
        "changes": list(found.changes),
    }
