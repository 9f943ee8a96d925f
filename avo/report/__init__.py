"""What a person or a program reads about a run: a terminal table, documented JSON, one HTML file.

`build_model` reads the archive, everything else is a pure function of the `ReportModel` that it returns.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archive.archive import Archive
    from avo.report.build import build_model
    from avo.report.document import to_json
    from avo.report.model import ReportModel
    from avo.report.page import render_html
    from avo.report.table import render_table

_HOMES = {
    "ReportModel": "avo.report.model",
    "build_model": "avo.report.build",
    "render_html": "avo.report.page",
    "render_table": "avo.report.table",
    "to_json": "avo.report.document",
}

__all__ = [
    "ReportModel",
    "build_model",
    "print_report",
    "render_html",
    "render_table",
    "to_json",
    "write_page",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def write_page(model: ReportModel, path: Path | str | None = None) -> Path:
    """Writes the HTML page and returns its full path: `path`, or `avo-report-RUN.html` in the working directory.

    The file appears whole or not at all. Raises UserMistake where it cannot be written.
    """
    from avo.files import write_text
    from avo.report.page import render_html

    where = Path(path) if path is not None else Path(f"avo-report-{model.run.id}.html")
    write_text(where, render_html(model), force=True)
    return where.resolve()


def write_report(archive: Archive, run: int | None = None, path: Path | str | None = None) -> Path:
    """The HTML page of a run (of the newest, where none is named), read from the archive. See `write_page`."""
    from avo.report.build import build_model
    from avo.report.keeping import FULL

    return write_page(build_model(archive, run, FULL), path)


def print_report(
    archive: Archive, run: int | None = None, *, as_json: bool = False, width: int = 80, file: IO[str] | None = None
) -> None:
    """The terminal table of a run, or its JSON, on standard output or on `file`."""
    from avo.report.build import build_model, read_whole
    from avo.report.document import pieces
    from avo.report.keeping import FULL
    from avo.report.table import render_table

    if not as_json:
        print(render_table(build_model(archive, run, FULL), width), file=file)
        return
    for piece in pieces(*read_whole(archive, run)):
        print(piece, end="", file=file)
    print(file=file)
