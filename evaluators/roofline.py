"""The speed of light: no kernel for this algorithm on this chip can be faster than its slowest pipe at its cited peak.

It depends on the algorithm and the chip alone, never on a candidate, and assumes perfect overlap and perfect caching.
Method: roofline (Williams, Waterman, Patterson, CACM 2009), with one roof for each pipe. See docs/speed-of-light.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsl.polynomial import LEAST_OPERATIONS

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from dsl.work import Counts

MEMORY, EXPONENTIALS, ALU, LAUNCH = "memory", "exponentials", "alu", "launch"


@dataclass(frozen=True)
class Floor:
    """times: pipe -> seconds at peak, "matrix bf16", "exponentials", "alu", "memory", "launch"; zero ones left out.

    floor_s: the largest, with all matrix dtypes summed, as they share one unit. bottleneck: the pipe that sets it (of
    the matrix dtypes the slowest). intensity: FLOPs on matrix units (else plain operations) per compulsory byte. ridge:
    the intensity at which the chip's peak and its bandwidth take equally long; below it memory is the slower.
    """

    times: Mapping[str, float]
    floor_s: float
    bottleneck: str
    intensity: float
    ridge: float

    @property
    def memory_bound(self) -> bool:
        return self.intensity < self.ridge


def on_matrix_units(dtype: str, hw: Hardware) -> bool:
    """Whether contractions of this operand dtype run on matrix units of the chip, natively or as a wider dtype."""
    return dtype in hw.peak_flops or dtype in hw.emulated


def _exponentials(work: Counts, hw: Hardware) -> float:
    """Seconds of the exponentials, each where it is done soonest, as if nothing else needed the multiply-add units."""
    special, polynomial = 1 / hw.exp_per_s, LEAST_OPERATIONS / (hw.alu_flops / 2)
    moved = min(work.replaceable, work.exps * special / (special + polynomial))
    return (work.exps - moved) * special


def speed_of_light(work: Counts, hw: Hardware) -> Floor:
    """The floor of this work (a whole algorithm, or one kernel of `work.kernels`) on this chip, in seconds.

    Times: FLOPs / peak of the dtype; exponentials / rate, polynomials allowed, where they may stand for some;
    (plain operations + FLOPs of dtypes without matrix units) /
    alu_flops, as if every operation were half of a fused multiply-add; bytes / HBM bandwidth; one launch.
    Raises ValueError for a chip that makes no speed claim (the host).
    """
    if not hw.claims_speed:
        raise ValueError(f"{hw.name} makes no speed claim, so it has no speed of light")
    matrix = {d: f / hw.peak(d) for d, f in work.flops.items() if on_matrix_units(d, hw)}
    plain = work.alu + sum(f for d, f in work.flops.items() if not on_matrix_units(d, hw))
    times = {f"matrix {d}": t for d, t in matrix.items()}
    times |= {
        EXPONENTIALS: _exponentials(work, hw),
        ALU: plain / hw.alu_flops,
        MEMORY: work.bytes / hw.hbm_bytes_per_s,
        LAUNCH: hw.launch_s,
    }
    times = {pipe: t for pipe, t in times.items() if t > 0}
    pipes = {pipe: t for pipe, t in times.items() if not pipe.startswith("matrix")}
    if matrix:
        pipes[f"matrix {max(matrix, key=lambda d: matrix[d])}"] = sum(matrix.values())
    bottleneck = max(pipes, key=lambda pipe: pipes[pipe])
    on_units = sum(work.flops[d] for d in matrix)
    operations, seconds = (on_units, sum(matrix.values())) if matrix else (plain, times.get(ALU, 0.0))
    peak = operations / seconds if seconds else hw.alu_flops
    return Floor(
        times=times,
        floor_s=pipes[bottleneck],
        bottleneck=bottleneck,
        intensity=operations / work.bytes if work.bytes else float("inf"),
        ridge=peak / hw.hbm_bytes_per_s,
    )
