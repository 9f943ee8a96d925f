"""`avo archive check|export|import|gc`: the upkeep of an archive."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption
from dsl.wording import counted

archive = typer.Typer(help="Check an archive, write it as JSON Lines and back, free room.", no_args_is_help=True)


@archive.command("check")
def check(where: ArchiveOption = None, as_json: JsonOption = False) -> None:
    """Look whether all in it is whole: rows, references, texts, evidence.

    Example: avo archive check --archive runs/avo.db
    """
    from archive.upkeep import check_archive
    from avo.cli.console import say, show_json
    from avo.cli.options import reading

    with reading(where) as store:
        faults = check_archive(store)
        if as_json:
            show_json({"archive": store.where, "whole": not faults, "faults": faults})
        else:
            whole = f"{store.where} is whole; that a verdict is true, `avo reproduce` alone can tell"
            say("\n".join(faults) if faults else whole)
    raise typer.Exit(1 if faults else 0)


@archive.command("export")
def export(
    path: Annotated[str, typer.Argument(help="The file to write; - is stdout.", metavar="FILE")] = "-",
    where: ArchiveOption = None,
) -> None:
    """Write all of it as JSON Lines. A run that is under way goes on.

    Example: avo archive export runs.jsonl
    """
    from archive.transfer import export_archive
    from avo.cli.console import warn
    from avo.cli.options import reading
    from avo.files import writing

    with reading(where) as store:
        if path == "-":
            counts = export_archive(store, sys.stdout)
        else:
            with writing(path) as out:
                counts = export_archive(store, out)
    if path != "-":
        warn(f"wrote {counted(counts['runs'], 'run')} with {counted(counts['candidates'], 'candidate')} to {path}")


@archive.command("import")
def load(
    path: Annotated[
        str, typer.Argument(help="A file that `export` wrote, also as .xz or .gz; - is stdin.", metavar="FILE")
    ],
    where: ArchiveOption = None,
    trust: Annotated[bool, typer.Option("--trust", help="New runs share its verdicts, as if found here.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Add the runs of a file to an archive, or make one of it. All or nothing.

    Its verdicts hold for its own runs alone: a new run judges anew, for anything can stand in a file.
    With `--trust` they are shared, as among runs of one archive.

    Example: avo archive import runs.jsonl --archive all.db
    """
    from archive.archive import open_archive
    from archive.transfer import import_archive, importable
    from avo.cli.console import say, show_json
    from avo.config import DEFAULT_ARCHIVE
    from avo.files import lines_of

    with lines_of(path) as lines:
        rows = importable(lines, path)  # else a mistaken file would leave an empty archive
        with open_archive(where or DEFAULT_ARCHIVE) as store:
            done = import_archive(store, rows, path, trusted=trust)
            name = store.where
    if as_json:
        show_json({"archive": name, "runs": done.runs, "known": done.known, "rows": done.rows})
        return
    for old, new in done.runs.items():
        say(f"run {old} of {path} is run {new} of {name}")
    for old, new in done.known.items():
        say(f"run {old} of {path} was here already as run {new}, and was left alone")


@archive.command("gc")
def gc(
    where: ArchiveOption = None,
    drop: Annotated[list[int] | None, typer.Option("--drop", help="Remove this run first; repeatable.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Free the room of texts and verdicts that no run refers to.

    Example: avo archive gc --drop 3
    """
    from dataclasses import asdict

    from archive.archive import open_archive
    from archive.upkeep import collect
    from avo.cli.console import amount, say, show_json
    from avo.config import DEFAULT_ARCHIVE

    with open_archive(where or DEFAULT_ARCHIVE, create=False) as store:
        freed = collect(store, tuple(drop or ()))
    if as_json:
        show_json(asdict(freed))
        return
    say(
        f"removed {counted(freed.runs, 'run')}, {counted(freed.verdicts, 'verdict')}, {counted(freed.texts, 'text')}; "
        f"{amount(freed.before, 'B')} -> {amount(freed.after, 'B')}"
    )
