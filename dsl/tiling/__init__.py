"""From terms and a schedule to the tile program of one kernel.

`tile_kernel` reads top to bottom: factors move out of sums, axes get their roles, the stream is cut into passes whose
maxima become running references where they cancel, and what nobody reads is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from dsl.algebra import move_factors
from dsl.schedule import KernelSchedule
from dsl.syntax import Span
from dsl.terms import Graph, Term
from dsl.tile import If, Loop, Node, Op, TileKernel, Value
from dsl.tiling.coordinates import BYTES
from dsl.tiling.passes import Passes
from dsl.tiling.regions import NotLowered

__all__ = ["BYTES", "NotLowered", "tile_kernel"]


def tile_kernel(
    graph: Graph, schedule: KernelSchedule, name: str, powers_of_two: frozenset[str] = frozenset()
) -> TileKernel:
    """The tile program of the kernel that writes `graph.outputs`. Whole axes in `powers_of_two` need no padding mask.

    Raises NotLowered where a construct has no lowering on this schedule.
    """
    moved = move_factors(graph, graph.outputs.values())
    outputs = {n: moved[t] for n, t in graph.outputs.items()}
    for old, new in moved.items():
        for n, t in graph.names.items():
            if t is old:
                graph.names[n] = new
    kernel = _roles(graph, schedule, name, outputs, powers_of_two)
    Passes(kernel, outputs).build()
    _drop_dead(kernel)
    return kernel


def _roles(
    graph: Graph, schedule: KernelSchedule, name: str, outputs: dict[str, Term], powers_of_two: frozenset[str]
) -> TileKernel:
    stored = {n: graph.tensors[n][0] for n in outputs}
    written = list(dict.fromkeys(a for axes in stored.values() for a in axes))
    loops: tuple[str, ...] = (schedule.stream,) if schedule.stream else ()
    reduced: list[str] = []
    for out in outputs.values():
        for t in out.walk():
            if t.op == "reduce":
                reduced += [a for a in t.attr[1] if a not in reduced]
            if t.op in ("scan", "select", "collective"):
                what = t.attr[0]
                raise NotLowered(f"`{what}` has no lowering yet", graph.lines.get(t, Span()))
            if t.op == "reduce" and any(t.attr[2]):
                raise NotLowered("a reduction within blocks has no lowering yet", graph.lines.get(t, Span()))
    grid = schedule.grid or _default_grid(written, reduced, schedule, loops)
    for a in grid:
        if a in reduced:
            raise NotLowered(
                f"axis `{a}` is reduced, so it cannot be a grid axis", fix=f"stream {a}, or leave it whole"
            )
        for n, axes in stored.items():
            if a not in axes:
                raise NotLowered(
                    f"output `{n}` has no axis `{a}`, which the grid cuts", fix="write it by another kernel"
                )
    for n, axes in stored.items():
        missing = [a for a in axes if a not in grid and a not in loops and schedule.tile.get(a) not in (None, "all")]
        if missing and schedule.grid:
            raise NotLowered(
                f"output axis `{missing[0]}` of `{n}` has a tile but is not in the grid",
                fix=f"add {missing[0]} to grid",
            )
    lengths = {a: int(schedule.tile[a]) for a in (*grid, *loops) if schedule.tile.get(a, "all") != "all"}
    lengths = {a: n for a, n in lengths.items() if n > 1}
    for a in loops:
        if a not in lengths and schedule.tile.get(a) is None:
            lengths[a] = 64
    seen = [a for out in outputs.values() for t in out.walk() for a in t.axes]
    whole = tuple(
        dict.fromkeys(
            a
            for a in (*seen, *reduced)
            if a not in grid and a not in loops and _held(graph, a, grid, loops, written, reduced)
        )
    )
    padded = frozenset(a for a in whole if a not in powers_of_two)
    return TileKernel(name, graph, schedule, tuple(grid), lengths, whole, padded, loops)


def _held(
    graph: Graph, axis: str, grid: Iterable[str], loops: Iterable[str], written: list[str], reduced: list[str]
) -> bool:
    """Whether the tile holds the axis whole: a coarse axis that is only read at a finer one is not held."""
    return axis in written or axis in reduced or graph.axes[axis].fine is None


def _default_grid(
    written: list[str], reduced: list[str], schedule: KernelSchedule, loops: tuple[str, ...]
) -> tuple[str, ...]:
    """Without a `grid` line: what is written, but for whole, streamed and reduced axes.

    A kernel that says nothing at all keeps its last axis whole too, so that a program has a row and no single element.
    """
    grid = tuple(a for a in written if schedule.tile.get(a) != "all" and a not in loops and a not in reduced)
    return grid if schedule.directives or not written else tuple(a for a in grid if a != written[-1])


def _drop_dead(kernel: TileKernel) -> None:
    """Removes ops whose value nobody reads, until none is left."""
    while _prune(kernel.body, _used(kernel.body)):
        pass


def _used(nodes: list[Node]) -> set[Value]:
    used: set[Value] = set()
    for n in nodes:
        match n:
            case Op():
                used.update(n.args)
            case If():
                used |= {n.condition} | _used(n.body)
            case Loop():
                used |= {n.lo, n.hi, *n.only_if} | _used(n.body)
    return used


def _prune(nodes: list[Node], used: set[Value]) -> int:
    dropped = sum(_prune(n.body, used) for n in nodes if not isinstance(n, Op))
    keep = [n for n in nodes if not isinstance(n, Op) or n.out is None or n.out in used]
    dropped += len(nodes) - len(keep)
    nodes[:] = keep
    return dropped
