"""`avo report [RUN]`: a run as a table in the terminal, as JSON, and as one HTML file that opens from disk."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from avo.report.model import ReportModel


def report(
    run: Annotated[
        int | None, typer.Argument(help="The run's number; the newest if left out.", metavar="[RUN]")
    ] = None,
    archive: ArchiveOption = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Where to write the page. [default: avo-report-RUN.html]", metavar="PATH"),
    ] = None,
    table_only: Annotated[bool, typer.Option("--no-html", help="Write no page.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print how a run went and write its HTML page: lineage, running best, each gate's evidence. Read-only.

    Example: avo report 1 --html attention.html
    """
    from avo.cli.console import say, width
    from avo.cli.options import reading
    from avo.report import render_table, to_json
    from avo.report.build import build_model

    with reading(archive) as store:
        model = build_model(store, run)
    if as_json:
        say(to_json(model))
        if html is None:
            return
    else:
        say(render_table(model, width()))
    if not table_only:
        say(f"\nreport: {write_page(model, html)}")


def write_page(model: ReportModel, path: Path | None) -> Path:
    """Write the HTML file, by default in the working folder; returns its full path. Raises UserMistake."""
    from avo.errors import UserMistake
    from avo.report import render_html

    place = path or Path(f"avo-report-{model.run.id}.html")
    try:
        place.write_text(render_html(model), encoding="utf-8")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise  # the machine's fault, and told as such
        raise UserMistake(f"cannot write {place}: {error.strerror or error}") from None
    return place.resolve()
