"""`avo export ID -o DIR`: accepted programs as a package that runs without avo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import ArchiveOption, WorkloadOption
from dsl.wording import counted

if TYPE_CHECKING:
    from avo.export import Variant


def export(
    programs: Annotated[
        list[str],
        typer.Argument(help="Candidates (RUN/K, the start of a digest, RUN/each) or program files.", metavar="ID..."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.", metavar="DIR")],
    name: Annotated[str | None, typer.Option(help="The package's name. [default: TARGET_CHIP]", metavar="NAME")] = None,
    backward: Annotated[str | None, typer.Option(help="A program that gives the gradients.", metavar="PROGRAM")] = None,
    bench: Annotated[
        Path | None, typer.Option(help="For files: a table of `avo bench -o` that they took part in.", metavar="JSON")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="For files without --bench: the job to judge them for.", metavar="TARGET")
    ] = None,
    hw: Annotated[str | None, typer.Option(help="For files without --bench: the chip.", metavar="CHIP")] = None,
    workload: WorkloadOption = None,
    licence: Annotated[str, typer.Option("--licence", "--license", help="Its SPDX name.")] = "Apache-2.0",
    archive: ArchiveOption = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
) -> None:
    """Write an importable package: plain Triton, a torch operator, dispatch by size, reference, tests, provenance.

    Several programs of one target make one package: each size goes to the one that is fastest there. RUN/each takes
    the few of a run that together are fastest over its sizes.

    Example: avo export 1/17 -o attention_b200
    """
    from avo.cli.console import say, table
    from avo.export.package import refuse_filled
    from avo.exporting import exported

    refuse_filled(output, force)
    package, variants = exported(
        programs,
        name=name,
        backward=backward,
        bench=bench,
        target=target,
        hw=hw,
        workloads=workload or [],
        licence=licence,
        archive=archive,
    )
    from avo.export import useful, write

    write(package, output, force)
    kept = useful(variants)
    say(f"{output}: package {package.name}, {counted(len(package.files), 'file')}, {variants[0].mode} times\n")
    say(table(["kernel", "program", "sizes"], _rows(kept)))
    if len(kept) < len(variants):
        others = ", ".join(v.digest[:8] for v in variants if v not in kept)
        say(f"left out, since the fastest at no size: {others}")
    say(f"\nfrom {package.name} import {package.function}      # with {output} on the path, or pip install {output}")
    say(f"python -m pytest {output}")
    if backward is None:
        say("forward-only: a backward pass raises NotImplementedError; --backward PROGRAM adds gradients")


def _rows(variants: list[Variant]) -> list[list[str]]:
    best: dict[str, int] = {}
    for name in dict.fromkeys(n for v in variants for n in v.seconds):
        known = {place: v.seconds[name] for place, v in enumerate(variants) if name in v.seconds}
        best[name] = min(known, key=lambda place: known[place])
    return [
        [f"kernel_{place}", v.digest[:8], str(sum(p == place for p in best.values()))]
        for place, v in enumerate(variants)
    ]
