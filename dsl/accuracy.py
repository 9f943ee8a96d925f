"""How far the elementwise functions are off in f32, as they are emitted (rule 22): stated, and held by measurement.

An error is `relative`, at most so much of the result, or `mixed`, at most so much of the result or of 1, whichever is
larger: where a formula cancels, the share that a tiny result is off says nothing. Measured on an H200 over 16.8 million
values each (benchmarks/function_errors.py, benchmarks/data/function_errors_h200.json); what is stated is more. A
chip's special-function units do not round correctly, and `exp` rounds x * log2(e), so that its error grows with |x|.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class Error(NamedTuple):
    """At most `most`, relative or mixed."""

    most: float
    kind: Literal["relative", "mixed"]


# functions that are not here are exact
ERRORS: Mapping[str, Error] = MappingProxyType(
    {
        "exp": Error(5e-6, "relative"),
        "exp2": Error(2e-7, "relative"),
        "log": Error(3e-7, "relative"),
        "log2": Error(2e-7, "relative"),
        "sqrt": Error(2e-7, "relative"),
        "rsqrt": Error(2e-7, "relative"),
        "tanh": Error(3e-7, "mixed"),
        "sin": Error(2e-7, "mixed"),
        "cos": Error(2e-7, "mixed"),
        "sigmoid": Error(5e-6, "relative"),
        "silu": Error(5e-6, "relative"),
        "softplus": Error(3e-7, "mixed"),
        "erf": Error(2e-7, "relative"),
        "gelu": Error(2e-7, "mixed"),
        "gelu_tanh": Error(3e-7, "mixed"),
    }
)


def stated(function: str) -> str:
    """`5e-06`, `3e-07 m`, or `0`, as the documents print it."""
    found = ERRORS.get(function)
    if found is None:
        return "0"
    return f"{found.most:.0e}".replace("e-0", "e-") + (" m" if found.kind == "mixed" else "")
