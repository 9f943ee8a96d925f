"""The functions of the language on plain arrays (rule 22): elementwise ones, reductions, and those along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Elementwise = Callable[..., NDArray]

LIMITS = {"int8": 127.0, "e4m3": 448.0, "e5m2": 57344.0, "mxfp4": 6.0, "nvfp4": 6.0}
ARITY = {"min": 2, "max": 2, "clamp": 3, "where": 3}
BRACKETED = (
    *("sum", "mean", "max", "min", "prod", "any", "all", "softmax", "argmax", "topk", "bottomk", "runmax", "runsum"),
    *("all_reduce", "reduce_scatter", "all_to_all", "all_gather", "quantize"),
)

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _number(x: NDArray) -> NDArray:
    """A bool counts as 0 or 1 in arithmetic."""
    return x.astype(np.int64) if x.dtype == bool else x


def _sigmoid(x: NDArray) -> NDArray:
    return 1.0 / (1.0 + np.exp(-x))


def _gelu(x: NDArray) -> NDArray:
    return 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0)))


def _gelu_tanh(x: NDArray) -> NDArray:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def _where(condition: NDArray, x: NDArray, y: NDArray) -> NDArray:
    return np.where(condition != 0, x, y)


def _float(f: Elementwise) -> Elementwise:
    return lambda x: f(np.asarray(x, dtype=np.float64))


def _arithmetic(f: Elementwise) -> Elementwise:
    return lambda *x: f(*map(_number, x))


def _difference(x: NDArray, y: NDArray) -> NDArray:
    """x - y; what a mask hid stays hidden: -inf less -inf is -inf, so that exp(x - max(x)) of an empty row is 0."""
    z = np.asarray(np.subtract(x, y))
    if z.dtype.kind == "f" and np.isnan(z).any():
        z = np.where(np.isneginf(x) & np.isneginf(y), -math.inf, z)
    return z


OPERATORS: dict[str, Elementwise] = {
    "+": _arithmetic(np.add),
    "-": _arithmetic(_difference),
    "*": _arithmetic(np.multiply),
    "/": _arithmetic(np.true_divide),
    "//": _arithmetic(np.floor_divide),
    "%": _arithmetic(np.mod),
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "unary -": _arithmetic(np.negative),
    "unary not": np.logical_not,
}

FUNCTIONS: dict[str, Elementwise] = {
    "exp": _float(np.exp),
    "exp2": _float(np.exp2),
    "log": _float(np.log),
    "log2": _float(np.log2),
    "sqrt": _float(np.sqrt),
    "rsqrt": _float(lambda x: 1.0 / np.sqrt(x)),
    "tanh": _float(np.tanh),
    "sigmoid": _float(_sigmoid),
    "erf": _float(_erf),
    "sin": _float(np.sin),
    "cos": _float(np.cos),
    "abs": _arithmetic(np.abs),
    "floor": _arithmetic(np.floor),
    "relu": _arithmetic(lambda x: np.maximum(x, 0)),
    "silu": _float(lambda x: x * _sigmoid(x)),
    "gelu": _float(_gelu),
    "gelu_tanh": _float(_gelu_tanh),
    "softplus": _float(lambda x: np.logaddexp(0.0, x)),
    "min": _arithmetic(np.minimum),
    "max": _arithmetic(np.maximum),
    "clamp": _arithmetic(lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    "where": _where,
}


def _extreme(sign: int) -> Callable[[NDArray], Any]:
    """The neutral element of max (-1) or min (+1) for the kind of an array."""

    def neutral(x: NDArray) -> Any:
        if x.dtype == bool:
            return sign > 0
        return sign * (2**62) if x.dtype.kind == "i" else sign * math.inf

    return neutral


def _max(x: NDArray, axis: tuple[int, ...]) -> NDArray:
    return np.max(x, axis=axis, initial=_extreme(-1)(x))


def _min(x: NDArray, axis: tuple[int, ...]) -> NDArray:
    return np.min(x, axis=axis, initial=_extreme(1)(x))


# kind -> (reduction over a tuple of axes, neutral element for the kind of an array)
REDUCTIONS: dict[str, tuple[Elementwise, Callable[[NDArray], Any]]] = {
    "sum": (np.sum, lambda x: False),
    "mean": (np.sum, lambda x: False),
    "prod": (np.prod, lambda x: True),
    "max": (_max, _extreme(-1)),
    "min": (_min, _extreme(1)),
    "any": (np.any, lambda x: False),
    "all": (np.all, lambda x: True),
}


def product(*factors: NDArray) -> NDArray:
    """The factors multiplied from left to right."""
    result = _number(factors[0])
    for f in factors[1:]:
        result = result * f
    return result


def softmax(x: NDArray, axis: tuple[int, ...]) -> NDArray:
    """Rule 15: a slice that is all -inf gives 0."""
    weight = weights(x, axis)
    total = np.sum(weight, axis=axis, keepdims=True)
    return weight / np.where(total == 0.0, 1.0, total)


def weights(x: NDArray, axis: tuple[int, ...]) -> NDArray:
    """A softmax before it is divided by its sum: 1 where a slice is largest."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    weight: NDArray = np.exp(x - np.where(top == -np.inf, 0.0, top))
    return weight


def select(kind: str, x: NDArray, axis: int, count: NDArray, members: int) -> NDArray:
    """Rule 14: true for exactly `count` elements along `axis`, the lowest index first among equals.

    Raises ValueError where `count` is no integer in 0..`members`.
    """
    k = int(count) if count.ndim == 0 and count == np.floor(count) else -1
    if not 0 <= k <= members:
        raise ValueError(f"{kind} of {count} among {members}: the count is a whole number from 0 to {members}")
    order = np.argsort(-x if kind == "topk" else x, axis=axis, kind="stable")
    chosen = np.zeros(x.shape, dtype=bool)
    np.put_along_axis(chosen, np.take(order, np.arange(k), axis=axis), True, axis=axis)
    return chosen


def form(f: str) -> str:
    """How a function is called, for messages."""
    if f in ("topk", "bottomk"):
        return f"{f}[n](x, k)"
    if f in ("reduce_scatter", "all_to_all", "all_gather"):
        return f"{f}[r j](x)"
    if f == "all_reduce":
        return "all_reduce[r](x)"
    if f == "quantize":
        return "q[m d], s[m] = quantize(x, int8, limit=127)"
    if f in ("max", "min"):
        return f"{f}[n](x) over an axis, or {f}(x, y)"
    if f in BRACKETED:
        return f"{f}[n](x)"
    return f"{f}({', '.join('xyz'[: ARITY.get(f, 1)])})"
