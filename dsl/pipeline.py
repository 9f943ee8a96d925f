"""What it costs in bytes that a stage of a pipeline is a kernel of its own, and what fusing or storing it would change.

The value is the same either way (rule 17); a stage moves by one line: its name in `kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dsl.elaborate import elaborate
from dsl.schedule import kernels_of
from dsl.syntax import Program
from dsl.work import DTYPE_BYTES, Work, work


@dataclass(frozen=True)
class Move:
    """One name and the program in which it moves: into the kernels that use it, or out into one of its own.

    names: what moves together. stored: as the program stands. bytes_more, flops_more: of all kernels together, each of
    which reads an input once and writes an output once. Contractions that several tiles of a fused kernel compute again
    are not in flops_more: that depends on its tiles.
    """

    names: tuple[str, ...]
    stored: bool
    bytes_more: float
    flops_more: float


def stages(program: Program) -> tuple[tuple[str, ...], ...]:
    """What earlier kernels store for later ones, kernel by kernel."""
    outputs = {t.name for t in program.algorithm.outputs}
    return tuple(tuple(n for n in writes if n not in outputs) for writes in kernels_of(program)[:-1])


def fused(program: Program, names: tuple[str, ...]) -> Program:
    """The program in which these names are computed where they are used; a kernel that wrote nothing else goes."""
    kernels = tuple(k for w in program.schedule.kernels if (k := tuple(n for n in w if n not in names)))
    gone = {w for w in program.schedule.kernels if not set(w) - set(names)}
    blocks = tuple(b for b in program.schedule.blocks if b.writes not in gone)
    return replace(program, schedule=replace(program.schedule, kernels=kernels, blocks=blocks))


def stored(program: Program, names: tuple[str, ...]) -> Program:
    """The program with a kernel of its own for these names, before all that reads them."""
    order = [t.name for s in program.algorithm.statements for t in s.targets]
    kernels = [*kernels_of(program)]
    last = order.index(names[-1])
    at = next((i for i, w in enumerate(kernels) if any(order.index(n) > last for n in w)), len(kernels))
    kernels.insert(at, names)
    return replace(program, schedule=replace(program.schedule, kernels=tuple(kernels)))


def moves(program: Program, sizes: Mapping[str, int], params: Mapping[str, int | float | bool]) -> list[Move]:
    """Every stage that could be fused, and every reduction with a name that could be stored, with what it would change.

    The program must be free of errors. Raises ValueError where an extent is unknown.
    """
    now = _totals(work(program, sizes, params))
    found = []
    for names in stages(program):
        if names:
            then = _totals(work(fused(program, names), sizes, params))
            found.append(Move(names, True, then[0] - now[0], then[1] - now[1]))
    written = {n for w in kernels_of(program) for n in w}
    graph, _ = elaborate(program)
    for s in program.algorithm.statements:
        names = tuple(t.name for t in s.targets)
        reduces = any(x.op == "reduce" for n in names if n in graph.names for x in graph.names[n].walk())
        if reduces and not written & set(names):
            then = _totals(work(stored(program, names), sizes, params))
            found.append(Move(names, False, then[0] - now[0], then[1] - now[1]))
    return found


def _totals(w: Work) -> tuple[float, float]:
    return sum(k.bytes for k in w.kernels), sum(k.total_flops for k in w.kernels)


def formula(program: Program, name: str) -> str:
    """`2 R F`: the bytes of a stored tensor, by the extents of its axes."""
    graph, _ = elaborate(program)
    axes, dtype = _tensor(program, graph.names[name].axes, name)
    size = DTYPE_BYTES.get(dtype, 4)
    return " ".join([f"{size:g}" if size != 1 or not axes else "", *(a.upper() for a in axes)]).strip()


def _tensor(program: Program, axes: tuple[str, ...], name: str) -> tuple[tuple[str, ...], str]:
    graph, _ = elaborate(program, next(i for i, w in enumerate(kernels_of(program)) if name in w))
    found = graph.tensors.get(name)
    return found if found is not None else (axes, "f32")
