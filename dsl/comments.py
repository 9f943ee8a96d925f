"""The canonical text of a program with its comments: each stays with the line that it was written for.

A comment on a line of its own goes with the line below it, one at the end of a line with that line. Lines move to their
canonical places and take their comments along; the digest of a program does not know of comments.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dsl.parser import parse, plain
from dsl.printer import Line, print_lines

WIDEST = 120  # a line that its comment would make longer than this gets it above


@dataclass
class _Written:
    """A line as it was written (brackets may hold line breaks), by its first row, and its comments."""

    row: int
    code: str
    above: list[str] = field(default_factory=list)
    beside: str = ""


def format_program(text: str, path: str = "<program>") -> str:
    """Canonical text, comments kept; formatting it again changes nothing. Raises ProgramError as `parse` does."""
    lines = print_lines(parse(text, path))
    by_row = {span.line: i for i, line in enumerate(lines) for span in line.spans}
    above: list[list[str]] = [[] for _ in lines]
    beside: list[list[str]] = [[] for _ in lines]
    written, waiting = _written(plain(text)), list[str]()
    for w in written:
        place = by_row.get(w.row, _by_its_word(w.code, lines))
        waiting += w.above
        if place is None:  # a `schedule` line that says nothing is not printed
            waiting += [w.beside] if w.beside else []
            continue
        above[place] += waiting
        beside[place] += [w.beside] if w.beside else []
        waiting = []
    result = []
    for line, over, behind in zip(lines, above, beside, strict=True):
        if len(behind) == 1 and len(line.text) + 2 + len(behind[0]) <= WIDEST:
            result += [*over, f"{line.text}  {behind[0]}"]
        else:
            result += [*over, *behind, line.text]
    return "\n".join([*result, *waiting]) + "\n"


def _by_its_word(code: str, lines: list[Line]) -> int | None:
    """The line of `rank`, `kernels` or the bare `schedule`: there is one of each, and no span tells where."""
    word = code.split()[0]
    for i, line in enumerate(lines):
        if line.text == word or (line.text.startswith(f"{word} ") and not line.spans):
            return i
    return None


def _written(text: str) -> list[_Written]:
    """The lines of a text with their comments; comments after the last line stand above an empty one."""
    found: list[_Written] = []
    waiting: list[str] = []
    depth = 0
    for row, source in enumerate(text.split("\n"), start=1):
        code, mark, said = source.partition("#")
        comment, inside = (mark + said).rstrip(), depth > 0
        for c in code:
            depth += (c in "([") - (c in ")]")
        if code.strip() and not inside:
            found.append(_Written(row, code, waiting))
            waiting = []
        if comment and depth == 0 and code.strip():
            found[-1].beside = comment
        elif comment:  # a line within brackets becomes part of the one that it belongs to
            (found[-1].above if depth > 0 else waiting).append(comment)
    return found + ([_Written(0, "#", waiting)] if waiting else [])
