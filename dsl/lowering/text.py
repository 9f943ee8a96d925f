"""Pieces of Triton source: expressions with their precedence, and how each function and dtype is spelled."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dsl.polynomial import COEFFICIENTS, ERROR, LOWEST
from dsl.tile import Value

TRITON_TYPES = {
    "f32": "tl.float32", "f16": "tl.float16", "bf16": "tl.bfloat16", "e4m3": "tl.float8e4nv", "e5m2": "tl.float8e5",
    "int8": "tl.int8", "i32": "tl.int32", "bool": "tl.int1",
}  # fmt: skip

MAGIC = 12582912.0  # 1.5 * 2**23: adding it leaves no bits below the unit

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


def _one_in(n: int) -> str:
    """Neighbouring columns, and far ones, are registers of one thread in every layout of a matrix product's result: so
    a split by them moves nothing."""
    second = {2: "exp2_polynomial", 4: "exp2_right_half", 8: "exp2_right_quarter"}[n]
    return f"""    # one of every {n} columns by polynomial; they are split, so that none is computed both ways
    columns: tl.constexpr = x.shape[len(x.shape) - 1]
    if columns < {n}:
        return tl.exp2(x)
    even, odd = tl.split(x.reshape(x.numel // columns, columns // 2, 2))
    return tl.join(tl.exp2(even), {second}(odd)).reshape(x.shape)"""


def _right(n: int) -> str:
    rest = "exp2_polynomial" if n == 2 else "exp2_right_half"
    return f"""    rows: tl.constexpr = x.shape[0]
    columns: tl.constexpr = x.shape[1]
    left, right = tl.split(x.reshape(rows, 2, columns // 2).permute(0, 2, 1))
    return tl.join(tl.exp2(left), {rest}(right)).permute(0, 2, 1).reshape(x.shape)"""


def _polynomial() -> str:
    c1, c2, c3 = COEFFICIENTS
    return f"""    # 2**x = 2**n * p(x - n), n whole: multiply-adds alone, a relative error of {ERROR:.3%}
    x = tl.maximum(x, {LOWEST}, propagate_nan=tl.PropagateNan.ALL)  # 2**-127 and less is 0
    n = x + {MAGIC + 127}  # 1.5 * 2**23 + 127: the lowest bits of this float are n + 127, rounded to nearest
    f = x - (n - {MAGIC + 127})
    p = (({c3} * f + {c2}) * f + {c1}) * f + 1.0
    return p * (n.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)"""


# Functions that Triton lacks: printed once at the top of the module where they are used.
DEFINITIONS = {
    "to_int8": "    # halves to even: adding 1.5 * 2**23 leaves no bits below the unit\n"
    "    return tl.minimum(tl.maximum(x + 12582912.0 - 12582912.0, -128.0), 127.0).to(tl.int8)",
    "to_int32": "    # to the nearest whole number, halves to even\n"
    "    below = tl.floor(x)\n"
    "    part = x - below\n"
    "    up = (part > 0.5) | ((part == 0.5) & (below != 2.0 * tl.floor(below * 0.5)))\n"
    "    return tl.minimum(tl.maximum(tl.where(up, below + 1.0, below), -2147483648.0), 2147483520.0).to(tl.int32)",
    "multiplied": "    return a * b",
    "larger": "    return tl.maximum(a, b)",
    "floor_div": "    return (a - floor_mod(a, b)) // b",
    "floor_mod": "    # of b's sign, where Triton's % has a's\n    return (a % b + b) % b",
    "floor_div_f32": "    return tl.floor((a - floor_mod_f32(a, b)) / b + 0.5)",
    "floor_mod_f32": "    rest = a % b\n    return tl.where(rest * b < 0, rest + b, rest)",
    "narrowed": "    return tl.minimum(tl.maximum(x, -128), 127).to(tl.int8)",
    "rank": "    # the place of each x among all, the largest first; equal ones by their index\n"
    "    before = (x[None, :] > x[:, None]) | ((x[None, :] == x[:, None]) & (i[None, :] < i[:, None]))\n"
    "    return tl.sum(before.to(tl.int32), 1)",
    "tanh": "    return 2.0 * tl.sigmoid(2.0 * x) - 1.0",
    **{f"exp2_one_in_{n}": _one_in(n) for n in (2, 4, 8)},
    "exp2_right_half": _right(2),
    "exp2_right_quarter": _right(4),
    "exp2_polynomial": _polynomial(),
    "relu": "    return tl.maximum(x, 0.0)",
    "silu": "    return x * tl.sigmoid(x)",
    "gelu": "    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))",
    "gelu_tanh": "    return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))",
    "softplus": "    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))",
}
NEEDS = {
    "floor_div": "floor_mod", "floor_div_f32": "floor_mod_f32",
    "exp2_one_in_2": "exp2_polynomial", "exp2_one_in_4": "exp2_right_half", "exp2_one_in_8": "exp2_right_quarter",
    "exp2_right_quarter": "exp2_right_half", "exp2_right_half": "exp2_polynomial",
}  # fmt: skip
PARAMETERS = {"rank": "x, i"}  # of those that take more than x
PARAMETERS |= dict.fromkeys(("multiplied", "larger"), "a, b")
PARAMETERS |= dict.fromkeys(("floor_div", "floor_mod", "floor_div_f32", "floor_mod_f32"), "a, b")
LINE = 110


def with_needs(functions: set[str]) -> set[str]:
    """These functions and all that they call."""
    found = set(functions)
    while more := {NEEDS[f] for f in found if f in NEEDS} - found:
        found |= more
    return found


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


# Numbers that a kernel reads by name: name -> (value, why)
CONSTANTS = {
    "LOG2E": ("1.4426950408889634", "log2(e): an exponential is a power of two"),
    "LOWEST": ("-3.4028234663852886e+38", "stands for -inf as a maximum: a mask may empty a row"),
}


def with_constants(source: str) -> tuple[str, dict[str, str]]:
    """The source with names for its constants, and the line that gives each its value."""
    lines = {}
    for name, (value, why) in CONSTANTS.items():
        if value in source and not re.search(rf"\b{name}\b", source):  # an axis may have that extent
            source = source.replace(value, name)
            lines[name] = f"{name} = tl.constexpr({value})  # {why}"
    return source, lines


def number(value: float | bool) -> str:
    if isinstance(value, float) and math.isinf(value):
        return 'float("-inf")' if value < 0 else 'float("inf")'
    return repr(value)
