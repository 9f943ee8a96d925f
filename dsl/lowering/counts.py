"""What a tile program does on one workload, counted: the input of the prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dsl.lowering.lowered import Params, Profile, Segment, Sizes
from dsl.polynomial import OPERATIONS
from dsl.tile import If, Loop, Node, Op, TileKernel, Value
from dsl.tiling import BYTES

Scalar = Any  # a number, or an array of what it is at several positions
TRANSCENDENTAL = {
    "exp": 1, "exp2": 1, "log": 1, "log2": 1, "sin": 1, "cos": 1, "rsqrt": 1, "sqrt": 1, "tanh": 2, "sigmoid": 2,
    "silu": 2, "gelu_tanh": 2, "softplus": 2,
}  # fmt: skip
ALU = {"gelu": 20, "erf": 16, "sigmoid": 2, "silu": 3, "gelu_tanh": 8, "softplus": 4, "tanh": 3, "/": 2}


@dataclass
class _Counts:
    dots: list[tuple[int, int, int, str]] = field(default_factory=list)
    exps: float = 0
    alu: float = 0
    reduced: float = 0
    load_bytes: float = 0
    store_bytes: float = 0

    def segment(self, name: str, trips: tuple[int, ...]) -> Segment:
        return Segment(
            name, trips, tuple(self.dots), self.exps, self.alu, self.reduced, self.load_bytes, self.store_bytes
        )


def profile(kernel: TileKernel, sizes: Sizes, params: Params) -> Profile:
    """Counts per region of one tile, and how often each region runs: once, or as often as its loop turns.

    Trips are listed in launch order per block of the grid axis that changes them (a causal row block), else as one
    number; the list starts again where the tiles outnumber it.
    """
    from dsl.lowering.launch import extents, tiles

    known = extents(kernel.graph, sizes)
    given = {p.name: p.default for p in kernel.graph.params.values() if p.default is not None} | dict(params)
    main = _Counts()
    segments: list[Segment] = []
    _count(kernel, kernel.body, main, known)
    axis = _deciding_axis(kernel)
    blocks, repeat = [0], 1
    if axis is not None:
        step = kernel.lengths.get(axis, 1)
        blocks = list(range(0, known[axis], step))
        order, args = kernel.schedule.order
        if axis in args if order == "reverse" else order == "longest_first" and axis == kernel.reversed_axis:
            blocks.reverse()
        faster = kernel.grid[kernel.grid.index(axis) + 1 :] if axis in kernel.grid else ()
        repeat = math.prod(-(-known[a] // kernel.lengths.get(a, 1)) for a in faster)
    loops: list[tuple[Loop | None, Loop]] = []  # (the loop around it, the loop)
    for n in kernel.body:
        if isinstance(n, Loop):
            nested = [x for x in n.body if isinstance(x, Loop)]
            if not nested or any(isinstance(x, Op) and x.out is not None and x.out.dims for x in n.body):
                loops.append((None, n))
            loops += [(n, x) for x in nested]
    import numpy as np  # a check without a prediction needs none: it would take a third of its time

    trips: list[tuple[int, ...]] = []
    # of all blocks at once: an axis may have thousands
    values = scalars(kernel.body, kernel, known, given, {axis: np.array(blocks)} if axis else {}, {})
    for outer, loop in loops:
        around: Any = 1
        if outer is not None:
            around = _turns(kernel, outer, values)
            values = scalars(outer.body, kernel, known, given, {}, {**values, outer.start: values[outer.lo]})
        trips.append(tuple(np.broadcast_to(around * _turns(kernel, loop, values), len(blocks)).tolist()))
    segments.append(main.segment("tile", (1,)))
    for i, (_, loop) in enumerate(loops):
        inner = _Counts()
        _count(kernel, loop.body, inner, known)
        turns = trips[i]
        if len(set(turns)) > 1:
            turns = tuple(t for t in turns for _ in range(repeat))
        segments.append(
            inner.segment("masked loop" if loop.masked else "loop", turns if len(set(turns)) > 1 else turns[:1])
        )
    widest = max((_size(kernel, op.out.dims, known) for op in kernel.ops() if op.out is not None), default=0)
    return Profile(tiles(kernel, known), tuple(segments), widest)


def _turns(kernel: TileKernel, loop: Loop, values: Mapping[Value, Scalar]) -> Any:
    import numpy as np

    step = kernel.lengths.get(loop.axis, 1)
    return np.maximum(0, -(-np.asarray(values[loop.hi] - values[loop.lo]).astype(np.int64) // step))


def _deciding_axis(kernel: TileKernel) -> str | None:
    """The grid axis whose block decides how often the loops turn."""
    starts = {op.out: op.attr for op in kernel.ops() if op.kind == "start"}
    made = {op.out: op for op in kernel.ops() if op.out is not None}
    seen: set[Value] = set()
    stack = [v for n in kernel.body if isinstance(n, Loop) for v in (n.lo, n.hi)]
    while stack:
        v = stack.pop()
        if v in starts:
            return str(starts[v])
        if v in made and v not in seen:
            seen.add(v)
            stack += made[v].args
    return None


def scalars(
    body: list[Node],
    kernel: TileKernel,
    known: Mapping[str, int],
    params: Mapping[str, float],
    starts: Mapping[str, Scalar],
    before: Mapping[Value, Scalar],
) -> dict[Value, Scalar]:
    """Every scalar of a region that follows from extents, params, the tile's position and what was known before.

    starts: axis -> the position, or an array of several; what follows from these is an array as long.
    """
    import numpy as np

    from dsl.interpret import scalar_function
    from dsl.lowering.launch import ratio

    values: dict[Value, Scalar] = dict(before)
    for op in body:
        if not isinstance(op, Op) or op.out is None or op.out.dims:
            continue
        match op.kind:
            case "const":
                values[op.out] = op.attr
            case "extent":
                values[op.out] = known[op.attr]
            case "tail":
                values[op.out] = known[op.attr] % kernel.lengths.get(op.attr, 1) != 0
            case "block":
                values[op.out] = kernel.lengths.get(op.attr, 1)
            case "ratio":
                values[op.out] = ratio(kernel.graph, op.attr, known)
            case "param":
                values[op.out] = params.get(op.attr, 0)
            case "start":
                values[op.out] = starts.get(op.attr, 0)
            case "select":
                flag, a, b = op.args
                if all(x in values for x in op.args):
                    if np.ndim(values[flag]):
                        values[op.out] = np.where(values[flag], values[a], values[b])
                    else:
                        values[op.out] = values[a] if values[flag] else values[b]
            case "map":
                if all(a in values for a in op.args):
                    values[op.out] = scalar_function(op.attr, [values[a] for a in op.args])
    return values


def _size(kernel: TileKernel, dims: tuple[str, ...], known: Mapping[str, int]) -> int:
    from dsl.lowering.launch import block_length

    return math.prod(block_length(kernel, d, known) for d in dims)


def _count(kernel: TileKernel, nodes: list[Node], into: _Counts, known: Mapping[str, int]) -> None:
    for n in nodes:
        if isinstance(n, If):
            _count(kernel, n.body, into, known)
        elif isinstance(n, Op):
            _count_op(kernel, n, into, known)


def _count_op(kernel: TileKernel, op: Op, into: _Counts, known: Mapping[str, int]) -> None:
    match op.kind:
        case "load":
            assert op.out is not None
            into.load_bytes += _size(kernel, op.out.dims, known) * BYTES[op.out.dtype]
        case "store":
            value = op.args[0]
            into.store_bytes += _size(kernel, value.dims, known) * BYTES[value.dtype]
        case "dot":
            assert op.out is not None
            m, n = (_size(kernel, (d,), known) for d in op.out.dims)
            (k,) = (d for d in op.args[0].dims if d not in op.out.dims)
            into.dots.append((m, n, _size(kernel, (k,), known), op.attr.dtype))
        case "map" if op.out is not None and op.out.dims:
            size = _size(kernel, op.out.dims, known)
            into.exps += size * TRANSCENDENTAL.get(op.attr, 0)
            if op.attr not in TRANSCENDENTAL or op.attr in ALU:
                into.alu += size * ALU.get(op.attr, 1)
        case "exp2":
            assert op.out is not None
            size = _size(kernel, op.out.dims, known)
            share = size // op.attr[0]
            into.exps += size - share
            into.alu += share * OPERATIONS
        case "cast":
            assert op.out is not None
            into.alu += _size(kernel, op.out.dims, known)
        case "rank":
            into.alu += 4 * _size(kernel, op.args[0].dims, known) ** 2
        case "reduce" | "scan":
            into.reduced += _size(kernel, op.args[0].dims, known)
