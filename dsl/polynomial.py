"""Exponentials by polynomial: the arithmetic, its stated error, and where a program may use it.

2^x = 2^n p(x - n) with n the nearest whole number (the range reduction of Cody and Waite, "Software Manual for the
Elementary Functions", 1980; in base 2 the subtraction is exact) and p of degree 3. A chip's special-function units are
few; this runs on its multiply-adds beside them. Idea and use in attention: FlashAttention-4.
"""

from __future__ import annotations

from typing import Any

from dsl.terms import Graph, Term

# 1 + c1 f + c2 f^2 + c3 f^3 over |f| <= 1/2 with the least relative error; 1 is fixed, so that powers of two are exact
COEFFICIENTS = (0.69328293, 0.24221096, 0.05500893)
ERROR = 1.1e-4  # relative, rounding in f32 included: below half an ulp of f16 (2.4e-4) and bf16 (2.0e-3)
LOWEST, HIGHEST = -127.0, 128.0  # below it the result is 0, from HIGHEST - 1/2 on it is inf
OPERATIONS = 9  # instructions on the multiply-add and integer units for one result
LEAST_OPERATIONS = 8  # fewest that any such scheme takes, for a speed of light: reduce (3), polynomial (3), scale (2)

_NARROW = frozenset({"f16", "bf16", "e4m3", "e5m2", "int8", "mxfp4", "nvfp4"})
_TO_ABSOLUTE = frozenset({"log", "log2"})  # turn a relative error into an absolute one, which may be a large share


def exp2(x: Any) -> Any:
    """2^x by the polynomial, relative error below `ERROR`; NaN stays, -inf gives 0, subnormal results are 0."""
    import numpy as np

    x = np.clip(np.asarray(x, dtype=np.float64), LOWEST, HIGHEST)
    n = np.rint(x)
    f = x - n
    c1, c2, c3 = COEFFICIENTS
    p = ((c3 * f + c2) * f + c1) * f + 1.0
    scale = np.where(n <= LOWEST, 0.0, np.where(n >= HIGHEST, np.inf, np.exp2(n)))
    return p * scale


def shared_exp2(x: Any, share: int) -> Any:
    """2^x where one of every `share` columns comes from the polynomial: the odd ones of the right half (share 4) or
    the right quarter (8) of the last dim, whose length is a power of two; none where it is shorter than `share`."""
    import numpy as np  # not above: the check of a program needs none of it

    x = np.asarray(x, dtype=np.float64)
    result = np.exp2(x)
    columns = x.shape[-1]
    if columns >= share:
        chosen = slice(columns - 2 * columns // share + 1, None, 2)
        result[..., chosen] = exp2(x[..., chosen])
    return result


def exact_outputs(graph: Graph) -> tuple[str, ...]:
    """The outputs (of a kernel, or of a whole program) that an exponential reaches before it is rounded to 16 bits or
    fewer, or through a logarithm: the polynomial's error would show in them."""
    return tuple(
        name for name, t in graph.outputs.items() if _shows(t, graph.tensors.get(name, ((), t.dtype))[1] in _NARROW, {})
    )


def _shows(t: Term, rounded: bool, seen: dict[tuple[Term, bool], bool]) -> bool:
    """Whether an exponential under `t` shows in it; `rounded`: what comes out of `t` is rounded on the way on."""
    key = (t, rounded)
    if key not in seen:
        seen[key] = False  # a DAG: overwritten before it is read
        seen[key] = _looked(t, rounded, seen)
    return seen[key]


def _looked(t: Term, rounded: bool, seen: dict[tuple[Term, bool], bool]) -> bool:
    if t.op == "input":
        return False
    if t.op == "map" and t.attr in ("exp", "exp2") and t.axes:
        return not rounded or _shows(t.args[0], False, seen)  # an exponent must itself be exact
    if t.op == "map" and t.attr in _TO_ABSOLUTE:
        rounded = False
    if t.op == "cast" and t.dtype in _NARROW:
        rounded = True
    if t.op == "reduce" and t.attr[0] == "sum" and _operand(t) in _NARROW:
        rounded = True
    if t.dtype in ("bool", "i32"):  # a comparison or a place is not rounded: it flips
        rounded = False
    return any(_shows(a, rounded, seen) for a in t.args)


def _operand(t: Term) -> str:
    """The dtype in which the operands of a contraction meet; "" of any other sum."""
    from dsl.anatomy import contraction

    found = contraction(t)
    return "" if found is None else found.dtypes[0] or found.dtypes[1]
