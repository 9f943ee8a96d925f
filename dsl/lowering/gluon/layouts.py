"""Which thread holds what: one layout for each combination of axes, all of them derived from the matrix products."""

from __future__ import annotations

from dsl.lowering.gluon.plan import WIDEST, NotSpecialised
from dsl.lowering.gluon.rewrite import ONCE
from dsl.tile import TileKernel

Dims = tuple[str, ...]
STEP = {"bf16": 16, "f16": 16, "e4m3": 32, "e5m2": 32, "int8": 32}  # elements that one wgmma sums


class Layouts:
    """`names`: axes -> the constant of the kernel that names their layout; `source`: how it is defined.

    A value over the axes of a product's result has the layout of the accumulator; a vector is a slice of the first
    product's result that has its axis.
    """

    def __init__(self, kernel: TileKernel) -> None:
        self.names: dict[Dims, str] = {}
        self.source: dict[Dims, str] = {}
        steps: dict[Dims, int] = {}
        for op in kernel.ops():
            if op.kind != "dot" or op.out is None:
                continue
            dims, step = op.out.dims, STEP[op.attr.dtype]
            if steps.setdefault(dims, step) != step:
                raise NotSpecialised("two products of different operands give the same axes")
            columns = dims[1]
            length = kernel.lengths.get(columns, 0)
            width = str(WIDEST) if length > WIDEST else _length(kernel, columns)
            self._add(dims, f"gl.NVMMADistributedLayout([3, 0], [4, 1], [16, {width}, {step}])")
            for axis in (0, 1):
                self._add((dims[axis],), self.slice(dims, 1 - axis))
            self._add((columns + ONCE,), "gl.BlockedLayout([1], [32], [4], [0])")
        for op in kernel.ops():
            if op.kind in ("map", "select", "cast", "reduce", "full", "arange", "load", "exp2") and op.out is not None:
                known = op.kind == "load" and op.attr.tma
                if op.out.dims and op.out.dims not in self.names and not known:
                    raise NotSpecialised(f"`{op.out.name}` has axes ({' '.join(op.out.dims)}), which no product has")

    def _add(self, dims: Dims, source: str) -> None:
        if dims not in self.names:
            self.names[dims] = f"{''.join(dims).upper()}_LAYOUT"
            self.source[dims] = source

    def slice(self, dims: Dims, axis: int) -> str:
        """The layout of what is left of `dims` when an axis is reduced."""
        return f"gl.SliceLayout({axis}, {self.names[dims]})"

    def lines(self, used: set[Dims]) -> list[str]:
        """Definitions of the layouts in use, parents first."""
        wanted = {d for d in self.names if d in used or any(self.names[d] in self.source[x] for x in used)}
        return [f"{self.names[d]}: gl.constexpr = {self.source[d]}" for d in self.names if d in wanted]


def _length(kernel: TileKernel, dim: str) -> str:
    return f"BLOCK_{dim.upper()}" if dim in kernel.lengths or dim in kernel.padded else dim.upper()
