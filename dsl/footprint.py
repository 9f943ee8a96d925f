"""How much a schedule holds at once: block lengths, the largest tile, operands. Estimates that cost no compiler.

What a block takes of shared memory, and so what fits, is told by `dsl.shared_memory`.
"""

from __future__ import annotations

import math

from dsl.anatomy import Anatomy, Contraction, Load, Sizes
from dsl.hardware import Hardware
from dsl.schedule import KernelSchedule, held_blocks
from dsl.syntax import Number
from dsl.tiling.roles import LONGEST_BLOCK

BITS = {"f32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "int8": 8, "i32": 32, "bool": 8}
BITS |= {"mxfp8": 8, "mxfp4": 4, "nvfp4": 4}
SMALLEST_WHOLE = 16  # a whole axis of unknown length counts as this: the least that a contraction is padded to
MAX_TILE = 2**20  # elements of one value: Triton's TRITON_MAX_TENSOR_NUMEL


def grid_of(kernel: Anatomy, schedule: KernelSchedule) -> tuple[str, ...]:
    """The grid axes, slowest first: as written, else every axis of all outputs that no tile needs whole."""
    if schedule.grid:
        return schedule.grid
    whole = {a for a, t in schedule.tile.items() if t == "all"}

    def everywhere(axis: str) -> bool:
        return all(any(a == axis or kernel.graph.coarse_over(a, axis) for a in axes) for axes, _ in kernel.stores)

    return tuple(a for a in kernel.outputs if a not in kernel.held and a not in whole and everywhere(a))


def lengths(kernel: Anatomy, schedule: KernelSchedule, sizes: Sizes | None) -> dict[str, int]:
    """Per axis of the kernel, how much of it one tile holds; a whole axis is padded to a power of two."""
    grid = grid_of(kernel, schedule)
    found: dict[str, int] = {}
    for axis in kernel.axes:
        tile = schedule.tile.get(axis)
        if axis in grid or axis == schedule.stream:
            found[axis] = tile if isinstance(tile, int) else 1
        elif isinstance(tile, int):
            found[axis] = tile  # a loop of its own walks it
        elif axis in kernel.within or axis == kernel.graph.rank:
            found[axis] = _block(kernel, axis)  # one block, a loop of its own, or one shard
        elif sizes is not None and axis in sizes:
            found[axis] = 2 ** math.ceil(math.log2(max(1, sizes[axis])))
        else:
            found[axis] = SMALLEST_WHOLE
    return found


def _block(kernel: Anatomy, axis: str) -> int:
    """The length of the block that a tile holds of an axis reduced within blocks; 1 where a loop walks it."""
    ratios = (x.ratio for x in kernel.graph.axes.values() if x.fine == axis)
    length = next((r.value for r in ratios if isinstance(r, Number) and isinstance(r.value, int)), 1)
    return length if length <= LONGEST_BLOCK and length & (length - 1) == 0 else 1


def load_bytes(kernel: Anatomy, load: Load, held: dict[str, int]) -> int:
    """Bytes of one tile of a load. A coarse axis that a finer one moves counts once."""
    elements = 1
    for axis in load.axes:
        if axis in held:
            elements *= held[axis]
    return elements * BITS.get(load.dtype, 32) // 8


def largest_value(kernel: Anatomy, held: dict[str, int]) -> tuple[int, tuple[str, ...]]:
    """Elements of the largest value that one tile computes, and its axes."""
    products = [c.axes for c in kernel.contractions if not by_matrix_units(c, held)]
    return max((math.prod(held.get(a, 1) for a in axes), axes) for axes in (*kernel.values, *products))


def by_matrix_units(c: Contraction, held: dict[str, int]) -> bool:
    """Whether the lowering makes one matrix product of it; else its factors are multiplied element by element."""
    rows, columns, inner, batch = (
        [a for a in axes if held.get(a, 1) > 1] for axes in (c.rows, c.columns, c.inner, c.batch)
    )
    return len(rows) == len(columns) == len(inner) == 1 and not batch and min(held[a] for a in rows + columns) > 8


def shared_bytes(kernel: Anatomy, schedule: KernelSchedule, hw: Hardware, sizes: Sizes | None) -> int:
    """Bytes of shared memory for the operands of a block's contractions at the very least, which searches rank by.

    In a loop of S stages the operands that it walks are held S times where hardware copies into shared memory by itself
    (sm_90, sm_100, gfx950), S - 1 times elsewhere, and one at a time without a pipeline. What no trip
    changes is held once on NVIDIA's chips.
    """
    held = lengths(kernel, schedule, sizes)
    staged = [load for load in kernel.loads if load.staged]
    moved = [x for x in staged if schedule.stream in x.moved_by]
    walked = [load_bytes(kernel, x, held) for x in moved]
    inside = {t for c in kernel.contractions if schedule.stream in c.tiled for t in c.tensors}
    kept = [x for x in staged if schedule.stream not in x.moved_by and x.tensor in inside]
    resident = sum(load_bytes(kernel, x, held) for x in kept) if walked and hw.vendor == "nvidia" else 0
    if schedule.roles is not None and hw.arch == "sm_90":
        # rings of buffers for what is walked, one for what is not, and for what leaves
        direct = {t for t, where in schedule.hold if where == "registers"}
        shared = [kernel.graph.tensors[w] for w in kernel.writes if w not in direct]
        held_rows = [math.prod(held.get(a, 1) for a in axes) * BITS.get(d, 32) // 8 for axes, d in shared]
        rings = sum(held_blocks(schedule, x.tensor) * n for x, n in zip(moved, walked, strict=True))
        return resident + rings + (max(held_rows, default=0) if schedule.load == "tma" else 0)
    if schedule.stages == 1:
        return resident + max(walked, default=0)
    copies = schedule.stages - (0 if hw.arch in ("sm_90", "sm_100", "gfx950") else 1)
    return resident + copies * sum(walked)
