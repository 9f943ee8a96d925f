"""Variants of a block's work that the schedule may choose, as rewrites of the nodes of the multiplying role.

`reduce rows=per_thread`: a row lies in four threads. A carried sum is kept as the parts that each thread has, and
joined once behind the loop; a maximum is taken of each thread's parts first.

A vector that only the end of a tile reads is loaded before its blocks, so that nobody waits for it. One along columns
would be needed by every thread in full, 64 loads for 256 columns; each element is loaded once and spread later. So are
a block's own vectors along its columns, such as a scale of each key, while its product is under way.

Whether a branch is taken for any row is asked warp by warp: rows of a warp are its own, and so is what it does to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dsl.lowering.gluon.plan import Plan
from dsl.tile import If, Loop, Node, Op, Value

# More kinds of ops:
# no_parts    -              (row axis, summed axis): the parts of a sum of nothing
# parts       x              the sums of a row's elements, by thread
# more_parts  parts, factor  the parts, each row times its factor
# join        parts          the sum of a row
# spread      x              a vector that was loaded once, to all threads that have its columns
# rose        x[, parts]     whether any of the warp's rows has more than 0; with parts, asked behind those sums
# row_max     x              axis: the maximum of a row
PARTS = "of_thread"  # stands for the axis of parts
ONCE = "_once"  # behind an axis: a vector along it of which each thread has its own few elements


def per_thread(plan: Plan) -> Plan:
    """The plan with row reductions by thread, where the schedule wants them and the carried sums allow it."""
    if plan.kernel.schedule.rows != "per_thread":
        return plan
    axis = plan.walk[0].axis
    sums = [v for v in _set(plan.walk) if v.dims == (plan.split,) and all(_adds(x, v, axis) for x in plan.walk)]
    parts = {v: Value(v.name, (*v.dims, PARTS), v.dtype) for v in sums}
    before = [_begin(n, parts, axis) for n in plan.before]
    walk = [replace(x, body=_body(x, parts, axis)) for x in plan.walk]
    joins: list[Node] = []
    known: dict[Value, Value] = {}
    for v, p in parts.items():
        known[v] = Value(v.name, v.dims, v.dtype)
        joins.append(Op("join", known[v], (p,)))
    after = [*joins, *(_reading(n, known) for n in plan.after)]
    return replace(plan, before=before, walk=walk, after=after)


def _set(nodes: Iterable[Node]) -> list[Value]:
    found: dict[Value, None] = {}
    for n in nodes:
        if not isinstance(n, Op):
            found |= dict.fromkeys(_set(n.body))
        elif n.kind == "set":
            found[n.attr] = None
    return list(found)


def _adds(loop: Loop, v: Value, axis: str) -> bool:
    """Whether a loop only multiplies the variable by factors of its rows and adds a sum over `axis` to it."""
    made = {n.out: n for n in loop.body if isinstance(n, Op) and n.out is not None}
    sets = [n for n in loop.body if isinstance(n, Op) and n.kind == "set" and n.attr is v]
    if len(sets) != 1 or sets[0].args[0] not in made:
        return False
    total = made[sets[0].args[0]]
    if total.kind != "map" or total.attr != "+":
        return False
    kept, part = total.args
    factor = made.get(kept)
    if kept is not v and not (
        factor is not None and factor.kind == "map" and factor.attr == "*" and factor.args[0] is v
    ):
        return False
    reads = sum(n.args.count(v) for n in _ops(loop.body))
    added = made.get(part)
    return reads == 1 and added is not None and added.kind == "reduce" and added.attr == ("sum", (axis,))


def _ops(nodes: Iterable[Node]) -> list[Op]:
    found: list[Op] = []
    for n in nodes:
        found += [n] if isinstance(n, Op) else _ops(n.body)
    return found


def _begin(n: Node, parts: dict[Value, Value], axis: str) -> Node:
    """The variable starts as no parts; what it was set to is dead then."""
    if isinstance(n, Op) and n.kind == "set" and n.attr in parts:
        p = parts[n.attr]
        return Op("no_parts", p, (), (p.dims[0], axis))
    return n


def _body(loop: Loop, parts: dict[Value, Value], axis: str) -> list[Node]:
    known: dict[Value, Value] = dict(parts)
    body: list[Node] = []
    ours: set[Value] = set()
    made = {n.out: n for n in loop.body if isinstance(n, Op) and n.out is not None}
    for n in loop.body:
        if isinstance(n, Op) and n.kind == "set" and n.attr in parts:
            ours |= {n.args[0], *made[n.args[0]].args}
    for n in loop.body:
        if not isinstance(n, Op):
            body.append(n)
        elif n.kind == "set" and n.attr in parts:
            body.append(replace(n, args=(known[n.args[0]],), attr=parts[n.attr]))
        elif n.out in ours and n.out is not None:
            out = known[n.out] = Value(n.out.name, (*n.out.dims, PARTS), n.out.dtype)
            if n.kind == "reduce":
                body.append(Op("parts", out, n.args, n.attr, n.note))
            elif n.attr == "*":
                body.append(Op("more_parts", out, (known[n.args[0]], n.args[1]), None, n.note))
            else:
                body.append(replace(n, out=out, args=tuple(known[a] for a in n.args)))
        elif n.kind == "reduce" and n.attr == ("max", (axis,)):
            body.append(replace(n, kind="row_max", attr=axis))
        else:
            body.append(n)
    return body


def _reading(n: Node, known: dict[Value, Value]) -> Node:
    if isinstance(n, Op):
        return replace(n, args=tuple(known.get(a, a) for a in n.args))
    assert isinstance(n, If)
    return replace(n, condition=known.get(n.condition, n.condition), body=[_reading(x, known) for x in n.body])


def voted(plan: Plan) -> Plan:
    """The plan with branches that each warp takes by itself, where a branch asks for the largest of all rows: by a
    reduction the warps of a group would have to wait for each other."""
    zeros = {n.out for n in plan.kernel.ops() if n.kind == "const" and n.attr == 0.0}
    kept = [t for c in plan.channels if not c.streamed for t in c.tensors]
    held = plan.kernel.schedule.sums == "auto" and any(plan.holds(t) for t in kept)
    first = held or plan.kernel.schedule.sums == "first"
    return replace(plan, walk=[replace(x, body=_asked(x.body, plan.split, zeros, first)) for x in plan.walk])


def _asked(body: list[Node], split: str, zeros: set[Value | None], first: bool) -> list[Node]:
    largest = {
        n.out: n.args[0]
        for n in body
        if isinstance(n, Op) and n.kind == "reduce" and n.attr == ("max", (split,)) and n.args[0].dims == (split,)
    }
    sums = [n.out for n in body if isinstance(n, Op) and n.kind == "parts" and n.out is not None] if first else []
    conditions = {n.condition for n in body if isinstance(n, If)}
    found: list[Node] = []
    gone: set[Value] = set()
    for n in body:
        if isinstance(n, Op) and n.kind == "map" and n.attr == ">" and n.out in conditions:
            a, b = n.args
            if a in largest and b in zeros:
                found.append(Op("rose", n.out, (largest[a], *sums[:1]), None, n.note))
                gone.add(a)
                continue
        found.append(n)
    read = {a for n in _ops(found) for a in n.args}
    return [n for n in found if not (isinstance(n, Op) and n.out in gone - read)]


def ahead(plan: Plan) -> Plan:
    """The plan with vectors of the epilogue loaded before the loop, and a block's vectors along columns once."""
    made = {n.out: n for n in plan.before if isinstance(n, Op) and n.out is not None}
    before, after = list(plan.before), []
    for n in plan.after:
        if not _vector(n, made):
            after.append(n)
            continue
        assert isinstance(n, Op) and n.out is not None
        if n.out.dims == (plan.split,):
            before.append(n)
            continue
        loaded, spread = _once(n, made)
        before += loaded
        after.append(spread)
    walk = [replace(x, body=_once_a_block(x, made, plan.split)) for x in plan.walk]
    return replace(plan, before=before, walk=walk, after=after)


def _vector(n: Node, made: dict[Value, Op]) -> bool:
    """Whether this loads a vector by pointer whose place is known from what was made before."""
    if not isinstance(n, Op) or n.kind != "load" or n.attr.tma or n.out is None or len(n.out.dims) != 1:
        return False
    return all(a in made and (not a.dims or made[a].kind == "arange") for a in n.args)


def _once(n: Op, made: dict[Value, Op]) -> tuple[list[Op], Op]:
    """(the load of each element by one thread, what spreads the vector to all that have its columns)."""
    assert n.out is not None
    (axis,) = n.out.dims
    once = {a: Value(a.name, (axis + ONCE,), a.dtype) for a in dict.fromkeys(n.args) if a.dims}
    value = Value(n.out.name, (axis + ONCE,), n.out.dtype)
    places = [replace(made[a], out=v) for a, v in once.items()]
    load = replace(n, out=value, args=tuple(once.get(a, a) for a in n.args))
    return [*places, load], Op("spread", n.out, (value,))


def _once_a_block(loop: Loop, before: dict[Value, Op], split: str) -> list[Node]:
    made = before | {n.out: n for n in loop.body if isinstance(n, Op) and n.out is not None}
    made |= {loop.start: Op("start", loop.start, (), loop.axis)}
    body: list[Node] = []
    for n in loop.body:
        if isinstance(n, Op) and _vector(n, made) and n.out is not None and n.out.dims != (split,):
            loaded, spread = _once(n, made)
            body += [*loaded, spread]
        else:
            body.append(n)
    return body
