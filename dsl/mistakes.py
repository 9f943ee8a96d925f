"""What is wrong with a text that does not parse: every broken line, each with the right form where it can be told.

The text is cut into lines again, each is parsed alone, and one that fails is looked through for unbalanced brackets,
for habits (`dsl.habits`), for a keyword gone wrong, and at last for the token that did not fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lark import Lark, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from dsl.builder import Piece, pieces_of
from dsl.diagnostics import Diagnostic, nearest
from dsl.habits import HABITS, KEYWORDS, MEANT
from dsl.printer import DIRECTIVES
from dsl.syntax import Span

MOST = 50  # diagnostics; more teach nothing

_STATEMENT = re.compile(r"\s*[A-Za-z_]\w*\s*(\[[^\]]*\]|\s)\s*([A-Za-z]\w*\s*)?=(?!=)")
_DECLARATION = re.compile(r"\s*(kernel|rank|in|out|axis|param)\s+[A-Za-z_]|\s*schedule\b|\s*kernels\s")
_OPENING = {"(": ")", "[": "]"}
_WORDS = {"IN", "RANK", "KERNEL", "OUT", "AXIS", "PARAM", "SCHEDULE", "KERNELS", "FOR"}
_OPERATORS = {"PLUS", "MINUS", "STAR", "SLASH", "DOUBLE_SLASH", "PERCENT", "COMPARE", "AND", "OR", "NOT"}


@dataclass(frozen=True)
class Line:
    """A line of the program, which brackets may stretch over several rows. Comments are blanked out."""

    first: int
    text: str

    @property
    def word(self) -> str:
        match = re.match(r"\s*([A-Za-z_]\w*)", self.text)
        return match[1] if match else ""

    def span(self, start: int, end: int) -> Span:
        """Of characters `start` to `end` of the text; to the end of the row where they span rows."""
        before = self.text[:start]
        row, column = before.count("\n"), start - (before.rfind("\n") + 1)
        stop = self.text.find("\n", start)
        width = max(1, (end if stop < 0 else min(end, stop)) - start)
        return Span(self.first + row, column + 1, column + 1 + width)


def explain(source: str, lark: Lark) -> tuple[list[Diagnostic], list[Piece]]:
    """The diagnostics of each line that does not parse, and the pieces of those that do."""
    found: list[Diagnostic] = []
    pieces: list[Piece] = []
    half, first = "algorithm", True
    for line in _lines(source):
        if line.word == "schedule":
            half = "schedule"
        wrong = _other_half(line, half)
        if wrong is None:
            try:
                tree = lark.parse("\n" * (line.first - 1) + line.text, start=f"{half}_line")
                pieces += pieces_of(tree, found)
            except UnexpectedInput as e:
                wrong = list(_explain_line(line, half, e))
                if first and not any(d.rule == "keyword" for d in wrong) and line.word != "kernel":
                    wrong.append(_no_kernel(line))
        found += wrong or []
        first = False
        if len(found) >= MOST:
            break
    return found[:MOST], pieces


def _no_kernel(line: Line) -> Diagnostic:
    return Diagnostic("no-kernel", "a program starts with `kernel NAME`", Span(line.first, 1, 2))


def _lines(source: str) -> Iterator[Line]:
    """Rows joined inside brackets; a row that starts like a new line ends an unclosed bracket."""
    rows: list[str] = []
    first = depth = 0
    for number, row in enumerate(source.split("\n"), start=1):
        code, mark, comment = row.partition("#")
        code += " " * (len(mark) + len(comment))
        if rows and (depth <= 0 or _DECLARATION.match(code) or _STATEMENT.match(code)):
            yield Line(first, "\n".join(rows))
            rows, depth = [], 0
        if not rows:
            if not code.strip():
                continue
            first = number
        rows.append(code)
        depth += sum(code.count(c) for c in "([") - sum(code.count(c) for c in ")]")
    if rows:
        yield Line(first, "\n".join(rows))


def _other_half(line: Line, half: str) -> list[Diagnostic] | None:
    """A line of the algorithm below `schedule`, or a directive above it."""
    start = len(line.text) - len(line.text.lstrip())
    span = line.span(start, start + len(line.word))
    if half == "schedule" and (
        re.match(r"\s*(kernel|rank|in|out|axis|param)\s+\w", line.text)
        or re.match(r"\s*\w+\s*\[[^\]]*\][^=]*=(?!=)|\s*\w+\s+=\s*\w+\s*[\[(+*/-]", line.text)
    ):
        message = "this line belongs to the algorithm, which stands above `schedule`"
        return [Diagnostic("half", message, span, fix="move it up")]
    directive = line.word in (*DIRECTIVES, "kernels") and not re.match(r"\s*\w+\s*(\[|=|,)", line.text)
    if half == "algorithm" and directive:
        message = f"`{line.word}` is a directive; directives stand below a line `schedule`"
        return [Diagnostic("half", message, span, fix="put a line `schedule` above it")]
    return None


def _explain_line(line: Line, half: str, error: UnexpectedInput) -> Iterator[Diagnostic]:
    bracket = _brackets(line)
    found = [d for d in _habits(line, half)]
    if found:
        yield from found
        return
    if bracket:
        yield bracket
        return
    keyword = _keyword(line, half)
    if keyword:
        yield keyword
        return
    if isinstance(error, UnexpectedCharacters):
        char = source_char(line, error)
        shown = f"`{char}`" if char.isprintable() else f"U+{ord(char):04X}"
        at = Span(error.line, error.column, error.column + 1)
        yield Diagnostic("character", f"{shown} is not a character of the language", at)
    elif isinstance(error, UnexpectedToken):
        yield _token(line, half, error)
    else:
        yield Diagnostic("syntax", "this line is not complete", line.span(0, 1))


def source_char(line: Line, error: UnexpectedCharacters) -> str:
    """The character at which the lexer stopped."""
    return line.text.split("\n")[error.line - line.first][error.column - 1]


def _habits(line: Line, half: str) -> Iterator[Diagnostic]:
    taken: list[tuple[int, int]] = []
    for habit in HABITS:
        if habit.half not in ("both", half):
            continue
        for match in habit.found.finditer(line.text):
            start, end = match.span()
            start += len(match[0]) - len(match[0].lstrip())
            end = max(start + 1, end - (len(match[0]) - len(match[0].rstrip())))
            if any(start < b and a < end for a, b in taken):
                continue
            taken.append((start, end))
            what = " ".join(line.text[start:end].split())
            message = habit.message.format(what, *match.groups())
            yield Diagnostic(
                "habit", message, line.span(start, end), fix=habit.advice(match), repair=habit.mended(match)
            )


def _brackets(line: Line) -> Diagnostic | None:
    stack: list[tuple[str, int]] = []
    for i, c in enumerate(line.text):
        if c in _OPENING:
            stack.append((c, i))
        elif c in ")]":
            if not stack:
                return Diagnostic("brackets", f"`{c}` closes nothing", line.span(i, i + 1))
            opening, at = stack.pop()
            if _OPENING[opening] != c:
                closing = _OPENING[opening]
                message = f"`{c}` where the `{opening}` of column {line.span(at, at + 1).column} needs a `{closing}`"
                return Diagnostic("brackets", message, line.span(i, i + 1), fix=closing)
    if stack:
        opening, at = stack[-1]
        return Diagnostic("brackets", f"`{opening}` is never closed", line.span(at, at + 1), fix=_OPENING[opening])
    return None


def _keyword(line: Line, half: str) -> Diagnostic | None:
    """`imput x[m n] bf16`, `inputs: ...`: a first word that is no keyword, in a line that is no statement."""
    word = line.word
    if half == "schedule" or not word or word in KEYWORDS or _STATEMENT.match(line.text):
        return None
    if not re.match(r"\s*\w+\s+[A-Za-z_]", line.text):
        return None
    near = nearest(word.lower(), (*KEYWORDS, *MEANT))
    meant = MEANT.get(near, near)
    start = line.text.index(word)
    span = line.span(start, start + len(word))
    if not meant:
        return None
    return Diagnostic("keyword", f"`{word}` is no keyword", span, legal=" ".join(KEYWORDS), fix=meant)


def _token(line: Line, half: str, error: UnexpectedToken) -> Diagnostic:
    token, expected = error.token, set(error.accepts or error.expected)
    end = token.type in ("_NL", "$END")
    text = line.text.rstrip()
    at = line.span(len(text), len(text) + 1) if end else Span(token.line, token.column, token.column + len(token))
    what = "the end of the line" if end else f"`{token}`"
    previous = _before(line, at)
    operand = "INT" in expected and "LPAR" in expected and "MINUS" in expected
    if token.type == "_GLUED":
        start = _offset(line, at)
        number = re.search(r"[\w.]*$", line.text[:start])
        glued = (number[0] if number else "") + (re.match(r"[\w.]+", line.text[start:]) or [token.value])[0]
        at = Span(at.line, at.column - len(glued) + len(glued.lstrip("0123456789._")), at.end_column)
        at = Span(at.line, at.end_column - len(token) - (len(number[0]) if number else 0), at.end_column)
        return Diagnostic("number", f"`{glued}` is neither a number nor a name", at, fix=_unglued(glued))
    if token.type in _WORDS and "NAME" in expected:
        return Diagnostic("reserved", f"{what} is a keyword and names nothing", at, fix=f"{token}_")
    if half == "schedule":
        return _schedule_token(line, at, what, token.type, previous, expected)
    if token.type == "RSQB" and line.text[: token.column - 1].rstrip().endswith("["):
        legal = "an axis, a number or (an expression); a scalar is read by its name alone"
        return Diagnostic("syntax", "the brackets are empty", at, legal=legal)
    if token.type == "COMPARE" and not operand:
        return _chain(line, at, str(token))
    if token.type == "EQUAL" and "COMPARE" in expected:
        return Diagnostic("syntax", "`=` inside an expression", at, fix="== compares")
    if token.type == "PLUS" and operand:
        return Diagnostic("syntax", "there is no sign `+`", at, fix="leave it out")
    if operand:
        return Diagnostic("syntax", f"an expression is missing{previous}, found {what}", at)
    if line.word == "in" and half == "algorithm" and "NAME" in expected and token.type in ("_NL", "COMMA"):
        return Diagnostic("syntax", "an input needs its dtype", at, fix="in x[m n] bf16")
    if line.word == "in" and half == "algorithm" and "LSQB" in expected:
        return Diagnostic(
            "syntax", f"an input needs its axes{previous}", at, fix="in x[m n] bf16, or t[] f32 for a scalar"
        )
    if expected & _OPERATORS and token.type in ("NAME", "INT", "FLOAT", "LPAR", "INF", "TRUE", "FALSE"):
        extra = " or a comma" if "COMMA" in expected else ""
        return Diagnostic("syntax", f"an operator{extra} is missing before {what}", at)
    return Diagnostic("syntax", f"{what} does not fit{previous}", at, legal=_legal(expected))


def _schedule_token(line: Line, at: Span, what: str, kind: str, previous: str, expected: set[str]) -> Diagnostic:
    if kind == "EQUAL" and line.word == "for":
        message = "a comma of a `for` line starts the next directive"
        return Diagnostic("syntax", message, at, fix="blanks between the items: tile m=128 n=64")
    if kind == "EQUAL" and re.match(r"\s*\w+\s*$", line.text[: _offset(line, at)]):
        message = f"`{line.word} = ...` belongs to the algorithm, which stands above `schedule`"
        return Diagnostic("half", message, at, fix="move it up; a directive is written without `=`: warps 4")
    if kind == "_NL" and "COLON" in expected:
        return Diagnostic(
            "syntax", "the chips of a `for` line end in a colon", at, fix="for gfx942 gfx950: load pointer"
        )
    return Diagnostic("syntax", f"{what} does not fit{previous}", at, legal=_legal(expected))


def _unglued(glued: str) -> str:
    """What `2x`, `1_000`, `0x1F` or `2.0f` was meant to be."""
    if re.fullmatch(r"[0-9_]+", glued):
        return glued.replace("_", "")
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", glued):
        return str(int(glued, 16))
    if re.fullmatch(r"[0-9.]+[fF]", glued):
        return glued[:-1]
    match = re.fullmatch(r"([0-9]+)([kKmMgG])i?[bB]?", glued)
    if match:
        return f"{match[1]}{match[2].upper()}iB"
    match = re.fullmatch(r"([0-9.]+(?:[eE][0-9]+)?)([A-Za-z]\w*)", glued)
    return f"{match[1]} * {match[2]}" if match else "one number"


def _offset(line: Line, at: Span) -> int:
    rows = line.text.split("\n")
    return sum(len(r) + 1 for r in rows[: at.line - line.first]) + at.column - 1


def _before(line: Line, at: Span) -> str:
    """` after `*``: the token to the left, for messages."""
    match = re.search(r"(\w+|//|[<>=!]=|\S)\s*$", line.text[: _offset(line, at)].rstrip())
    return f" after `{match[1]}`" if match else ""


def _chain(line: Line, at: Span, second: str) -> Diagnostic:
    """`m >= n >= k`."""
    start = _offset(line, at)
    operand = r"[\w.]+(?:\[[^\]]*\]|\([^()]*\))?"
    left = re.search(rf"({operand})\s*(>=|<=|==|!=|<|>)\s*({operand})\s*$", line.text[:start])
    right = re.match(rf"\s*({operand})", line.text[start + len(second) :])
    fix = "m >= n and n >= k"
    if left and right:
        fix = f"{left[1]} {left[2]} {left[3]} and {left[3]} {second} {right[1]}"
    return Diagnostic("habit", "comparisons do not chain", at, fix=fix)


_PHRASES = (
    ("_NL", "the end of the line"),
    ("NAME", "a name"),
    ("FLOAT", "a number"),
    ("INT", "a whole number"),
    ("LSQB", "`[`"),
    ("RSQB", "`]`"),
    ("LPAR", "`(`"),
    ("RPAR", "`)`"),
    ("COMMA", "a comma"),
    ("EQUAL", "`=`"),
    ("COLON", "`:`"),
    ("VBAR", "`|`"),
    ("PLUS", "an operator"),
    ("IN", "`in`"),
)


def _legal(expected: set[str]) -> str:
    known = [phrase for name, phrase in _PHRASES if name in expected and not (name == "INT" and "FLOAT" in expected)]
    if {"KERNEL", "AXIS"} & expected:
        return "a line of the algorithm: " + " ".join(KEYWORDS) + ", or name[axes] = expression"
    return ", ".join(known)
