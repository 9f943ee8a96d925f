"""Pages of the spec: what stands in braces is filled in, paragraphs are wrapped, what is fenced stays."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

WIDTH = 100


def filled(page: str, values: Mapping[str, str]) -> str:
    """The page with its values, paragraphs and list items wrapped, what stands between fences as it is."""
    rows: list[str] = []
    paragraph: list[str] = []
    fenced = False

    def end() -> None:
        if paragraph:
            text = " ".join(paragraph)
            held = re.sub("`[^`]*`", lambda code: code[0].replace(" ", "\0"), text)  # code keeps to one line
            indent = "  " if text.startswith("- ") else ""
            wrapped = textwrap.wrap(
                held, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
            rows.extend(row.replace("\0", " ") for row in wrapped)
            paragraph.clear()

    for row in (one for line in page.splitlines() for one in _rows(line, values)):
        if row.startswith("```"):
            fenced = not fenced
        if fenced or row.startswith(("```", "#")) or not row:
            end()
            rows.append(row)
        else:
            if row.startswith("- "):
                end()
            paragraph.append(row.strip())
    end()
    return "\n".join(rows) + "\n"


def _rows(line: str, values: Mapping[str, str]) -> list[str]:
    return line.format_map(values).split("\n")
