"""Traced tensors as expressions of the language: one `Value` for each result, dimensions that are axes, references.

A value is named `@7` in the expressions that use it; whether it becomes a statement or is written in place is decided
at the end. A dimension of length 1 is None: it broadcasts and has no axis. A value may have a dimension that its
expression does not mention (after `expand`): the language broadcasts it wherever it meets one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from avo.importing.axes import Axes, extent, index, is_axis, is_extent, number_of, over
from dsl.expressions import ARITY
from dsl.syntax import AxisIn, Binary, Bool, Call, Expr, Name, Number, Read, Unary

FLOATS = ("f32", "f16", "bf16", "e4m3", "e5m2", "f64")
NARROW = ("f16", "bf16", "e4m3", "e5m2")
ELEMENTWISE = frozenset((*ARITY, "f32", *NARROW))


class Cannot(Exception):
    """The language, or this tracer, has no words for it. `instead`: what to write."""

    def __init__(self, what: str, instead: str = "") -> None:
        super().__init__(what + (f"; {instead}" if instead else ""))


@dataclass(eq=False)
class Value:
    """dims: an axis for each dimension, None for length 1. dtype: torch's, by the language's name.

    named: what the person calls it, if they do. declare: the statement rounds to `dtype`. forced: it is a statement.
    """

    id: int
    expr: Expr
    dims: tuple[int | None, ...]
    dtype: str
    line: int = 0
    named: str = ""
    declare: bool = False
    forced: bool = False
    is_input: bool = False

    @property
    def ref(self) -> Name:
        return Name(f"@{self.id}")


Operand = Value | int | float | bool | Expr


def is_value(name: str) -> bool:
    return name.startswith("@")


class Builder:
    """Makes values; knows which axes each depends on."""

    def __init__(self) -> None:
        self.axes = Axes()
        self.values: list[Value] = []
        self.line = 0
        self._written: dict[tuple[Expr, str], Value] = {}
        self._known: dict[tuple[Expr, tuple[int | None, ...], str], Value] = {}  # what is written twice is one value
        self.notes: list[tuple[int, str]] = []
        self.products: list[tuple[Value, Value, Value, tuple[int, ...]]] = []  # (result, operands, summed axes)

    def make(self, expr: Expr, dims: Sequence[int | None], dtype: str) -> Value:
        roots = tuple(None if d is None else self.axes.find(d) for d in dims)
        if (known := self._known.get((expr, roots, dtype))) is not None:
            return known
        whole = self._written.get((expr, dtype))
        if whole is not None and not isinstance(expr, Name | Number):
            expr = whole.ref
        value = Value(len(self.values), expr, tuple(dims), dtype, self.line)
        self.values.append(value)
        self._known[expr, roots, dtype] = value
        self._written.setdefault((expr, dtype), value)
        self.axes.held(dims)
        return value

    def note(self, text: str) -> None:
        if (self.line, text) not in self.notes:
            self.notes.append((self.line, text))

    def at(self, name: str) -> Value:
        """The value that a reference names."""
        return self.values[int(name[1:])]

    # What an expression depends on ------------------------------------------------------------------------------------

    def shape(self, value: Value) -> tuple[int, ...]:
        """The axes of a value that its expression has, as its statement would list them."""
        has = [self.axes.find(d) for d in value.dims if d is not None]
        if value.is_input:
            return tuple(has)
        needs = self.depends(value.expr)
        coarse = {self.axes.finer(a): a for a in needs if self.axes.finer(a) is not None}
        # a repeated head has the axis of the repetitions, and its expression that of what is repeated
        return tuple(a if a in needs else coarse[a] for a in has if a in needs or a in coarse)

    def depends(self, e: Expr) -> list[int]:
        """The axes of an expression's value."""
        match e:
            case Name(id) if is_value(id):
                return list(self.shape(self.at(id)))
            case Name(id) if is_axis(id):
                return [self.axes.find(number_of(id))]
            case Unary(_, x):
                return self.depends(x)
            case Binary(_, x, y):
                return self.axes.absorbed([*self.depends(x), *self.depends(y)])
            case Read(_, indices):
                return self.axes.absorbed([a for i in indices for a in self.depends(i)])
            case Call(f, axes, args, _):
                found = self.axes.absorbed([a for x in args for a in self.depends(x)])
                if axes is None or f in ("softmax", "runsum", "runmax", "topk", "bottomk"):
                    return found
                gone = {self.axes.find(number_of(a.axis)) for a in axes}
                return [a for a in found if a not in gone]
        return []

    # Substitution -----------------------------------------------------------------------------------------------------

    def moved(self, e: Expr, to: Mapping[int, Expr]) -> Expr:
        """The expression with axes replaced by index expressions, at once. Values that move are read by position."""
        to = {self.axes.find(a): x for a, x in to.items()}
        for a in list(to):  # the blocks of an axis move with it
            for c, (fine, ratio) in self.axes.coarse.items():
                if self.axes.find(fine) == a and self.axes.find(c) not in to:
                    to[self.axes.find(c)] = over(to[a], ratio)
        return self._moved(e, to)

    def _moved(self, e: Expr, to: Mapping[int, Expr]) -> Expr:
        match e:
            case Name(id) if is_axis(id):
                return to.get(self.axes.find(number_of(id)), e)
            case Name(id) if is_value(id):
                return self._moved_value(self.at(id), to)
            case Unary(op, x):
                return Unary(op, self._moved(x, to))
            case Binary(op, x, y):
                return _folded(Binary(op, self._moved(x, to), self._moved(y, to)), e)
            case Read(t, indices):
                return Read(t, tuple(self._moved(i, to) for i in indices))
            case Call(f, axes, args, keywords):
                if axes is not None and any(self.axes.find(number_of(a.axis)) in to for a in axes):
                    raise Cannot("this reads a reduced value by position")
                return Call(f, axes, tuple(self._moved(a, to) for a in args), keywords)
        return e

    def _moved_value(self, value: Value, to: Mapping[int, Expr]) -> Expr:
        shape = self.shape(value)
        if not any(a in to for a in shape):
            return value.ref
        alias = isinstance(value.expr, Name) and is_value(value.expr.id)
        if not value.is_input and not value.declare and (alias or self.light(value.expr)):
            return self._moved(value.expr, to)
        value.forced = value.forced or not value.is_input
        return Read(f"@{value.id}", tuple(to.get(a, index(a)) for a in shape))

    def light(self, e: Expr) -> bool:
        """Whether it is no more than a few elementwise operations, so that it may be written twice."""
        match e:
            case Name(id) if is_value(id):
                value = self.at(id)
                return value.is_input or value.forced or (not value.declare and self.light(value.expr))
            case Unary(_, x):
                return self.light(x)
            case Binary(_, x, y):
                return self.light(x) and self.light(y)
            case Read(_, indices):
                return all(self.light(i) for i in indices)
            case Call(f, None, args, _):
                return f in ELEMENTWISE and all(self.light(a) for a in args)
            case Call():
                return False
        return True

    def rename(self, value: Value, to: Mapping[int, int]) -> Value:
        """The same values along other axes: `x[s c]` as `x[n c]`."""
        roots = {self.axes.find(a): b for a, b in to.items()}
        expr = self.moved(value.ref, {a: index(b) for a, b in roots.items()})
        dims = tuple(None if d is None else roots.get(self.axes.find(d), d) for d in value.dims)
        return self.make(expr, dims, value.dtype)

    def twin(self, axis: int, hint: str = "") -> int:
        """Another axis of the same length."""
        return self.axes.new(self.axes.size(axis), extent(axis), hint, 1)

    # Elementwise ------------------------------------------------------------------------------------------------------

    def broadcast(self, values: Sequence[Value]) -> tuple[tuple[int | None, ...], list[Value]]:
        """The dimensions that the values share after PyTorch's rules, and the values along exactly those axes."""
        axes, rank = self.axes, max(len(v.dims) for v in values)
        padded = [(None,) * (rank - len(v.dims)) + v.dims for v in values]
        moves: list[dict[int, int]] = [{} for _ in values]
        out: list[int | None] = []
        for column in zip(*padded, strict=True):
            present = [d for d in column if d is not None]
            chosen = axes.find(present[0]) if present else None
            if chosen is not None and chosen in [axes.find(o) for o in out if o is not None]:
                chosen = self.twin(chosen)  # `i[:, None] >= i[None, :]`: a result has an axis once
            axes.held([*out, chosen])
            for d, move in zip(column, moves, strict=True):
                if d is None or chosen is None or axes.same(d, chosen):
                    continue
                if axes.size(d) != axes.size(chosen):
                    raise Cannot(f"axes of {axes.size(d)} and {axes.size(chosen)} meet")
                if not axes.unify(chosen, d):
                    move[axes.find(d)] = chosen
            out.append(chosen)
        found = [self.rename(v, m) if m else v for v, m in zip(values, moves, strict=True)]
        return tuple(out), found

    def elementwise(self, make: Callable[..., Expr], dtype: str, *operands: Operand) -> Value:
        """`make` of the operands' expressions, broadcast. Numbers and extents go in as they are."""
        tensors = [o for o in operands if isinstance(o, Value)]
        dims, moved = self.broadcast(tensors) if tensors else ((), [])
        queue = iter(moved)
        parts = [next(queue).ref if isinstance(o, Value) else literal(o) for o in operands]
        return self.make(make(*parts), dims, dtype)

    # Reductions -------------------------------------------------------------------------------------------------------

    def reduce(self, kind: str, x: Value, places: Iterable[int], keep: bool, dtype: str) -> Value:
        """`kind[axes](x)` over dimensions of x."""
        where = sorted({p % len(x.dims) for p in places} if x.dims else ())
        over_ = [d for p in where if (d := x.dims[p]) is not None]
        has = self.depends(x.ref)
        absent = [d for d in over_ if self.axes.find(d) not in has]
        if absent and kind not in ("max", "min", "mean", "any", "all"):
            raise Cannot(f"{kind} over a dimension that `expand` made", "multiply by its length")
        over_ = [d for d in over_ if d not in absent]
        e = Call(kind, axes_in(over_), (x.ref,)) if over_ else x.ref
        dims = [None if p in where else d for p, d in enumerate(x.dims) if keep or p not in where]
        return self.make(e, dims, dtype)

    def along(self, function: str, x: Value, place: int, dtype: str) -> Value:
        """What keeps the dimension that it goes along: softmax, runsum."""
        axis = x.dims[place]
        if axis is None or self.axes.find(axis) not in self.depends(x.ref):
            raise Cannot(f"{function} along a dimension of length 1")
        return self.make(Call(function, axes_in([axis]), (x.ref,)), x.dims, dtype)

    # Contractions -----------------------------------------------------------------------------------------------------

    def declared(self, e: Expr) -> str:
        """The dtype that a contraction finds declared; "" where none is."""
        match e:
            case Name(id) if is_value(id):
                value = self.at(id)
                if value.is_input or value.declare:
                    return value.dtype
                return "" if value.forced else self.declared(value.expr)
            case Read(t, _):
                return self.declared(Name(t))
            case Call(f, None, _, _) if f in FLOATS:
                return f
        return ""

    def contract(self, a: Value, b: Value, inner: Sequence[int], dims: Sequence[int | None], dtype: str) -> Value:
        """sum[inner](a * b), with the operands' dtypes as the language wants them."""
        parts: list[Expr] = [a.ref, b.ref]
        mine = [self.declared(p) for p in parts]
        for i, other in ((0, 1), (1, 0)):
            stripped = self._uncast(parts[i], mine[other])
            if stripped is not None:  # a contraction rounds an undeclared operand to the other's dtype by itself
                parts[i], mine[i] = stripped, ""
        if mine == ["", ""] and dtype in NARROW:
            # as PyTorch rounds them; but weights of a softmax only where there is no other way
            sources = [self.source(v) for v in (a, b)]
            weights = [self.exponential(s.expr) for s in sources]
            for i, source in enumerate(sources):
                if not weights[i] or (all(weights) and i == 1):
                    source.declare = source.forced = True
                    mine[i] = source.dtype
        if mine[0] != mine[1] and all(mine):  # floats meet in f32, whole numbers become the other's floats
            parts = [
                Call(o, None, (p,)) if m not in FLOATS and o in FLOATS else Call("f32", None, (p,)) if wide else p
                for p, m, o in zip(parts, mine, mine[::-1], strict=True)
                for wide in [m in NARROW and o in FLOATS]
            ]
        elif dtype == "f32" and sorted(mine)[0] == "" and sorted(mine)[1] in NARROW:
            narrow = max(mine)
            self.note(
                f"a product in float32 there; here its computed operand may be rounded to {narrow}, as the other is"
            )
        result = self.make(Call("sum", axes_in(inner), (Binary("*", parts[0], parts[1]),)), dims, dtype)
        self.products.append((result, a, b, tuple(inner)))
        return result

    def exponential(self, e: Expr) -> bool:
        """Whether a softmax or an exponential is in it."""
        match e:
            case Name(id) if is_value(id):
                return not self.at(id).is_input and self.exponential(self.at(id).expr)
            case Unary(_, x):
                return self.exponential(x)
            case Binary(_, x, y):
                return self.exponential(x) or self.exponential(y)
            case Read(t, _):
                return self.exponential(Name(t))
            case Call(f, _, args, _):
                return f in ("exp", "exp2", "softmax") or any(map(self.exponential, args))
        return False

    def source(self, value: Value) -> Value:
        """The value that a chain of plain references and reads comes down to."""
        while isinstance(value.expr, (Name, Read)) and not value.is_input:
            name = value.expr.id if isinstance(value.expr, Name) else value.expr.tensor
            if not is_value(name):
                break
            value = self.at(name)
        return value

    def _uncast(self, e: Expr, dtype: str) -> Expr | None:
        """What a cast to `dtype`, the other operand's, rounds; None where it is no such cast of something computed."""
        while isinstance(e, Name) and is_value(e.id) and not self.at(e.id).is_input and not self.at(e.id).declare:
            e = self.at(e.id).expr
        if isinstance(e, Call) and e.axes is None and e.function == dtype and not self.declared(e.args[0]):
            return None if self._whole_numbers(e.args[0]) else e.args[0]
        return None

    def _whole_numbers(self, e: Expr) -> bool:
        """Whether a factor is a tensor of integers, which a contraction would take as such."""
        match e:
            case Name(id) if is_value(id):
                value = self.at(id)
                return value.dtype not in FLOATS if value.is_input else self._whole_numbers(value.expr)
            case Binary("*", x, y):
                return self._whole_numbers(x) or self._whole_numbers(y)
            case Read(t, _):
                return self._whole_numbers(Name(t))
        return False


def axes_in(axes: Iterable[int]) -> tuple[AxisIn, ...]:
    return tuple(AxisIn(f"~{a}") for a in axes)


def literal(x: Operand) -> Expr:
    if isinstance(x, bool):
        return Bool(x)
    if isinstance(x, (int, float)):
        return Number(x) if x >= 0 or x != x else Unary("-", Number(-x))
    if isinstance(x, Value):
        return x.ref
    return x


def _folded(new: Binary, old: Expr) -> Expr:
    """Without the `0 * E +` and `1 * E` that a fixed index leaves of a place in blocks of E."""
    if new == old:
        return new
    number, other = (new.left, new.right) if isinstance(new.left, Number) else (new.right, new.left)
    plain = isinstance(other, Number) or (isinstance(other, Name) and is_extent(other.id))
    if new.op == "*" and number in (Number(0), Number(1)) and plain:
        return number if number == Number(0) else other
    return other if new.op == "+" and number == Number(0) else new


def rebuilt(e: Expr, name: Callable[[Name], Expr], read: Callable[[Read], Expr], axis: Callable[[str], str]) -> Expr:
    """The expression with its names, reads and reduced axes mapped, from the leaves up."""

    def go(e: Expr) -> Expr:
        match e:
            case Name():
                return name(e)
            case Read():
                return read(replace(e, indices=tuple(map(go, e.indices))))
            case Unary(op, x):
                return Unary(op, go(x))
            case Binary(op, x, y):
                return Binary(op, go(x), go(y))
            case Call(f, axes, args, keywords):
                kept = None if axes is None else tuple(AxisIn(axis(a.axis)) for a in axes)
                return Call(f, kept, tuple(map(go, args)), keywords)
        return e

    return go(e)


__all__ = ["Builder", "Cannot", "Operand", "Value", "is_extent", "is_value", "literal", "rebuilt"]
