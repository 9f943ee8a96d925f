"""Inputs of timed calls: new ones before every call, without drawing them anew each time.

A public size has hundreds of megabytes; to draw, round and send them takes longer than all that is measured. So values
are drawn once, at most `POOL` of a tensor, and every call reads them from another random place on, over and over where
the tensor is larger. A row of a call is thus never a row of another call, in any order or with any sign, unless the
places happen to differ by whole rows. Integers that the target makes itself (labels, tables) keep their rows, which
change places: they may mean something.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dsl.assembly import walk
from dsl.syntax import Algorithm, Binary, Call, Expr, Name, Number, Program, Read, Tensor, Unary
from evaluators.inputs import _STORAGE, FLOATS, Array, decode, draw_inputs, encode, extents, input_shapes
from evaluators.loading import fits
from evaluators.target import Target, TargetError, Workload

POOL = 1 << 21  # values of a tensor that are drawn
_LONG = 64  # places, of which a few are judged


@dataclass
class _Tensor:
    """values: those that were drawn, flat, in the dtype's storage; `now` is what the next call is fed, repeated."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    values: Array
    rows: int  # 0: any value may follow any other
    now: Array

    def part(self, axis: str | None, span: slice) -> Array:
        """The values of `now`, cut to a span of the axis where the tensor has it."""
        shape, flat = self.shape, self.now
        if axis is not None and self.axes[:1] == (axis,):  # all that is needed lies together
            width = math.prod(shape[1:])
            flat = flat[np.arange(span.start * width, span.stop * width) % flat.size]
            shape = (span.stop - span.start, *shape[1:])
        else:
            flat = np.resize(flat, math.prod(shape))
            if axis in self.axes:
                whole = flat.reshape(shape)[(slice(None),) * self.axes.index(axis) + (span,)]
                flat, shape = np.ascontiguousarray(whole), whole.shape
        return decode(flat.tobytes(), self.dtype, shape)


class TimedInputs:
    """axis: the one that `part` cuts. Raises TargetError where the target's own `make_inputs` fails."""

    def __init__(self, target: Target, algorithm: Algorithm, workload: Workload, rng: np.random.Generator) -> None:
        self._rng = rng
        self.axis = cut_axis(algorithm, extents(algorithm, workload))
        shapes = input_shapes(algorithm, workload)
        drawn = draw_inputs(target, algorithm, _shortened(target, algorithm, workload, rng), "normal", rng)
        self._tensors = []
        for t in algorithm.inputs:
            dtype, shape, part = t.dtype or "f32", shapes[t.name], drawn[t.name]
            values = np.frombuffer(encode(part, dtype), dtype=_STORAGE[dtype])
            rows = 0 if dtype in FLOATS or target.make_inputs is None else (part.shape or (1,))[0]
            if not rows and (values.size > POOL or part.shape != shape):
                values = values[: _period(min(POOL, values.size), math.prod(shape[1:]))]
            self._tensors.append(_Tensor(t.name, dtype, shape, tuple(t.axes or ()), values, rows, values))

    def renew(self) -> tuple[list[dict[str, Any]], list[bytes]]:
        """(form of each input, its values; where they are fewer than the input has, they repeat)."""
        for t in self._tensors:
            if t.rows:
                t.now = t.values.reshape(t.rows, -1)[self._rng.permutation(t.rows)].reshape(-1)
            else:
                t.now = np.roll(t.values, -int(self._rng.integers(t.values.size)))
        forms = [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in self._tensors]
        return forms, [t.now.tobytes() for t in self._tensors]

    def part(self, span: slice) -> Mapping[str, Array]:
        """Every input as it is now, cut to a span of the axis."""
        return {t.name: t.part(self.axis, span) for t in self._tensors}


def _period(most: int, width: int) -> int:
    """The largest number up to `most` that has no factor in common with a row's width: no row is there twice."""
    return next((n for n in range(most, 1, -1) if math.gcd(n, width) == 1), most)


def _shortened(target: Target, algorithm: Algorithm, workload: Workload, rng: np.random.Generator) -> Workload:
    """The size with axes that only lengthen its outputs halved, until no input has more than POOL values."""
    free = free_axes(algorithm)
    while True:
        sizes = extents(algorithm, workload)
        large = [t for t in algorithm.inputs if math.prod(sizes[a] for a in t.axes or ()) > POOL]
        mine = {a for t in large for a in t.axes or () if a in free and workload.sizes.get(a, 1) % 2 == 0}
        if not mine:
            return workload
        longest = max(sorted(mine), key=lambda a: workload.sizes[a])
        shorter = Workload({**workload.sizes, longest: workload.sizes[longest] // 2}, workload.params)
        try:
            fits(target, algorithm, shorter)
        except TargetError:
            return workload
        workload = shorter


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
