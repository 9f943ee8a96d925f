"""What was tried and what came of it: runs, candidates, evaluations with evidence, lineage, spend.

Importing this package loads no database; the first use of `open_archive` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from archive.records import Booking, Candidate, Exchange, Hypothesis, Note, Run, Spend, Tested

if TYPE_CHECKING:
    from archive.archive import Archive, open_archive
    from archive.documents import deterministic
    from archive.errors import ArchiveError, Held
    from archive.writer import RunWriter

__all__ = [
    "Archive",
    "ArchiveError",
    "Booking",
    "Candidate",
    "Exchange",
    "Held",
    "Hypothesis",
    "Note",
    "Run",
    "RunWriter",
    "Spend",
    "Tested",
    "deterministic",
    "open_archive",
]

_LAZY = {
    "Archive": "archive.archive",
    "ArchiveError": "archive.errors",
    "Held": "archive.errors",
    "RunWriter": "archive.writer",
    "deterministic": "archive.documents",
    "open_archive": "archive.archive",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'archive' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
