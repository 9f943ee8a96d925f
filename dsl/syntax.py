"""The syntax tree: the whole structure of a program on one screen.

Frozen and hashable; positions take no part in equality, so two programs that print alike are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Span:
    """A stretch of one source line; 1-based, `end_column` is exclusive. Line 0 means "not from a source"."""

    line: int = 0
    column: int = 0
    end_column: int = 0


def _span() -> Span:
    return field(default=Span(), compare=False, repr=False)


# Expressions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """An int, or a float; `inf` is a float. Printed by `repr` except inf."""

    value: int | float
    span: Span = _span()


@dataclass(frozen=True)
class Bool:
    value: bool
    span: Span = _span()


@dataclass(frozen=True)
class Name:
    """A tensor, an axis used as an index value, an extent (axis in capitals) or a param; the checker tells."""

    id: str
    span: Span = _span()


@dataclass(frozen=True)
class Read:
    """`t[i j (e)]`: reads a tensor by position. Each index is a Name (axis or integer tensor) or any expression."""

    tensor: str
    indices: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True)
class Unary:
    op: str  # "-" or "not"
    operand: Expr
    span: Span = _span()


@dataclass(frozen=True)
class Binary:
    op: str  # + - * / // %   == != < <= > >=   and or
    left: Expr
    right: Expr
    span: Span = _span()


@dataclass(frozen=True)
class AxisIn:
    """`n` or `n in nb` inside the bracket of a reduction, scan or collective."""

    axis: str
    within: str | None = None
    span: Span = _span()


@dataclass(frozen=True)
class Call:
    """`f(x, ...)`, `sum[n in nb](x)`, `quantize(x, int8, limit=2.25)`. `axes` is None where there is no bracket."""

    function: str
    axes: tuple[AxisIn, ...] | None
    args: tuple[Expr, ...]
    keywords: tuple[tuple[str, Expr], ...] = ()
    span: Span = _span()


Expr: TypeAlias = Number | Bool | Name | Read | Unary | Binary | Call


# The algorithm half ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """A declaration (`in`, `out`) or the left side of a statement. `axes` or `dtype` None: to be inferred."""

    name: str
    axes: tuple[str, ...] | None
    dtype: str | None
    span: Span = _span()


@dataclass(frozen=True)
class AxisDecl:
    """`axis g = h // (H // G)`: coarse over `fine` with ratio `value`. `axis j = R`: `fine` is None, extent `value`."""

    name: str
    fine: str | None
    value: Expr
    span: Span = _span()


@dataclass(frozen=True)
class Param:
    name: str
    dtype: str  # bool | int (compile time) | f32 (run time)
    default: int | float | bool | None = None
    span: Span = _span()


@dataclass(frozen=True)
class Statement:
    """`s[b h m n] = ...`; two targets only for `quantize`."""

    targets: tuple[Tensor, ...]
    value: Expr
    span: Span = _span()


@dataclass(frozen=True)
class Algorithm:
    name: str
    rank: str | None
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    axes: tuple[AxisDecl, ...]
    params: tuple[Param, ...]
    statements: tuple[Statement, ...]
    span: Span = _span()


# The schedule half -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """A value that is a word, perhaps with arguments: `tma`, `all`, `lazy(8)`, `grouped(8)`, `?` (left open)."""

    id: str
    args: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Item:
    """One item of a directive: `128`, `tma`, `m=128`, `l2=8MiB` (sizes are bytes). `key` None: by position."""

    key: str | None
    value: int | Word
    span: Span = _span()


@dataclass(frozen=True)
class Directive:
    """One decision: `tile m=128 n=64`. `chips` is not empty under a `for` line: then it overrides for those alone."""

    name: str
    items: tuple[Item, ...]
    chips: tuple[str, ...] = ()
    span: Span = _span()


@dataclass(frozen=True)
class Block:
    """A `schedule` block. `writes` names what its kernel writes; empty for the bare block (the last kernel)."""

    writes: tuple[str, ...]
    directives: tuple[Directive, ...]
    span: Span = _span()


@dataclass(frozen=True)
class Schedule:
    """`kernels` holds, per kernel, the names it writes (empty: one kernel writes all). Pipeline-wide directives
    (`launch queue`, `comm ag engine=copy`) stand in `pipeline`."""

    kernels: tuple[tuple[str, ...], ...] = ()
    pipeline: tuple[Directive, ...] = ()
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Program:
    """Both halves. `dsl.printer.print_program` gives the canonical text, `dsl.printer.digest` its name."""

    algorithm: Algorithm
    schedule: Schedule
