"""From text to the syntax tree. A text that is no program gives one ProgramError with all that is wrong with it.

The whole text is parsed at once by `grammar.lark`. Only if that fails is it parsed line by line (`dsl.mistakes`), which
costs more and finds every broken line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from importlib import resources

from lark import Lark, Token, UnexpectedInput
from lark.lark import PostLex

from dsl.assembly import assemble
from dsl.builder import Piece, pieces_of
from dsl.diagnostics import Diagnostic, ProgramError
from dsl.printer import LANGUAGE_VERSION, canonical
from dsl.syntax import Program, Span

MAX_CHARACTERS = 100_000
MAX_LINE = 1_000
MAX_NESTING = 100

_VERSION = re.compile(r"#[ \t]*avo[ \t]+([0-9]{1,6})[ \t]*(?:\n|$)")
_UNPRINTABLE = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")


def parse(text: str | bytes, path: str = "<program>") -> Program:
    """The program that `text` says, canonically ordered. `path` only names the source in messages.

    Raises ProgramError with every diagnostic, each with line and column.
    """
    source, found = _clean(text)
    if not found:
        found = list(_limits(source)) or list(_newer(source))
    if found:
        raise ProgramError(found, _displayable(source), path)
    try:
        pieces: list[Piece] = pieces_of(_lark().parse(source, start="program"), found)
    except UnexpectedInput:
        from dsl.mistakes import explain  # only a broken text needs it

        found, pieces = explain(source, _lark())
        if not found and not assemble(pieces)[1]:
            found = [Diagnostic("syntax", "the lines are not in the order of a program", Span(1, 1, 2))]
    program, problems = assemble(pieces, broken=bool(found))
    if found or problems or program is None:
        raise ProgramError([*found, *problems], _displayable(source), path)
    return canonical(program)


def grammar_text() -> str:
    """The grammar as it stands in `grammar.lark`."""
    return (resources.files("dsl") / "grammar.lark").read_text(encoding="utf-8")


class Lines(PostLex):
    """Drops the line breaks that mean nothing (blank lines, inside brackets), ends the last line, marks `2d`."""

    always_accept = ("_NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth, last = 0, None
        for token in stream:
            if token.type in ("LPAR", "LSQB"):
                depth += 1
            elif token.type in ("RPAR", "RSQB"):
                depth -= 1
            elif token.type == "_NL":
                if depth > 0 or last is None or last.type == "_NL":
                    continue
            elif last is not None and _glued(last, token):
                token = Token.new_borrow_pos("_GLUED", token.value, token)
            last = token
            yield token
        if last is not None and last.type != "_NL":
            yield Token.new_borrow_pos("_NL", "\n", last)


def _glued(last: Token, token: Token) -> bool:
    """`2d`, `1_000`: a number with a name or number stuck to it."""
    numbers = ("INT", "FLOAT", "SIZE")
    if last.type not in numbers or last.end_pos != token.start_pos:
        return False
    return token.type in numbers or token.value[0].isalpha() or token.value[0] == "_"


@functools.cache
def _lark() -> Lark:
    return Lark(
        grammar_text(),
        parser="lalr",
        lexer="basic",
        postlex=Lines(),
        start=["program", "algorithm_line", "schedule_line"],
        propagate_positions=True,
        maybe_placeholders=True,
    )


def plain(text: str) -> str:
    """The text as it is parsed: `\\n` is the only line break, and no byte order mark stands before it."""
    return _clean(text)[0]


def _clean(text: str | bytes) -> tuple[str, list[Diagnostic]]:
    """The plain text, and what is wrong with its bytes."""
    found = []
    if isinstance(text, str):
        decoded = text
    else:
        decoded = text.decode("utf-8", errors="replace")
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as e:
            line = text.count(b"\n", 0, e.start) + 1
            column = e.start - text.rfind(b"\n", 0, e.start)
            message = f"byte 0x{text[e.start]:02x} is not UTF-8"
            found = [Diagnostic("not-text", message, Span(line, column, column + 1), legal="a program is UTF-8 text")]
    return decoded.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), found


def _displayable(source: str) -> str:
    """The source as messages quote it: nothing that breaks a line or that a terminal cannot encode."""
    source = _UNPRINTABLE.sub("\ufffd", source)
    return "\n".join(row if len(row) <= MAX_LINE else row[:200] + " ..." for row in source[:MAX_CHARACTERS].split("\n"))


def written_in(source: str) -> int | None:
    """The version of the language that a first line `# avo N` states."""
    stated = _VERSION.match(source)
    return int(stated[1]) if stated else None


def _newer(source: str) -> Iterator[Diagnostic]:
    version = written_in(source)
    if version is not None and version > LANGUAGE_VERSION:
        message = f"the program is written in version {version} of the language"
        end = len(source.partition("\n")[0]) + 1
        yield Diagnostic("version", message, Span(1, 1, end), f"up to {LANGUAGE_VERSION}", "install a newer avo")


def _limits(source: str) -> Iterator[Diagnostic]:
    if len(source) > MAX_CHARACTERS:
        message = f"the program has {len(source)} characters"
        yield Diagnostic("too-large", message, Span(1, 1, 2), legal=f"at most {MAX_CHARACTERS} characters")
        return
    depth = 0
    for number, row in enumerate(source.split("\n"), start=1):
        if len(row) > MAX_LINE:
            message = f"the line has {len(row)} characters"
            yield Diagnostic("too-large", message, Span(number, 1, 2), legal=f"at most {MAX_LINE} characters a line")
            return
        for match in re.finditer(r"[()\[\]]", row.partition("#")[0]):
            depth = depth + 1 if match[0] in "([" else max(0, depth - 1)
            if depth > MAX_NESTING:
                at = Span(number, match.start() + 1, match.start() + 2)
                message = f"brackets nest deeper than {MAX_NESTING}"
                yield Diagnostic("too-deep", message, at, fix="name a part of the expression on a line of its own")
                return
