"""Divisors that are zero: of `axis` lines, `//` and `%`, as far as numbers and extents tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsl.assembly import walk
from dsl.diagnostics import Diagnostic
from dsl.printer import print_expr
from dsl.syntax import Binary, Expr, Name, Program
from dsl.work import number

RULE = "zero-divisor"


def zero_divisors(program: Program, sizes: Mapping[str, int] | None) -> Iterator[Diagnostic]:
    """Errors. sizes: axis -> extent of one workload; None: only what numbers alone make zero."""
    a, known = program.algorithm, sizes or {}
    for d in a.axes:
        ratio = _number(d.value, known) if d.fine is not None else None
        if ratio is not None and ratio < 1:
            told = _told(d.value, ratio)
            message = f"a block of `{d.name}` would have {told}{',' * (' ' in told)} of `{d.fine}`"
            yield Diagnostic(RULE, message, d.span, "a whole number from 1 on")
        yield from _within(d.value, known)
    for s in a.statements:
        yield from _within(s.value, known)


def _within(e: Expr, known: Mapping[str, int]) -> Iterator[Diagnostic]:
    for part in walk(e):
        if isinstance(part, Binary) and part.op in ("//", "%") and _number(part.right, known) == 0:
            message = f"`{part.op}` divides by {_told(part.right, 0)}"
            yield Diagnostic(RULE, message, part.span, "a divisor that is not 0")


def _number(e: Expr, known: Mapping[str, int]) -> float | None:
    """The value of numbers and extents; None where a param, a position or anything else is in it, or a zero divisor."""
    names = [x.id for x in walk(e) if isinstance(x, Name)]
    if any(n != n.upper() or n.lower() not in known for n in names):
        return None
    try:
        return number(e, known, {})
    except (KeyError, ZeroDivisionError):
        return None


def _told(e: Expr, value: float) -> str:
    said = print_expr(e)
    return f"{value:g}" if said == f"{value:g}" else f"`{said}`, which is {value:g} here"
