"""`rescale speculative`: a block goes by the reference that it finds, and is done again only where that was too small.

The common path takes no maximum: p = exp(s - m) with the old m. Where a part of a row's sum is above `LIMIT` or NaN,
the whole group computes the block's scores once more, takes the new maximum and rescales. So no exponential that is
kept exceeds `LIMIT`, and m never falls behind by more than its logarithm. How often that happens is up to the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dsl.lowering.gluon.plan import Rotation, copied
from dsl.tile import If, Node, Op, Value

# above  parts   whether any part, of all rows of the group, exceeds the limit or is NaN
LIMIT = 4096.0
LIMIT_BITS = "0f45800000"  # as PTX spells it


@dataclass(eq=False)
class Speculation:
    """`first`: the block's ops against the old reference; `again`: against the new one. `early`: what follows from
    either, `late`: what touches the accumulator. `variables`: a value that both compute -> the variable that has it."""

    first: list[Node]
    again: list[Node]
    scores: Value
    part: Value
    early: list[Node]
    late: list[Node]
    flag: Value
    variables: dict[Value, Value]

    def guarded(self, scores: Value, redo: list[Op]) -> list[Node]:
        """The block's arithmetic; `redo` computes its scores once more."""
        again = copied(self.again, {self.scores: scores})
        note = "a sum has grown too large: once more, against the new maximum"
        return [*self.first, Op("above", self.flag, (self.variables[self.part],)), If(self.flag, [*redo, *again], note)]


def speculation(cut: Rotation) -> Speculation | None:
    """None where the block is no softmax step with one maximum and its sum by thread."""
    ops = [n for n in cut.early if isinstance(n, Op)]
    if len(ops) != len(cut.early) or cut.product.out is None:
        return None
    made = {n.out: n for n in ops if n.out is not None}
    sets = {n.attr: n for n in ops if n.kind == "set"}
    risen = {v: n for v, n in sets.items() if _is(made.get(n.args[0]), "max") and v in made[n.args[0]].args}
    if len(risen) != 1:
        return None
    ((top, raised),) = risen.items()
    new = raised.args[0]
    shifts = [n.out for n in ops if _is(n, "-") and n.args == (top, new) and n.out is not None]
    factors = [n.out for n in ops if (_is(n, "exp2") or _is(n, "exp")) and n.args[0] in shifts and n.out is not None]
    if len(factors) != 1:
        return None
    factor = factors[0]
    # what follows from the carried sums or the factor is done once, behind the guard
    behind = {v for v in sets if v is not top} | {factor}
    common, carried = [], []
    for n in ops:
        if n is raised or n.out is new or n.out is factor or n.out in shifts:
            continue
        if behind.intersection(n.args) or n.kind == "set":
            behind |= {n.out} if n.out is not None else set()
            carried.append(n)
        else:
            common.append(n)
    inside = [n for n in carried if factor in n.args]
    if any(n.kind != "more_parts" or n.args[0] not in sets for n in inside):
        return None
    parts = [n for n in common if n.kind == "parts"]
    if len(parts) != 1 or parts[0].out is None:
        return None
    wanted = [n.out for n in common if n.out is not None and _read(n.out, carried, cut)]
    variables = {v: Value(v.name, v.dims, v.dtype) for v in wanted}
    known: dict[Value, Value] = {new: top}
    first = copied([n for n in common], known)
    first += [Op("set", None, (known[v],), variables[v]) for v in wanted]
    kept = Value(factor.name, factor.dims, factor.dtype)
    one = Value("one", factor.dims, factor.dtype)
    first += [Op("full", one, (), 1.0), Op("set", None, (one,), kept)]
    chain = [n for n in ops if n.out is new or n.out is factor or n.out in shifts or n in common]
    again: list[Node] = [*chain, *(Op("set", None, (v,), variables[v]) for v in wanted)]
    alias: dict[Value, Value] = {}
    for n in inside:
        assert n.out is not None
        again += [n, Op("set", None, (n.out,), n.args[0])]
        alias[n.out] = n.args[0]
    again += [Op("set", None, (factor,), kept), Op("set", None, (new,), top)]
    early: list[Node] = [_reading(n, {**variables, **alias}) for n in carried if n not in inside]
    flag = Value("above", (), "bool")
    late: list[Node] = [If(flag, [_reading(n, {factor: kept}) for n in cut.late], "")]
    return Speculation(first, again, cut.product.out, parts[0].out, early, late, flag, variables)


def _is(n: Op | None, function: str) -> bool:
    return n is not None and n.kind == "map" and n.attr == function


def _read(v: Value, carried: list[Op], cut: Rotation) -> bool:
    late = [n for n in cut.late if isinstance(n, Op)]
    return v is cut.deferred.args[0] or any(v in n.args for n in (*carried, *late))


def _reading(n: Node, known: dict[Value, Value]) -> Node:
    assert isinstance(n, Op)
    return replace(n, args=tuple(known.get(a, a) for a in n.args))


def guard(groups: int) -> str:
    """The function that tells a group whether a part of any of its sums is too large.

    A predicate register of the group holds the answer between two pieces of PTX, for Gluon has no way from a tensor to
    a scalar but a reduction across warps, which costs more. Barriers 8 and up are nobody's else.
    """
    lines = [
        "def any_above(parts, WG: gl.constexpr):",
        f'    """Whether a partial sum of the group is above {LIMIT:.0f} or NaN; its warps agree on it."""',
    ]
    for g in range(groups):
        ask = (
            f"{{ .reg .pred mine; .reg .f32 most, other; max.NaN.f32 most, $4, $5; max.NaN.f32 other, $6, $7; "
            f"max.NaN.f32 most, most, other; setp.gtu.f32 mine, most, {LIMIT_BITS}; "
            f"bar.red.or.pred above{g}, {8 + g}, 128, mine; "
            "mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0; }"
        )
        tell = f"selp.b32 $0, 1, 0, above{g};"
        lines += [
            f"    if WG == {g}:",
            "        gl.inline_asm_elementwise(",
            f'            "{ask[: ask.index("setp")]}"',
            f'            "{ask[ask.index("setp") : ask.index("mov")]}"',
            f'            "{ask[ask.index("mov") :]}",',
            '            "=r,=r,=r,=r,f,f,f,f",',
            "            [parts],",
            "            dtype=gl.int32,",
            "            is_pure=False,",
            "            pack=4,",
            "        )",
            "        return gl.inline_asm_elementwise(",
            f'            "{tell}", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1',
            "        )",
        ]
    return "\n".join(lines)


def declared(group: int) -> str:
    """The statement that makes a group's predicate known."""
    asm = f".reg .pred above{group}; mov.b32 $0, 0;"
    return f'gl.inline_asm_elementwise("{asm}", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1)'
