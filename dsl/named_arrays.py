"""Arrays whose dimensions have names: aligned, blocked and contracted by axis. Knows nothing of programs.

A coarse axis lies over a fine one by a ratio: coarse index = fine index // ratio.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Named:
    """`data` has one dimension for each name of `axes`, in that order."""

    axes: tuple[str, ...]
    data: NDArray

    def transposed(self, axes: Sequence[str]) -> Named:
        """The same with its dimensions in another order; `axes` is a permutation of its own."""
        if tuple(axes) == self.axes:
            return self
        return Named(tuple(axes), self.data.transpose([self.axes.index(a) for a in axes]))

    def over(self, axes: Sequence[str]) -> NDArray:
        """Data that broadcasts over `axes`: length 1 along those that it lacks."""
        mine = self.transposed([a for a in axes if a in self.axes])
        return mine.data.reshape([mine.data.shape[mine.axes.index(a)] if a in mine.axes else 1 for a in axes])

    def renamed(self, names: dict[str, str]) -> Named:
        return Named(tuple(names.get(a, a) for a in self.axes), self.data)


def union(operands: Iterable[Named]) -> tuple[str, ...]:
    """The axes of all operands in order of first appearance."""
    return tuple(dict.fromkeys(a for x in operands for a in x.axes))


def refine(x: Named, coarse: str, fine: str, extent: int, ratio: int) -> Named:
    """`x` with its axis `coarse` read at fine // ratio; where it has `fine` already, along the diagonal of both."""
    at = np.arange(extent) // ratio
    if fine not in x.axes:
        return Named(tuple(fine if a == coarse else a for a in x.axes), x.data.take(at, axis=x.axes.index(coarse)))
    rest = [a for a in x.axes if a not in (coarse, fine)]
    data = x.transposed([coarse, fine, *rest]).data
    return Named((fine, *rest), data[at, np.arange(extent)]).transposed([a for a in x.axes if a != coarse])


def blocked(x: Named, fine: str, coarse: str, inner: str, ratio: int, fill: float | bool) -> Named:
    """`x` with axis `fine` cut into (`coarse`, `inner`); a short last block is filled up with `fill`."""
    i = x.axes.index(fine)
    extent = x.data.shape[i]
    blocks = -(-extent // ratio)
    data = x.data
    if blocks * ratio != extent:
        shape = list(data.shape)
        shape[i] = blocks * ratio - extent
        data = np.concatenate([data, np.full(shape, fill, dtype=np.result_type(data, type(fill)))], axis=i)
    shape = [*data.shape[:i], blocks, ratio, *data.shape[i + 1 :]]
    return Named((*x.axes[:i], coarse, inner, *x.axes[i + 1 :]), data.reshape(shape))


def reduced(x: Named, axes: Sequence[str], by: Callable[..., NDArray]) -> Named:
    """`x` with `axes` reduced by a NumPy reduction."""
    where = tuple(x.axes.index(a) for a in axes)
    return Named(tuple(a for a in x.axes if a not in axes), by(x.data, axis=where))


def contract(factors: Sequence[Named], axes: Sequence[str]) -> Named:
    """The product of all factors summed over `axes`, pair by pair, smallest result first. float64.

    Each of `axes` must occur in some factor.
    """
    work = [Named(f.axes, np.asarray(f.data, dtype=np.float64)) for f in factors]
    extents = {a: n for f in work for a, n in zip(f.axes, f.data.shape, strict=True)}
    while True:
        for i, f in enumerate(work):  # what only one factor has is summed at once
            mine = [a for a in axes if a in f.axes and not any(a in g.axes for g in work if g is not f)]
            if mine:
                work[i] = reduced(f, mine, np.sum)
        if len(work) == 1:
            return work[0]
        sizes = []
        for i, j in itertools.combinations(range(len(work)), 2):
            others = {a for k, g in enumerate(work) if k not in (i, j) for a in g.axes}
            kept = [extents[a] for a in union([work[i], work[j]]) if a not in axes or a in others]
            sizes.append((math.prod(kept), i, j))
        _, i, j = min(sizes)
        others = {a for k, g in enumerate(work) if k not in (i, j) for a in g.axes}
        both = _pair(work[i], work[j], [a for a in axes if a not in others])
        work = [g for k, g in enumerate(work) if k not in (i, j)] + [both]


def _pair(a: Named, b: Named, axes: Sequence[str]) -> Named:
    """a * b summed over those of `axes` that both have: a batched matrix product, so that BLAS does it."""
    inner = [x for x in axes if x in a.axes and x in b.axes]
    batch = [x for x in a.axes if x in b.axes and x not in inner]
    rows = [x for x in a.axes if x not in b.axes]
    columns = [x for x in b.axes if x not in a.axes]
    result = (*batch, *rows, *columns)
    if not inner:
        return Named(result, a.over(result) * b.over(result))
    left = a.transposed([*batch, *rows, *inner]).data
    right = b.transposed([*batch, *inner, *columns]).data
    lead, n = left.shape[: len(batch)], len(inner)
    k = math.prod(right.shape[len(batch) : len(batch) + n])
    r, c = left.shape[len(batch) : left.ndim - n], right.shape[len(batch) + n :]
    product = np.matmul(
        left.reshape(*lead, math.prod(r), k),
        right.reshape(*lead, k, math.prod(c)),
    )
    return Named(result, product.reshape((*lead, *r, *c)))


def gather(tensor: NDArray, indices: Sequence[Named]) -> Named:
    """tensor[i, j, ...] over the union of the indices' axes; an index out of range reads 0."""
    axes = union(indices)
    shape = np.broadcast_shapes(*(i.over(axes).shape for i in indices)) if indices else ()
    inside: NDArray = np.ones((1,) * len(axes), dtype=bool)
    places = []
    for extent, index in zip(tensor.shape, indices, strict=True):
        at = np.trunc(index.over(axes)).astype(np.int64) if index.data.dtype.kind == "f" else index.over(axes)
        ok = (at >= 0) & (at < extent)
        if not ok.all():
            inside = inside & ok
            at = np.where(ok, at, 0)
        places.append(at)
    if 0 in tensor.shape:
        return Named(axes, np.zeros(shape, dtype=tensor.dtype))
    data = tensor[tuple(places)]
    if not inside.all():
        data = np.where(inside, data, np.zeros((), dtype=tensor.dtype))
    return Named(axes, np.broadcast_to(data, shape))
