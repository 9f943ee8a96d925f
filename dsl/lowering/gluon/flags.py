"""From a tensor to a branch: functions that tell a group, or a warp, whether any value of its rows is too large.

Gluon has no way from a tensor to a scalar but a reduction across warps, which costs several percent. A predicate
register of the role holds the answer between two pieces of PTX instead.
"""

from __future__ import annotations

LIMIT = 4096.0
LIMIT_BITS, HUGE_BITS = "0f45800000", "0f7F000000"  # as PTX spells it; the second is 1.7e38
FLAGS = {"any_above": "above", "any_rose": "rose", "summed": "huge"}  # function -> its predicate, one for each group


def guard(groups: int) -> str:
    """The function that tells a group whether a part of any of its sums is too large: all its warps agree on it, for
    they multiply together. Barriers 8 and up are nobody's else."""
    lines = [
        "def any_above(parts, WG: gl.constexpr):",
        f'    """Whether a partial sum of the group is above {LIMIT:.0f} or NaN; its warps agree on it."""',
    ]
    for g in range(groups):
        ask = [
            "{ .reg .pred mine; .reg .f32 most, other; max.NaN.f32 most, $4, $5; max.NaN.f32 other, $6, $7; ",
            f"max.NaN.f32 most, most, other; setp.gtu.f32 mine, most, {LIMIT_BITS}; ",
            f"bar.red.or.pred above{g}, {8 + g}, 128, mine; ",
            _zeros(4),
        ]
        lines += _asked(g, "parts", ask, 4, f"above{g}")
    return "\n".join(lines)


def summed(groups: int) -> str:
    """The function that makes the next vote wait for a block's sums: a sum that is NaN or infinite makes it true, which
    changes nothing, for the factors of rows that did not rise are 1. Without it ptxas is free to move sums, and at
    times all exponentials too, behind the wait for the last product: `reduce sums=first`."""
    lines = [
        "def summed(parts, WG: gl.constexpr):",
        '    """What follows a vote stays behind these sums."""',
    ]
    for g in range(groups):
        ask = [
            "{ .reg .f32 most, other; max.NaN.f32 most, $4, $5; max.NaN.f32 other, $6, $7; ",
            f"max.NaN.f32 most, most, other; setp.gtu.f32 huge{g}, most, {HUGE_BITS}; ",
            _zeros(4),
        ]
        lines += [f"    if WG == {g}:", *_statement("parts", ask, 4)]
    return "\n".join(lines)


def vote(groups: int, n: int, tied: bool) -> str:
    """The function that tells a warp whether any of its rows has a value above 0. What the branch does to a row is done
    by the warp that has it, so warps need not agree. `n`: rows of a thread. `tied`: it waits for `summed`."""
    lines = [
        "def any_rose(x, WG: gl.constexpr):",
        '    """Whether any of a warp\'s rows has more than 0."""',
    ]
    for g in range(groups):
        tests = [f"setp.gt.f32 mine, ${n}, 0f00000000; "]
        tests += [f"setp.gt.f32 other, ${n + i}, 0f00000000; or.pred mine, mine, other; " for i in range(1, n)]
        tests += [f"or.pred mine, mine, huge{g}; "] if tied else []
        ask = ["{ .reg .pred mine, other; ", *tests, f"vote.sync.any.pred rose{g}, mine, 0xffffffff; ", _zeros(n)]
        lines += _asked(g, "x", ask, n, f"rose{g}")
    return "\n".join(lines)


def _zeros(n: int) -> str:
    return "".join(f"mov.b32 ${i}, 0; " for i in range(n)) + "}"


def _asked(group: int, argument: str, ask: list[str], pack: int, predicate: str) -> list[str]:
    return [
        f"    if WG == {group}:",
        *_statement(argument, ask, pack),
        "        return gl.inline_asm_elementwise(",
        f'            "selp.b32 $0, 1, 0, {predicate};", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1',
        "        )",
    ]


def _statement(argument: str, ask: list[str], pack: int) -> list[str]:
    words = ",".join(["=r"] * pack + ["f"] * pack)
    return [
        "        gl.inline_asm_elementwise(",
        *(f'            "{x}"' for x in ask[:-1]),
        f'            "{ask[-1]}",',
        f'            "{words}",',
        f"            [{argument}],",
        "            dtype=gl.int32,",
        "            is_pure=False,",
        f"            pack={pack},",
        "        )",
    ]


def declared(function: str, group: int) -> str:
    """The statement that makes a group's predicate known."""
    asm = f".reg .pred {FLAGS[function]}{group}; mov.b32 $0, 0;"
    return f'gl.inline_asm_elementwise("{asm}", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1)'
