"""Numbers of things in words, so that every message and page counts alike: `1 run`, `2 runs`, `100,000 candidates`."""

from __future__ import annotations


def counted(number: float, one: str, many: str = "") -> str:
    """`number` of something that is called `one` where it is a single one. many: its plural, where that is not the same
    with an s at the end of the first word: `counted(2, "axis", "axes")`, `counted(2, "proposal without a gain")`."""
    if number == 1:
        name = one
    elif many:
        name = many
    else:
        first, blank, rest = one.partition(" ")
        name = f"{first}s{blank}{rest}"
    return f"{number:,} {name}" if isinstance(number, int) else f"{number:g} {name}"
