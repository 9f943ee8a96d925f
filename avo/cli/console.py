"""How the command line speaks: plain aligned text that fits 80 columns, JSON on request, colour only on a terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
_OURS = "|".join(sorted({*_COLOURS.values(), "0"}))
# Every control character but line ends, tabs, and the escape of one of our own colours.
_CONTROL = re.compile(rf"(?!\x1b\[(?:{_OURS})m)[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HIDDEN = r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
_REORDER = re.compile(r"[\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def width() -> int:
    """Columns to write in: the terminal's, at most 120; 80 where there is none."""
    if not sys.stdout.isatty():
        return 80
    return max(40, min(120, shutil.get_terminal_size((80, 24)).columns))


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """`text` in a colour where the stream is a terminal that wants it."""
    stream = stream or sys.stdout
    if not stream.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def say(text: str = "") -> None:
    """One piece of the answer, on stdout."""
    print(_shown(text, sys.stdout), flush=True)


def warn(text: str) -> None:
    """A remark beside the answer, on stderr, so that it never lands in a pipe."""
    print(_shown(text, sys.stderr), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """No control characters but line ends, tabs and our own colours: a program's text must not drive a terminal."""
    return _CONTROL.sub("�", text)


def _shown(text: str, stream: TextIO) -> str:
    """On a terminal without the characters that hide or reorder others; a file gets what was written, but no escape:
    our own colours are for terminals alone (`paint`), so any that stands there is somebody else's."""
    text = printable(text)
    if not stream.isatty():
        return text.replace("\x1b", "�")
    return text if text.isascii() else _REORDER.sub("�", text)


def tame(text: str) -> str:
    """Words that somebody else wrote, on their way to a person: without any control sequence, and without the
    characters that hide others, reorder them, or end lines where nobody sees it."""
    text = verbatim(text)
    return text if text.isascii() else _REORDER.sub("�", text)


def verbatim(text: str) -> str:
    """A text of somebody else's that may go to a file as it was written: without any control sequence alone."""
    return printable(text).replace("\x1b", "�")


def show_json(value: Any) -> None:
    """The machine's form of an answer: one JSON document on stdout, keys in a fixed order, no NaN."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    # Inside strings alone: what JSON lets stand and a terminal would obey.
    print(re.sub(_HIDDEN, lambda m: f"\\u{ord(m[0]):04x}", text), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_finite(v) for v in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    return value


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Aligned columns that fit the width: the last one wraps, others are cut where they are too long. `right` lists
    right-aligned columns."""
    if not rows:
        return "  ".join(headers)
    every = [[" ".join(tame(cell).split()) if cell.strip() else "" for cell in row] for row in (headers, *rows)]
    last = len(headers) - 1
    wide = [max(cells(r[c]) for r in every) for c in range(len(headers))]
    least = min(16, wide[last])
    while last and sum(wide[:last]) + 2 * last + least > width() and max(wide[:last]) > 8:
        wide[wide.index(max(wide[:last]))] -= 1
    used = sum(wide[:last]) + 2 * last
    room = max(least, width() - used)
    lines = []
    for row in every:
        parts = folded(row[last], room)
        if last in right:
            parts = [_padded(p, min(wide[last], room), True) for p in parts]
        head = "  ".join(_padded(cut(row[c], wide[c]), wide[c], c in right) for c in range(last))
        lines.append((head + "  " + parts[0] if last else parts[0]).rstrip())
        lines += [(" " * (used) + p).rstrip() for p in parts[1:]]
    return "\n".join(lines)


def cells(text: str) -> int:
    """Columns that a line takes in a terminal: two for each wide character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, room: int) -> str:
    """A line that takes at most so many columns, with an ellipsis where something is missing."""
    if cells(text) <= room:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, room - 1).rstrip() + "…"


def folded(text: str, room: int) -> list[str]:
    """A paragraph in lines of at most so many columns, broken at blanks where that goes; never empty."""
    if text.isascii():
        return textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    from rich.cells import chop_cells

    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cells(joined) <= room:
            lines[-1] = joined
            continue
        parts = chop_cells(word, room)
        lines += parts if lines[-1] else parts[1:]
        if not lines[0]:
            lines[0] = parts[0]
    return lines


def _padded(text: str, room: int, right: bool) -> str:
    space = " " * max(0, room - cells(text))
    return space + text if right else text + space


def entry(label: str, text: str, indent: int = 10) -> str:
    """`label     text`, wrapped below the text; a word that is too long, such as a path, stays whole."""
    lines = textwrap.wrap(text, width() - indent, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(f"{label if place == 0 else '':<{indent}}{line}".rstrip() for place, line in enumerate(lines))


def duration(seconds: float) -> str:
    """A time for people: `8.2 us`, `1.24 ms`, `12 s`, `3 min 5 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def amount(value: float, unit: str) -> str:
    """`989 TFLOP/s`, `8.0 TB/s`: three figures and a decimal prefix."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
