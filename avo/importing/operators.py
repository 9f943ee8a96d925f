"""What each operator of PyTorch is in the language: one function for each, by its name in ATen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from avo.importing.axes import extent, index, minus, over, plus, times
from avo.importing.values import FLOATS, Builder, Cannot, Operand, Value, axes_in, literal
from dsl.syntax import Binary, Call, Expr, Number, Unary

Result = Value | Sequence[Value] | Expr | int | float | None
Handler = Callable[..., Result]

OPERATORS: dict[str, Handler] = {}

_WIDTH = {"bool": 0, "int8": 1, "i32": 2, "e4m3": 3, "e5m2": 3, "f16": 4, "bf16": 4, "f32": 5, "f64": 6}


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Registers a handler `(builder, result dtype, *arguments of the schema by position)`."""

    def put(f: Handler) -> Handler:
        OPERATORS.update(dict.fromkeys(names, f))
        return f

    return put


def call(f: str, *args: Expr) -> Call:
    return Call(f, None, args)


# Elementwise ----------------------------------------------------------------------------------------------------------


def _unary(name: str, make: Callable[[Expr], Expr]) -> None:
    OPERATORS[name] = lambda b, dtype, x, *_: b.elementwise(make, dtype, x)


for _f in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "abs", "floor"):
    _unary(_f, lambda x, f=_f: call(f, x))  # type: ignore[misc]
_unary("relu", lambda x: call("relu", x))
_unary("silu", lambda x: call("silu", x))
_unary("neg", lambda x: Unary("-", x))
_unary("reciprocal", lambda x: Binary("/", Number(1.0), x))
_unary("square", lambda x: Binary("*", x, x))
_unary("log1p", lambda x: call("log", Binary("+", Number(1.0), x)))
_unary("logical_not", lambda x: negated(x))


def negated(x: Expr) -> Expr:
    return x.operand if isinstance(x, Unary) and x.op == "not" else Unary("not", x)


def _binary(op: str, *names: str) -> None:
    for name in names:
        OPERATORS[name] = lambda b, dtype, x, y, *_: b.elementwise(lambda p, q: Binary(op, p, q), dtype, x, y)


for _op, _name in (("==", "eq"), ("!=", "ne"), ("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge")):
    _binary(_op, _name)
_binary("*", "mul", "multiply")
_binary("%", "remainder")
_binary("//", "floor_divide")


@operator("add")
def _add(b: Builder, dtype: str, x: Operand, y: Operand, alpha: Operand = 1) -> Result:
    return b.elementwise(lambda p, q: plus(p, times(literal(alpha), q)), dtype, x, y)


@operator("sub")
def _sub(b: Builder, dtype: str, x: Operand, y: Operand, alpha: Operand = 1) -> Result:
    return b.elementwise(lambda p, q: minus(p, times(literal(alpha), q)), dtype, x, y)


@operator("rsub")
def _rsub(b: Builder, dtype: str, x: Operand, y: Operand, alpha: Operand = 1) -> Result:
    return _sub(b, dtype, y, x, alpha)


@operator("div", "divide", "true_divide")
def _div(b: Builder, dtype: str, x: Operand, y: Operand, rounding_mode: str | None = None) -> Result:
    if rounding_mode not in (None, "floor"):
        raise Cannot(f"div with rounding_mode={rounding_mode!r}", "the language has / and //")
    return b.elementwise(lambda p, q: Binary("//" if rounding_mode else "/", p, q), dtype, x, y)


@operator("pow")
def _pow(b: Builder, dtype: str, x: Operand, power: Operand) -> Result:
    if not isinstance(power, (int, float)):
        raise Cannot("a power that is no number", "exp(y * log(x))")
    whole = int(power) if float(power).is_integer() else None
    if power == 0.5:
        return b.elementwise(lambda p: call("sqrt", p), dtype, x)
    if power == -0.5:
        return b.elementwise(lambda p: call("rsqrt", p), dtype, x)
    if whole is None or not 1 <= abs(whole) <= 4:
        raise Cannot(f"the power {power}", "the language has products, sqrt and rsqrt")

    def product(p: Expr) -> Expr:
        e = p
        for _ in range(abs(whole) - 1):
            e = Binary("*", e, p)
        return e if whole > 0 else Binary("/", Number(1.0), e)

    return b.elementwise(product, dtype, x)


@operator("maximum", "minimum")
def _extreme(b: Builder, dtype: str, x: Operand, y: Operand, *, name: str = "") -> Result:
    return b.elementwise(lambda p, q: call(name[:3], p, q), dtype, x, y)


@operator("clamp", "clip", "clamp_min", "clamp_max")
def _clamp(b: Builder, dtype: str, x: Operand, low: Any = None, high: Any = None, *, name: str = "") -> Result:
    if name == "clamp_max":
        low, high = None, low
    if low is None:
        return b.elementwise(lambda p, q: call("min", p, q), dtype, x, high)
    if high is None:
        return b.elementwise(lambda p, q: call("max", p, q), dtype, x, low)
    return b.elementwise(lambda p, q, r: call("clamp", p, q, r), dtype, x, low, high)


@operator("logical_and", "bitwise_and", "__and__", "logical_or", "bitwise_or", "__or__")
def _logic(b: Builder, dtype: str, x: Operand, y: Operand, *, name: str = "") -> Result:
    if dtype != "bool":
        raise Cannot(f"{name} of integers", "the language has `and` and `or` of bools")
    return b.elementwise(lambda p, q: Binary(name.strip("_").rpartition("_")[2], p, q), dtype, x, y)


@operator("bitwise_not")
def _not(b: Builder, dtype: str, x: Value) -> Result:
    if dtype != "bool":
        raise Cannot("~ of integers")
    return b.elementwise(negated, dtype, x)


def chosen(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """`where`, with a negated condition turned round."""
    if isinstance(condition, Unary) and condition.op == "not":
        condition, yes, no = condition.operand, no, yes
    return call("where", condition, yes, no)


def select(b: Builder, dtype: str, condition: Operand, yes: Operand, no: Operand) -> Value:
    if isinstance(condition, Value) and not condition.is_input and b.light(condition.expr):
        seen = condition.expr  # so that a `not` in it is seen
        return b.elementwise(lambda c, p, q: chosen(seen if c == condition.ref else c, p, q), dtype, condition, yes, no)
    return b.elementwise(chosen, dtype, condition, yes, no)


@operator("where")
def _where(b: Builder, dtype: str, condition: Operand, yes: Operand, no: Operand) -> Result:
    return select(b, dtype, condition, yes, no)


@operator("masked_fill")
def _masked_fill(b: Builder, dtype: str, x: Value, mask: Value, value: Operand) -> Result:
    return select(b, dtype, mask, value, x)


@operator("softplus")
def _softplus(b: Builder, dtype: str, x: Value, beta: float = 1, threshold: float = 20) -> Result:
    if beta != 1:
        raise Cannot(f"softplus with beta={beta}", "softplus(beta * x) / beta")
    return b.elementwise(lambda p: call("softplus", p), dtype, x)


@operator("gelu")
def _gelu(b: Builder, dtype: str, x: Value, approximate: str = "none") -> Result:
    return b.elementwise(lambda p: call("gelu" if approximate == "none" else "gelu_tanh", p), dtype, x)


@operator("leaky_relu")
def _leaky(b: Builder, dtype: str, x: Value, slope: float = 0.01) -> Result:
    return b.elementwise(
        lambda p: call("where", Binary(">", p, Number(0.0)), p, Binary("*", p, Number(slope))), dtype, x
    )


# Dtypes and copies ----------------------------------------------------------------------------------------------------


@operator("contiguous", "clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "dropout")
def _same(b: Builder, dtype: str, x: Value, *rest: Any, name: str = "") -> Result:
    if name == "dropout" and rest[1] and rest[0]:
        raise Cannot("dropout in training", "call it with training=False; the language has no random numbers")
    return x


def cast(b: Builder, dtype: str, x: Value) -> Value:
    """To another dtype. One that only widens changes no value, so it is left out."""
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        return b.elementwise(lambda p: Binary("!=", p, Number(0)), "bool", x)
    if dtype in ("i32", "int8"):
        if x.dtype in FLOATS:
            raise Cannot(f"a cast of floats to {dtype}", "PyTorch cuts off, the language rounds: floor(x) first")
        return b.make(call("i32", x.ref) if x.dtype == "bool" else x.ref, x.dims, dtype)
    if dtype == "f64":
        raise Cannot("float64", "the widest dtype of a program is f32")
    wider = _WIDTH[dtype] > _WIDTH[x.dtype] and x.dtype in FLOATS
    return b.make(x.ref if wider or x.dtype in ("i32", "int8") else call(dtype, x.ref), x.dims, dtype)


@operator("to", "_to_copy", "type_as")
def _to(b: Builder, dtype: str, x: Value, *_: Any) -> Result:
    return cast(b, dtype, x)


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
    from avo.importing.axes import is_extent, number_of

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
    from avo.importing.axes import is_extent, number_of

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
        flat = index(axis) if flat == Number(0) else plus(times(flat, extent(axis)), index(axis))
    behind: Expr = Number(1)
    for place in range(len(old) - 1, -1, -1):
        at = over(flat, behind)
        to[old[place]] = at if place == 0 else Binary("%", at, extent(old[place]))
        behind = times(extent(old[place]), behind)
    return dims


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
    return _cat(b, dtype, [_unsqueeze(b, dtype, t, place) for t in tensors], place)  # type: ignore[misc]


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


# Reductions -----------------------------------------------------------------------------------------------------------


def _places(x: Value, given: Any) -> list[int]:
    if given is None or given == []:
        return list(range(len(x.dims)))
    return [given] if isinstance(given, int) else list(given)


@operator("sum", "mean", "amax", "amin", "any", "all")
def _reduce(b: Builder, dtype: str, x: Value, places: Any = None, keep: Any = False, *_: Any, name: str = "") -> Result:
    kind = name.removeprefix("a") if name in ("amax", "amin") else name
    return b.reduce(kind, x, _places(x, places), bool(keep), dtype)


@operator("max", "min")
def _max(b: Builder, dtype: str, x: Value, place: Any = None, keep: Any = False, *, name: str = "") -> Result:
    if isinstance(place, Value):
        return _extreme(b, dtype, x, place, name=name + "imum")
    if place is None:
        return b.reduce(name, x, range(len(x.dims)), False, dtype)
    best = b.reduce(name, x, [place], keep, dtype)
    if name == "min":
        return [best]
    axis = x.dims[place]
    where = Call("argmax", axes_in([axis]), (x.ref,)) if axis is not None else Number(0)
    return [best, b.make(where, best.dims, "i32")]


@operator("prod")
def _prod(b: Builder, dtype: str, x: Value, place: Any = None, keep: Any = False, *_: Any) -> Result:
    return b.reduce("prod", x, _places(x, place), bool(keep), dtype)


@operator("argmax")
def _argmax(b: Builder, dtype: str, x: Value, place: Any = None, keep: Any = False) -> Result:
    if place is None:
        raise Cannot("argmax over all of a tensor", "give it a dim")
    return b.reduce("argmax", x, [place], bool(keep), dtype)


@operator("cumsum")
def _cumsum(b: Builder, dtype: str, x: Value, place: int, *_: Any) -> Result:
    return b.along("runsum", x, place, dtype)


@operator("var", "std", "var_mean")
def _var(
    b: Builder, dtype: str, x: Value, places: Any = None, correction: Any = None, keep: Any = False, *, name: str = ""
) -> Result:
    if isinstance(places, bool):  # the oldest form: var(x, unbiased)
        places, correction = None, places
    chosen_ = _places(x, places)
    mean = b.reduce("mean", x, chosen_, True, dtype)
    mean.forced = True
    gap = b.elementwise(lambda p, q: Binary("-", p, q), dtype, x, mean)
    gap.forced = True
    squares = b.elementwise(lambda p: Binary("*", p, p), dtype, gap)
    if correction is None or int(correction) == 1:
        count: Expr = Number(1)
        for p in chosen_:
            count = times(count, length(b, x.dims[p]))
        total = b.reduce("sum", squares, chosen_, keep, dtype)
        spread = b.elementwise(lambda p: Binary("/", p, minus(count, Number(1))), dtype, total)
    elif int(correction) == 0:
        spread = b.reduce("mean", squares, chosen_, keep, dtype)
    else:
        raise Cannot(f"var with correction={correction}")
    if name == "std":
        return b.elementwise(lambda p: call("sqrt", p), dtype, spread)
    if name == "var_mean":
        return [spread, b.reduce("mean", x, chosen_, keep, dtype)]
    return spread


@operator("linalg_vector_norm", "norm")
def _norm(b: Builder, dtype: str, x: Value, order: Any = 2, places: Any = None, keep: Any = False, *_: Any) -> Result:
    if order not in (None, 2, 2.0):
        raise Cannot(f"a norm of order {order}", "sum(x * x).sqrt() is that of order 2")
    squares = b.elementwise(lambda p: Binary("*", p, p), dtype, x)
    total = b.reduce("sum", squares, _places(x, places), bool(keep), dtype)
    return b.elementwise(lambda p: call("sqrt", p), dtype, total)


@operator("softmax", "_softmax")
def _softmax(b: Builder, dtype: str, x: Value, place: int, *_: Any) -> Result:
    return b.along("softmax", x, place, dtype)


@operator("logsumexp")
def _logsumexp(b: Builder, dtype: str, x: Value, places: Any, keep: Any = False) -> Result:
    return logsumexp(b, dtype, x, _places(x, places), bool(keep))


def logsumexp(b: Builder, dtype: str, x: Value, places: Sequence[int], keep: bool) -> Value:
    top = b.reduce("max", x, places, True, dtype)
    top.forced = True
    weights = b.elementwise(lambda p, q: call("exp", Binary("-", p, q)), dtype, x, top)
    total = b.reduce("sum", weights, places, keep, dtype)
    if not keep:
        gone = {p % len(x.dims) for p in places}
        top = b.make(top.ref, [d for p, d in enumerate(top.dims) if p not in gone], dtype)
    return b.elementwise(lambda p, q: Binary("+", p, call("log", q)), dtype, top, total)


@operator("log_softmax", "_log_softmax")
def _log_softmax(b: Builder, dtype: str, x: Value, place: int, *_: Any) -> Result:
    whole = logsumexp(b, dtype, x, [place], True)
    whole.forced = True
    return b.elementwise(lambda p, q: Binary("-", p, q), dtype, x, whole)
