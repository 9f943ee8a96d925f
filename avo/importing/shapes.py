"""Operators that change shapes, make constants, or read by position: where each axis of the result comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from avo.importing.axes import extent, index, is_extent, minus, number_of, over, plus, times
from avo.importing.operators import Result, call, operator
from avo.importing.values import FLOATS, Builder, Cannot, Operand, Value, literal
from dsl.syntax import Binary, Call, Expr, Number, Unary

# Shapes ---------------------------------------------------------------------------------------------------------------


@operator("transpose", "swapaxes")
def _transpose(b: Builder, dtype: str, x: Value, p: int, q: int) -> Result:
    dims = list(x.dims)
    dims[p], dims[q] = dims[q], dims[p]
    return b.make(x.ref, dims, dtype)


@operator("t", "numpy_T", "mT")
def _t(b: Builder, dtype: str, x: Value) -> Result:
    return b.make(x.ref, x.dims[::-1] if len(x.dims) <= 2 else (*x.dims[:-2], x.dims[-1], x.dims[-2]), dtype)


@operator("permute")
def _permute(b: Builder, dtype: str, x: Value, order: Sequence[int]) -> Result:
    return b.make(x.ref, [x.dims[p] for p in order], dtype)


@operator("unsqueeze")
def _unsqueeze(b: Builder, dtype: str, x: Value, place: int) -> Result:
    place %= len(x.dims) + 1
    return b.make(x.ref, (*x.dims[:place], None, *x.dims[place:]), dtype)


@operator("squeeze")
def _squeeze(b: Builder, dtype: str, x: Value, places: Any = None) -> Result:
    chosen_ = range(len(x.dims)) if places is None else [places] if isinstance(places, int) else places
    gone = {p % len(x.dims) for p in chosen_}
    return b.make(x.ref, [d for p, d in enumerate(x.dims) if p not in gone or d is not None], dtype)


@operator("expand")
def _expand(b: Builder, dtype: str, x: Value, sizes: Sequence[Operand], *_: Any) -> Result:
    dims: list[int | None] = []
    padded = (None,) * (len(sizes) - len(x.dims)) + x.dims
    for d, n in zip(padded, sizes, strict=True):
        if d is None and n not in (1, -1):
            d = b.axes.new(size_of(b, n), literal(n))
        dims.append(d)
    return b.make(x.ref, dims, dtype)


@operator("expand_as")
def _expand_as(b: Builder, dtype: str, x: Value, y: Value) -> Result:
    return b.make(
        x.ref,
        y.dims[: len(y.dims) - len(x.dims)]
        + tuple(q if p is None else p for p, q in zip(x.dims, y.dims[len(y.dims) - len(x.dims) :], strict=True)),
        dtype,
    )


def size_of(b: Builder, n: Operand) -> int:
    """How much an expression of extents is in the example."""
    match literal(n):
        case Number(value):
            return int(value)
        case Unary("-", x):
            return -size_of(b, x)
        case Binary(op, x, y) if op in ("+", "-", "*", "//", "%"):
            p, q = size_of(b, x), size_of(b, y)
            return {"+": p + q, "-": p - q, "*": p * q}.get(op) or (p // q if op == "//" else p % q if op == "%" else 0)
        case Call(f, None, args) if f in ("min", "max"):
            return (min if f == "min" else max)(size_of(b, a) for a in args)
        case name if hasattr(name, "id") and is_extent(name.id):
            return b.axes.size(number_of(name.id))
    raise Cannot("a size that is computed from values")


def length(b: Builder, d: int | None) -> Expr:
    """The extent of a dimension, by what fixes it."""
    return Number(1) if d is None else b.axes.free(d) or extent(d)


@operator("view", "reshape", "_unsafe_view", "view_copy")
def _view(b: Builder, dtype: str, x: Value, sizes: Sequence[Operand]) -> Result:
    return reshape(b, x, list(sizes))


@operator("flatten")
def _flatten(b: Builder, dtype: str, x: Value, start: int = 0, end: int = -1) -> Result:
    start, end = start % len(x.dims), end % len(x.dims)
    whole = [length(b, d) for d in x.dims]
    return reshape(b, x, [*whole[:start], -1, *whole[end + 1 :]])


@operator("unflatten")
def _unflatten(b: Builder, dtype: str, x: Value, place: int, sizes: Sequence[Operand]) -> Result:
    place %= len(x.dims)
    whole = [length(b, d) for d in x.dims]
    return reshape(b, x, [*whole[:place], *sizes, *whole[place + 1 :]])


def reshape(b: Builder, x: Value, sizes: list[Operand]) -> Value:
    """Dimensions of the two shapes are paired from the left: what stays, what one is cut into, what several become."""
    old = [1 if d is None else b.axes.size(d) for d in x.dims]
    new = [-1 if n == -1 else size_of(b, n) for n in sizes]
    if -1 in new:
        at = new.index(-1)
        new[at] = math.prod(old) // max(1, -math.prod(new))
        others = sorted((literal(n) for i, n in enumerate(sizes) if i != at), key=lambda n: isinstance(n, Number))
        whole: Expr = Number(1)
        for d in x.dims:
            whole = times(whole, length(b, d))
        sizes = [*sizes]
        for n in others:
            whole = _shorter(b, whole, n)
        sizes[at] = whole
    dims: list[int | None] = []
    to: dict[int, Expr] = {}
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and old[i] == 1:
            i += 1
            continue
        if j < len(new) and new[j] == 1:
            dims.append(None)
            j += 1
            continue
        if i >= len(old) or j >= len(new):
            raise Cannot("this change of shape")
        p, q = i + 1, j + 1
        while math.prod(old[i:p]) != math.prod(new[j:q]):
            if math.prod(old[i:p]) < math.prod(new[j:q]):
                p += 1
            else:
                q += 1
            if p > len(old) or q > len(new):
                raise Cannot("this change of shape")
        dims += _regroup(b, x, [d for d in x.dims[i:p] if d is not None], sizes[j:q], new[j:q], to)
        i, j = p, q
    return b.make(b.moved(x.ref, to) if to else x.ref, dims, x.dtype)


def _shorter(b: Builder, whole: Expr, n: Expr) -> Expr:
    """whole // n, with a factor taken out where it is one."""
    if whole == n:
        return Number(1)
    if isinstance(whole, Binary) and whole.op == "*":
        for mine, other in ((whole.left, whole.right), (whole.right, whole.left)):
            if mine == n or (_same_extent(b, mine, n)):
                return other
        left = _shorter(b, whole.left, n)
        if left != over(whole.left, n):
            return times(left, whole.right)
    return over(whole, n)


def _same_extent(b: Builder, x: Expr, y: Expr) -> bool:
    ids = [getattr(e, "id", "") for e in (x, y)]
    return all(map(is_extent, ids)) and b.axes.same(*(number_of(i) for i in ids))


def _regroup(
    b: Builder, x: Value, old: list[int], sizes: Sequence[Operand], new: Sequence[int], to: dict[int, Expr]
) -> list[int | None]:
    """The axes of one group; `to` says where the old ones are read."""
    if len(old) == 1 and sum(n != 1 for n in new) == 1:
        return [old[0] if n != 1 else None for n in new]
    kept = [n for n in new if n != 1]
    virtual = [d for d in old if b.axes.find(d) not in b.depends(x.ref)]
    if len(kept) == 1 and len(old) == 2 and virtual == [old[1]]:
        merged = b.axes.new(kept[0], times(extent(old[0]), extent(old[1])))
        if b.axes.link(old[0], merged):  # each of `old[0]` is repeated: grouped heads
            return [merged if n != 1 else None for n in new]
        to[old[0]] = over(index(merged), extent(old[1]))
        return [merged if n != 1 else None for n in new]
    dims: list[int | None] = []
    flat: Expr = Number(0)
    for n, size in zip(new, sizes, strict=True):
        if n == 1:
            dims.append(None)
            continue
        axis = b.axes.new(n, literal(size))
        dims.append(axis)
        flat = index(axis) if flat == Number(0) else plus(times(flat, _written(b, axis)), index(axis))
    behind: Expr = Number(1)
    for place in range(len(old) - 1, -1, -1):
        at = over(flat, behind)
        to[old[place]] = at if place == 0 else Binary("%", at, _written(b, old[place]))
        behind = times(_written(b, old[place]), behind)
    return dims


def _written(b: Builder, axis: int) -> Expr:
    """The extent of an axis, as a number where it is one: of what a function stacks or cuts into so many."""
    known = b.axes.free(axis)
    return known if isinstance(known, Number) else extent(axis)


@operator("repeat_interleave")
def _repeat(b: Builder, dtype: str, x: Value, times_: Any, place: Any = None, *_: Any) -> Result:
    if place is None or isinstance(times_, Value):
        raise Cannot("repeat_interleave without dim, or by a tensor", "give a number and a dim")
    place %= len(x.dims)
    old = x.dims[place]
    if old is None:
        return _expand(b, dtype, x, [*([-1] * place), times_, *([-1] * (len(x.dims) - place - 1))])
    merged = b.axes.new(b.axes.size(old) * size_of(b, times_), times(extent(old), literal(times_)))
    dims = (*x.dims[:place], merged, *x.dims[place + 1 :])
    if b.axes.link(old, merged):
        return b.make(x.ref, dims, dtype)
    return b.make(b.moved(x.ref, {old: over(index(merged), literal(times_))}), dims, dtype)


def part(b: Builder, x: Value, place: int, start: Expr, stop: Expr, step: int = 1) -> Value:
    """x[start:stop:step] along one dimension; both ends are inside."""
    old = x.dims[place]
    if old is None:
        return x
    if start == Number(0) and step == 1 and size_of(b, stop) == b.axes.size(old):
        return x
    whole = length(b, old)
    if isinstance(stop, Number) and not isinstance(whole, Number):  # a number may lie beyond the end
        stop = call("min", stop, whole)
    n = minus(stop, start)
    if step != 1:
        n = over(plus(n, Number(step - 1)), Number(step))
    axis = b.axes.new(size_of(b, n), n)
    at = plus(times(index(axis), Number(step)), start)
    return b.make(b.moved(x.ref, {old: at}), (*x.dims[:place], axis, *x.dims[place + 1 :]), x.dtype)


@operator("slice")
def _slice(
    b: Builder, dtype: str, x: Value, place: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Result:
    place %= len(x.dims)
    whole = length(b, x.dims[place])
    return part(b, x, place, _end(b, start, whole, Number(0)), _end(b, end, whole, whole), int(step))


def _end(b: Builder, given: Any, whole: Expr, default: Expr) -> Expr:
    if given is None or (isinstance(given, int) and given >= size_of(b, whole)):
        return default if given is None else whole
    if size_of(b, given) < 0:
        return plus(whole, literal(given)) if isinstance(given, int) else Binary("+", whole, given)
    return literal(given)


@operator("narrow")
def _narrow(b: Builder, dtype: str, x: Value, place: int, start: Any, n: Any) -> Result:
    return part(b, x, place % len(x.dims), literal(start), plus(literal(start), literal(n)))


@operator("select")
def _select(b: Builder, dtype: str, x: Value, place: int, at: Any) -> Result:
    place %= len(x.dims)
    old = x.dims[place]
    dims = (*x.dims[:place], *x.dims[place + 1 :])
    if old is None:
        return b.make(x.ref, dims, dtype)
    where = literal(at) if size_of(b, at) >= 0 else plus(extent(old), literal(at))
    return b.make(b.moved(x.ref, {old: where}), dims, dtype)


@operator("split", "split_with_sizes", "chunk", "unbind")
def _split(b: Builder, dtype: str, x: Value, given: Any = 0, place: Any = 0, *, name: str = "") -> Result:
    if name == "unbind":
        n = b.axes.size(x.dims[given]) if x.dims[given] is not None else 1
        return [_select(b, dtype, x, given, i) for i in range(n)]  # type: ignore[misc]
    place %= len(x.dims)
    whole = length(b, x.dims[place])
    total = size_of(b, whole)
    if isinstance(given, (list, tuple)):
        lengths = [literal(g) for g in given]
    elif name == "chunk":
        size = -(-total // given)
        count = -(-total // size)
        each: Expr = over(whole, Number(given)) if total % given == 0 else Number(size)
        lengths = [each] * (count - 1)
        lengths.append(minus(whole, times(Number(count - 1), each)) if total % given else each)
    else:
        size = size_of(b, given)
        lengths = [literal(given)] * (total // size) + ([Number(total % size)] if total % size else [])
    parts, start = [], Number(0)
    for n_ in lengths:
        stop = plus(start, n_)
        parts.append(part(b, x, place, start, stop))
        start = stop  # type: ignore[assignment]
    return parts


@operator("cat", "concat", "concatenate")
def _cat(b: Builder, dtype: str, tensors: Sequence[Value], place: int = 0) -> Result:
    rank = len(tensors[0].dims)
    place %= rank
    n: Expr = Number(0)
    starts: list[Expr] = []
    for t in tensors:
        starts.append(n)
        n = plus(n, length(b, t.dims[place]))
    axis = b.axes.new(size_of(b, n), n)
    pieces = []
    for t, start in zip(tensors, starts, strict=True):
        dims = (*t.dims[:place], axis, *t.dims[place + 1 :])
        old = t.dims[place]
        at = minus(index(axis), start)
        pieces.append(b.make(t.ref if old is None else b.moved(t.ref, {old: at}), dims, dtype))

    def joined(*parts: Expr) -> Expr:
        e = parts[-1]
        for p, stop in zip(parts[-2::-1], starts[:0:-1], strict=True):
            e = call("where", Binary("<", index(axis), stop), p, e)
        return e

    return b.elementwise(joined, dtype, *pieces)


@operator("stack")
def _stack(b: Builder, dtype: str, tensors: Sequence[Value], place: int = 0) -> Result:
    return _cat(b, dtype, [_unsqueeze(b, dtype, t, place) for t in tensors], place)


@operator("flip")
def _flip(b: Builder, dtype: str, x: Value, places: Sequence[int]) -> Result:
    to = {d: minus(minus(extent(d), Number(1)), index(d)) for p in places if (d := x.dims[p]) is not None}
    return b.make(b.moved(x.ref, to), x.dims, dtype)


@operator("roll")
def _roll(b: Builder, dtype: str, x: Value, shifts: Sequence[int], places: Sequence[int] = ()) -> Result:
    if not places:
        raise Cannot("roll without dims")
    to = {}
    for s, p in zip(shifts, places, strict=True):
        if (d := x.dims[p]) is not None:
            to[d] = Binary("%", minus(index(d), literal(s)), extent(d))
    return b.make(b.moved(x.ref, to), x.dims, dtype)


# Constants and masks --------------------------------------------------------------------------------------------------


def constant(b: Builder, dtype: str, sizes: Sequence[Operand], value: Operand) -> Value:
    dims = [None if n == 1 else b.axes.new(size_of(b, n), literal(n)) for n in sizes]
    if dtype == "bool":
        value = bool(value)
    elif dtype in FLOATS and isinstance(value, int):
        value = float(value)
    return b.make(literal(value), dims, dtype)


@operator("ones", "zeros", "full")
def _full(b: Builder, dtype: str, sizes: Sequence[Operand], value: Any = None, *_: Any, name: str = "") -> Result:
    return constant(b, dtype, sizes, value if name == "full" else int(name == "ones"))


@operator("scalar_tensor")
def _scalar(b: Builder, dtype: str, value: Operand, *_: Any) -> Result:
    return constant(b, dtype, [], value)


@operator("ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full")
def _like(b: Builder, dtype: str, x: Value, given: Any = None, value: Any = None, *_: Any, name: str = "") -> Result:
    if name.startswith("new"):
        return constant(b, dtype, given, value if name == "new_full" else int(name == "new_ones"))
    made = constant(b, dtype, [], given if name == "full_like" else int(name == "ones_like"))
    return b.make(made.expr, x.dims, dtype)


@operator("arange")
def _arange(b: Builder, dtype: str, *given: Any) -> Result:
    numbers = [g for g in given if g is not None and not isinstance(g, bool)][:3]
    if dtype in FLOATS and not all(isinstance(g, Expr | int) for g in numbers):
        raise Cannot("arange of fractions", "arange of whole numbers, then multiply")
    start, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    n = minus(literal(stop), literal(start))
    if step != 1:
        n = over(plus(n, Number(step - 1)), literal(step))
    axis = b.axes.new(size_of(b, n), n)
    return b.make(plus(times(index(axis), literal(step)), literal(start)), (axis,), dtype)


@operator("tril", "triu")
def _triangle(b: Builder, dtype: str, x: Value, diagonal: Any = 0, *, name: str = "") -> Result:
    rows, columns = x.dims[-2:]
    if rows is None or columns is None:
        raise Cannot(f"{name} of one row or column")
    m, n = index(rows), index(columns)
    shifted = plus(m, literal(diagonal))  # below: n - m <= diagonal; above: n - m >= diagonal
    keep = Binary(">=", shifted, n) if name == "tril" else Binary("<=", shifted, n)
    if dtype == "bool":
        return b.make(keep if b.source(x).expr == literal(True) else Binary("and", keep, x.ref), x.dims, dtype)
    zero = Number(0) if dtype in ("i32", "int8") else Number(0.0)
    return b.make(call("where", keep, x.ref, zero), x.dims, dtype)


# Reading by position --------------------------------------------------------------------------------------------------


@operator("gather")
def _gather(b: Builder, dtype: str, x: Value, place: int, at: Value, *_: Any) -> Result:
    place %= len(x.dims)
    axis = x.dims[place]
    if axis is None:
        raise Cannot("gather along a dimension of length 1")
    for p, (d, i) in enumerate(zip(x.dims, at.dims, strict=True)):
        if p != place and d is not None and i is not None and not b.axes.unify(d, i):
            raise Cannot("gather whose index is shorter than its operand")
    dims = tuple(
        i if p == place else d if i is not None else None for p, (d, i) in enumerate(zip(x.dims, at.dims, strict=True))
    )
    return b.make(b.moved(x.ref, {axis: at.ref}), dims, dtype)


@operator("index_select", "embedding")
def _index_select(b: Builder, dtype: str, x: Value, place: Any, at: Any, *_: Any, name: str = "") -> Result:
    if name == "embedding":
        place, at = 0, place
    return _index(b, dtype, x, [None] * (place % len(x.dims)) + [at])


@operator("index")
def _index(b: Builder, dtype: str, x: Value, given: Sequence[Value | None]) -> Result:
    tensors = [(p, t) for p, t in enumerate(given) if t is not None]
    if any(t.dtype == "bool" for _, t in tensors):
        raise Cannot("indexing by a mask", "the shape of the result depends on values; use where")
    places = [p for p, _ in tensors]
    if places != list(range(places[0], places[-1] + 1)):
        raise Cannot("indices with a slice between them")
    dims, moved = b.broadcast([t for _, t in tensors])
    to: dict[int, Expr] = {}
    for p, t in zip(places, moved, strict=True):
        axis = x.dims[p]
        if axis is not None:
            to[axis] = t.ref
    b.axes.held([*dims, *x.dims])
    shared = {b.axes.find(d) for d in dims if d is not None} & {b.axes.find(d) for d in x.dims if d is not None}
    if shared - {b.axes.find(a) for a in to}:
        raise Cannot("an index along an axis of what it indexes")
    kept = (*x.dims[: places[0]], *dims, *x.dims[places[-1] + 1 :])
    return b.make(b.moved(x.ref, to), kept, dtype)
