"""From the parse tree to the syntax tree, line by line: each line of a program becomes one piece."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from lark import Token, Tree
from lark.visitors import Transformer_NonRecursive, v_args

from dsl.diagnostics import Diagnostic
from dsl.syntax import (
    AxisIn,
    Binary,
    Bool,
    Call,
    Directive,
    Expr,
    Item,
    Name,
    Number,
    Param,
    Read,
    Span,
    Statement,
    Tensor,
    Unary,
    Word,
)

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True)
class Piece:
    """One line of a program: its kind and what it says."""

    kind: str
    value: Any
    span: Span


def pieces_of(tree: Tree, found: list[Diagnostic]) -> list[Piece]:
    """The lines of a parse tree, in order. What is wrong with a number or an axis line goes to `found`."""
    builder = _Builder(found)
    result = builder.transform(tree)
    return result if isinstance(result, list) else [result]


def span_of(t: Any) -> Span:
    """Where a token or a tree stands; what spans lines is marked at its first character."""
    if t.line is None:
        return Span()
    end = t.end_column if t.end_line == t.line and t.end_column else t.column + 1
    return Span(t.line, t.column, end)


@v_args(meta=True)
class _Builder(Transformer_NonRecursive):
    def __init__(self, found: list[Diagnostic]) -> None:
        super().__init__(visit_tokens=False)
        self.found = found

    def _int(self, token: Token) -> int:
        if len(token) > 18:
            self.found.append(Diagnostic("number", f"the number has {len(token)} digits", span_of(token), "at most 18"))
            return 0
        return int(token)

    # Lines

    def program(self, meta: Any, c: list) -> list[Piece]:
        return [p for x in c for p in (x if isinstance(x, list) else [x])]

    def block(self, meta: Any, c: list) -> list[Piece]:
        return list(c)

    def algorithm_line(self, meta: Any, c: list) -> Piece:
        return c[0]

    schedule_line = algorithm_line

    def kernel(self, meta: Any, c: list) -> Piece:
        return Piece("kernel", str(c[0]), span_of(c[0]))

    def rank(self, meta: Any, c: list) -> Piece:
        return Piece("rank", str(c[0]), span_of(c[0]))

    def inputs(self, meta: Any, c: list) -> Piece:
        return Piece("in", tuple(c), span_of(meta))

    def outputs(self, meta: Any, c: list) -> Piece:
        return Piece("out", tuple(c), span_of(meta))

    def axis(self, meta: Any, c: list) -> Piece:
        return Piece("axis", (str(c[0]), c[1]), span_of(c[0]))

    def param(self, meta: Any, c: list) -> Piece:
        return Piece("param", Param(str(c[0]), str(c[1]), c[2], span_of(c[0])), span_of(c[1]))

    def default(self, meta: Any, c: list) -> int | float | bool:
        return -c[1].value if c[0] is not None and not isinstance(c[1], Bool) else c[1].value

    def statement(self, meta: Any, c: list) -> Piece:
        return Piece("statement", Statement(c[0], c[1], span_of(meta)), span_of(meta))

    def targets(self, meta: Any, c: list) -> tuple[Tensor, ...]:
        return tuple(c)

    def tensor(self, meta: Any, c: list) -> Tensor:
        return Tensor(str(c[0]), c[1], None if c[2] is None else str(c[2]), span_of(meta))

    input = tensor

    def tensor_axes(self, meta: Any, c: list) -> tuple[str, ...]:
        return tuple(str(t) for t in c[0] or ())

    def names(self, meta: Any, c: list) -> tuple[Token, ...]:
        return (*c[0], c[1]) if len(c) == 2 else (c[0],)

    # Expressions

    def binary(self, meta: Any, c: list) -> Expr:
        return Binary(str(c[1]), c[0], c[2], span_of(meta))

    def unary(self, meta: Any, c: list) -> Expr:
        return Unary(str(c[0]), c[1], span_of(meta))

    def number(self, meta: Any, c: list) -> Expr:
        token = c[0]
        value = math.inf if token.type == "INF" else float(token) if token.type == "FLOAT" else self._int(token)
        return Number(value, span_of(token))

    def truth(self, meta: Any, c: list) -> Expr:
        return Bool(c[0].type == "TRUE", span_of(c[0]))

    def name(self, meta: Any, c: list) -> Expr:
        return Name(str(c[0]), span_of(c[0]))

    def read(self, meta: Any, c: list) -> Expr:
        indices = tuple(Name(str(t), span_of(t)) if isinstance(t, Token) else t for t in c[1])
        return Read(str(c[0]), indices, span_of(meta))

    def indices(self, meta: Any, c: list) -> tuple[Token | Expr, ...]:
        return (*(c[0] or ()), c[1])

    def call(self, meta: Any, c: list) -> Expr:
        given = c[2] or ()
        args = tuple(a for a in given if not isinstance(a, tuple))
        keywords = tuple(a for a in given if isinstance(a, tuple))
        for a, b in itertools.pairwise(given):
            if isinstance(a, tuple) and a[0] == "limit" and not isinstance(b, tuple):
                at = span_of(meta)
                self.found.append(Diagnostic("keyword", f"an argument of `{c[0]}` follows `{a[0]}=`", at))
        return Call(str(c[0]), c[1], args, keywords, span_of(meta))

    def call_axes(self, meta: Any, c: list) -> tuple[AxisIn, ...]:
        return tuple(AxisIn(str(t), None, span_of(t)) if isinstance(t, Token) else t for t in c[0])

    def axes_in(self, meta: Any, c: list) -> tuple[Token | AxisIn, ...]:
        if len(c) == 3:  # axes_in NAME in NAME
            return (*c[0], AxisIn(str(c[1]), str(c[2]), span_of(c[1])))
        if c[0] and all(isinstance(t, Token) for t in c[0]):  # names in NAME
            return (*c[0][:-1], AxisIn(str(c[0][-1]), str(c[1]), span_of(c[0][-1])))
        return (*c[0], c[1])

    def arguments(self, meta: Any, c: list) -> tuple:
        return tuple(c)

    def keyword(self, meta: Any, c: list) -> tuple[str, Expr]:
        return str(c[0]), c[1]

    # The schedule half

    def block_head(self, meta: Any, c: list) -> Piece:
        return Piece("schedule", tuple(str(t) for t in c[0] or ()), span_of(meta))

    def kernels(self, meta: Any, c: list) -> Piece:
        return Piece("kernels", tuple(tuple(str(t) for t in names) for names in c), span_of(meta))

    def directive_line(self, meta: Any, c: list) -> Piece:
        return Piece("directives", (c[0],), c[0].span)

    def for_line(self, meta: Any, c: list) -> Piece:
        chips = tuple(str(t) for t in c[0])
        return Piece("directives", tuple(Directive(d.name, d.items, chips, d.span) for d in c[1:]), span_of(meta))

    def directive(self, meta: Any, c: list) -> Directive:
        return Directive(str(c[0]), tuple(i for i in c[1:] if i is not None), (), span_of(meta))

    for_directive = directive

    def item(self, meta: Any, c: list) -> Item:
        return Item(str(c[0]) if len(c) == 2 else None, c[-1], span_of(meta))

    def value(self, meta: Any, c: list) -> int | Word:
        return c[0]

    def amount(self, meta: Any, c: list) -> int:
        return self._amount(c[0])

    def _amount(self, token: Token) -> int:
        if token.type == "SIZE":
            return self._int(Token.new_borrow_pos("INT", token[:-3], token)) * _UNITS[token[-3:]]
        return self._int(token)

    def word(self, meta: Any, c: list) -> Word:
        return Word(str(c[0]), tuple(a for a in c[1:] if a is not None))

    def word_argument(self, meta: Any, c: list) -> int | str:
        return str(c[0]) if c[0].type == "NAME" else self._amount(c[0])
