"""The nodes of each role, put in order: who waits for what, what is under way when, and what is handed back."""

from __future__ import annotations

from dataclasses import replace

from dsl.lowering.gluon.body import For
from dsl.lowering.gluon.plan import Channel, Plan, Rotation, attr_of, copied, needed, once, only_accumulates, rotation
from dsl.lowering.gluon.pruning import Nodes, pruned, turning
from dsl.lowering.gluon.rewrite import ONCE
from dsl.lowering.gluon.speculation import speculation
from dsl.lowering.gluon.turns import hand_on, take, takes_turns
from dsl.tile import If, Loop, Node, Op, Value


def line(text: str, note: str = "") -> Op:
    return Op("line", None, (), text, note)


def issue(out: Value | None, args: tuple[Value, ...], dot: Op, at: str = "block") -> Op:
    """The product of the block `at` is under way."""
    return Op("issue", out, args, (dot.attr, at))


def settle(product: Value, pending: int = 0, at: str = "block") -> Op:
    """The product of the block `at` is there; `pending` later ones need not be."""
    return Op("settle", None, (product,), (pending, at))


class Ring:
    """Where a channel's data of one block lies and which phase its barriers are in, as source.

    Streamed channels turn through their buffers, counted by `block`; the others have one buffer a tile, or one for
    each consumer, counted by `turn`.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.turn = "turn" if plan.kernel.schedule.persistent else "0"

    def slot(self, c: Channel, at: str = "block", who: str = "WG") -> str:
        if not c.streamed:
            return who if c.own else "0"
        stages = self.plan.buffers(c)
        if stages == 1:
            return "0"
        at = at if at.isidentifier() else f"({at})"
        return f"{at} & {stages - 1}" if _power(stages) else f"{at} % {stages}"

    def phase(self, c: Channel, at: str = "block") -> str:
        if not c.streamed:
            return f"{self.turn} & 1" if self.turn != "0" else "0"
        stages = self.plan.buffers(c)
        at = at if at.isidentifier() else f"({at})"
        if stages == 1:
            return f"{at} & 1"
        if _power(stages):
            return f"({at} >> {stages.bit_length() - 1}) & 1"
        return f"{at} // {stages} & 1"

    def empty(self, c: Channel, at: str = "block") -> str:
        """The phase that a buffer is handed back in: the first round finds all of them empty."""
        if not c.streamed and self.turn == "0":
            return "1"
        return f"({self.phase(c, at)}) ^ 1"

    def wait_full(self, c: Channel, at: str = "block", pred: str = "") -> Op:
        more = f", pred={pred}" if pred else ""
        return line(f"mbarrier.wait({c.name}_full.index({self.slot(c, at)}), {self.phase(c, at)}{more})")

    def release(self, c: Channel, at: str = "block", pred: str = "") -> Op:
        more = f", pred={pred}" if pred else ""
        return line(f"mbarrier.arrive({c.name}_empty.index({self.slot(c, at)}), count=1{more})")


def _power(n: int) -> bool:
    return n & (n - 1) == 0


def _walked_down(plan: Plan, nodes: Nodes) -> tuple[Value, Value, list[Value]]:
    """Appends the scalars of a walk from the last block to the first; returns (the last block's first index, how many
    blocks there are, how many lie in each loop and all later ones, last loop first)."""
    axis = plan.walk[0].axis
    counts: list[Value] = []
    for loop in reversed(plan.walk):
        counts.append(Value("edge" if not counts and len(plan.walk) > 1 else "count", (), "i32"))
        nodes.append(Op("count", counts[-1], (loop.lo, loop.hi), axis))
    ends, some = [counts[0]], counts[0]
    for c in counts[1:]:
        some = Value("until", (), "i32")
        nodes.append(Op("map", some, (ends[-1], c), "+"))
        ends.append(some)
    blocks = Value("blocks", (), "i32")
    nodes.append(Op("total", blocks, (some,)))
    last = Value(f"{axis}_last", (), "i32")
    nodes.append(Op("last", last, (plan.walk[0].lo, blocks, some), axis))
    return last, blocks, [*ends[:-1], blocks]


# -- the loading role --------------------------------------------------------------------------------------------------


def loading(plan: Plan) -> Nodes:
    """One warp walks the blocks in the consumers' order, as far ahead as there are buffers."""
    ring = Ring(plan)
    nodes: Nodes = list(plan.before)
    for c in plan.channels:
        if not c.streamed:
            nodes += _fetch(plan, ring, c, {})
    if plan.rotated:
        last, blocks, _ = _walked_down(plan, nodes)
        loop = plan.walk[-1]
        body: Nodes = [Op("from", loop.start, (last,), loop.axis)]
        body += _fetches(plan, ring, loop)
        nodes.append(For("j", "0", blocks, body))
    else:
        for loop in plan.walk:
            body = _fetches(plan, ring, loop)
            nodes.append(turning(loop, body))
    return pruned(nodes)


def _fetches(plan: Plan, ring: Ring, loop: Loop) -> Nodes:
    loads = {attr_of(n).tensor: n for n in loop.body if isinstance(n, Op) and n.kind == "load" and n.attr.tma}
    streamed = [c for c in plan.channels if c.streamed]
    wanted = [a for c in streamed for t in c.tensors for a in loads[t].args]
    nodes: Nodes = list(needed(loop.body, wanted))
    for c in streamed:
        nodes += _fetch(plan, ring, c, loads)
    return [*nodes, line("block += 1")]


def _fetch(plan: Plan, ring: Ring, c: Channel, loads: dict[str, Op]) -> Nodes:
    nodes: Nodes = []
    for group in range(plan.consumers if c.own else 1):
        slot = ring.slot(c, who=str(group))
        size = " + ".join(f"{t}_desc.block_type.nbytes" for t in c.tensors)
        nodes.append(line(f"mbarrier.wait({c.name}_empty.index({slot}), {ring.empty(c)})"))
        nodes.append(line(f"mbarrier.expect({c.name}_full.index({slot}), {size})"))
        for t, load in c.tensors.items():
            n = loads.get(t, load)
            rows = group * plan.rows if c.own else 0
            nodes.append(Op("fetch", None, n.args, (attr_of(n), slot, c.name, rows)))
    return nodes


# -- the multiplying role ----------------------------------------------------------------------------------------------


def multiplying(plan: Plan) -> Nodes:
    """Each consumer computes its rows of the tile."""
    ring = Ring(plan)
    split = plan.split
    start = next(n for n in plan.before if isinstance(n, Op) and n.kind == "start" and n.attr == split)
    assert start.out is not None
    own = start.out
    nodes: Nodes = []
    for n in plan.before:
        if isinstance(n, Op) and n.kind == "load" and n.attr.tma:
            continue
        nodes.append(n)
        if n is start and plan.consumers > 1:
            own = Value(f"{split}_own", (), "i32")
            nodes.append(Op("own", own, (start.out,), split))
    kept = [c for c in plan.channels if not c.streamed]
    held: dict[str, Value] = {}
    for c in kept:
        nodes.append(ring.wait_full(c))
        for t, load in c.tensors.items():
            held[t] = _view(plan, ring, c, load, nodes)
        if all(plan.holds(t) for t in c.tensors):
            nodes += [line("fence_async_shared()"), ring.release(c)]
    late = [c for c in kept if not all(plan.holds(t) for t in c.tensors)]
    adds = all(only_accumulates(x) for x in plan.walk)
    ahead = adds and all(plan.buffers(c) > 1 for c in plan.channels if c.streamed)
    if plan.tensor_memory and (plan.rotated or not ahead):
        nodes.append(line("first = block"))
    if plan.rotated:
        nodes += _rotated(plan, ring, held, late)
    elif ahead:
        nodes += _accumulating(plan, ring, held, late)
    else:
        nodes += _in_order(plan, ring, held, late)
    nodes += plan.after
    return pruned([_of_own_rows(n, plan, start.out, own) for n in nodes])


def _of_own_rows(n: Node | For, plan: Plan, start: Value, own: Value) -> Node | For:
    """Vectors and stores begin at the consumer's first row, loop bounds go by the whole tile."""
    if isinstance(n, Op):
        if n.kind == "arange" and n.attr == plan.split:
            return Op(n.kind, n.out, (own,), n.attr, n.note)
        if n.kind == "store" and n.attr.tma:
            return Op(n.kind, n.out, tuple(own if a is start else a for a in n.args), n.attr, n.note)
        return n
    body = [_of_own_rows(x, plan, start, own) for x in n.body]
    if isinstance(n, For):
        return For(n.var, n.lo, n.hi, body, n.note, n.flags)
    if isinstance(n, If):
        return If(n.condition, body, n.note)  # type: ignore[arg-type]
    return turning(n, body)


def _view(plan: Plan, ring: Ring, c: Channel, load: Op, nodes: Nodes, at: str = "block") -> Value:
    """The load's value as an operand: a buffer, or registers where the schedule holds it there."""
    assert load.out is not None
    part = plan.split in load.out.dims and not c.own and plan.consumers > 1
    tensor = attr_of(load).tensor
    view = Value(tensor, load.out.dims, load.out.dtype)
    nodes.append(Op("view", view, (), (tensor, ring.slot(c, at), part)))
    if c.streamed or not plan.holds(tensor):
        return view
    dot = next(d for d in plan.kernel.ops() if d.kind == "dot" and d.args[0] is load.out)
    assert dot.out is not None
    value = Value(tensor, load.out.dims, load.out.dtype)
    nodes.append(Op("hold", value, (view,), (dot.out.dims, load.out.dtype)))
    return value


def _operands(
    plan: Plan, ring: Ring, dot: Op, loop: Loop, held: dict[str, Value], nodes: Nodes, at: str
) -> list[Value]:
    """The two operands of a product of the block `at`, views of buffers in front of it."""
    made = {n.out: n for n in loop.body if isinstance(n, Op) and n.out is not None}
    tile = {load.out: held[t] for c in plan.channels if not c.streamed for t, load in c.tensors.items()}
    found = []
    for x in dot.args[:2]:
        if x in tile:
            found.append(tile[x])
        elif x in made and made[x].kind == "load" and made[x].attr.tma:
            found.append(_view(plan, ring, plan.channel(made[x].attr.tensor), made[x], nodes, at))
        else:
            assert dot.out is not None
            found.append(Value(x.name, x.dims, x.dtype))
            nodes.append(Op("operand", found[-1], (x,), (dot.out.dims, x.dtype)))
    return found


def _channels_of(plan: Plan, dot: Op, loop: Loop) -> list[Channel]:
    made = {n.out: n for n in loop.body if isinstance(n, Op) and n.out is not None}
    tensors = [made[x].attr.tensor for x in dot.args[:2] if x in made and made[x].kind == "load" and made[x].attr.tma]
    return [c for c in plan.channels if c.streamed and any(t in c.tensors for t in tensors)]


def _accumulating(plan: Plan, ring: Ring, held: dict[str, Value], late: list[Channel]) -> Nodes:
    """Nothing but products into one accumulator: the next one is issued before the last one is waited for."""
    nodes: Nodes = [line("first = block")]
    acc: Value | None = None
    streamed: list[Channel] = []
    for loop in plan.walk:
        (dot,) = (n for n in loop.body if isinstance(n, Op) and n.kind == "dot")
        acc, streamed = dot.args[2], _channels_of(plan, dot, loop)
        body: Nodes = [ring.wait_full(c) for c in streamed]
        a, b = _operands(plan, ring, dot, loop, held, body, "block")
        body += [issue(dot.out, (a, b, acc), dot), settle(acc, 1, "block - 1")]
        body += [ring.release(c, "block - 1", "block > first") for c in streamed]
        body.append(line("block += 1"))
        nodes.append(turning(loop, body))
    assert acc is not None
    nodes.append(settle(acc, 0, "block - 1"))
    nodes += [ring.release(c, "block - 1", "block > first") for c in streamed]
    return [*nodes, *(ring.release(c) for c in late)]


def _in_order(plan: Plan, ring: Ring, held: dict[str, Value], late: list[Channel]) -> Nodes:
    """Every product is waited for where it stands."""
    nodes: Nodes = []
    for loop in plan.walk:
        body: Nodes = []
        dots = [n for n in loop.body if isinstance(n, Op) and n.kind == "dot"]
        for n in loop.body:
            if isinstance(n, Op) and n.kind == "load" and n.attr.tma:
                continue
            if n not in dots:
                body.append(n)
                continue
            assert isinstance(n, Op)
            mine = _channels_of(plan, n, loop)
            behind, ahead = (_others(plan, loop, x) for x in (dots[: dots.index(n)], dots[dots.index(n) + 1 :]))
            body += [ring.wait_full(c) for c in mine if c not in behind]
            a, b = _operands(plan, ring, n, loop, held, body, "block")
            body += [issue(n.out, (a, b, *n.args[2:]), n), settle(_value(n))]
            body += [ring.release(c) for c in mine if c not in ahead]
        body.append(line("block += 1"))
        nodes.append(turning(loop, body))
    return [*nodes, *(ring.release(c) for c in late)]


def _others(plan: Plan, loop: Loop, dots: list[Op]) -> list[Channel]:
    return [c for d in dots for c in _channels_of(plan, d, loop)]


def _value(n: Op) -> Value:
    return n.args[2] if len(n.args) == 3 else n.out  # type: ignore[return-value]


def _rotated(plan: Plan, ring: Ring, held: dict[str, Value], late: list[Channel]) -> Nodes:
    """From the last block to the first, so that the blocks with masks come first, once: each block's first product runs
    beside the last block's second one, and its arithmetic beside the latter."""
    nodes: Nodes = []
    last, blocks, ends = _walked_down(plan, nodes)
    axis = plan.walk[0].axis
    cuts = [_cut(x) for x in plan.walk]
    left = Value(f"{cuts[-1].deferred.args[0].name}_left", cuts[-1].deferred.args[0].dims, "")
    first = plan.walk[-1]
    nodes += _step(plan, ring, first, held, left, blocks, last)
    previous: Value | None = None
    for loop, end in zip(reversed(plan.walk), ends, strict=True):
        if previous is None and once(plan):
            previous = end
            continue
        inner: Nodes = [line("block += 1"), Op("from", loop.start, (last,), axis)]
        inner += _step(plan, ring, loop, held, left, blocks, None)
        lo: str | Value = "1"
        if previous is not None:
            lo = Value("begin", (), "i32")
            nodes.append(Op("total", lo, (previous,)))
        nodes.append(For("j", lo, end, inner, loop.note, loop.only_if))
        previous = end
    nodes += [ring.release(c) for c in late]
    cut = cuts[-1]
    nodes += _in_turn(plan, _deferred(plan, ring, first, cut, held, left, "block"))
    (second,) = _channels_of(plan, cut.deferred, first)
    nodes += [settle(cut.deferred.args[2]), ring.release(second), line("block += 1")]
    return nodes


def _loaded(cut: Rotation) -> list[Op]:
    """A block's vectors, on their way while its product is."""
    wanted = [n.out for n in cut.early if isinstance(n, Op) and n.kind == "load" and n.out is not None]
    return needed(cut.early, [v for v in wanted if all(d.endswith(ONCE) for d in v.dims)])


def _in_turn(plan: Plan, issued: Nodes) -> Nodes:
    """Products that a group issues when it is its turn, where groups take turns."""
    return [line(take()), *issued, line(hand_on(plan))] if takes_turns(plan) else issued


def _cut(loop: Loop) -> Rotation:
    found = rotation(loop.body)
    assert found is not None
    return found


def _deferred(plan: Plan, ring: Ring, loop: Loop, cut: Rotation, held: dict[str, Value], left: Value, at: str) -> Nodes:
    """The second product of the block `at`, under way."""
    nodes: Nodes = []
    (second,) = _channels_of(plan, cut.deferred, loop)
    nodes.append(ring.wait_full(second, at))
    _, b = _operands(plan, ring, cut.deferred, loop, held, nodes, at)
    acc = cut.deferred.args[2]
    return [*nodes, issue(Value(acc.name, acc.dims, acc.dtype), (left, b, acc), cut.deferred, at)]


def _step(
    plan: Plan, ring: Ring, loop: Loop, held: dict[str, Value], left: Value, blocks: Value, first: Value | None
) -> Nodes:
    """One block; `first`: the first index of the tile's first one, which finds no product to go on with."""
    if first is not None:
        known: dict[Value, Value] = {loop.start: first}
        loop = replace(loop, start=first, body=copied(loop.body, known))
    cut = _cut(loop)
    product, acc = cut.product, cut.deferred.args[2]
    assert product.out is not None
    firsts = _channels_of(plan, product, loop)
    nodes: Nodes = []
    if first is not None:
        nodes += [ring.wait_full(c) for c in firsts]
    nodes += cut.front
    a, b = _operands(plan, ring, product, loop, held, nodes, "block")
    issued: Nodes = [issue(product.out, (a, b), product)]
    if first is None:
        issued += _deferred(plan, ring, loop, cut, held, left, "block - 1")
    nodes += _in_turn(plan, issued)
    loaded = _loaded(cut)
    nodes += loaded
    cut = replace(cut, early=[n for n in cut.early if n not in loaded])
    nodes.append(settle(product.out, 0 if first is not None else 1))
    early, late, x = cut.early, cut.late, cut.deferred.args[0]
    guess = speculation(cut) if first is None and plan.kernel.schedule.rescale[0] == "speculative" else None
    if guess is not None:
        again = Value(product.out.name, product.out.dims, product.out.dtype)
        redo = [issue(again, (a, b), product), settle(again)]
        nodes += guess.guarded(again, redo)
        early, late, x = guess.early, guess.late, guess.variables[x]
    nodes += [ring.release(c) for c in firsts]
    nodes += early
    # The wait for the next block is a boundary that keeps the wait for the product behind the arithmetic.
    nodes.append(Op("more", None, (blocks,), "1 < {}" if first is not None else "j + 1 < {}"))
    nodes += [ring.wait_full(c, "block + 1", "more") for c in firsts]
    if first is None:
        (second,) = _channels_of(plan, cut.deferred, loop)
        nodes += [settle(acc, 0, "block - 1"), ring.release(second, "block - 1")]
        nodes += late
    operand = Value(x.name, x.dims, x.dtype)
    nodes += [Op("operand", operand, (x,), (acc.dims, x.dtype)), Op("set", None, (operand,), left)]
    return nodes
