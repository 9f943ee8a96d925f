"""`rescale speculative`: a block goes by the reference that it finds, and is done again only where that was too small.

The common path takes no maximum: p = exp(s - m) with the old m. Where a part of a row's sum is above a limit or NaN,
the whole group computes the block's scores once more, takes the new maximum and rescales. So no exponential that is
kept exceeds that limit, and m never falls behind by more than its logarithm. How often that happens is up to the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dsl.lowering.gluon.plan import Rotation, copied
from dsl.tile import If, Node, Op, Value

# above  parts   whether any part, of all rows of the group, exceeds the limit or is NaN


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
    # against the old reference an exponent may be of any size
    first = copied([replace(n, attr=(n.attr[0], False)) if n.kind == "exp2" else n for n in common], known)
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
