"""What a person or a program reads about a run: a terminal table, documented JSON, one HTML file.

`build_model` reads the archive, everything else is a pure function of the `ReportModel` that it returns.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archive.archive import Archive
    from avo.report.build import build_model
    from avo.report.model import ReportModel
    from avo.report.page import render_html
    from avo.report.table import render_table, to_json

_HOMES = {
    "ReportModel": "avo.report.model",
    "build_model": "avo.report.build",
    "render_html": "avo.report.page",
    "render_table": "avo.report.table",
    "to_json": "avo.report.table",
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
    """Writes the HTML page and returns where it is: `path`, or `avo-report-RUN.html` in the working directory.

    The file appears whole or not at all. Raises OSError where the folder cannot be written.
    """
    from avo.report.page import render_html

    where = Path(path) if path is not None else Path(f"avo-report-{model.run.id}.html")
    text = render_html(model)
    handle, temporary = tempfile.mkstemp(prefix=f".{where.name}.", dir=where.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, where)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return where


def write_report(archive: Archive, run: int | None = None, path: Path | str | None = None) -> Path:
    """The HTML page of a run (of the newest, where none is named), read from the archive. See `write_page`."""
    from avo.report.build import build_model

    return write_page(build_model(archive, run), path)


def print_report(
    archive: Archive, run: int | None = None, *, as_json: bool = False, width: int = 80, file: IO[str] | None = None
) -> None:
    """The terminal table of a run, or its JSON, on standard output or on `file`."""
    from avo.report.build import build_model
    from avo.report.table import render_table, to_json

    model = build_model(archive, run)
    print(to_json(model) if as_json else render_table(model, width), file=file)
