"""What a lowering hands over: source that runs alone, and how to specialise each kernel for a workload.

Nothing here imports torch or triton: the compile and timing workers read these facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dsl.diagnostics import Diagnostic

Sizes = Mapping[str, int]  # axis (lower case) -> extent
Params = Mapping[str, int | float | bool]


@dataclass(frozen=True)
class Launch:
    """One kernel specialised to one workload: all that `triton.compile(ASTSource(...))` and a prediction need.

    signature: argument -> Triton type ("*bf16", "i32", "fp32", "tensordesc<bf16[1, 1, 128, 128]>"), in the order
    of the function's parameters, constexprs included as "constexpr". constexprs: argument -> value (run-time ints equal
    to 1 are constexpr here too, as Triton's JIT does it). divisible: arguments divisible by 16. small: on AMD, pointers
    to tensors under 2 GiB, which the compiler reaches by 32-bit offsets (buffer loads); none elsewhere.
    """

    signature: dict[str, str]
    constexprs: dict[str, int | float | bool]
    divisible: tuple[str, ...]
    programs: int  # launched program instances
    options: dict[str, int]  # num_warps, num_stages, and on AMD waves_per_eu, matrix_instr_nonkdim
    overlap: Literal["", "in_order", "ahead", "speculative"] = ""  # of warps with roles: what runs beside a product
    small: tuple[str, ...] = ()
    dealt: bool = False  # whether a table gives each program its tiles, so that all end at about the same time


@dataclass(frozen=True)
class Segment:
    """What one pass through one region of one tile does, from the tile program (counts, not times).

    trips: how often the region runs, per distinct tile along the axes that change it; `tiles` share them evenly.
    dots: (m, n, k, operand dtype) each with its padded tile shape. exps, alu, reduced: elements of exponentials (and
    other transcendentals), of plain arithmetic, of elements fed to row reductions. Bytes are as moved per trip.
    """

    name: str
    trips: tuple[int, ...]
    dots: tuple[tuple[int, int, int, str], ...] = ()
    exps: float = 0
    alu: float = 0
    reduced: float = 0
    load_bytes: float = 0
    store_bytes: float = 0


@dataclass(frozen=True)
class Profile:
    """The work of one kernel on one workload as the schedule cuts it: `tiles` tiles, each running the segments.

    widest: elements of the largest value that a tile holds.
    """

    tiles: int
    segments: tuple[Segment, ...]
    widest: int = 0


@dataclass(frozen=True)
class LoweredKernel:
    name: str  # the `@triton.jit` function in the source
    schedule: object  # dsl.schedule.KernelSchedule
    specialise: Callable[[Sizes, Params], Launch] = field(compare=False)
    profile: Callable[[Sizes, Params], Profile] = field(compare=False)


@dataclass(frozen=True)
class Lowered:
    """`source` defines the kernels and a function `entry(*inputs, **params)` that allocates and returns the outputs.

    Inputs come in declaration order as contiguous torch tensors; one output is returned bare, several as a tuple.
    interpretable: a module of the same tile programs that Triton's interpreter runs: `source` itself, or where that is
    Gluon, for which there is no interpreter, the plain lowering.
    """

    source: str
    entry: str
    kernels: tuple[LoweredKernel, ...]
    warnings: tuple[Diagnostic, ...] = ()
    language: Literal["triton", "gluon"] = "triton"
    interpretable: str = ""
