"""From terms and a schedule to the tile program of one kernel.

`tile_kernel` reads top to bottom: factors move out of sums, axes get their roles, the stream is cut into passes whose
maxima become running references where they cancel, and what nobody reads is dropped.
"""

from __future__ import annotations

from dsl.algebra import move_factors, resolve_reads
from dsl.schedule import KernelSchedule
from dsl.terms import Graph
from dsl.tile import If, Loop, Node, Op, TileKernel, Value
from dsl.tiling.coordinates import BYTES
from dsl.tiling.passes import Passes
from dsl.tiling.regions import NotLowered
from dsl.tiling.roles import assign_roles

__all__ = ["BYTES", "NotLowered", "tile_kernel"]


def tile_kernel(
    graph: Graph, schedule: KernelSchedule, name: str, powers_of_two: frozenset[str] = frozenset()
) -> TileKernel:
    """The tile program of the kernel that writes `graph.outputs`. Whole axes in `powers_of_two` need no padding mask.

    Raises NotLowered where a construct has no lowering on this schedule.
    """
    outputs = dict(graph.outputs)
    for rewrite in (resolve_reads, move_factors):
        changed = rewrite(graph, outputs.values())
        outputs = {n: changed[t] for n, t in outputs.items()}
        graph.names = {n: changed.get(t, t) for n, t in graph.names.items()}
    kernel = assign_roles(graph, schedule, name, outputs, powers_of_two)
    Passes(kernel, outputs).build()
    _drop_dead(kernel)
    return kernel


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
