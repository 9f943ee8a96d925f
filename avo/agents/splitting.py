"""A line of the algorithm for products that cannot fill a chip: blocks of a long sum side by side, then added up.

`c = sum[k](a * b)` becomes `part[kb m n] = sum[k in kb](a * b)` and `c = sum[kb](part)`, each a kernel of its own.
Partial sums round elsewhere than the whole, so it is for targets that open their algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dsl.assembly import walk
from dsl.syntax import (
    Algorithm,
    AxisDecl,
    AxisIn,
    Binary,
    Block,
    Call,
    Directive,
    Expr,
    Item,
    Name,
    Number,
    Program,
    Statement,
    Tensor,
    Unary,
    Word,
)

if TYPE_CHECKING:
    from dsl.anatomy import Sizes
    from dsl.hardware import Hardware

KNOB = "sum in blocks of"
SHORTEST = 1024  # of a block: shorter ones write more partial sums than they read
_TILE = 128  # of rows and columns, as large as pays off
_KEPT = ("tile", "stream", "load", "warps", "order")  # directives that the kernel of the blocks takes over
_LAST = (4, 128)  # tiles of rows and columns of the kernel that adds up: it reads each block's share of them at once


class Sum(NamedTuple):
    """The sum of a program: which statement has it, along which axis, and of what, in a name's own axes."""

    place: int
    axis: str
    call: Call
    rows: tuple[str, ...]


def block(program: Program) -> int:
    """How long the blocks of its sum are; 0 where it has none."""
    found = [a.value for a in program.algorithm.axes if _is_block(program.algorithm, a)]
    return int(found[0].value) if len(found) == 1 and isinstance(found[0], Number) else 0


def lengths(program: Program, hw: Hardware, sizes: Sequence[Sizes]) -> list[int]:
    """Blocks, the best first, that fill the chip at a size where whole sums leave half of it idle; none where no size
    does. The first gives each processor one block of 128 by 128 at that size."""
    found = _sum(program)
    if found is None:
        return []
    wanted: list[int] = []
    for size in sizes:
        tiles = math.prod(-(-size.get(a, 1) // (_TILE if a in found.rows[-2:] else 1)) for a in found.rows)
        whole = size.get(found.axis, 1)
        if 2 * tiles > hw.sms or whole < 2 * SHORTEST:
            continue
        length = max(SHORTEST, 2 ** round(math.log2(whole * tiles / hw.sms)))
        wanted += [x for x in (length, length // 2) if SHORTEST <= x < whole]
    return list(dict.fromkeys(wanted))


def split(program: Program, length: int) -> Program | None:
    """The program with its sum in blocks of that length; None where it is no single sum of one kernel."""
    found = _sum(program)
    if found is None:
        return None
    a = program.algorithm
    taken = {t.name for t in (*a.inputs, *a.outputs)} | {x for t in (*a.inputs, *a.outputs) for x in t.axes or ()}
    axis, part = (next(n for n in names if n not in taken) for names in _names(found.axis))
    inner = replace(found.call, axes=(AxisIn(found.axis, axis),))
    outer = Call("sum", (AxisIn(axis),), (Name(part),))
    statement = a.statements[found.place]
    last = replace(statement, value=_replaced(statement.value, found.call, outer))
    blocks = Statement((Tensor(part, (axis, *found.rows), None),), inner)
    algorithm = replace(
        a,
        axes=(*a.axes, AxisDecl(axis, found.axis, Number(length))),
        statements=(*a.statements[: found.place], blocks, last, *a.statements[found.place + 1 :]),
    )
    (own,) = program.schedule.blocks
    kept = tuple(d for d in own.directives if d.name in _KEPT)
    grid = next((d.items for d in own.directives if d.name == "grid"), ())
    tiles = zip(found.rows[-2:], _LAST[-len(found.rows[-2:]) :], strict=True)
    ours = (
        Directive("tile", (*(Item(r, n) for r, n in tiles), Item(axis, Word("all")))),
        Directive("grid", grid),
    )
    first = (d for d in kept if d.name == "tile")
    theirs = (*first, Directive("grid", (Item(None, Word(axis)), *grid)), *(d for d in kept if d.name != "tile"))
    schedule = replace(program.schedule, kernels=((part,), tuple(t.name for t in a.outputs)))
    return Program(algorithm, replace(schedule, blocks=(Block((), ours), Block((part,), theirs))))


def resplit(program: Program, length: int) -> Program:
    """A program with blocks, with those of another length."""
    axes = (replace(x, value=Number(length)) if _is_block(program.algorithm, x) else x for x in program.algorithm.axes)
    return replace(program, algorithm=replace(program.algorithm, axes=tuple(axes)))


def _names(axis: str) -> tuple[Sequence[str], Sequence[str]]:
    return (f"{axis}b", f"{axis}_blocks"), ("part", "parts", "part_sums")


def _is_block(a: Algorithm, axis: AxisDecl) -> bool:
    """Whether a sum goes along its blocks, of a length that is written down."""
    within = {i.within for s in a.statements for c in _calls(s.value) for i in c.axes or ()}
    return axis.name in within and isinstance(axis.value, Number)


def _sum(program: Program) -> Sum | None:
    """The only sum, where it is a whole axis' and the program one kernel with one output that the sum's axes index."""
    a = program.algorithm
    calls = [(i, c) for i, s in enumerate(a.statements) for c in _calls(s.value) if c.axes]
    if (
        len(calls) != 1
        or a.axes
        or len(a.outputs) != 1
        or program.schedule.kernels
        or len(program.schedule.blocks) != 1
    ):
        return None
    ((place, call),) = calls
    if call.function != "sum" or call.axes is None or len(call.axes) != 1 or call.axes[0].within is not None:
        return None
    axis, rows = call.axes[0].axis, a.outputs[0].axes or ()
    known = {t.name: t.axes or () for t in a.inputs}
    used = {x for n in walk(call) if isinstance(n, Name) for x in known.get(n.id, ())}
    return Sum(place, axis, call, rows) if used == {axis, *rows} and axis not in rows else None


def _calls(e: Expr) -> list[Call]:
    return [x for x in walk(e) if isinstance(x, Call)]


def _replaced(e: Expr, old: Call, new: Call) -> Expr:
    if e is old:
        return new
    match e:
        case Binary():
            return replace(e, left=_replaced(e.left, old, new), right=_replaced(e.right, old, new))
        case Unary():
            return replace(e, operand=_replaced(e.operand, old, new))
        case Call():
            return replace(e, args=tuple(_replaced(x, old, new) for x in e.args))
    return e
