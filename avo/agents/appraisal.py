"""What arithmetic alone says of a schedule, before anything is compiled: registers, residency, work per trip.

A rough time in no unit, to rank settings that nobody has tried. It knows the limits of the chip and no measurement;
verdicts correct it (`avo.agents.surrogate`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dsl.anatomy import Anatomy, Sizes
from dsl.footprint import BITS, grid_of, lengths, load_bytes, shared_bytes
from dsl.hardware import Hardware
from dsl.schedule import KernelSchedule

# Registers of a thread for addresses, loop counters and row statistics, beside the tiles.
_OVERHEAD = 28
_FLIGHT = 45e3  # bytes on their way an SM, for a product that memory bounds
_LINE = 128  # bytes
_PERSISTENT = 2.0  # rows in a loop of one program an SM, whose loads wait for the row before: 1.3 to 4.4 on an H200
LONG_ROW = 128  # elements of a head; longer ones leave no room for all that is kept of them
_UNPROVEN = 1.2  # warps with roles where memory bounds: nobody has measured what they save there


@dataclass(frozen=True)
class Guesses:
    """Relative costs, by what it is that a decision saves. All are guesses of a careful person, none is fitted.

    trip: elements per thread of a trip whose arithmetic equals the trip's fixed latency. alone: of the work of a
    warpgroup that nothing else on the SM covers. unstaged, two_stages: of a trip's time that waits for its loads.
    spill: per register that does not fit, over those that do. byte: of a loaded byte, over a multiply-add.
    """

    trip: float = 12.0
    alone: float = 0.35
    unstaged: float = 0.35
    two_stages: float = 0.06
    spill: float = 3.0
    byte: float = 16.0


GUESSES = Guesses()


@dataclass(frozen=True)
class Appraisal:
    """relative_time: the smaller the better, of one kernel, in no unit. registers: a thread. blocks: resident an SM."""

    relative_time: float
    registers: int
    blocks: int


def appraise(
    kernel: Anatomy, schedule: KernelSchedule, hw: Hardware, sizes: Sizes | None, guesses: Guesses | None = None
) -> Appraisal:
    """From tile lengths, warps and stages to a rough time. A chip that makes no speed claim is treated alike."""
    g = guesses or GUESSES
    roles = schedule.roles if hw.arch == "sm_90" and kernel.contractions else None
    if roles is not None:  # the warps that multiply have the registers, and others load for them
        schedule = replace(schedule, warps=4 * roles[1])
    held = lengths(kernel, schedule, sizes)
    threads = schedule.warps * hw.warp_size
    registers = _registers(kernel, schedule, held, threads)
    shared = shared_bytes(kernel, schedule, hw, sizes)
    most = min(hw.registers_thread, hw.registers_sm // threads)  # many warps leave few registers to each thread
    blocks = _resident(hw, min(registers, most), shared, threads)
    if roles is not None:
        most, blocks = schedule.role_registers[1], 1
    if not kernel.contractions:
        time = _elementwise(kernel, schedule, held, threads, blocks, hw)
        time *= 1 + g.spill * max(0, registers - most) / most
        return Appraisal(time * (1.4 if schedule.stream in kernel.held else 1.0), registers, blocks)  # read twice
    if sizes is not None and _bound_by_memory(kernel, hw, sizes):
        time = _streamed(kernel, schedule, held, blocks, hw, sizes)
        time *= 1 + g.spill * max(0, registers - most) / most
        return Appraisal(time * (1.0 if roles is None else _UNPROVEN), registers, blocks)
    rows = max((math.prod(held.get(a, 1) for a in c.rows) for c in kernel.contractions), default=1)
    time = 1 + g.trip / max(1.0, _per_trip(kernel, schedule, held) / threads)
    time *= 1 + g.alone * 4 / max(1, blocks * schedule.warps)
    time *= max(1.0, schedule.warps * 16 / rows)  # warps without rows of their own repeat the work of others
    waits = {1: g.unstaged, 2: g.two_stages if roles is None else 0.0}
    time *= 1 + waits.get(schedule.stages, 0.0) / math.sqrt(blocks)
    time *= 1 + g.spill * max(0, registers - most) / most
    time *= 1 + g.byte * _bytes_per_product(kernel, schedule, held)
    return Appraisal(time * _habits(kernel, schedule, hw), registers, blocks)


def _registers(kernel: Anatomy, schedule: KernelSchedule, held: dict[str, int], threads: int) -> int:
    """Of a thread: sums that live through the loop, each trip's tile in f32 and again as an operand, and the long rows
    of an operand that warps with roles keep; shorter ones have found room."""
    total = 0.0
    for c in kernel.contractions:
        elements = math.prod(held.get(a, 1) for a in (*c.rows, *c.columns))
        total += elements * (1.0 if schedule.stream in c.inner else 1.5)
    if not kernel.contractions:
        total = 2.0 * max(math.prod(held.get(a, 1) for a in axes) for axes in kernel.values)
    kept = {t for t, where in schedule.hold if where == "registers"} if schedule.roles is not None else set()
    for c in kernel.contractions:
        row = math.prod(held.get(a, 1) for a in c.inner)
        if row > LONG_ROW and schedule.stream not in c.inner:
            block = row * math.prod(held.get(a, 1) for a in c.rows)
            total += sum(block * BITS.get(d, 32) / 32 for t, d in zip(c.tensors, c.dtypes, strict=True) if t in kept)
    return _OVERHEAD + math.ceil(total / threads)


def _resident(hw: Hardware, registers: int, shared: int, threads: int) -> int:
    by_registers = hw.registers_sm // max(1, registers * threads)
    by_shared = hw.shared_bytes_sm // (shared + 1024)
    return max(1, min(by_registers, by_shared, hw.max_threads_sm // threads, hw.max_blocks_sm))


def _per_trip(kernel: Anatomy, schedule: KernelSchedule, held: dict[str, int]) -> float:
    """Elements that a block computes between two barriers: the smallest contraction's result. A product alone that sums
    less than 64 at a time does as much less for each barrier."""
    deep = 1.0
    if len(kernel.contractions) == 1 and schedule.stream is not None:
        deep = min(1.0, held.get(schedule.stream, 64) / 64)
    return min(
        math.prod(held.get(a, 1) for a in (*c.rows, *c.columns))
        * (1.0 if schedule.stream not in c.inner else 0.5 * deep)
        for c in kernel.contractions
    )


def _bytes_per_product(kernel: Anatomy, schedule: KernelSchedule, held: dict[str, int]) -> float:
    """Bytes that a trip loads over the multiply-adds that it does."""
    products = sum(math.prod(held.get(a, 1) for a in c.tiled) for c in kernel.contractions)
    moved = sum(load_bytes(kernel, x, held) for x in kernel.loads if schedule.stream in x.moved_by)
    return moved / max(1, products)


def _bound_by_memory(kernel: Anatomy, hw: Hardware, sizes: Sizes) -> bool:
    """Whether reading the operands once takes longer than multiplying them: few rows times a big matrix."""
    if len(kernel.contractions) != 1 or not hw.claims_speed:
        return False
    (c,) = kernel.contractions
    flops = 2.0 * math.prod(sizes.get(a, 1) for a in (*c.tiled, *c.batch))
    moved = sum(math.prod(sizes.get(a, 1) for a in x.axes) * BITS.get(x.dtype, 32) / 8 for x in kernel.loads)
    return moved / hw.hbm_bytes_per_s > flops / max(hw.peak_flops.values())


def _streamed(
    kernel: Anatomy, schedule: KernelSchedule, held: dict[str, int], blocks: int, hw: Hardware, sizes: Sizes
) -> float:
    """A product that waits for its larger operand: enough of its bytes have to be on their way, from enough SMs, in
    whole lines. The figures are rounded from the recorded table of 16 rows (`benchmarks/data/tables`)."""
    cuts = {a: math.ceil(sizes.get(a, 1) / held.get(a, 1)) for a in grid_of(kernel, schedule)}
    programs = math.prod(cuts.values())
    big = max(kernel.loads, key=lambda x: math.prod(sizes.get(a, 1) for a in x.axes))
    at_once = min(programs, hw.sms * blocks)
    flight = at_once * load_bytes(kernel, big, held) * max(0.25, schedule.stages - 1)
    time = max(1.0, _FLIGHT * hw.sms / max(1.0, flight)) ** 0.6
    time *= max(1.0, hw.sms / programs) ** 0.3
    time *= 1 + 0.5 * (math.prod(n for a, n in cuts.items() if a not in big.axes) - 1)  # read again, from L2
    spare = math.prod(max(1.0, held.get(a, 1) / max(16, sizes.get(a, 1))) for a in cuts if a not in big.axes)
    time *= 1 + 0.1 * math.log2(spare)  # rows that nobody has take registers and shared memory
    line = held.get(big.axes[-1], 1) * BITS.get(big.dtype, 32) / 8
    time *= max(1.0, _LINE / line) ** 0.3
    return time * (math.ceil(programs / at_once) * at_once / programs) ** 0.5


def _elementwise(
    kernel: Anatomy, schedule: KernelSchedule, held: dict[str, int], threads: int, blocks: int, hw: Hardware
) -> float:
    """A kernel that only moves bytes: each thread should have a few vectors of 16 bytes in flight, not many more."""
    axes = max(kernel.values, key=lambda v: math.prod(held.get(a, 1) for a in v))
    bits = min((BITS.get(x.dtype, 32) for x in kernel.loads), default=32)
    vectors = math.prod(held.get(a, 1) for a in axes) * bits / 128 / threads
    flight = vectors * threads * 16 * blocks * max(1, schedule.stages)
    wanted = 32 * 1024  # bytes in flight an SM: latency times bandwidth of HBM, rounded up
    time = max(1.0, wanted / max(1.0, flight)) ** 0.5
    time *= 1 + 0.1 * abs(math.log2(max(0.125, vectors) / 2))
    time *= _PERSISTENT if schedule.persistent else 1.0
    return time * _habits(kernel, schedule, hw)


def _habits(kernel: Anatomy, schedule: KernelSchedule, hw: Hardware) -> float:
    """What each structural decision usually saves; exponent and load by the seen half of the recorded tables, where a
    lazy rescale costs as often as it saves."""
    time = 1.0
    uneven = bool(kernel.masked)
    if schedule.stream and not schedule.split_masked:
        time *= 1.08 if uneven else 1.01
    if uneven and schedule.order[0] not in ("longest_first", "reverse"):
        time *= 1.03
    if kernel.exponentials and schedule.exponent[0] == "exp":
        time *= 1.1
    if hw.has_tma and kernel.contractions and schedule.load == "pointer":
        time *= 1.12
    if schedule.roles is not None and hw.arch == "sm_90":
        time *= 0.85 if len(kernel.contractions) > 1 and schedule.issue == "next_contraction" else 0.92
        if schedule.rescale[0] == "speculative":
            time *= 0.95
        if schedule.exponent[0] == "poly":
            time *= 1.1
        if {t for t, where in schedule.hold if where == "registers"} & {x.tensor for x in kernel.loads}:
            time *= 0.97
    if hw.dies > 1 and schedule.swizzle is None:
        time *= 1.03
    return time
