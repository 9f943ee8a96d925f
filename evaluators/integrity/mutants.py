"""A target's own program with a part left out: what somebody computes who skips that part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from dsl.printer import print_expr
from dsl.syntax import Algorithm, Binary, Call, Expr, Name, Number, Program, Read

_KEEPS_AXES = ("softmax", "runmax", "runsum")  # of what runs over an axis; a sum's argument is no answer
_SHOWN = 40  # characters of an expression


@dataclass(frozen=True)
class Mutant:
    """tried: what was left out, for people. literal: only a number was changed."""

    name: str
    tried: str
    program: Program
    literal: bool = False


def mutants(program: Program) -> Iterator[Mutant]:
    """The program without each of its terms, factors, calls and branches, and with each number 0 or doubled."""
    algorithm = program.algorithm
    for place, statement in enumerate(algorithm.statements):
        for path, part in _parts(statement.value):
            for what, other, literal in _others(part, algorithm):
                value = _put(statement.value, path, other)
                if value == statement.value:
                    continue
                statements = list(algorithm.statements)
                statements[place] = replace(statement, value=value)
                name = f"{what} (statement {place + 1})"
                changed = replace(program, algorithm=replace(algorithm, statements=tuple(statements)))
                yield Mutant(name, f"the right answer {what}", changed, literal)


def _others(part: Expr, algorithm: Algorithm) -> Iterator[tuple[str, Expr, bool]]:
    """(what is done to it, what stands there instead, whether a number alone was changed)."""
    nothing: Expr = Number(0)
    match part:
        case Number(value=value) if value:
            yield f"with 0 for {value:g}", nothing, True
            yield f"with {2 * value:g} for {value:g}", Number(2 * value), True
        case Binary(op="+" | "-" as op, left=left, right=right):
            # What is left out keeps its axes: 0 times it.
            if _reads(right, algorithm):
                yield f"without the term {_shown(right)}", Binary("+", left, Binary("*", nothing, right)), False
            if _reads(left, algorithm):
                yield f"without the term {_shown(left)}", Binary(op, Binary("*", nothing, left), right), False
        case Binary(op="*" | "/" as op, left=left, right=right):
            for kept, out in ((left, right), (right, left))[: 2 if op == "*" else 1]:
                if _reads(out, algorithm):
                    one = Binary("+", Number(1), Binary("*", nothing, out))
                    yield f"without the factor {_shown(out)}", Binary("*", kept, one), False
        case Call(function="where", args=(_, *branches)):
            for branch in branches:
                yield f"with {_shown(branch)} for {_shown(part)}", branch, False
        case Call(function=function, axes=axes, args=(first, *_)) if _reads(first, algorithm) and (
            axes is None or function in _KEEPS_AXES
        ):
            yield f"without {function}, {_shown(first)} itself", first, False
        case _:
            return


def _reads(expr: Expr, algorithm: Algorithm) -> bool:
    """Whether a tensor is in it."""
    tensors = {t.name for t in algorithm.inputs} | {t.name for s in algorithm.statements for t in s.targets}
    return any(isinstance(e, Read) or (isinstance(e, Name) and e.id in tensors) for _, e in _parts(expr))


def _shown(expr: Expr) -> str:
    text = print_expr(expr)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


_Path = tuple[Any, ...]


def _parts(expr: Expr, path: _Path = ()) -> Iterator[tuple[_Path, Expr]]:
    """Every expression in it, with the way to it; not what stands in an index."""
    yield path, expr
    if isinstance(expr, Read):
        return
    for field in fields(expr):
        value = getattr(expr, field.name)
        if field.name == "args":
            for i, part in enumerate(value):
                yield from _parts(part, (*path, ("args", i)))
        elif field.name in ("operand", "left", "right"):
            yield from _parts(value, (*path, (field.name, None)))


def _put(expr: Expr, path: _Path, other: Expr) -> Expr:
    if not path:
        return other
    (name, i), *rest = path
    value = getattr(expr, name)
    if i is None:
        return replace(expr, **{name: _put(value, tuple(rest), other)})  # type: ignore[arg-type]
    parts = tuple(_put(part, tuple(rest), other) if place == i else part for place, part in enumerate(value))
    return replace(expr, **{name: parts})  # type: ignore[arg-type]
