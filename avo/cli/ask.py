"""`avo ask`: what the next step of a run is told, for whoever proposes from outside; begins a run where asked to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import (
    ArchiveOption,
    JsonOption,
    NewEvaluatorOption,
    NewHwOption,
    NewTargetOption,
    ProposedInOption,
    WorkloadOption,
)

if TYPE_CHECKING:
    from archive.archive import Archive


def ask(
    run: ProposedInOption = None,
    target: NewTargetOption = None,
    hw: NewHwOption = None,
    evaluator: NewEvaluatorOption = None,
    language: Annotated[
        str | None, typer.Option(help="Of a new run: avo, or python for raw Triton.", metavar="LANGUAGE")
    ] = None,
    workload: WorkloadOption = None,
    parent: Annotated[
        str | None, typer.Option(help="Start from this candidate instead of the best.", metavar="DIGEST")
    ] = None,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the brief of the next step: task, program, knobs, bottleneck, last verdicts, language, how to answer.

    With --target (or --hw, --workload, --evaluator, --language) it begins a run and has its seed program judged first.

    Example: avo ask --target attention --hw b200 > brief.md
    """
    from avo.agents.brief_page import document, page
    from avo.cli.console import say, show_json, tame
    from avo.cli.options import reading
    from avo.config import DEFAULT_ARCHIVE, read_config
    from avo.errors import UserMistake
    from avo.outside import begin, brief_of, started_from

    flags: dict[str, Any] = {
        "target": target,
        "hw": hw,
        "evaluator": evaluator,
        "archive": archive,
        "language": language,
    }
    flags["workloads"] = {str(n): w for n, w in enumerate(workload, 1)} if workload else None
    fresh = any(flags[key] is not None for key in ("target", "hw", "evaluator", "language", "workloads"))
    if fresh and run is not None:
        raise UserMistake("--run names a run that is there and --target begins a new one; give one of them")
    where = archive or DEFAULT_ARCHIVE
    if fresh:
        run = begin(read_config(None, (), flags))
    elif "://" not in where and not Path(where).exists():
        raise UserMistake(f"no archive at {where}, so there is no run to propose in; --target and --hw begin one")
    with reading(archive) as store:
        record = store.run(run)
        brief = brief_of(store, record)
    if parent is not None:
        brief = started_from(brief, parent)
    if as_json:
        show_json({"run": record.id, **document(brief), "tell": _command(record.id, archive, brief.parent.digest)})
        return
    say(tame(page(brief)))
    say(f"Then: `{_command(record.id, archive, brief.parent.digest)}`")


def _command(run: int, archive: str | None, parent: str) -> str:
    where = f" --archive {archive}" if archive else ""
    return f"avo tell ANSWER.md --run {run} --parent {parent[:8]}{where}"


def existing(where: str | None) -> Archive:
    """The archive, opened for writing; one that is not there is a mistake and is not made."""
    from archive.archive import open_archive
    from avo.config import DEFAULT_ARCHIVE
    from avo.errors import UserMistake

    path = where or DEFAULT_ARCHIVE
    if "://" not in path and not Path(path).exists():
        raise UserMistake(f"no archive at {path}, so there is no run to propose in; avo ask --target begins one")
    return open_archive(path, create=False)
