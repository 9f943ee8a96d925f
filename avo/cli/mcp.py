"""`avo mcp`: the tools of the agent avo, for a coding agent that speaks the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from avo.cli.options import (
    ArchiveOption,
    NewEvaluatorOption,
    NewHwOption,
    NewTargetOption,
    ProposedInOption,
    WorkloadOption,
)


def mcp(
    run: ProposedInOption = None,
    target: NewTargetOption = None,
    hw: NewHwOption = None,
    evaluator: NewEvaluatorOption = None,
    workload: WorkloadOption = None,
    by: Annotated[str, typer.Option(help="Who proposes, as it is recorded.", metavar="NAME")] = "outside",
    knowledge: Annotated[
        list[str] | None, typer.Option(help="A folder of Markdown to search too; repeatable.", metavar="FOLDER")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Serve at http://127.0.0.1:PORT/mcp instead of stdio.", metavar="PORT", min=1, max=65535),
    ] = None,
    archive: ArchiveOption = None,
) -> None:
    """Serve the tools of a run over the Model Context Protocol: by stdio, or on this machine alone by HTTP.

    With --target (or --hw, --workload, --evaluator) the first call begins a run.

    Example: avo mcp --target attention --hw b200 --by my-agent
    """
    from avo.cli.options import reading
    from avo.config import DEFAULT_ARCHIVE, read_config
    from avo.errors import UserMistake
    from avo.knowledge import pages
    from avo.launch import insist_names
    from avo.serving import Desk, serve

    flags: dict[str, Any] = {"target": target, "hw": hw, "evaluator": evaluator, "archive": archive}
    flags["workloads"] = {str(n): w for n, w in enumerate(workload, 1)} if workload else None
    fresh = any(flags[key] is not None for key in ("target", "hw", "evaluator", "workloads"))
    if fresh and run is not None:
        raise UserMistake("--run names a run that is there and --target begins a new one; give one of them")
    where = archive or DEFAULT_ARCHIVE
    if not fresh and "://" not in where and not Path(where).exists():
        raise UserMistake(f"no archive at {where}, so there is no run to propose in; --target and --hw begin one")
    if not by.strip() or len(by) > 60 or not by.isprintable():
        raise UserMistake("--by is the name of who proposes: 1 to 60 printable characters")
    folders = tuple(knowledge or ())
    pages(folders)
    config = read_config(None, (), flags) if fresh else None
    # Whoever configures it sees what is said now; later mistakes are told to the agent alone.
    if config is not None:
        insist_names(config)
    else:
        with reading(archive) as store:
            store.run(run)
    serve(Desk(where, run, config, by, folders), port)
