"""The words of the language that generated programs must show, and those that a program has."""

from __future__ import annotations

import re

from dsl.directives import DIRECTIVES
from dsl.named_functions import BRACKETED, FUNCTIONS, OPERATORS
from dsl.printer import print_program
from dsl.rounding import DTYPES
from dsl.syntax import Program

# warps with roles have tests of their own: no interpreter runs them
OF_ROLES = ("roles", "registers", "hold", "buffers", "issue", "reduce")
NOT_LOWERED = ("all_reduce", "reduce_scatter", "all_to_all", "all_gather")
DRAWN_MASKS = (
    *("causal", "strict", "flag", "bottom right", "window", "band", "prefix", "suffix", "either", "negated", "ahead"),
    *("lengths", "input", "documents", "strided", "blocks", "two conjuncts", "top blocks"),
)
DRAWN_QUOTIENTS = ("an index", "an input of integers", "floats", "a negative divisor", "a computed divisor")
WORDS: dict[str, tuple[str, ...]] = {
    "operators": tuple(OPERATORS),
    "functions": tuple(f for f in (*FUNCTIONS, *BRACKETED) if f not in NOT_LOWERED),
    "dtypes": tuple(d for d in DTYPES if d not in ("f64", "mxfp4", "nvfp4")),
    "masks": DRAWN_MASKS,
    "quotients and rests below 0": DRAWN_QUOTIENTS,
    "directives": ("kernels", *(d for d in DIRECTIVES if DIRECTIVES[d].lowered != "refused" and d not in OF_ROLES)),
}


def words_of(program: Program, drawn: list[str]) -> set[str]:
    """Which of WORDS occur in a program that was drawn with these kinds of masks, of quotients and rests."""
    algorithm, _, schedule = print_program(program).partition("\nschedule")
    code = "\n".join(line for line in algorithm.splitlines() if " = " in line)
    found = set(drawn)
    found |= {w for w in (*WORDS["functions"], *WORDS["dtypes"]) if re.search(rf"\b{w}\b", algorithm)}
    found |= {w for w in WORDS["operators"] if not w[0].isalpha() and f" {w} " in code}
    found |= {w for w in ("and", "or") if f" {w} " in code}
    found |= {"unary not"} if re.search(r"\bnot ", code) else set()
    found |= {"unary -"} if re.search(r"(^|[(\[,=] ?)-[a-z]", code) else set()
    found |= {w for w in WORDS["directives"] if re.search(rf"^{w}\b", schedule, re.MULTILINE)}
    return found
