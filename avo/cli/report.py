"""`avo report [RUN]`: a run as a table in the terminal, as JSON, and as one HTML file that opens from disk."""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption


def report(
    run: Annotated[
        int | None, typer.Argument(help="The run's number; the newest if left out.", metavar="[RUN]")
    ] = None,
    archive: ArchiveOption = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="Where to write the page. [default: avo-report-RUN.html; with the archive's name unless it is avo.db]",
            metavar="PATH",
        ),
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the page on this machine, and keep it live.")] = False,
    port: Annotated[
        int, typer.Option("--port", help="With --serve; 0 takes any that is free.", min=0, max=65535)
    ] = 8484,
    table_only: Annotated[bool, typer.Option("--no-html", help="Write no page.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print how a run went and write its HTML page: lineage, running best, each gate's evidence. Read-only.

    Example: avo report 1 --html attention.html
    """
    from avo.cli.console import say, width
    from avo.cli.options import reading
    from avo.errors import UserMistake
    from avo.report import print_report, render_table, write_page
    from avo.report.build import build_model
    from avo.report.keeping import FULL

    if serve and as_json:
        raise UserMistake("--serve serves the page and --json prints; give one of them")
    if serve:
        _serve(archive, run, port)
        return
    with _unswept():
        with reading(archive) as store:
            if as_json:
                print_report(store, run, as_json=True)
                if html is None:
                    return
            model = build_model(store, run, FULL)
            page = html or page_name(model.run.id, store.where)
        if not as_json:
            say(render_table(model, width()))
        if not table_only:
            try:
                say(f"\nreport: {write_page(model, page)}")
            except UserMistake as error:
                raise UserMistake(f"{error}; --html PATH writes it elsewhere, --no-html not at all") from None


@contextlib.contextmanager
def _unswept() -> Iterator[None]:
    """A report makes many objects and drops few: looking for what to free would take a third of its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def page_name(run: int, where: str) -> Path:
    """A file of the working folder for each run of each archive, so that no report takes the place of another's."""
    from avo.config import DEFAULT_ARCHIVE

    if where == DEFAULT_ARCHIVE:
        return Path(f"avo-report-{run}.html")
    place = where.partition("://")[2].rpartition("@")[2] or where  # no password in a name
    with contextlib.suppress(ValueError):
        place = str(Path(place).resolve().relative_to(Path.cwd()))
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", place.removesuffix(".db")).strip("-.")[-60:]
    return Path(f"avo-report-{name or 'archive'}-{run}.html")


def _serve(archive: str | None, run: int | None, port: int) -> None:
    from avo.cli.console import say
    from avo.config import DEFAULT_ARCHIVE
    from avo.errors import UserMistake
    from avo.report.server import serve

    try:
        serve(archive or DEFAULT_ARCHIVE, run, port, lambda address: say(f"{address}  (Ctrl-C ends it)"))
    except OSError as error:
        raise UserMistake(f"port {port} cannot be used: {error.strerror or error}; try --port 0") from None
    except KeyboardInterrupt:
        say()
