"""What a candidate may change of the target's program, and whether it kept to it.

`schedule`: the algorithm is locked. `numerics`: intermediate dtypes and casts are free too. `all`: any algorithm, so
long as inputs, outputs and params stay as the target declares them; the meaning gate then asks what it computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from dsl.diagnostics import Diagnostic
from dsl.printer import print_expr
from dsl.rounding import DTYPES
from dsl.syntax import Algorithm, Binary, Call, Expr, Param, Read, Statement, Tensor, Unary

Opens = Literal["schedule", "numerics", "all"]


def breaches(wanted: Algorithm, found: Algorithm, opens: Opens) -> list[Diagnostic]:
    """Where the candidate's algorithm oversteps, as errors with positions; empty where it kept to what is open."""
    diagnostics = [
        *_declarations("input", "in", wanted.inputs, found.inputs, found),
        *_declarations("output", "out", wanted.outputs, found.outputs, found),
        *_declarations("param", "param", wanted.params, found.params, found),
    ]
    if diagnostics or opens == "all":
        return diagnostics
    if opens == "numerics":
        wanted, found = _bare(wanted), _bare(found)
    if wanted.axes != found.axes:
        span = next((a.span for a in found.axes), found.span)
        return [Diagnostic("locked-algorithm", "the axis lines differ from the target's", span, fix="restore them")]
    for ours, theirs in zip(wanted.statements, found.statements, strict=False):
        if ours != theirs:
            return [_locked(f"`{_line(theirs)}` is not the target's line", theirs, f"`{_line(ours)}`", opens)]
    if len(found.statements) > len(wanted.statements):
        extra = found.statements[len(wanted.statements)]
        return [_locked(f"`{_line(extra)}` is not in the target's algorithm", extra, "without this line", opens)]
    if len(found.statements) < len(wanted.statements):
        missing = wanted.statements[len(found.statements)]
        return [Diagnostic("locked-algorithm", f"`{_line(missing)}` is missing", found.span, fix="restore it")]
    return []


def _locked(message: str, at: Statement, legal: str, opens: str) -> Diagnostic:
    what = "the schedule alone" if opens == "schedule" else "the schedule and the numerics (dtypes and casts)"
    return Diagnostic("locked-algorithm", f"{message}; {what} may be changed", at.span, legal=legal, fix="restore it")


def _declarations(
    kind: str, word: str, wanted: Sequence[Tensor | Param], found: Sequence[Tensor | Param], whole: Algorithm
) -> Iterator[Diagnostic]:
    if tuple(wanted) == tuple(found):
        return
    right = f"{word} " + ", ".join(map(_declared, wanted)) if wanted else f"no {word}"
    known = {x.name: x for x in wanted}
    span, message = whole.span, f"the {kind}s are not the target's, or not in its order"
    for item in found:
        if known.get(item.name) != item:
            span, message = item.span, f"{kind} `{_declared(item)}` is not as the target declares it"
            break
    yield Diagnostic("locked-interface", message, span, legal=right, fix="declare it as the target does")


def _declared(item: Tensor | Param) -> str:
    if isinstance(item, Param):
        return f"{item.name} {item.dtype}" + ("" if item.default is None else f" = {item.default}")
    axes = "" if item.axes is None else f"[{' '.join(item.axes)}]"
    return f"{item.name}{axes}" + (f" {item.dtype}" if item.dtype else "")


def _line(statement: Statement) -> str:
    return ", ".join(map(_declared, statement.targets)) + " = " + print_expr(statement.value)


def _bare(algorithm: Algorithm) -> Algorithm:
    """Without the dtypes of intermediates and without casts."""

    def strip(expr: Expr) -> Expr:
        match expr:
            case Call(function=function, axes=None, args=(operand,)) if function in DTYPES:
                return strip(operand)
            case Call():
                keywords = tuple((k, strip(v)) for k, v in expr.keywords)
                return replace(expr, args=tuple(map(strip, expr.args)), keywords=keywords)
            case Unary():
                return replace(expr, operand=strip(expr.operand))
            case Binary():
                return replace(expr, left=strip(expr.left), right=strip(expr.right))
            case Read():
                return replace(expr, indices=tuple(map(strip, expr.indices)))
            case _:
                return expr

    statements = tuple(
        replace(s, targets=tuple(replace(t, dtype=None) for t in s.targets), value=strip(s.value))
        for s in algorithm.statements
    )
    return replace(algorithm, statements=statements)
