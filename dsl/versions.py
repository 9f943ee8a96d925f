"""Programs of older versions of the language in the forms of the present one.

A first line `# avo N` states the version that a program is written in. Version 0 is all that was written before
versions were stated; a text without the line is taken for it, as no form of today means another thing there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from dsl.parser import plain, written_in
from dsl.printer import LANGUAGE_VERSION


class Upgrade(NamedTuple):
    """A form that version `until` was the last to have. `rewrite` takes a line without its comment."""

    until: int
    why: str
    rewrite: Callable[[str], str]


def _stages(line: str) -> str:
    return re.sub(r"\b(stages\s*=\s*)[78]\b", r"\g<1>6", line) if re.match(r"\s*(for\b.*:.*)?stream\b", line) else line


UPGRADES = (Upgrade(0, "a loop keeps at most 6 blocks in flight", _stages),)


def upgrade(text: str) -> tuple[str, list[str]]:
    """The text in the present version, its first line saying so, and what changed: `line 9: stream n stages=6 (why)`.

    Upgrading twice is upgrading once. A text of a newer version is returned as it is: parsing it says why.
    """
    source = plain(text)
    version = written_in(source)
    if version is not None and version > LANGUAGE_VERSION:
        return source, []
    rows = source.split("\n")
    changes = []
    for i, row in enumerate(rows):
        code, mark, comment = row.partition("#")
        for u in UPGRADES:
            if u.until >= (version or 0) and (new := u.rewrite(code)) != code:
                changes.append(f"line {i + 1}: {new.strip()} ({u.why})")
                code = new
        rows[i] = code + mark + comment
    if version == LANGUAGE_VERSION:
        return "\n".join(rows), changes
    return "\n".join([f"# avo {LANGUAGE_VERSION}", *(rows if version is None else rows[1:])]), changes
