"""The tile program: what one kernel does tile by tile (level 3 of the way down).

Shared by every emitter and by the NumPy interpreter (`dsl.interpret`). A tile value has named dims: an axis that the
tile holds one index of is no dim. Straight-line ops in order; variables carry values around loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dsl.schedule import KernelSchedule
from dsl.terms import Graph, Term

# kind      args                      attr
# const     -                         number or bool
# extent    -                         axis (its length, i32)
# block     -                         axis (the length of its block, i32)
# tail      -                         axis: compile-time bool, whether its extent is no multiple of its block
# ratio     -                         coarse axis (i32)
# param     -                         name
# host      -                         Term: a run-time f32 scalar that the launcher computes from extents and params
# start     -                         axis: the first index of the tile (the index itself where the tile is one index)
# arange    start                     axis: start + 0, 1, ... as a vector
# load      coordinate..., tail...    LoadAttr; coordinates are vectors, or the first index where it goes by descriptor
# store     value, then as a load     LoadAttr
# map       operands                  function (as in terms)
# exp2      x                         (share, below): one of every `share` columns by polynomial; whether x cannot
#                                     overflow
# select    a, b                      (flag Value, ...) - compile-time choice: a if flag else b
# cast      x                         dtype
# dot       a, b[, acc]               DotAttr; a is [M K], b is [K N] after the transpositions it names
# reduce    x                         (kind, dims)
# scan      x                         (runmax | runsum, dim): up to and with each index
# rank      x, index                  dim, x's only one: how many are larger, or equal and of a lower index
# set       x                         the variable (a Value) that takes x


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tile: `dims` in order (only axes held as vectors), `dtype`, and a name for people."""

    name: str
    dims: tuple[str, ...]
    dtype: str


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    kind: str
    out: Value | None
    args: tuple[Value, ...] = ()
    attr: Any = None
    note: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class If:
    """Runs `body` where the scalar `condition` holds."""

    condition: Value
    body: list[Node]
    note: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Loop:
    """`for start in range(lo, hi, step)`: walks the blocks of `axis`; `start` is the first index of the block.

    `masked` says whether the body guards the axis' tail and its affine masks. step 1: `start` is the index itself.
    `only_if`: compile-time flags; where there are some and none holds, the loop is left out.
    """

    axis: str
    start: Value
    lo: Value
    hi: Value
    masked: bool
    body: list[Node]
    note: str = ""
    only_if: tuple[Value, ...] = ()


Node = Op | If | Loop


@dataclass(frozen=True, slots=True)
class Coordinate:
    """How one tensor dimension is addressed: by axis `axis` held as a vector, or by the value alone where it is None.

    `checked`: the value may lie out of range, which then reads 0; `counted`: though never below 0.
    """

    axis: str | None
    checked: bool = False
    counted: bool = False


@dataclass(frozen=True, slots=True)
class LoadAttr:
    """`mask`: the axes whose tail must be masked; an operand after the coordinates for each holds its vector.
    `tma`: through a descriptor, which needs no mask (out of range reads 0 and is not written)."""

    tensor: str
    coordinates: tuple[Coordinate, ...]
    mask: tuple[str, ...]
    tma: bool = False


@dataclass(frozen=True, slots=True)
class DotAttr:
    """`transpose_a`, `transpose_b`: the operand is held as [K M], [N K]. `dtype` of both operands, `out` of the sum."""

    transpose_a: bool
    transpose_b: bool
    dtype: str
    out: str = "f32"


@dataclass
class TileKernel:
    """One kernel. `lengths`: block length per axis held as a vector ("grid" and "stream" axes); whole axes stand in
    `whole` and are padded to a power of two. `padded`: whole axes whose extent may be no power of two."""

    name: str
    graph: Graph
    schedule: KernelSchedule
    grid: tuple[str, ...]
    lengths: dict[str, int]
    whole: tuple[str, ...]
    padded: tuple[str, ...]
    loops: tuple[str, ...]
    body: list[Node] = field(default_factory=list)
    hosts: dict[Term, Value] = field(default_factory=dict)
    riders: dict[str, str] = field(default_factory=dict)  # block axes with one index a tile -> their fine axis
    bounded: dict[str, str] = field(default_factory=dict)  # axes walked or held within the block of a grid axis
    inner: tuple[str, ...] = ()  # reduced axes that a loop of their own walks wherever their sum is needed
    multiplied: set[str] = field(default_factory=set)  # dims of matrix products
    reversed_axis: str | None = None  # the grid axis that longest_first walks backwards
    warnings: list[str] = field(default_factory=list)

    def ops(self) -> Iterator[Op]:
        """Every op, in order, loops and branches entered."""
        stack: list[Node] = list(reversed(self.body))
        while stack:
            node = stack.pop()
            if isinstance(node, Op):
                yield node
            else:
                stack.extend(reversed(node.body))

    def tensors(self) -> tuple[list[str], list[str]]:
        """Names of the tensors read and written, each once, in order of first use."""
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        for op in self.ops():
            if op.kind == "load":
                reads[op.attr.tensor] = None
            elif op.kind == "store":
                writes[op.attr.tensor] = None
        return list(reads), list(writes)
