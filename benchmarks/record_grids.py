"""The grids of schedules that `record_table.py` records in full: knobs, values, workloads, and who stands beside."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from dsl.hardware import hardware
from dsl.knobs import knob_named, set_knob
from dsl.parser import parse
from dsl.printer import print_program
from evaluators.target import Workload
from evaluators.targets import target


@dataclass(frozen=True)
class Grid:
    """A grid over knobs of one program. base: the schedule that holds whatever is no knob. peers: other arms."""

    name: str
    target: str
    base: str
    knobs: dict[str, tuple[int | str, ...]]
    workloads: dict[str, Workload]  # by the name of the table
    peers: dict[str, str]

    def points(self) -> list[tuple[int | str, ...]]:
        return list(itertools.product(*self.knobs.values()))

    def text(self, point: tuple[int | str, ...]) -> str:
        """The program of one point."""
        hw = hardware("h200")
        program = parse(target(self.target).seed.partition("\nschedule\n")[0] + "\nschedule\n" + self.base)
        for name, value in zip(self.knobs, point, strict=True):
            program = set_knob(program, knob_named(program, hw, name), value)
        return print_program(program)


_SDPA = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
def entry(q, k, v, causal=False):
    with sdpa_kernel(SDPBackend.{backend}):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
"""
_CUBLAS = "import torch\ndef entry(a, b):\n    return torch.matmul(a, b)\n"


def _attention(b: int, n: int, causal: bool) -> Workload:
    return Workload({"b": b, "h": 16, "g": 16, "m": n, "n": n, "d": 128, "e": 128}, {"causal": causal})


GRIDS = (
    Grid(
        "attention",
        "attention",
        "tile m=64 n=64\ngrid b h m\norder longest_first\nstream n stages=1\nwarps 4\n",
        {
            "tile m": (64, 128, 256),
            "tile n": (32, 64, 128),
            "stream stages": (1, 2, 3, 4),
            "warps": (4, 8),
            "load": ("pointer", "tma"),
            "split": ("none", "masked"),
            "exponent": ("exp", "exp2"),
        },
        {
            f"attention_{b}x{n}{'_causal' if causal else ''}": _attention(b, n, causal)
            for b, n in ((8, 4096), (2, 16384))
            for causal in (False, True)
        },
        {
            "cudnn": _SDPA.format(backend="CUDNN_ATTENTION"),
            "flash_attention_2": _SDPA.format(backend="FLASH_ATTENTION"),
        },
    ),
    Grid(
        "gemm_square",
        "matmul",
        "tile m=64 n=64 k=32\ngrid m n\norder grouped(8)\nstream k stages=2\nwarps 4\n",
        {
            "tile m": (64, 128, 256),
            "tile n": (64, 128, 256),
            "tile k": (32, 64, 128),
            "stream stages": (2, 3, 4, 5),
            "warps": (4, 8),
            "load": ("pointer", "tma"),
        },
        {"gemm_4096": Workload({"m": 4096, "n": 4096, "k": 4096})},
        {"cublas": _CUBLAS},
    ),
    Grid(
        "gemm_decode",
        "matmul",
        "tile m=16 n=64 k=64\ngrid m n\nstream k stages=1\nwarps 4\n",
        {
            "tile m": (16, 64),
            "tile n": (16, 32, 64, 128),
            "tile k": (32, 64, 128, 256),
            "stream stages": (1, 2, 4, 6),
            "warps": (4, 8),
            "load": ("pointer", "tma"),
        },
        {"gemm_16x8192x8192": Workload({"m": 16, "n": 8192, "k": 8192})},
        {"cublas": _CUBLAS},
    ),
)


def small(grid: Grid) -> Grid:
    """A handful of points on small sizes: whether everything works, not how fast."""
    least = {k: v[1:3] if k.startswith("tile") else v[-1:] for k, v in grid.knobs.items()}
    sizes = {"m": 128, "n": 128, "k": 128, "b": 1, "h": 2, "g": 2}
    workloads = {
        name: Workload({a: min(n, sizes.get(a, n)) for a, n in w.sizes.items()}, w.params)
        for name, w in grid.workloads.items()
    }
    return replace(grid, knobs=least, workloads=workloads)
