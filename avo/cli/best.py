"""`avo best [RUN]`: the best candidate of a run, as `avo show RUN/best` has it."""

from __future__ import annotations

from typing import Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption


def best(
    run: Annotated[int | None, typer.Argument(help="The run; the newest if left out.", metavar="[RUN]")] = None,
    archive: ArchiveOption = None,
    program: Annotated[bool, typer.Option("--program", help="Print the program alone.")] = False,
    triton: Annotated[bool, typer.Option("--triton", help="Print the emitted Triton alone.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the best candidate of a run: its program, its score, the evidence. Other verbs take it as RUN/best.

    Example: avo best --program > best.avo
    """
    from avo.cli.options import reading
    from avo.cli.show import show

    with reading(archive) as store:
        number = store.run(run).id
    show(f"{number}/best", archive, program, triton, as_json)
