"""How a tile program is split between warps with roles: what is loaded by whom, and the order of the consumers' work.

Nothing is computed anew here. Loads of operands of matrix products go to the warps that load, as channels: buffers in
shared memory with a barrier that says full and one that says empty. All else is the consumers'; each takes its share
of the rows. The result is one list of nodes for each role, which `dsl.lowering.gluon.body` prints.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dsl.lowering.counts import scalars
from dsl.schedule import held_blocks
from dsl.tile import DotAttr, If, LoadAttr, Loop, Node, Op, TileKernel, Value

# More kinds of ops, for the consumers alone:
# view      -                         str: a buffer in shared memory, as source
# hold      view                      (out dims): the view as an operand in registers
# operand   x                         (out dims): a computed value as the left operand of a product
# issue     a, b[, acc]               (DotAttr, block): the block's product is under way, its value not there yet
# settle    product                   (how many products may still be under way, block): the block's product is there
# line      -                         str: a statement of its own; all that stands before it comes before it
WARPGROUP = 128
ROWS = 64  # of one wgmma: rows that 4 warps multiply at once
WIDEST = 256  # columns of one wgmma
OPERANDS = {"bf16": "f32", "f16": "f32", "e4m3": "f32", "e5m2": "f32", "int8": "i32"}  # and what a product of them is


class NotSpecialised(Exception):
    """Why this kernel has no specialised form (yet): the plain lowering takes it."""


@dataclass(eq=False)
class Channel:
    """Tensors that arrive together. `streamed`: at every block of the loop, else once a tile; `own`: each consumer has
    its rows in a buffer of its own. `tensors`: name -> the load."""

    tensors: dict[str, Op]
    streamed: bool
    own: bool

    @property
    def name(self) -> str:
        return "_".join(self.tensors)


@dataclass(eq=False)
class Plan:
    """What each role does. `walk`: the loops over blocks, in ascending order; `rotated`: the product that reads what a
    block computed is issued with the next block's first one."""

    kernel: TileKernel
    split: str
    consumers: int
    rows: int
    channels: list[Channel]
    walk: list[Loop]
    before: list[Node]
    after: list[Node]
    rotated: bool
    tensor_memory: bool = False  # products are left there (sm_100), not in registers
    stored: list[str] = field(default_factory=list)  # tensors that leave through shared memory

    def holds(self, tensor: str) -> bool:
        """Whether the schedule wants an operand that no trip changes in registers: left operands alone can be, and in
        turned loops alone. Where a block's products are issued in order, ptxas gives these registers to the second
        product's operand and does not bring the values back: seen in the machine code (Triton 3.6.0), and as wrong
        results on an H200 by a search."""
        wanted = dict(self.kernel.schedule.hold).get(tensor) == "registers" and not self.tensor_memory and self.rotated
        loads = {op.out for op in self.kernel.ops() if op.kind == "load" and op.attr.tensor == tensor}
        dots = [d for d in self.kernel.ops() if d.kind == "dot" and loads.intersection(d.args)]
        return wanted and all(d.args[0] in loads and not d.attr.transpose_a for d in dots)

    def buffers(self, c: Channel) -> int:
        """How many blocks of a walked channel are held at a time: of its tensors the fewest."""
        return min(max(1, held_blocks(self.kernel.schedule, t)) for t in c.tensors)

    def channel(self, tensor: str) -> Channel:
        return next(c for c in self.channels if tensor in c.tensors)


def stored_directly(kernel: TileKernel) -> TileKernel:
    """The kernel with stores from registers, by pointers, of the outputs that `hold NAME registers` names: that costs
    scattered writes and saves the buffer in shared memory."""
    wanted = {t for t, where in kernel.schedule.hold if where == "registers"}
    body: list[Node] = []
    for n in kernel.body:
        if not isinstance(n, Op) or n.kind != "store" or not n.attr.tma or n.attr.tensor not in wanted:
            body.append(n)
            continue
        value, *starts = n.args
        places, masked = [], {}
        for start, c in zip(starts, n.attr.coordinates, strict=True):
            if c.axis is None:
                places.append(start)
                continue
            places.append(Value(f"{c.axis}s", (c.axis,), "i32"))
            body.append(Op("arange", places[-1], (start,), c.axis))
            if c.axis in kernel.lengths or c.axis in kernel.padded:
                masked[c.axis] = places[-1]
        attr = LoadAttr(n.attr.tensor, n.attr.coordinates, tuple(masked))
        body.append(replace(n, args=(value, *places, *masked.values()), attr=attr))
    return replace(kernel, body=body)


def make_plan(kernel: TileKernel) -> Plan:
    """Raises NotSpecialised with the reason where the kernel does not fit."""
    s = kernel.schedule
    assert s.roles is not None
    loops = [n for n in kernel.body if isinstance(n, Loop)]
    if not loops or len({x.axis for x in loops}) > 1:
        raise NotSpecialised("it has no loop over one axis whose blocks warps could load ahead")
    if s.skip:
        raise NotSpecialised("`skip` jumps over blocks that the loading warps would have to know")
    first, last = kernel.body.index(loops[0]), kernel.body.index(loops[-1])
    before, between, after = kernel.body[:first], kernel.body[first:last], kernel.body[last + 1 :]
    between = [n for n in between if not isinstance(n, Loop)]
    if any(isinstance(n, Loop | If) for n in (*before, *between, *after)) or _touch(between, _sets(loops)):
        raise NotSpecialised("it walks its blocks in more than one pass")
    if any(isinstance(n, Loop) for x in loops for n in x.body):
        raise NotSpecialised("it has a loop within a loop")
    if any(op.kind == "dot" for op in (*_flat(before), *_flat(between), *_flat(after))):
        raise NotSpecialised("it has a matrix product outside of its loop")
    split = _split(kernel)
    consumers = s.roles[1]
    length = kernel.lengths[split]
    rows = length // consumers
    if length % consumers or rows % ROWS:
        raise NotSpecialised(f"`tile {split}={length}` is no {ROWS} rows or more for each of {consumers} groups")
    channels = _channels(kernel, loops, split, consumers)
    streamed = [c for c in channels if c.streamed]
    if not streamed:
        raise NotSpecialised("no operand of a product is loaded at every block")
    plan = Plan(kernel, split, consumers, rows, channels, loops, [*before, *between], after, False)
    for op in kernel.ops():
        if op.kind == "store" and op.attr.tma and op.attr.tensor not in plan.stored:
            plan.stored.append(op.attr.tensor)
    # what the deferred product reads is handed back after the next block's first operand has come, which is asked for
    # behind it: with one buffer all would wait for each other
    turned = s.issue == "next_contraction" and plan.buffers(streamed[-1]) > 1
    plan.rotated = turned and all(rotation(x.body) is not None for x in loops)
    return plan


def once(plan: Plan) -> bool:
    """Whether the last loop visits at most one block of any tile, so that the first block of the walk is all of it.

    Its bounds are minima and roundings of the tile's first row and the extent: they change at multiples of the block
    lengths, so those and their neighbours are all that has to be looked at.
    """
    k, loop = plan.kernel, plan.walk[-1]
    axis, rows = loop.axis, plan.split
    needs = needed(plan.before, (loop.lo, loop.hi))
    flags = [op.attr for op in needs if op.kind == "param" and k.graph.params[op.attr].dtype == "bool"]
    for op in needs:
        known = {"extent": (axis,), "start": (rows,), "block": (axis, rows), "param": flags}.get(op.kind)
        if op.kind not in ("const", "map", "select", "tail") and (known is None or op.attr not in known):
            return False
    down, across = k.lengths[rows], k.lengths.get(axis, 1)
    step = math.gcd(down, across)
    ends = [n + d for n in range(step, 4 * max(down, across) + 1, step) for d in (-1, 0, 1)]
    for start in range(0, 4 * max(down, across), down):
        for chosen in itertools.product((False, True), repeat=len(flags)):
            for end in ends:
                params = dict(zip(flags, chosen, strict=True))
                found = scalars(list(needs), k, {axis: end}, params, {rows: start}, {})
                if loop.lo not in found or loop.hi not in found or found[loop.hi] - found[loop.lo] > across:
                    return False
    return True


def _split(kernel: TileKernel) -> str:
    """The axis whose rows the consumers share out: the rows of every product."""
    dots = [op for op in kernel.ops() if op.kind == "dot"]
    rows = {op.out.dims[0] for op in dots if op.out is not None}
    if len(rows) != 1:
        raise NotSpecialised("its products have no common rows to share out" if rows else "it has no matrix product")
    (split,) = rows
    if split not in kernel.grid or split not in kernel.lengths:
        raise NotSpecialised(f"the rows of its products, `{split}`, are not cut by the grid")
    for op in kernel.ops():
        if op.kind == "store" and split not in op.args[0].dims:
            raise NotSpecialised(f"`{op.attr.tensor}` has no axis `{split}`, whose rows the groups share out")
        if op.kind == "reduce" and split in op.attr[1] and op.out is not None and op.args[0].dims != (split,):
            raise NotSpecialised(f"it reduces over `{split}`, whose rows the groups share out")
        if op.kind in ("rank", "scan") or (op.kind == "reduce" and op.attr[0] in ("prod", "argmax")):
            what = "topk" if op.kind == "rank" else op.attr[0]
            raise NotSpecialised(f"`{what}` has no specialised form")
        if op.kind == "dot":
            a, b = op.args[:2]
            attr: DotAttr = op.attr
            if OPERANDS.get(attr.dtype) != attr.out:
                raise NotSpecialised(f"a product of {attr.dtype} into {attr.out} has no specialised form yet")
            if split in b.dims or (set(a.dims) == {split} | set(b.dims)):
                raise NotSpecialised(f"a product sums over `{split}`")
            if attr.dtype in ("e4m3", "e5m2", "int8") and (attr.transpose_a or not attr.transpose_b):
                raise NotSpecialised("8-bit operands have to be contiguous along the axis that is summed")
    return split


def _sets(nodes: Iterable[Node]) -> set[Value]:
    found: set[Value] = set()
    for n in nodes:
        if isinstance(n, Op):
            found |= {n.attr} if n.kind == "set" else set()
        else:
            found |= _sets(n.body)
    return found


def _touch(nodes: Iterable[Node], values: set[Value]) -> bool:
    return any(isinstance(n, Op) and (values.intersection(n.args) or n.attr in values) for n in nodes)


def _flat(nodes: Iterable[Node]) -> list[Op]:
    found: list[Op] = []
    for n in nodes:
        found += [n] if isinstance(n, Op) else _flat(n.body)
    return found


def _channels(kernel: TileKernel, loops: list[Loop], split: str, consumers: int) -> list[Channel]:
    made = {op.out: op for op in kernel.ops() if op.out is not None}
    dots = [op for op in kernel.ops() if op.kind == "dot"]
    for dot in dots:
        left, right = (made.get(x) for x in dot.args[:2])
        if right is None or right.kind != "load" or not right.attr.tma:
            name = right.attr.tensor if right is not None and right.kind == "load" else dot.args[1].name
            raise NotSpecialised(f"`{name}`, the right operand of a product, does not come from memory by `load tma`")
        if dot.attr.transpose_a and (left is None or left.kind != "load"):
            raise NotSpecialised(f"`{dot.args[0].name}` is computed and would have to be turned")
    operands = {x for d in dots for x in d.args[:2] if x in made and made[x].kind == "load" and made[x].attr.tma}
    for op in kernel.ops():
        if op.kind != "dot" and operands.intersection(op.args):
            name = next(x for x in op.args if x in operands).name
            raise NotSpecialised(f"`{name}` is an operand of a product and is also read by other arithmetic")
        if op.kind == "load" and op.attr.tma and op.out not in operands:
            raise NotSpecialised(f"`{op.attr.tensor}` comes by `load tma` and is no operand of a product")
    inside = [{op.out for op in _flat(x.body)} for x in loops]
    groups: list[Channel] = []
    for number, names in enumerate(inside):
        here: list[Channel] = []
        for dot in (d for d in dots if d.out in names):
            fresh = [made[x] for x in dot.args[:2] if x in operands and x in names]
            fresh = [x for x in fresh if not any(x in c.tensors.values() for c in here)]
            if fresh:
                here.append(Channel({x.attr.tensor: x for x in fresh}, True, False))
        if number == 0:
            groups = here
        elif [c.name for c in here] != [c.name for c in groups]:
            raise NotSpecialised("its loops read different tensors")
        loads = sum(op.kind == "load" and op.attr.tma for op in _flat(loops[number].body))
        if loads != sum(len(c.tensors) for c in here):
            raise NotSpecialised("a tensor is read twice in a block")
    outside: dict[str, Op] = {}
    for x in operands:
        if not any(x in names for names in inside):
            op = made[x]
            if op.attr.tensor in outside or any(op.attr.tensor in c.tensors for c in groups):
                raise NotSpecialised(f"`{op.attr.tensor}` is read twice")
            outside[op.attr.tensor] = op
    for tensor, op in sorted(outside.items()):
        assert op.out is not None
        groups.insert(0, Channel({tensor: op}, False, split in op.out.dims and consumers > 1))
    names_ = [t for c in groups for t in c.tensors]
    if len(set(names_)) != len(names_):
        raise NotSpecialised("a tensor is read twice in a block")
    return groups


# -- the order of one block's work -------------------------------------------------------------------------------------


@dataclass(eq=False)
class Rotation:
    """One block's ops, cut for the rotated order: `front`: what the first product needs; `product`: that one; `early`:
    what may run beside the last block's second product; `late`: what touches its accumulator; `deferred`: this block's
    second product, which the next block issues."""

    front: list[Node]
    product: Op
    early: list[Node]
    late: list[Node]
    deferred: Op


def rotation(body: list[Node]) -> Rotation | None:
    """None where the body is no product, arithmetic on it, and a product into an accumulator that only that adds to."""
    dots = [n for n in _flat(body) if n.kind == "dot"]
    if len(dots) != 2 or any(d not in body for d in dots):
        return None
    product, deferred = dots
    variables = _sets(body)
    needs = _slice(body, product.args)
    if len(product.args) == 3 or len(deferred.args) != 3 or any(variables.intersection(n.args) for n in needs):
        return None
    acc = deferred.args[2]
    if deferred.out is None or product.out is None:
        return None
    if not any(isinstance(n, Op) and n.kind == "set" and n.attr is acc and n.args == (deferred.out,) for n in body):
        return None
    touched = {acc, deferred.out}
    late: list[Node] = []
    early: list[Node] = []
    for n in body:
        if n is product or n is deferred or n in needs:
            continue
        if isinstance(n, Op):
            if n.kind == "load":
                if n.attr.tma:
                    continue
                early.append(n)
            elif n.kind == "set" and n.args == (deferred.out,):
                continue
            elif touched.intersection(n.args) or n.attr is acc:
                late.append(n)
                touched |= {n.out} if n.out is not None else set()
                if n.kind == "set" and n.attr is not acc:
                    return None  # something else follows from the accumulator
            else:
                early.append(n)
        elif isinstance(n, If):
            if _sets([n]) <= {acc}:
                late.append(n)
            elif acc in _sets([n]):
                return None
            else:
                early.append(n)
    front = [n for n in needs if n.kind != "load"]
    return Rotation(list(front), product, early, late, deferred)


def _slice(body: list[Node], wanted: Iterable[Value]) -> list[Op]:
    """The ops of this body that the values need, in order."""
    need, found = set(wanted), []
    for n in reversed(body):
        if isinstance(n, Op) and n.out in need:
            found.append(n)
            need |= set(n.args)
    return found[::-1]


def needed(nodes: Iterable[Node], wanted: Iterable[Value]) -> list[Op]:
    """The ops, loops and branches left out, that the values need."""
    return _slice([n for n in nodes if isinstance(n, Op)], wanted)


def copied(nodes: list[Node], known: dict[Value, Value]) -> list[Node]:
    """The same nodes with values of their own; `known` maps old to new and grows. Variables stay."""

    def new(v: Value) -> Value:
        return known.get(v, v)

    found: list[Node] = []
    for n in nodes:
        if isinstance(n, Op):
            args = tuple(new(a) for a in n.args)
            out = n.out
            if out is not None:
                known[out] = out = Value(out.name, out.dims, out.dtype)
            found.append(replace(n, out=out, args=args))
        elif isinstance(n, If):
            found.append(replace(n, condition=new(n.condition), body=copied(n.body, known)))
        else:
            found.append(replace(n, lo=new(n.lo), hi=new(n.hi), body=copied(n.body, known)))
    return found


def attr_of(op: Op) -> LoadAttr:
    attr = op.attr
    assert isinstance(attr, LoadAttr)
    return attr


def only_accumulates(loop: Loop) -> bool:
    """Whether a block is a product into an accumulator and nothing else."""
    ops = [n for n in loop.body if not (isinstance(n, Op) and n.kind == "load")]
    dots = [n for n in ops if isinstance(n, Op) and n.kind == "dot"]
    rest = [n for n in ops if n not in dots]
    return (
        len(dots) == 1
        and len(dots[0].args) == 3
        and all(isinstance(n, Op) and n.kind == "set" and n.args == (dots[0].out,) for n in rest)
    )
