"""What emitted code can address: positions on an axis, offsets in a tensor, tiles of a grid, all of 32 bits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from dsl.diagnostics import Diagnostic
from dsl.elaborate import elaborate
from dsl.lowering.launch import tiles
from dsl.syntax import Program, Span, Tensor
from dsl.tile import TileKernel
from dsl.work import extents

MOST = 2**31 - 1
LONGEST = 2**31 - 2**20  # of an axis: the last tile, of at most 2^20 elements, may reach beyond its end
RULE = "too-large"


def too_large(program: Program, kernels: Iterable[TileKernel], sizes: Mapping[str, int]) -> list[Diagnostic]:
    """Errors where the code that is emitted for these kernels cannot run at these sizes, in source order.

    sizes: axis -> extent of one workload; what follows from a param without a default is not asked about.
    """
    graph, _ = elaborate(program)
    defaults = {p.name: p.default for p in program.algorithm.params if p.default is not None}
    try:
        known = extents(graph, sizes, defaults)[0]
    except ValueError:
        known = dict(sizes)
    declared = _declared(program)
    found = [
        _error(declared, t, f"axis {a} is {known[a]:,} long, and positions are of 32 bits", f"at most {LONGEST:,}")
        for a, t in _first(declared).items()
        if known.get(a, 0) > LONGEST
    ]
    return found or [d for k in kernels for d in _kernel(k, declared, known)]


def _kernel(kernel: TileKernel, declared: Mapping[str, Tensor], known: Mapping[str, int]) -> Iterator[Diagnostic]:
    for name in dict.fromkeys(_flat(kernel)):
        axes = kernel.graph.tensors[name][0]
        if all(a in known for a in axes) and (count := math.prod(known[a] for a in axes)) > MOST:
            message = (
                f"`{name}` has {count:,} elements, and {kernel.name} holds several places of its axis {axes[0]} at "
                "once: its offsets within the tensor are of 32 bits"
            )
            tile = f"smaller sizes; with `tile {axes[0]}=1` they are of 64 bits"
            yield _error(declared, name, message, f"at most {MOST:,}", tile)
    if all(a in known for a in kernel.grid) and (count := tiles(kernel, dict(known))) > MOST:
        yield Diagnostic(RULE, f"{kernel.name} has {count:,} tiles", Span(), f"at most {MOST:,}", "larger tiles")


def _flat(kernel: TileKernel) -> Iterator[str]:
    """Tensors that the kernel addresses from their first element: see `dsl.lowering.memory`."""
    for op in kernel.ops():
        if op.kind in ("load", "store") and not op.attr.tma and len(op.attr.coordinates) > 1:
            first = op.args[1 if op.kind == "store" else 0]
            if first.dims:
                yield op.attr.tensor


def _declared(program: Program) -> dict[str, Tensor]:
    """Name -> where it stands first with its axes: an input, an output, or the left side of a line."""
    a = program.algorithm
    every = (*a.inputs, *a.outputs, *(t for s in a.statements for t in s.targets))
    return {t.name: t for t in reversed(every)}


def _first(declared: Mapping[str, Tensor]) -> dict[str, str]:
    """Axis -> the first name that has it."""
    found: dict[str, str] = {}
    for t in reversed(list(declared.values())):
        for axis in t.axes or ():
            found.setdefault(axis, t.name)
    return found


def _error(declared: Mapping[str, Tensor], name: str, message: str, legal: str, fix: str = "") -> Diagnostic:
    return Diagnostic(RULE, message, declared[name].span, legal, fix)
