"""How much shared memory one block of a kernel will take, told from the schedule without a compiler.

The rules are what Triton 3.6 and 3.9 do with the products of a tile (`benchmarks/shared_memory.py` holds this against
what they allocate); scratch of a few KiB for reductions and changes of layout is not in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsl.anatomy import Anatomy, Contraction, Sizes
from dsl.footprint import BITS, by_matrix_units, grid_of, lengths
from dsl.hardware import Hardware
from dsl.schedule import KernelSchedule, held_blocks

_NARROW = {"e4m3", "e5m2", "int8"}
_AHEAD = {"sm_90", "sm_100", "gfx950"}  # hold one block more: it is still read by a product when the next one comes
_BARRIER = 8  # bytes of one, for each block in flight of what comes by descriptor


@dataclass(frozen=True)
class Operand:
    """One side of a product: bytes of its tile; whether it comes from memory, and whether a loop moves it.

    last: the axis along which it lies in memory; "" where it is computed.
    """

    name: str
    bytes: int
    loaded: bool
    moved: bool
    last: str


@dataclass(frozen=True)
class Product:
    """sides: what is multiplied. rows: of the left one. overlapped: the matrix units read shared memory while the block
    runs on. split: the rows are shared out among the warps, so that a computed left side changes hands. turned: sides
    of 8 bits that lie across the sum, which are turned in registers and so not fetched ahead."""

    sides: tuple[Operand, Operand]
    rows: int
    overlapped: bool
    split: bool
    turned: tuple[bool, ...]

    @property
    def walked(self) -> bool:
        return any(x.moved for x in self.sides)

    def through(self, side: int) -> bool:
        """Whether a computed side passes through shared memory."""
        return side == 1 or (self.split and not self.overlapped)


def allocated_bytes(kernel: Anatomy, schedule: KernelSchedule, hw: Hardware, sizes: Sizes | None) -> int:
    """Bytes of shared memory that one block needs.

    A loop of S stages holds what it walks S times where the matrix units read shared memory by themselves (sm_90,
    sm_100) or hardware copies into it (gfx950), S - 1 times elsewhere, and one at a time without a pipeline. What no
    trip changes is held once on NVIDIA's chips.
    """
    held = lengths(kernel, schedule, sizes)
    found = [_product(kernel, schedule, hw, held, c) for c in kernel.products if by_matrix_units(c, held)]
    if schedule.roles is not None and hw.arch == "sm_90" and found and all(p.walked and p.rows >= 64 for p in found):
        return _of_roles(kernel, schedule, held)
    tma = schedule.load == "tma"
    leaves = max((_tile(axes, dtype, held) for axes, dtype in kernel.stores), default=0) if tma else 0
    if hw.vendor == "nvidia":
        inside = max(_at_once(found), _piped(found, schedule, hw) if schedule.stages > 1 else 0)
    else:
        inside = _piped(found, schedule, hw) if schedule.stages > 1 else _largest(found)
    if tma and not found:
        inside = max((_tile(x.axes, x.dtype, held) for x in kernel.loads if x.plain and len(x.axes) > 1), default=0)
    # what leaves by descriptor has a buffer of its own in a loop over tiles, else what the loop over blocks has left
    return inside + leaves if schedule.persistent and schedule.stages > 1 else max(inside, leaves)


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


def _product(kernel: Anatomy, schedule: KernelSchedule, hw: Hardware, held: dict[str, int], c: Contraction) -> Product:
    loops = {schedule.stream} | {a for a, t in schedule.tile.items() if isinstance(t, int) and a in kernel.inner}
    loops -= set(grid_of(kernel, schedule))
    loads = {x.tensor: x for x in kernel.loads}
    sides = []
    for n, axes in enumerate(((*c.rows, *c.inner, *c.batch), (*c.columns, *c.inner, *c.batch))):
        load = loads.get(c.tensors[n])
        dtype = (load.dtype if load else "") or c.dtypes[n] or c.dtypes[1 - n] or "f32"
        moved = bool(loops & (load.moved_by if load else set(axes)))
        last = load.axes[-1] if load and load.axes else ""
        name = c.tensors[n] or (f"{c.rows} {c.columns} {c.inner} {n}")
        sides.append(Operand(name, _tile(axes, dtype, held), c.loaded[n], moved, last))
    rows = max((held.get(a, 1) for a in c.rows), default=1)
    columns = max((held.get(a, 1) for a in c.columns), default=1)
    dtype = c.dtypes[0] or c.dtypes[1] or "f32"
    overlapped = hw.arch in ("sm_90", "sm_100") and schedule.warps % 4 == 0 and rows >= 64 and columns % 8 == 0
    turned = tuple(dtype in _NARROW and bool(x.last) and x.last not in c.inner for x in sides)
    return Product((sides[0], sides[1]), rows, overlapped and dtype != "f32", rows < 16 * schedule.warps, turned)


def _piped(found: list[Product], schedule: KernelSchedule, hw: Hardware) -> int:
    """Of a loop with stages: blocks in flight, what stays, and a computed side that changes hands."""
    blocks: dict[str, int] = {}
    stays: dict[str, int] = {}
    passing = 0
    for p in found:
        for n, x in enumerate(p.sides):
            if x.loaded and x.moved:
                copies = schedule.stages - (0 if p.overlapped or hw.arch == "gfx950" else 1)
                copies = 1 if p.overlapped and p.turned[n] else copies
                blocks[x.name] = max(blocks.get(x.name, 0), copies * x.bytes)
            elif p.walked and hw.vendor == "nvidia":
                if x.loaded:
                    stays[x.name] = x.bytes
                elif p.through(n):
                    passing = max(passing, x.bytes)
    return sum(blocks.values()) + sum(stays.values()) + passing


def _at_once(found: list[Product]) -> int:
    """Without stages: what the products read from shared memory, each from its first use to its last; what was loaded
    before a loop is held as long as the loop runs."""
    uses: dict[str, list[int]] = {}
    size: dict[str, int] = {}
    for at, p in enumerate(found):
        for n, x in enumerate(p.sides):
            if x.loaded or p.through(n):
                uses.setdefault(x.name, []).append(at)
                size[x.name] = max(size.get(x.name, 0), x.bytes)
                if x.loaded and not x.moved and p.sides[1 - n].moved:
                    uses[x.name] += [0, len(found)]
    return max(
        (sum(size[x] for x, u in uses.items() if min(u) <= at <= max(u)) for at in range(len(found))),
        default=0,
    )


def _largest(found: list[Product]) -> int:
    return max((x.bytes for p in found for x in p.sides if x.loaded), default=0)
