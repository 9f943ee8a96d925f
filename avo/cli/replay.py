"""`avo replay RUN`: does a recorded run again without a network and compares it, candidate for candidate."""

from __future__ import annotations

from typing import Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption
from dsl.wording import counted


def replay(
    run: Annotated[int | None, typer.Argument(help="The run. [default: the newest]", metavar="[RUN]", min=1)] = None,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Do a run again from its seed and its journal: models say what they said then, nothing is sent.

    It becomes a new run of the archive. Verdicts that a device measured are taken
    from the record, so no device is needed. 0 where every candidate is the same, 1 where one differs.

    Example: avo replay 3
    """
    from avo.cli.ask import existing
    from avo.cli.console import say, show_json
    from avo.replaying import replay as again

    with existing(archive) as store:
        number = store.run(run).id
        found = again(store, number)
    if as_json:
        show_json({"replayed": number, **vars(found)})
    elif found.difference:
        say(
            f"run {found.run} differs from run {number} after {found.same} of {counted(found.whole, 'candidate')}: "
            + found.difference
        )
    else:
        say(f"run {found.run} is run {number} again: {counted(found.whole, 'candidate')}, all the same")
    if found.recorded and not as_json:
        say("What was measured was not measured again: verdicts are those of the record.")
    if found.difference:
        raise typer.Exit(1)
