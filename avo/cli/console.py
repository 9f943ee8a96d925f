"""How the command line speaks: plain aligned text that fits 80 columns, JSON on request, colour only on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}


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
    print(printable(text), flush=True)


def warn(text: str) -> None:
    """A remark beside the answer, on stderr, so that it never lands in a pipe."""
    print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """No control characters but line ends, tabs and our own colours: a program's text must not drive a terminal."""
    return "".join(c if c in "\n\t\x1b" or (ord(c) >= 32 and not 0x7F <= ord(c) < 0xA0) else "�" for c in text)


def tame(text: str) -> str:
    """Text that somebody else wrote, on its way to a terminal: without any control sequence."""
    return printable(text).replace("\x1b", "�")


def show_json(value: Any) -> None:
    """The machine's form of an answer: one JSON document on stdout, keys in a fixed order, no NaN."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_finite(v) for v in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    return value


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Aligned columns; the last one wraps so that a line fits the width. `right` lists right-aligned columns."""
    if not rows:
        return "  ".join(headers)
    every = [list(headers), *[list(r) for r in rows]]
    last = len(headers) - 1
    wide = [max(len(r[c]) for r in every) for c in range(len(headers))]
    used = sum(wide[:last]) + 2 * last
    room = max(16, width() - used)
    lines = []
    for row in every:
        parts = textwrap.wrap(row[last], room, break_on_hyphens=False) or [""]
        if last in right:
            parts = [p.rjust(min(wide[last], room)) for p in parts]
        head = "  ".join(row[c].rjust(wide[c]) if c in right else row[c].ljust(wide[c]) for c in range(last))
        lines.append((head + "  " + parts[0] if last else parts[0]).rstrip())
        lines += [(" " * used + p).rstrip() for p in parts[1:]]
    return "\n".join(lines)


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
