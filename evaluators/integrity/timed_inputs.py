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
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsl.syntax import Algorithm, Binary, Call, Expr, Name, Read, Unary
from evaluators.inputs import _STORAGE, FLOATS, Array, decode, draw_inputs, encode, extents, input_shapes
from evaluators.loading import fits
from evaluators.target import Target, TargetError, Workload

POOL = 1 << 21  # values of a tensor that are drawn


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
        if axis is not None and self.axes[:1] == (axis,):
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
        self.axis = cut_axis(algorithm)
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


def cut_axis(algorithm: Algorithm) -> str | None:
    """An axis that leads every output and can be judged in part; None where the whole answer has to be computed."""
    leading = {(t.axes or (None,))[0] for t in algorithm.outputs}
    if len(leading) != 1:
        return None
    (axis,) = leading
    return axis if axis in free_axes(algorithm) else None


def free_axes(algorithm: Algorithm) -> set[str]:
    """Axes of every output along which each place is computed alone."""
    tied = {a.name for a in algorithm.axes} | {a.fine for a in algorithm.axes}
    axes = {t.name: t.axes or () for t in algorithm.inputs}
    for statement in algorithm.statements:
        axes |= {t.name: t.axes or () for t in statement.targets}
        tied |= set(_tied(statement.value, axes))
    shared = [set(t.axes or ()) for t in algorithm.outputs]
    return set.intersection(*shared) - tied


def _tied(expr: Expr, axes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Axes that are reduced, read as a position, or indexed by anything but their own position; extents too."""
    match expr:
        case Name(id=name):
            yield from () if name in axes else (name, name.lower())
        case Read(tensor=tensor, indices=indices):
            for index, axis in zip(indices, axes.get(tensor, ()), strict=False):
                if not (isinstance(index, Name) and index.id == axis):
                    yield axis
                    yield from _tied(index, axes)
        case Call():
            yield from (name for a in expr.axes or () for name in (a.axis, a.within) if name)
            for part in (*expr.args, *(value for _, value in expr.keywords)):
                yield from _tied(part, axes)
        case Unary(operand=operand):
            yield from _tied(operand, axes)
        case Binary(left=left, right=right_):
            yield from _tied(left, axes)
            yield from _tied(right_, axes)
