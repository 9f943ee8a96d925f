"""What each axis is in one kernel: cut by the grid, walked by a loop, held whole, held within a block, or riding along.

A block axis (`nb = n // 64`) rides where the tile of its fine axis is exactly one block: it then has one index a tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dsl.schedule import KernelSchedule
from dsl.syntax import Number, Span, Word
from dsl.terms import BLOCK_DTYPES, Graph, Term
from dsl.tile import TileKernel
from dsl.tiling.regions import NotLowered

STREAM_BLOCK = 64
LONGEST_BLOCK = 1024  # of an axis reduced within blocks, that a tile holds; longer ones are walked


@dataclass
class _Facts:
    """What the outputs need of each axis."""

    stored: dict[str, tuple[str, ...]]
    written: list[str]
    coarser: dict[str, set[str]]  # axis -> its blocks
    reduced: list[str] = field(default_factory=list)  # over all of it
    blocked: dict[str, str] = field(default_factory=dict)  # reduced within blocks: fine -> block axis
    inner: set[str] = field(default_factory=set)  # axes of reductions inside others alone
    kept: dict[str, str] = field(default_factory=dict)  # axes that something goes along in order -> what
    seen: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)  # tensors

    def everywhere(self, axis: str) -> bool:
        """Whether everything that the kernel writes has the axis or blocks of it, so that the grid may cut it."""
        return all(axis in axes or self.coarser[axis] & set(axes) for axes in self.stored.values())


def assign_roles(
    graph: Graph, schedule: KernelSchedule, name: str, outputs: dict[str, Term], powers_of_two: frozenset[str]
) -> TileKernel:
    """The empty tile program: every axis has its role. Raises NotLowered where the schedule leaves none that works."""
    facts = _facts(graph, outputs)
    if open_ := [d for d in schedule.directives if any(i.value == Word("?") for i in d.items)]:
        raise NotLowered(f"`{open_[0].name}` leaves a number open", open_[0].span, "put a number for `?`")
    if not any(d.name in ("tile", "grid", "stream") for d in schedule.directives):
        schedule = naive(graph, schedule, facts)
    stream = (schedule.stream,) if schedule.stream else ()
    grid = schedule.grid or tuple(
        a
        for a in facts.written
        if schedule.tile.get(a) != "all" and a not in (*stream, *facts.reduced) and facts.everywhere(a)
    )
    grid = tuple(a for a in grid if not _rides(graph, a, schedule, grid))
    _check_grid(graph, schedule, facts, grid, stream)
    lengths = {a: int(schedule.tile[a]) for a in (*grid, *stream) if schedule.tile.get(a, "all") != "all"}
    for a in stream:
        lengths.setdefault(a, STREAM_BLOCK)
    lengths = {a: n for a, n in lengths.items() if n > 1}
    riders = {
        c: f
        for c, axis in graph.axes.items()
        if c not in grid and (f := axis.fine) in (*grid, *stream) and f and _ratio(graph, c) == lengths.get(f, 1)
    }
    outer, bounded = [], {}
    for a, block in facts.blocked.items():
        if block in riders:
            continue  # the block is the tile
        if block not in grid:
            raise NotLowered(
                f"`{a}` is reduced within `{block}`, which is neither cut by the grid nor one tile of `{a}`",
                fix=f"tile {a}={_ratio(graph, block) or 'the length of a block'}, or add {block} to grid",
            )
        if block in lengths:
            raise NotLowered(f"`{a}` is reduced within `{block}`, one block at a time", fix=f"tile {block}=1")
        bounded[a] = block
        length = _ratio(graph, block)
        if a in stream:
            if not length or length % lengths.get(a, 1):
                raise NotLowered(f"blocks of `{block}` are no multiple of the tile of `{a}`", fix=f"tile {a}=...")
            continue
        if length and length & (length - 1) == 0 and length <= LONGEST_BLOCK:
            lengths[a] = length
        else:
            outer.append(a)
    inner = tuple(
        a
        for a in facts.reduced
        if isinstance(schedule.tile.get(a), int)
        and a not in (*grid, *stream, *facts.blocked, *facts.kept, *facts.written, *riders)
    )
    lengths |= {a: int(schedule.tile[a]) for a in inner if schedule.tile[a] != 1}  # one index a trip is no dimension
    whole = tuple(
        dict.fromkeys(
            a
            for a in (*facts.seen, *facts.reduced)
            if a not in (*grid, *stream, *outer, *bounded, *riders, *inner) and _held(graph, a, facts)
        )
    )
    padded = tuple(a for a in whole if a not in powers_of_two)
    return TileKernel(
        name,
        graph,
        schedule,
        grid,
        lengths,
        whole,
        padded,
        (*outer, *stream),
        riders=riders,
        bounded=bounded,
        inner=inner,
    )


def _facts(graph: Graph, outputs: dict[str, Term]) -> _Facts:
    stored = {n: graph.tensors[n][0] for n in outputs}
    written = list(dict.fromkeys(a for axes in stored.values() for a in axes))
    coarser = {a: {c for c in graph.axes if graph.coarse_over(c, a)} for a in graph.axes}
    facts = _Facts(stored, written, coarser)
    for out in outputs.values():
        for t in out.walk():
            facts.seen += [a for a in t.axes if a not in facts.seen]
            if what := _unspeakable(t):
                at = next((graph.lines[x] for x in (t, *out.walk()) if x in graph.lines and t in (x, *x.args)), Span())
                fix = "it is checked, counted and has a meaning; int8 or e4m3 run, with scales of blocks: qs[m kb]"
                raise NotLowered(f"{what} has no lowering yet", at, fix if t.dtype in BLOCK_DTYPES else "")
            if t.op == "input":
                facts.read += [t.attr] * (t.attr not in facts.read)
            if axis := along(t):
                facts.kept.setdefault(axis, t.attr[0])
                facts.reduced += [axis] * (axis not in facts.reduced)
            if t.op == "reduce":
                for a, block in zip(t.attr[1], t.attr[2], strict=True):
                    if not block:
                        facts.reduced += [a] * (a not in facts.reduced)
                    elif facts.blocked.setdefault(a, block) != block:
                        raise NotLowered(f"`{a}` is reduced within two kinds of blocks", graph.lines.get(t, Span()))
    facts.inner = _inner(graph, outputs)
    return facts


def _inner(graph: Graph, outputs: dict[str, Term]) -> set[str]:
    """Axes that are reduced only inside reductions over other axes: one loop would not meet all that needs them."""
    sums = {t: None for out in outputs.values() for t in out.walk() if t.op == "reduce"}
    inside: set[Term] = set()
    for outer in sums:
        axes = outer.attr[1]
        for t in outer.args[0].walk():
            if t.op == "reduce" and not any(_related(graph, a, b) for a in axes for b in t.attr[1]):
                inside.add(t)
    return {a for t in inside for a in t.attr[1]} - {a for t in sums if t not in inside for a in t.attr[1]}


def _related(graph: Graph, a: str, b: str) -> bool:
    return a == b or graph.coarse_over(a, b) or graph.coarse_over(b, a)


def along(t: Term) -> str:
    """The axis that this term goes along in order, so that a tile holds all of it; "" where there is none."""
    if t.op == "select" or (t.op == "scan" and not t.attr[2]):
        return str(t.attr[1])
    return str(t.attr[1][0]) if t.op == "reduce" and t.attr[0] == "argmax" else ""


def _unspeakable(t: Term) -> str:
    """What no tile program can say, or "" where it can."""
    if t.dtype in BLOCK_DTYPES:
        return f"`{t.dtype}` (one scale for {BLOCK_DTYPES[t.dtype]} elements, which takes scaled matrix instructions)"
    if t.op == "collective":
        return f"`{t.attr[0]}`"
    if t.op == "reduce" and t.attr[0] == "argmax" and t.attr[2][0]:
        return f"`argmax` within blocks of `{t.attr[2][0]}`"
    return ""


def _check_grid(
    graph: Graph, schedule: KernelSchedule, facts: _Facts, grid: tuple[str, ...], stream: tuple[str, ...]
) -> None:
    for a in (*grid, *stream):
        if a in facts.kept:
            raise NotLowered(f"`{facts.kept[a]}` goes along `{a}`, which one tile must hold whole", fix=f"tile {a}=all")
    for a in grid:
        if a in facts.reduced:
            raise NotLowered(
                f"axis `{a}` is reduced, so it cannot be a grid axis", fix=f"stream {a}, or leave it whole"
            )
        for n, axes in facts.stored.items():
            rider = next((c for c in axes if graph.axes[c].fine == a and _ratio(graph, c) == schedule.tile.get(a)), "")
            if a not in axes and not rider:
                raise NotLowered(
                    f"output `{n}` has no axis `{a}`, which the grid cuts", fix="write it by another kernel"
                )
    for n, axes in facts.stored.items():
        for a in axes:
            if schedule.grid and a not in (*grid, *stream) and schedule.tile.get(a) not in (None, "all"):
                fix = f"add {a} to grid"
                raise NotLowered(f"output axis `{a}` of `{n}` has a tile but is not in the grid", fix=fix)


def _ratio(graph: Graph, coarse: str) -> int | None:
    """How many fine indices a block holds, where the program fixes it."""
    ratio = graph.axes[coarse].ratio
    return ratio.value if isinstance(ratio, Number) and isinstance(ratio.value, int) else None


def _rides(graph: Graph, axis: str, schedule: KernelSchedule, grid: tuple[str, ...]) -> bool:
    """Whether a coarse axis moves with the tiles of its fine one, so that the grid need not cut it."""
    fine = graph.axes[axis].fine
    return fine in grid and fine is not None and _ratio(graph, axis) == schedule.tile.get(fine)


def _held(graph: Graph, axis: str, facts: _Facts) -> bool:
    """Whether the tile holds the axis whole: a coarse axis that is only read at a finer one is not held."""
    return axis in facts.written or axis in facts.reduced or graph.axes[axis].fine is None


def naive(graph: Graph, schedule: KernelSchedule, facts: _Facts) -> KernelSchedule:
    """The schedule of a kernel that says nothing of tile, grid or stream: correct for any size, fast for none.

    Blocks that are reduced become tiles; the last axis stays whole; one reduction, the longest by its looks (an axis
    that is not the last one of every tensor that has it), is streamed.
    """
    tile: dict[str, int | str] = {}
    stream, cut = None, set(facts.blocked.values())
    for a, block in facts.blocked.items():
        if not (length := _ratio(graph, block)):
            continue
        if a in facts.written:
            tile[a] = length
        elif block not in facts.written:  # the blocks are summed up in their turn: walk one after another
            stream, tile[a] = a, length
    first = next(iter(facts.stored.values()), ())
    last = first[-1] if first else ""
    tensors = [graph.tensors[n][0] for n in facts.read]

    def walked(a: str) -> bool:
        return (
            a != last
            and a not in facts.kept
            and a not in facts.inner
            and any(a in axes and axes[-1] != a for axes in tensors)
        )

    free = [a for a in facts.reduced if walked(a)]
    stream = stream or next((a for a in free if graph.axes[a].fine is None), None) or next(iter(free), None)
    if stream:
        tile.setdefault(stream, STREAM_BLOCK)
    grid = tuple(
        a
        for a in facts.written
        if a not in facts.reduced and a != stream and (a != last or a in tile or a in cut) and facts.everywhere(a)
    )
    return replace(schedule, tile=tile, grid=grid, stream=stream)
