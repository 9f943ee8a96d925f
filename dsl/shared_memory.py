"""How much shared memory one block of a kernel will take, told from the schedule without a compiler.

The rules are what Triton 3.6 and 3.9 do with the products and scans of a tile (`benchmarks/shared_memory.py` holds this
against what they allocate); scratch of a few KiB for reductions and changes of layout is not in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsl.anatomy import Anatomy, Contraction, Sizes
from dsl.footprint import BITS, by_matrix_units, grid_of, lengths
from dsl.hardware import Hardware
from dsl.schedule import KernelSchedule, held_blocks
from dsl.syntax import Number

_NARROW = {"e4m3", "e5m2", "int8"}
_VECTOR = 16  # bytes that a thread loads or stores at a time


@dataclass(frozen=True)
class Operand:
    """One side of a product: bytes of its tile; whether it comes from memory, and whether a loop moves it.

    last: the axis along which it lies, in memory or as it is computed; "" where it is read by position. chained: a
    product goes into it. apart: some of what it is computed from is not read by whole vectors, so that nothing of it is
    fetched ahead.
    """

    name: str
    bytes: int
    loaded: bool
    moved: bool
    last: str
    chained: bool
    apart: bool


@dataclass(frozen=True)
class Product:
    """sides: what is multiplied. rows: of the left one. dtype: of both. overlapped: the matrix units read shared memory
    while the block runs on. split: warps share out the columns too, so that a computed left side changes hands. turned:
    sides that lie across the sum; loaded ones of 8 bits are turned in registers and so not fetched ahead.
    """

    sides: tuple[Operand, Operand]
    rows: int
    dtype: str
    overlapped: bool
    split: bool
    turned: tuple[bool, ...]

    @property
    def walked(self) -> bool:
        return any(x.moved for x in self.sides)

    def through(self, side: int, ahead: bool) -> bool:
        """Whether a computed side passes through shared memory.

        ahead: in a loop that fetches ahead. There it is only what another product has made, or what the matrix units
        read there by themselves; what any other is made of is in shared memory already.
        """
        if ahead and not self.sides[side].chained and not self.sides[side].apart:
            return self.overlapped and (side == 1 or self.turned[side])
        return side == 1 or (self.split and not self.overlapped)


def allocated_bytes(kernel: Anatomy, schedule: KernelSchedule, hw: Hardware, sizes: Sizes | None) -> int:
    """Bytes of shared memory that one block needs.

    A loop of S stages holds what it walks S times where the matrix units read shared memory by themselves (sm_90,
    sm_100) or hardware copies into it (gfx950), S - 1 times elsewhere, and one at a time without a pipeline, or where a
    branch (`skip`) is in its way. What no trip changes is held once, on NVIDIA's chips as long as the loop runs.
    """
    held = lengths(kernel, schedule, sizes)
    found = [_product(kernel, schedule, hw, held, c) for c in kernel.products if by_matrix_units(c, held)]
    if schedule.roles is not None and hw.arch == "sm_90" and found and all(p.walked and p.rows >= 64 for p in found):
        return _of_roles(kernel, schedule, held)
    tma = schedule.load == "tma"
    leaves = max((_tile(axes, dtype, held) for axes, dtype in kernel.stores), default=0) if tma else 0
    inside = max(
        _at_once(found) if hw.vendor == "nvidia" else _largest(found),
        _piped(found, schedule, hw) + _beside(kernel, found, schedule, hw, held) if _ahead(schedule) else 0,
        max((_scanned(kernel, schedule, hw, held, *scan) for scan in kernel.scans), default=0),
    )
    if tma and not found:
        inside = max((_tile(x.axes, x.dtype, held) for x in kernel.loads if x.plain and len(x.axes) > 1), default=0)
    # what leaves by descriptor has a buffer of its own in a loop over tiles, else what the loop over blocks has left
    return inside + leaves if schedule.persistent and schedule.stages > 1 else max(inside, leaves)


def _ahead(schedule: KernelSchedule) -> bool:
    return schedule.stages > 1 and not schedule.skip


def _of_roles(kernel: Anatomy, schedule: KernelSchedule, held: dict[str, int]) -> int:
    """Rings of buffers for what is walked, one for what is not, and one for what leaves."""
    staged = [load for load in kernel.loads if load.staged]
    inside = {t for c in kernel.contractions if schedule.stream in c.tiled for t in c.tensors}
    kept = [x for x in staged if schedule.stream not in x.moved_by and x.tensor in inside]
    moved = [x for x in staged if schedule.stream in x.moved_by]
    direct = {t for t, where in schedule.hold if where == "registers"}
    rings = sum(held_blocks(schedule, x.tensor) * _tile(x.axes, x.dtype, held) for x in moved)
    leaves = [_tile(*kernel.graph.tensors[w], held) for w in kernel.writes if w not in direct]
    resident = sum(_tile(x.axes, x.dtype, held) for x in kept) if moved else 0
    return resident + rings + (max(leaves, default=0) if schedule.load == "tma" else 0)


def _tile(axes: tuple[str, ...], dtype: str, held: dict[str, int]) -> int:
    return math.prod(held[a] for a in axes if a in held) * BITS.get(dtype, 32) // 8


def _walked(kernel: Anatomy, schedule: KernelSchedule) -> set[str | None]:
    """Axes that loops walk, within a program instance."""
    loops = {schedule.stream} | {a for a, t in schedule.tile.items() if isinstance(t, int) and a in kernel.inner}
    return loops - set(grid_of(kernel, schedule))


def _product(kernel: Anatomy, schedule: KernelSchedule, hw: Hardware, held: dict[str, int], c: Contraction) -> Product:
    loops = _walked(kernel, schedule)
    loads = {x.tensor: x for x in kernel.loads}
    sides = []
    for n, axes in enumerate(((*c.rows, *c.inner, *c.batch), (*c.columns, *c.inner, *c.batch))):
        load = loads.get(c.tensors[n])
        dtype = (load.dtype if load else "") or c.dtypes[n] or c.dtypes[1 - n] or "f32"
        moved = bool(loops & (load.moved_by if load else set(axes)))
        last = load.axes[-1] if load and load.axes else "" if c.loaded[n] else c.last[n]
        apart = any(_ratio(kernel, block) < held.get(axis, 1) for block, axis in c.coarse[n])
        name = c.tensors[n] or (f"{c.rows} {c.columns} {c.inner} {n}")
        sides.append(Operand(name, _tile(axes, dtype, held), c.loaded[n], moved, last, c.chained[n], apart))
    rows, columns, inner = (max((held.get(a, 1) for a in axes), default=1) for axes in (c.rows, c.columns, c.inner))
    dtype = c.dtypes[0] or c.dtypes[1] or "f32"
    overlapped = hw.arch in ("sm_90", "sm_100") and schedule.warps % 4 == 0 and rows >= 64 and columns % 8 == 0
    if not c.chained[0]:
        split = rows < 16 * schedule.warps
    elif hw.vendor == "nvidia":  # the warps of products that follow each other lie along the longer side
        split = rows < columns
    else:  # the first one's lie along the rows, the second one's along the columns too where the rows are too few
        first, second = (_instruction(schedule, rows, n) for n in (inner, columns))
        split = first != second or 1 < rows // second < schedule.warps
    turned = tuple(bool(x.last) and x.last not in c.inner for x in sides)
    return Product((sides[0], sides[1]), rows, dtype, overlapped and dtype != "f32", split, turned)


def _ratio(kernel: Anatomy, block: str) -> float:
    """Positions in a block of this axis; 0 for a read by position."""
    if not block:
        return 0
    ratio = kernel.graph.axes[block].ratio
    return ratio.value if isinstance(ratio, Number) else math.inf


def _instruction(schedule: KernelSchedule, rows: int, columns: int) -> int:
    """Rows of AMD's matrix instruction."""
    return 16 if schedule.matrix_instr == 16 or min(rows, columns) < 32 else 32


def _piped(found: list[Product], schedule: KernelSchedule, hw: Hardware) -> int:
    """Of a loop with stages: blocks in flight, what stays, and a computed side that changes hands."""
    blocks: dict[str, int] = {}
    stays: dict[str, int] = {}
    passing = 0
    pairs = sum(p.walked for p in found) == 2 and any(x.chained for p in found for x in p.sides)
    for p in found:
        for n, x in enumerate(p.sides):
            if x.loaded and x.moved:
                copies = schedule.stages - (0 if p.overlapped or hw.arch == "gfx950" else 1)
                if p.overlapped and p.turned[n] and p.dtype in _NARROW:
                    copies = 1
                if hw.vendor == "amd" and pairs and schedule.stages == 4:
                    copies -= 2  # Triton takes four stages of two products for its own way to lay them over each other
                blocks[x.name] = max(blocks.get(x.name, 0), copies * (x.bytes + _padding(p, n, hw)))
            elif p.walked and x.loaded and hw.vendor == "nvidia":
                stays[x.name] = x.bytes
            elif p.walked and not x.loaded and p.through(n, ahead=True):
                passing = max(passing, x.bytes)
    asked = 4 * schedule.warps if schedule.rescale[0] == "lazy" else 0  # whether any row's maximum rose
    return sum(blocks.values()) + sum(stays.values()) + max(passing, asked)


def _padding(p: Product, side: int, hw: Hardware) -> int:
    """Bytes that gfx950 leaves free in a block, so that the banks of shared memory are all read."""
    if hw.arch != "gfx950" or p.dtype == "f32":
        return 0
    wide = p.dtype not in _NARROW
    return p.sides[side].bytes // (16 if wide and p.turned[side] else 64 if wide else 128)


def _beside(kernel: Anatomy, found: list[Product], schedule: KernelSchedule, hw: Hardware, held: dict[str, int]) -> int:
    """Of a loop with stages and products: blocks in flight of what operands, masks and scales are computed from."""
    if not any(p.walked for p in found):
        return 0
    operands = {x.name for p in found for x in p.sides}
    loops = _walked(kernel, schedule)
    late = any(x.chained for p in found for x in p.sides)  # what is read between two products is fetched later
    copies = schedule.stages - (0 if hw.arch == "gfx950" and not late else 1)
    moved = [x for x in kernel.loads if x.plain and x.tensor not in operands and loops & x.moved_by]
    return sum(copies * _tile(x.axes, x.dtype, held) for x in moved)


def _scanned(
    kernel: Anatomy, schedule: KernelSchedule, hw: Hardware, held: dict[str, int], axes: tuple[str, ...], axis: str
) -> int:
    """What a scan along a whole axis keeps: the sum of each stretch that one warp has, where several share the axis.

    Threads and warps are given to the last axes first, as Triton does for what is loaded or stored 16 bytes at a time.
    """
    dims = [a for a in axes if held.get(a, 1) > 1]
    if axis not in dims:
        return 0
    elements, lanes = math.prod(held[a] for a in dims), 32 if hw.vendor == "nvidia" else 64
    bits = min(BITS.get(d, 32) for d in (*(x.dtype for x in kernel.loads), *(d for _, d in kernel.stores)))
    vector = max(1, min(8 * _VECTOR // bits, elements // (lanes * schedule.warps), held[dims[-1]]))
    threads, warps, stretch, shared = lanes, schedule.warps, 1, 1
    for a in reversed(dims):
        each = vector if a == dims[-1] else 1
        room = max(1, held[a] // each)
        here = min(threads, room) if a != dims[0] else threads
        across = min(warps, max(1, room // here)) if a != dims[0] else warps
        if a == axis:
            stretch, shared = each * here, across
        threads, warps = threads // here, warps // across
    return elements // min(stretch, held[axis]) * 4 if shared > 1 else 0


def _at_once(found: list[Product]) -> int:
    """Without stages: what the products read from shared memory, each from its first use to its last; what was loaded
    before a loop is held as long as the loop runs."""
    uses: dict[str, list[int]] = {}
    size: dict[str, int] = {}
    for at, p in enumerate(found):
        for n, x in enumerate(p.sides):
            if x.loaded or p.through(n, ahead=False):
                uses.setdefault(x.name, []).append(at)
                size[x.name] = max(size.get(x.name, 0), x.bytes)
                if x.loaded and not x.moved and p.sides[1 - n].moved:
                    uses[x.name] += [0, len(found)]
    return max(
        (sum(size[x] for x, u in uses.items() if min(u) <= at <= max(u)) for at in range(len(found))),
        default=0,
    )


def _largest(found: list[Product]) -> int:
    """On AMD's chips without stages: one side at a time."""
    sides = [(p, n, x) for p in found for n, x in enumerate(p.sides)]
    return max((x.bytes for p, n, x in sides if x.loaded or not x.chained or p.through(n, ahead=False)), default=0)
