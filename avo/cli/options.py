"""Options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from archive.archive import Archive

ArchiveOption = Annotated[
    str | None,
    typer.Option("--archive", help="The archive: a path or an SQLAlchemy URL. [default: avo.db]", metavar="PATH|URL"),
]
WorkloadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        "--workloads",
        help="Sizes instead of the target's own: b=4,h=32,causal=1, or the name of a set of them; repeatable.",
        metavar="k=v,...|SET",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


def reading(where: str | None) -> Archive:
    """The archive, opened for reading only: it can neither lock a run nor change a byte."""
    from archive.archive import open_archive
    from avo.config import DEFAULT_ARCHIVE

    return open_archive(where or DEFAULT_ARCHIVE, readonly=True)
