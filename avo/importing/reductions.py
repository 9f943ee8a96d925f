"""Operators that reduce: sums, means, extremes, variances, softmax and what is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from avo.importing.axes import minus, times
from avo.importing.operators import Result, call, extreme, operator
from avo.importing.shapes import length
from avo.importing.values import Builder, Cannot, Value, axes_in
from dsl.syntax import Binary, Call, Expr, Number

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
        return extreme(b, dtype, x, place, name=name + "imum")
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
