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
# Of the verbs that read one program: sizes with or without a target.
SizesOption = Annotated[
    str | None,
    typer.Option(
        "--workload",
        "--workloads",
        help="Sizes: the target's, changed; a set of it by name; or all, without a target.",
        metavar="k=v,...|SET",
    ),
]
# Of the verbs through which somebody from outside proposes: the run that is there, or a new one.
ProposedInOption = Annotated[
    int | None, typer.Option("--run", help="The run to propose in. [default: the newest]", metavar="RUN", min=1)
]
NewTargetOption = Annotated[
    str | None,
    typer.Option("--target", help="Begin a new run for this job: a name, module:NAME or a file.", metavar="TARGET"),
]
NewHwOption = Annotated[str | None, typer.Option("--hw", help="The chip of a new run. [default: b200]", metavar="CHIP")]
NewEvaluatorOption = Annotated[
    str | None, typer.Option("--evaluator", help="Who judges a new run. [default: local]", metavar="EVALUATOR")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


def reading(where: str | None) -> Archive:
    """The archive, opened for reading only: it can neither lock a run nor change a byte."""
    from archive.archive import open_archive
    from avo.config import DEFAULT_ARCHIVE

    return open_archive(where or DEFAULT_ARCHIVE, readonly=True)
