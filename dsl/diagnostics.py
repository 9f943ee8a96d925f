"""What is wrong with a program, where, what is legal, and the nearest fix: one text for people and for agents."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dsl.syntax import Span


@dataclass(frozen=True)
class Diagnostic:
    """`rule` is a stable kebab-case name; `message` says what was found; `legal` what would be; `fix` the nearest fix.

    `severity` is "error", "warning" or "hint"; only errors reject a program. `repair`: the text that takes the place of
    the span, where the fix needs no thought.
    """

    rule: str
    message: str
    span: Span = Span()
    legal: str = ""
    fix: str = ""
    severity: str = "error"
    repair: str | None = field(default=None, compare=False)

    def render(self, source: str = "", path: str = "<program>") -> str:
        """`path:line:col: error[rule]: message`, the source line with a caret, then `legal:` and `fix:` lines."""
        lines = [f"{path}:{self.span.line}:{self.span.column}: {self.severity}[{self.rule}]: {self.message}"]
        rows = source.splitlines()
        if 0 < self.span.line <= len(rows):
            width = max(1, self.span.end_column - self.span.column)
            lines.append("    " + rows[self.span.line - 1])
            lines.append("    " + " " * (self.span.column - 1) + "^" * width)
        if self.legal:
            lines.append("  legal: " + self.legal)
        if self.fix:
            lines.append("  fix: " + self.fix)
        return "\n".join(lines)


class ProgramError(Exception):
    """A program is wrong. Carries every diagnostic, in source order; `str()` renders them all."""

    def __init__(self, diagnostics: Iterable[Diagnostic], source: str = "", path: str = "<program>") -> None:
        self.diagnostics = tuple(sorted(diagnostics, key=lambda d: (d.span.line, d.span.column)))
        self.source = source
        self.path = path
        super().__init__("\n".join(d.render(source, path) for d in self.diagnostics))


def nearest(word: str, known: Sequence[str]) -> str:
    """The known word most like `word`, or "" where none is near."""
    same = [k for k in known if k.lower() == word.lower()]  # of one letter, say, which nothing else is near to
    found = same or difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return found[0] if found else ""
