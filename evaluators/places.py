"""A program at a few places of an axis: rows of an answer whose whole would take too long, at the extents it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dsl.assembly import walk
from dsl.syntax import Algorithm, Binary, Call, Expr, Name, Number, Program, Read, Tensor, Unary

_LONG = 64  # places, of which a few are enough


def cut_axis(algorithm: Algorithm, sizes: Mapping[str, int]) -> str | None:
    """An axis of every output that can be judged in part: the first that is long, else the longest; None where the
    whole answer has to be computed. It may be read as a position, which `placed` makes an input."""
    free = free_axes(algorithm, positions=True)
    axes = [a for a in algorithm.outputs[0].axes or () if a in free]
    return next((a for a in axes if sizes[a] >= _LONG), max(axes, key=lambda a: sizes[a], default=None))


def placed(program: Program, axis: str, length: int) -> Program:
    """The program for some places of an axis that is `length` long: where they are is an input, `at_AXIS`, the last."""
    algorithm = program.algorithm
    tensors = {t.name for t in algorithm.inputs} | {t.name for s in algorithm.statements for t in s.targets}

    def there(expr: Expr, axes: Mapping[str, tuple[str, ...]]) -> Expr:
        match expr:
            case Name(id=name) if name not in tensors:
                return Name(f"at_{axis}") if name == axis else Number(length) if name == axis.upper() else expr
            case Read(tensor=tensor, indices=indices):
                where = axes.get(tensor, ())
                own = [isinstance(i, Name) and i.id == a == axis for i, a in zip(indices, where, strict=True)]
                moved = (i if mine else there(i, axes) for i, mine in zip(indices, own, strict=True))
                return replace(expr, indices=tuple(moved))
            case Call():
                named = tuple((k, there(v, axes)) for k, v in expr.keywords)
                return replace(expr, args=tuple(there(a, axes) for a in expr.args), keywords=named)
            case Unary(operand=operand):
                return replace(expr, operand=there(operand, axes))
            case Binary(left=left, right=right):
                return replace(expr, left=there(left, axes), right=there(right, axes))
            case _:
                return expr

    known = {t.name: t.axes or () for t in algorithm.inputs}
    known |= {t.name: t.axes or () for s in algorithm.statements for t in s.targets}
    statements = tuple(replace(s, value=there(s.value, known)) for s in algorithm.statements)
    inputs = (*algorithm.inputs, Tensor(f"at_{axis}", (axis,), "i32"))
    return replace(program, algorithm=replace(algorithm, inputs=inputs, statements=statements))


def free_axes(algorithm: Algorithm, positions: bool = False) -> set[str]:
    """Axes of every output along which each place is computed alone; with `positions` also where that depends on the
    place."""
    tied = {a.name for a in algorithm.axes} | {a.fine for a in algorithm.axes}
    tied |= {part.id.lower() for a in algorithm.axes for part in walk(a.value) if isinstance(part, Name)}
    axes = {t.name: t.axes or () for t in algorithm.inputs}
    for statement in algorithm.statements:
        axes |= {t.name: t.axes or () for t in statement.targets}
        tied |= set(_tied(statement.value, axes, positions))
    shared = [set(t.axes or ()) for t in algorithm.outputs]
    return set.intersection(*shared) - tied


def _tied(expr: Expr, axes: Mapping[str, tuple[str, ...]], positions: bool) -> Iterator[str]:
    """Axes that are reduced, or indexed by anything but their own position; those read as one, and extents, unless
    `positions`."""
    match expr:
        case Name(id=name):
            yield from () if name in axes or positions else (name, name.lower())
        case Read(tensor=tensor, indices=indices):
            for index, axis in zip(indices, axes.get(tensor, ()), strict=False):
                if not (isinstance(index, Name) and index.id == axis):
                    yield axis
                    yield from _tied(index, axes, positions)
        case Call():
            yield from (name for a in expr.axes or () for name in (a.axis, a.within) if name)
            for part in (*expr.args, *(value for _, value in expr.keywords)):
                yield from _tied(part, axes, positions)
        case Unary(operand=operand):
            yield from _tied(operand, axes, positions)
        case Binary(left=left, right=right_):
            yield from _tied(left, axes, positions)
            yield from _tied(right_, axes, positions)
