"""Pieces of Triton source: expressions with their precedence, and how each function and dtype is spelled."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsl.tile import Value

TRITON_TYPES = {
    "f32": "tl.float32", "f16": "tl.float16", "bf16": "tl.bfloat16", "e4m3": "tl.float8e4nv", "e5m2": "tl.float8e5",
    "int8": "tl.int8", "i32": "tl.int32", "bool": "tl.int1",
}  # fmt: skip

# Precedence of Python's operators, so that only the parentheses that are needed are printed.
TERNARY, OR, AND, COMPARE, ADD, MULTIPLY, UNARY, ATOM = 1, 4, 6, 3, 8, 9, 10, 12
OPERATORS = {
    "+": ADD, "-": ADD, "*": MULTIPLY, "/": MULTIPLY, "//": MULTIPLY, "%": MULTIPLY,
    "<": COMPARE, "<=": COMPARE, ">": COMPARE, ">=": COMPARE, "==": COMPARE, "!=": COMPARE,
}  # fmt: skip
CALLS = {
    "max": "tl.maximum", "min": "tl.minimum", "exp": "tl.exp", "exp2": "tl.exp2", "log": "tl.log", "log2": "tl.log2",
    "sqrt": "tl.sqrt", "rsqrt": "tl.rsqrt", "sigmoid": "tl.sigmoid", "erf": "tl.erf", "sin": "tl.sin", "cos": "tl.cos",
    "abs": "tl.abs", "floor": "tl.floor", "where": "tl.where",
}  # fmt: skip

# Functions that Triton lacks: printed once at the top of the module where they are used.
DEFINITIONS = {
    # halves to even, as the language rounds: adding 1.5 * 2**23 leaves no bits below the unit
    "to_int8": "    return tl.minimum(tl.maximum(x + 12582912.0 - 12582912.0, -128.0), 127.0).to(tl.int8)",
    "narrowed": "    return tl.minimum(tl.maximum(x, -128), 127).to(tl.int8)",
    "rank": "    before = (x[None, :] > x[:, None]) | ((x[None, :] == x[:, None]) & (i[None, :] < i[:, None]))\n"
    "    return tl.sum(before.to(tl.int32), 1)",
    "tanh": "    return 2.0 * tl.sigmoid(2.0 * x) - 1.0",
    "relu": "    return tl.maximum(x, 0.0)",
    "silu": "    return x * tl.sigmoid(x)",
    "gelu": "    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))",
    "gelu_tanh": "    return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))",
    "softplus": "    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))",
}
LINE = 110


@dataclass(frozen=True)
class Text:
    """An expression: its source, its precedence, its dims, the variables that it reads, and, of a compile-time choice,
    (flag, yes, no)."""

    source: str
    level: int
    dims: tuple[str, ...]
    reads: frozenset[Value] = frozenset()
    branches: tuple[str, str, str] | None = None

    def at(self, level: int) -> str:
        return self.source if self.level >= level else f"({self.source})"


def number(value: float | bool) -> str:
    if isinstance(value, float) and math.isinf(value):
        return 'float("-inf")' if value < 0 else 'float("inf")'
    return repr(value)
