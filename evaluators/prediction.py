"""Predicted time of compiled kernels on a chip that need not be there: from machine code, schedule and work.

A pure function of its arguments with a handful of constants, fitted once on one H200 (`FITTED`; benchmarks/calibrate.py
prints how well it orders what was measured). docs/prediction.md derives the formulas; the letters below are its own.
All times inside are SM cycles at the chip's cited clock; an SM is a compute unit on AMD's chips.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from evaluators.machine import MATRIX_CLASSES, MachineCode
from evaluators.roofline import on_matrix_units, speed_of_light
from evaluators.trips import MatrixShape, matrix_count, matrix_shapes, read_trips

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from dsl.lowering.lowered import Launch, Profile, Segment
    from dsl.work import Work

Kernel = tuple["Launch", MachineCode, "Profile"]

SHARED_BYTES_PER_CYCLE = 128  # of one SM or compute unit, on every chip here (CUDA and CDNA documentation)
_WIDTH = {"f16": 2, "bf16": 2, "f32": 4}  # bytes of an operand's element; all others take 1
_MANY_TILES = 50_000  # above this the schedule of unequal tiles is bounded instead of played through


@dataclass(frozen=True)
class Constants:
    """What no document tells. Cycles unless said otherwise; fitted, except the ones with a source.

    blocks, groups: exponents of how well work that is not the busiest pipe's hides behind it, as resident blocks and
    warpgroups of a block grow (0: not at all). sync: latency of a barrier or wait instruction of a loop.
    load, load_bytes: latency of a load and bytes a cycle and SM that it brings. two_stages: share of a load's latency
    that a pipeline of two stages still shows. spill: one spill instruction of one warp. start: of a block.
    slow_mma: rate of mma.sync where the chip has warpgroup instructions. hbm: share of the peak that a copy reaches
    (measured: 4.3 of 4.8 TB/s). norm: of the overlap of SM, L2 and HBM times.

    Of warps with roles, from kernels on an H200: fed: the share of the peak that their matrix units reach under its
    power limit. beside, behind: of other work, the share that shows where products are issued ahead, or are not.
    turn: cycles of barriers a trip.
    """

    blocks: float = 0.93
    groups: float = 0.25
    sync: float = 24.0
    load: float = 460.0
    load_bytes: float = 140.0
    two_stages: float = 0.54
    spill: float = 2.0
    start: float = 500.0
    slow_mma: float = 0.62
    hbm: float = 0.9
    fed: float = 0.7
    beside: float = 0.16
    behind: float = 0.6
    turn: float = 60.0
    norm: float = 8.0


FITTED = Constants()


@dataclass(frozen=True)
class Prediction:
    """seconds: of all kernels, one after another. limiter: the part that takes most of it.

    parts: seconds by cause. Those of the SM add up to its time: "matrix units", "exponentials", "instruction issue",
    "shared memory", "latency", "load latency", "spills", "tile overhead", "tail wave". "L2 bandwidth" and
    "HBM bandwidth" are whole times that run beside it; "launch" comes on top.
    """

    seconds: float
    limiter: str
    parts: Mapping[str, float]


def predict(
    kernels: Sequence[Kernel], hw: Hardware, work: Work | None = None, constants: Constants = FITTED
) -> Prediction:
    """Predicted seconds of one workload. kernels: in the order in which they run, specialised to the workload.

    work: of the target's algorithm; it gives the compulsory bytes, and no prediction is below its speed of light.
    Deterministic. Raises ValueError for a chip that makes no speed claim, and without kernels.
    """
    if not hw.claims_speed:
        raise ValueError(f"{hw.name} makes no speed claim, so nothing is predicted for it")
    if not kernels:
        raise ValueError("there is no kernel to predict")
    parts: dict[str, float] = {}
    seconds = 0.0
    for kernel, size in zip(kernels, _compulsory(kernels, work), strict=True):
        time, causes = _Kernel(kernel, hw, constants).run(size)
        seconds += time
        for cause, t in causes.items():
            parts[cause] = parts.get(cause, 0.0) + t
    if work is not None:
        seconds = max(seconds, speed_of_light(work, hw).floor_s)
    parts = {cause: t for cause, t in parts.items() if t > 0}
    return Prediction(seconds, max(parts, key=lambda cause: parts[cause]), parts)


def _compulsory(kernels: Sequence[Kernel], work: Work | None) -> list[float | None]:
    """Bytes that each kernel has to move to and from HBM; None where only its own traffic is known.

    Where the pipeline is cut otherwise than the target's, each kernel is taken to touch all that the target touches.
    """
    if work is None:
        return [None] * len(kernels)
    if len(kernels) > 1 and len(work.kernels) == len(kernels):
        return [k.bytes for k in work.kernels]
    return [work.bytes] * len(kernels)


@dataclass
class _Cycles:
    """What one trip or one tile costs one block, by cause; `tile` is waiting at its start and end."""

    matrix: float = 0.0
    exponentials: float = 0.0
    issue: float = 0.0
    shared: float = 0.0
    latency: float = 0.0
    loads: float = 0.0
    spills: float = 0.0
    tile: float = 0.0

    def plus(self, other: _Cycles, times: float) -> None:
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name) + times * getattr(other, f.name))

    @property
    def total(self) -> float:
        return sum(getattr(self, f.name) for f in fields(self))


_CAUSES = {
    "matrix": "matrix units",
    "exponentials": "exponentials",
    "issue": "instruction issue",
    "shared": "shared memory",
    "latency": "latency",
    "loads": "load latency",
    "spills": "spills",
    "tile": "tile overhead",
}


class _Kernel:
    """One kernel on one chip."""

    def __init__(self, kernel: Kernel, hw: Hardware, c: Constants) -> None:
        self.launch, self.machine, self.profile = kernel
        self.hw, self.c = hw, c
        per_sm = hw.sms * hw.clock_hz
        self.warps = max(1, self.machine.threads // hw.warp_size)
        self.groups = max(1.0, self.warps * hw.warp_size / 128)
        self.stages = max(1, self.launch.options.get("num_stages", 1))
        self.flops = {d: hw.peak(d) / per_sm for s in self.profile.segments for *_, d in s.dots}
        # cycles that one warp instruction holds an SM's issue slots, and its special-function units
        lanes = 64 if hw.vendor == "amd" else min(128.0, hw.alu_flops / 2 / per_sm)
        self.slot = hw.warp_size / lanes
        self.special = hw.warp_size / (hw.exp_per_s / per_sm)
        self.persistent = self.launch.programs < self.profile.tiles
        self.tile = next((s for s in self.profile.segments if s.trips == (1,) and not s.dots), None)
        self.loops = [s for s in self.profile.segments if s is not self.tile]
        self.shapes = matrix_shapes(self.machine)
        self.roles = self.launch.overlap
        self.trips = read_trips(self.machine, self.loops, self.warps, self.persistent)

    # The whole kernel ---------------------------------------------------------------------------------------------

    def run(self, compulsory: float | None) -> tuple[float, dict[str, float]]:
        hw, c = self.hw, self.c
        resident = max(1, self.machine.occupancy_blocks)
        resident = min(resident, -(-self.launch.programs // hw.sms))
        cycles, even = self._makespan(resident)
        sm = cycles / hw.clock_hz
        l2_bytes, hbm_bytes = self._traffic(compulsory, resident)
        l2, hbm = l2_bytes / hw.l2_bytes_per_s, hbm_bytes / (hw.hbm_bytes_per_s * c.hbm)
        longest = max(sm, l2, hbm)
        joint = longest * sum((t / longest) ** c.norm for t in (sm, l2, hbm)) ** (1 / c.norm) if longest else 0.0
        parts = {_CAUSES[f.name]: getattr(even, f.name) / hw.clock_hz for f in fields(even)}
        parts["tail wave"] = sm - even.total / hw.clock_hz
        parts |= {"L2 bandwidth": l2, "HBM bandwidth": hbm, "launch": hw.launch_s}
        return joint + hw.launch_s, parts

    def _makespan(self, resident: int) -> tuple[float, _Cycles]:
        """Cycles until the last tile is done, and the cycles of an SM as if all were loaded alike."""
        sms, tiles = self.hw.sms, self.profile.tiles
        counts = self._trips()
        costs = [self._one(i, resident) for i in range(len(self.loops))]
        edge = self._edge(resident)
        even = _Cycles()
        even.plus(edge, tiles / sms)
        for i, cost in enumerate(costs):
            even.plus(cost, sum(trips[i] for trips in counts) * tiles / len(counts) / sms)
        durations = [edge.total + sum(n * x.total for n, x in zip(t, costs, strict=True)) for t in counts]
        slots = sms * resident
        if self.launch.dealt:
            return max(even.total, max(durations)), even
        if self.persistent:
            loads = self._dealt(durations, self.launch.programs)
            return resident * max(loads), even
        if len(durations) == 1:
            full, rest = divmod(tiles, slots)
            last = -(-rest // sms)
            cycles = full * resident * durations[0]
            if last:
                alone = self._edge(last).total + sum(n * self._one(i, last).total for i, n in enumerate(counts[0]))
                cycles += last * alone
            return max(cycles, even.total), even
        if tiles > _MANY_TILES:
            return even.total + resident * max(durations) / 2, even
        free = [0.0] * min(slots, tiles)
        for i in range(tiles):  # the hardware gives the next tile to the block that is done first
            heapq.heapreplace(free, free[0] + resident * durations[i % len(durations)])
        return max(max(free), even.total), even

    def _dealt(self, durations: list[float], programs: int) -> list[float]:
        """Persistent programs take every `programs`-th tile, whatever it costs."""
        tiles = self.profile.tiles
        if len(durations) == 1:
            return [-(-tiles // programs) * durations[0]]
        loads = [0.0] * programs
        for i in range(tiles):
            loads[i % programs] += durations[i % len(durations)]
        return loads

    def _trips(self) -> list[tuple[int, ...]]:
        """Per distinct tile, how often each loop turns; in launch order."""
        distinct = max((len(s.trips) for s in self.loops), default=1)
        return [tuple(s.trips[i % len(s.trips)] for s in self.loops) for i in range(distinct)]

    # One trip -----------------------------------------------------------------------------------------------------

    def _one(self, loop: int, resident: int) -> _Cycles:
        """A trip of a loop, for one of `resident` blocks: the busiest pipe, and of the rest what does not hide."""
        if self.roles:
            return self._fed(self.loops[loop])
        c, segment, mix = self.c, self.loops[loop], self.trips.loops[loop]
        cost = self._pipes(mix, segment)
        busy = cost.matrix + cost.exponentials + cost.issue + cost.shared
        cost.latency = c.sync * self._syncs(mix)
        cost.loads = self._exposed(segment, busy)
        return self._overlapped(cost, resident)

    def _fed(self, segment: Segment) -> _Cycles:
        """A trip where other warps load: the matrix units as fast as power lets them be, and little of the rest.

        Counted from the tile program, for the text of such a kernel holds the code of every role.
        """
        c = self.c
        matrix = sum(2 * m * n * k / self._rate(d) for m, n, k, d in segment.dots) / c.fed
        lanes = self.hw.warp_size / self.slot
        reduced = segment.reduced / 2 if self.roles == "speculative" else segment.reduced
        shown = {"in_order": c.behind, "ahead": c.beside, "speculative": c.beside / 2}[self.roles]
        exponentials = segment.exps / self.hw.warp_size * self.special
        issue = (segment.alu + reduced + segment.exps) / lanes
        return _Cycles(matrix=matrix, exponentials=shown * exponentials, issue=shown * issue, latency=c.turn)

    def _overlapped(self, cost: _Cycles, resident: int) -> _Cycles:
        """The busiest pipe in full; what other blocks and warpgroups hide taken from the rest."""
        shown = resident**-self.c.blocks * self.groups**-self.c.groups
        pipes = ("matrix", "exponentials", "issue", "shared")
        first = max(pipes, key=lambda p: getattr(cost, p))
        for f in fields(cost):
            if f.name not in (first, "spills", "tile"):
                setattr(cost, f.name, getattr(cost, f.name) * shown)
        cost.tile /= resident  # waiting alone: every resident block waits at the same time
        return cost

    def _exposed(self, segment: Segment, busy: float) -> float:
        """Latency of the loop's loads that the pipeline's stages do not cover."""
        if not segment.load_bytes:
            return 0.0
        rounds = max(1, len(segment.dots))  # without a pipeline each contraction waits for its own operands
        load = self._load(segment.load_bytes / rounds)
        if self.stages == 1:
            return rounds * load
        return max(self.c.two_stages * load if self.stages == 2 else 0.0, load - (self.stages - 1) * busy)

    def _load(self, size: float) -> float:
        return self.c.load + size / self.c.load_bytes

    def _edge(self, resident: int) -> _Cycles:
        """What a tile costs beside its loops: its start, first loads, straight-line code and stores."""
        c = self.c
        if self.roles:  # the first block has nothing to run beside, and the result leaves
            longest = max((self._fed(s).total for s in self.loops), default=0.0)
            return _Cycles(tile=c.load + c.start + longest / 2)
        cost = self._pipes(self.trips.straight, None)
        cost.tile = c.start if not self.persistent else c.load
        if self.tile is not None and self.tile.load_bytes:
            cost.tile += self._load(self.tile.load_bytes)
        if self.stages > 1:
            cost.tile += c.load * sum(1 for s in self.loops if max(s.trips) > 0 and s.load_bytes)
        cost.tile += c.sync * self._syncs(self.trips.straight)
        cost.spills += 2 * self.machine.spills * self.warps * c.spill
        return self._overlapped(cost, resident)

    def _pipes(self, mix: Mapping[str, float], segment: Segment | None) -> _Cycles:
        scalar = ("uniform", "branch", "bar", "nop") if self.hw.vendor == "amd" else ()  # a pipe of their own there
        issued = sum(n for k, n in mix.items() if k not in MATRIX_CLASSES and k not in scalar)
        special = mix.get("ex2", 0) + mix.get("mufu", 0)
        wide = 8 if self.hw.vendor == "amd" else 2  # cycles of the shared-memory port for one warp's plain access
        port = {
            "ldsm": 4,
            "stsm": 4,
            "lds": wide,
            "sts": wide,
            "ldg": 4,
            "stg": 4,
            "cp.async": 4,
            "shfl": 1,
            "tmem": 16,
        }
        return _Cycles(
            matrix=self._matrix(mix, segment),
            exponentials=special * self.warps * self.special,
            issue=issued * self.warps * self.slot,
            shared=sum(n * mix.get(k, 0) for k, n in port.items()) * self.warps,
            spills=(mix.get("ldl", 0) + mix.get("stl", 0)) * self.warps * self.c.spill,
        )

    def _syncs(self, mix: Mapping[str, float]) -> float:
        return mix.get("bar", 0) / (4 if self.hw.vendor == "amd" else 1)  # most of AMD's only count outstanding loads

    # Matrix units -------------------------------------------------------------------------------------------------

    def _matrix(self, mix: Mapping[str, float], segment: Segment | None) -> float:
        """Cycles of the matrix unit, by the instructions that run; by the tile's shape where those do not tell."""
        count = matrix_count(mix)
        if segment is None or not segment.dots or not count:
            return 0.0  # without matrix instructions the multiply-adds stand among the others
        if not self.shapes:
            return sum(self._tile_dot(*dot) for dot in segment.dots)
        mean = sum(s.count * self._instruction(s) for s in self.shapes) / sum(s.count for s in self.shapes)
        return count * mean

    def _instruction(self, shape: MatrixShape) -> float:
        """Cycles that all warps' runs of one instruction hold the unit."""
        dtype = next(d for s in self.profile.segments for *_, d in s.dots)
        cycles = 2 * shape.m * shape.n * shape.k / self._rate(dtype)
        if shape.warps == 4:  # both operands come from shared memory
            width = _WIDTH.get(dtype, 1)
            cycles = max(cycles, (shape.m + shape.n) * shape.k * width / SHARED_BYTES_PER_CYCLE)
        elif self.hw.arch == "sm_90":
            cycles /= self.c.slow_mma
        return cycles * self.warps / shape.warps

    def _rate(self, dtype: str) -> float:
        """FLOPs a cycle and SM."""
        return (
            self.flops[dtype]
            if on_matrix_units(dtype, self.hw)
            else self.hw.peak("bf16") / 2 / (self.hw.sms * self.hw.clock_hz)
        )

    def _tile_dot(self, m: int, n: int, k: int, dtype: str) -> float:
        """tcgen05: one instruction for a tile of up to 128 rows; both operands from shared memory."""
        width = _WIDTH.get(dtype, 1)
        rows = max(m, 128)  # 64 rows take as long as 128
        cycles = 2 * rows * n * k / self._rate(dtype)
        return max(cycles, (rows + -(-rows // 128) * n) * k * width / SHARED_BYTES_PER_CYCLE)

    # Memory -------------------------------------------------------------------------------------------------------

    def _traffic(self, compulsory: float | None, resident: int) -> tuple[float, float]:
        """(bytes between SMs and L2, bytes between L2 and HBM) of the whole kernel."""
        tiles = self.profile.tiles
        loads = stores = 0.0
        for s in self.profile.segments:
            mean = sum(s.trips) / len(s.trips)
            loads += s.load_bytes * mean * tiles
            stores += s.store_bytes * mean * tiles
        traffic = loads + stores
        if compulsory is None or compulsory >= traffic:
            return traffic, traffic
        dealt = self.hw.dies if "DIES" not in self.launch.constexprs else 1
        needed = stores + min(loads, max(0.0, compulsory - stores) * dealt)
        one_dot = [s for s in self.loops if len(s.dots) == 1]
        if one_dot and compulsory > self.hw.l2_bytes:
            # A wave of tiles covers a rectangle of the output: r rows and c columns of tiles share what they read.
            wave = min(tiles, self.hw.sms * resident)
            side = math.sqrt(tiles)
            rows = float(self.launch.constexprs.get("GROUP", max(1.0, wave / side)))
            rows = min(max(1.0, rows), wave)
            shared = (rows + wave / rows) / 2 / wave
            needed = max(needed, stores + loads * min(1.0, shared))
        return traffic, min(traffic, needed)
