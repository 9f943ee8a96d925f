"""What one trip of each loop of a compiled kernel runs, read from the static text of its machine code.

The text tells how many instructions stand in a loop, not how often it turns nor how many trips of the source one turn
holds; the profile of the schedule tells what a trip has to do. Both together give instructions a warp and trip.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluators.machine import MATRIX_CLASSES, MachineCode

if TYPE_CHECKING:
    from dsl.lowering.lowered import Segment

Mix = Mapping[str, float]  # instruction class (evaluators.machine.CLASSES) -> instructions of one warp


@dataclass(frozen=True)
class MatrixShape:
    """One matrix instruction: its shape, how many warps run it together, and how often it stands in the kernel."""

    m: int
    n: int
    k: int
    warps: int
    count: int


@dataclass(frozen=True)
class Trips:
    """loops: a trip of each loop segment, in order. straight: the rest of a tile, outside of all loops."""

    loops: tuple[Mix, ...]
    straight: Mix


def matrix_count(mix: Mix) -> float:
    return sum(mix.get(k, 0) for k in MATRIX_CLASSES)


def matrix_shapes(machine: MachineCode) -> tuple[MatrixShape, ...]:
    """Of the matrix instructions whose name tells their shape; tcgen05's does not."""
    found = []
    for name, count in machine.matrix.items():
        if match := re.search(r"(\d+)x(\d+)x(\d+)", name):  # HGMMA.64x128x16.F32.BF16, v_mfma_f32_32x32x8_bf16
            m, n, k = (int(x) for x in match.groups())
            found.append(MatrixShape(m, n, k, 4 if "GMMA" in name else 1, count))
        elif match := re.search(r"MMA\.168(\d+)", name):  # HMMA.16816.F32 is 16 x 8 x 16
            found.append(MatrixShape(16, 8, int(match[1]), 1, count))
    return tuple(found)


def read_trips(machine: MachineCode, segments: Sequence[Segment], warps: int, persistent: bool) -> Trips:
    """The mixes of the loop segments, which stand in the text in their order.

    Where the compiler unrolled a loop away, the mix of its neighbour or an estimate from the profile stands in.
    """
    found: list[Mix] = list(machine.loops)
    dots = any(s.dots for s in segments)
    if persistent and len(found) > 1 and sum(found[0].values()) > sum(sum(f.values()) for f in found[1:]):
        found = found[1:]  # the loop over tiles holds the others
    hot = [f for f in found if matrix_count(f) or not dots]
    straight: dict[str, float] = dict(machine.instructions)
    for f in hot:
        straight = {k: n - f.get(k, 0) for k, n in straight.items()}
    if hot and (copies := matrix_count(straight) / max(1.0, matrix_count(hot[-1]))):  # trips that were peeled off
        straight = {k: n - copies * hot[-1].get(k, 0) for k, n in straight.items()}
    if not hot and segments:
        straight = {}
    mixes: list[Mix] = []
    for i, segment in enumerate(segments):
        if not hot:
            mixes.append(_estimated(machine, segment))
            continue
        mix = hot[min(i, len(hot) - 1)]
        trips = _trips_in(mix, machine, segment, warps)
        mixes.append({k: n / trips for k, n in mix.items()})
    return Trips(tuple(mixes), {k: max(0.0, n) for k, n in straight.items()})


def _trips_in(mix: Mix, machine: MachineCode, segment: Segment, warps: int) -> int:
    """How many trips the compiler put into one turn of the loop, by what a trip has to do."""
    if segment.dots and (shapes := matrix_shapes(machine)):
        each = sum(2 * s.m * s.n * s.k * s.count * warps / s.warps for s in shapes) / sum(s.count for s in shapes)
        wanted = sum(2 * m * n * k for m, n, k, _ in segment.dots)
        rows = min(m for m, *_ in segment.dots)
        copies = max(1.0, warps * 16 / rows)  # warps beyond the rows of a chain of contractions repeat its work
        return max(1, round(matrix_count(mix) * each / (wanted * copies)))
    if segment.exps >= machine.threads:
        return max(1, round((mix.get("ex2", 0) + mix.get("mufu", 0)) * machine.threads / segment.exps))
    return 1


def _estimated(machine: MachineCode, segment: Segment) -> Mix:
    """A trip where the code shows no loop: one instruction an element, and some to go round."""
    mix = {"ffma": (segment.alu + segment.reduced) / machine.threads, "ex2": segment.exps / machine.threads}
    known = [k for k in MATRIX_CLASSES if k in machine.instructions]
    if segment.dots and known:
        shapes = matrix_shapes(machine)
        flops = 2 * math.prod((shapes[0].m, shapes[0].n, shapes[0].k)) / shapes[0].warps if shapes else 0.0
        warps = max(1, machine.threads // 32)
        wanted = sum(2 * m * n * k for m, n, k, _ in segment.dots)
        mix[known[0]] = wanted / warps / flops if flops else 8.0
    return mix | {"mov": 40.0, "bar": 4.0}
