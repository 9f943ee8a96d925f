"""The canonical text of a program, and its digest.

One program has one text: lines in a fixed order, directives in the order of `DIRECTIVES`, one style of blanks, the
fewest parentheses that keep the tree. `parse(print_program(p)) == canonical(p)`, and what the parser returns is
canonical already.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dsl.syntax import (
    Algorithm,
    AxisDecl,
    AxisIn,
    Binary,
    Block,
    Bool,
    Call,
    Directive,
    Expr,
    Item,
    Name,
    Number,
    Param,
    Program,
    Read,
    Schedule,
    Span,
    Statement,
    Tensor,
    Unary,
    Word,
)

LANGUAGE_VERSION = 1

# The printed order of directives; the parser sorts into it too. Names that are not here follow, as they were given.
PIPELINE_DIRECTIVES = ("launch", "comm")
DIRECTIVES = (
    *PIPELINE_DIRECTIVES,
    "tile",
    "grid",
    "order",
    "swizzle",
    "persistent",
    "stream",
    "split",
    "load",
    "roles",
    "registers",
    "hold",
    "buffers",
    "issue",
    "rescale",
    "reduce",
    "exponent",
    "skip",
    "warps",
    "waves_per_eu",
    "matrix_instr",
)
_RANK = {name: i for i, name in enumerate(DIRECTIVES)}
_BYTE_KEYS = frozenset({"l2"})

_LEVEL = {"or": 1, "and": 2, "not": 3, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4}
_LEVEL |= {"+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6}
_NOT, _COMPARISON, _NEGATIVE, _ATOM = 3, 4, 7, 8


def canonical(program: Program) -> Program:
    """The program with its schedule in printed order: bare block first, directives sorted, `for` lines grouped."""
    schedule = program.schedule
    bare = [d for b in schedule.blocks if not b.writes for d in b.directives]
    named = [Block(b.writes, _sorted(b.directives), b.span) for b in schedule.blocks if b.writes]
    span = next((b.span for b in schedule.blocks if not b.writes), None)
    first = [Block((), _sorted(bare), span) if span else Block((), _sorted(bare))] if bare else []
    ordered = Schedule(schedule.kernels, _sorted(schedule.pipeline), (*first, *named))
    return replace(program, schedule=ordered)


def print_program(program: Program) -> str:
    """The canonical text, ending in a newline."""
    return "\n".join(line.text for line in print_lines(program)) + "\n"


class Line(NamedTuple):
    """A canonical line and the spans of what stands in it; none for `rank`, `kernels`, some `schedule`, blank lines."""

    text: str
    spans: tuple[Span, ...] = ()


def print_lines(program: Program) -> list[Line]:
    """The canonical lines, each with where it came from."""
    lines = list(_algorithm(program.algorithm))
    schedule = canonical(program).schedule
    bare = [b for b in schedule.blocks if not b.writes]
    if schedule.kernels or schedule.pipeline or bare:
        lines += [Line(""), Line("schedule", tuple(b.span for b in bare))]
        if schedule.kernels:
            lines.append(Line("kernels " + " | ".join(" ".join(k) for k in schedule.kernels)))
        lines += _directives((*schedule.pipeline, *(d for b in bare for d in b.directives)))
    for block in schedule.blocks:
        if block.writes:
            lines += [Line(""), Line("schedule " + " ".join(block.writes), (block.span,))]
            lines += _directives(block.directives)
    return lines


def digest(program: Program) -> str:
    """The name of a program: the first 16 hexadecimal digits of SHA-256 over language version and canonical text."""
    text = f"avo {LANGUAGE_VERSION}\n{print_program(program)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def print_expr(e: Expr) -> str:
    """The canonical text of an expression: `sum[d](q * k) * rsqrt(D)`."""
    return _print(e)[0]


def print_statement(s: Statement) -> str:
    """`q8[b m d], qs[b mb] = quantize(q, int8)`."""
    return f"{', '.join(print_tensor(t) for t in s.targets)} = {print_expr(s.value)}"


def print_tensor(t: Tensor) -> str:
    """`q[b h m d] bf16`; what is left to be inferred is left out."""
    axes = "" if t.axes is None else f"[{' '.join(t.axes)}]"
    return f"{t.name}{axes}" + (f" {t.dtype}" if t.dtype else "")


def print_directive(d: Directive) -> str:
    """`tile m=128 n=64`, without its `for` prefix."""
    return " ".join((d.name, *(print_item(i) for i in d.items)))


def print_item(i: Item) -> str:
    """`m=128`, `lazy(8)`, `l2=8MiB`."""
    value = _word(i.value) if isinstance(i.value, Word) else _amount(i.key, i.value)
    return value if i.key is None else f"{i.key}={value}"


def _algorithm(a: Algorithm) -> Iterable[Line]:
    yield Line(f"kernel {a.name}", (a.span,))
    if a.rank is not None:
        yield Line(f"rank {a.rank}")
    for word, tensors in (("in  ", a.inputs), ("out ", a.outputs)):
        if tensors:
            yield Line(word + ", ".join(print_tensor(t) for t in tensors), tuple(t.span for t in tensors))
    yield from (Line(_axis(x), (x.span,)) for x in a.axes)
    yield from (Line(_param(p), (p.span,)) for p in a.params)
    yield from (Line(print_statement(s), (s.span,)) for s in a.statements)


def _axis(a: AxisDecl) -> str:
    value = print_expr(a.value) if a.fine is None else print_expr(Binary("//", Name(a.fine), a.value))
    return f"axis {a.name} = {value}"


def _param(p: Param) -> str:
    if p.default is None:
        return f"param {p.name} {p.dtype}"
    if isinstance(p.default, bool):
        return f"param {p.name} {p.dtype} = {_truth(p.default)}"
    sign = "-" if math.copysign(1, p.default) < 0 else ""
    return f"param {p.name} {p.dtype} = {sign}{_number(abs(p.default))}"


def _number(v: int | float) -> str:
    return "inf" if v == math.inf else repr(v)


def _truth(v: bool) -> str:
    return "true" if v else "false"


def _print(e: Expr) -> tuple[str, int]:
    """Text and binding level."""
    match e:
        case Number(value):
            return _number(value), _ATOM
        case Bool(value):
            return _truth(value), _ATOM
        case Name(id):
            return id, _ATOM
        case Read(tensor, indices):
            return f"{tensor}[{' '.join(_index(i) for i in indices)}]", _ATOM
        case Unary("not", operand):
            return f"not {_at_least(operand, _NOT)}", _NOT
        case Unary(op, operand):
            return f"{op}{_at_least(operand, _NEGATIVE)}", _NEGATIVE
        case Binary(op, left, right):
            level = _LEVEL[op]
            low = level + 1 if level == _COMPARISON else level
            return f"{_at_least(left, low)} {op} {_at_least(right, level + 1)}", level
        case Call(function, axes, args, keywords):
            bracket = "" if axes is None else f"[{' '.join(_axis_in(a) for a in axes)}]"
            given = [*(print_expr(a) for a in args), *(f"{k}={print_expr(v)}" for k, v in keywords)]
            return f"{function}{bracket}({', '.join(given)})", _ATOM


def _at_least(e: Expr, level: int) -> str:
    text, own = _print(e)
    return text if own >= level else f"({text})"


def _index(e: Expr) -> str:
    plain = isinstance(e, Name) or (isinstance(e, Number) and isinstance(e.value, int))
    return print_expr(e) if plain else f"({print_expr(e)})"


def _axis_in(a: AxisIn) -> str:
    return a.axis if a.within is None else f"{a.axis} in {a.within}"


def _sorted(directives: Iterable[Directive]) -> tuple[Directive, ...]:
    """Common directives in printed order, then those of each group of chips, groups as they first appear."""
    groups: dict[tuple[str, ...], list[Directive]] = {(): []}
    for d in directives:
        groups.setdefault(d.chips, []).append(d)
    return tuple(d for g in groups.values() for d in sorted(g, key=lambda d: _RANK.get(d.name, len(_RANK))))


def _directives(directives: Iterable[Directive]) -> list[Line]:
    """One directive a line; the directives of one group of chips share a `for` line."""
    lines: list[Line] = []
    groups: dict[tuple[str, ...], list[Directive]] = {}
    for d in directives:
        if d.chips:
            groups.setdefault(d.chips, []).append(d)
        else:
            lines.append(Line(print_directive(d), (d.span,)))
    for chips, group in groups.items():
        text = f"for {' '.join(chips)}: {', '.join(map(print_directive, group))}"
        lines.append(Line(text, tuple(d.span for d in group)))
    return lines


def _word(w: Word) -> str:
    return f"{w.id}({', '.join(str(a) for a in w.args)})" if w.args else w.id


def _amount(key: str | None, v: int) -> str:
    if key in _BYTE_KEYS:
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if v and v % size == 0:
                return f"{v // size}{unit}"
    return str(v)
