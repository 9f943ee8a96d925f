"""A dataclass of settings, whose annotations are strings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import triton
import triton.language as tl


@triton.jit
def norm_rows(x, w, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    gain = tl.load(w + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / columns + 1e-6)
    tl.store(y + row * columns + at, (values * scale * gain).to(tl.bfloat16), mask=at < columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    warps: int = 4
    names: list[str] = field(default_factory=list)


class Shape(NamedTuple):
    rows: int
    columns: int


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    shape, settings = Shape(*x.shape), Settings(warps=8)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(shape.columns)
    norm_rows[(shape.rows,)](x, w, y, shape.columns, BLOCK=block, num_warps=settings.warps)
    return y
