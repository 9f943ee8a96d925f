"""What is wrong with a text that does not parse: every broken line, each with the right form where it can be told."""

from __future__ import annotations

from lark import Lark, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from dsl.assembly import Piece, pieces_of
from dsl.diagnostics import Diagnostic
from dsl.syntax import Span


def explain(source: str, lark: Lark) -> tuple[list[Diagnostic], list[Piece]]:
    """The diagnostics of each line that does not parse, and the pieces of those that do."""
    try:
        lark.parse(source, start="program")
    except UnexpectedToken as e:
        span = Span(e.token.line or 1, e.token.column or 1, (e.token.column or 1) + len(e.token))
        return [Diagnostic("syntax", f"unexpected `{e.token}`", span)], []
    except UnexpectedCharacters as e:
        return [Diagnostic("syntax", "unexpected character", Span(e.line, e.column, e.column + 1))], []
    except UnexpectedInput:
        return [Diagnostic("syntax", "unexpected end", Span(1, 1, 2))], []
    return [], pieces_of(lark.parse(source, start="program"), [])
