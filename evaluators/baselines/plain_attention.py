# mypy: disallow-untyped-defs=False
"""A plain Triton attention forward: what a careful engineer writes without warp specialisation.

TMA descriptors, exponentials in base 2 with the scale folded in, the masked end of the keys in a loop of its own, the
longest rows first where causal. Five numbers are left to choose: rows and keys of a tile, stages, warps, and whether
sums are rescaled only when a row's maximum rises by more than 8 powers of two. `settings` has the best single choice
of a sweep on an H200; lazy or not differs by workload, so both are measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from torch import Tensor

LOG2_E = 1.4426950408889634


@triton.jit
def _over_keys(
    state_o, state_l, state_m, q, keys, values, place, begin, end, row, length, scale,
    ROWS: tl.constexpr, COLS: tl.constexpr, DIM: tl.constexpr,
    CAUSAL: tl.constexpr, RAGGED: tl.constexpr, LAZY: tl.constexpr,
):  # fmt: skip
    for start in tl.range(begin, end, COLS):
        k = keys.load([place, start, 0]).reshape(COLS, DIM)
        score = tl.dot(q, k.T)
        if CAUSAL or RAGGED:
            col = start + tl.arange(0, COLS)
            keep = row[:, None] >= col[None, :] if CAUSAL else (col < length)[None, :]
            if CAUSAL and RAGGED:
                keep = keep & (col < length)[None, :]
            score = tl.where(keep, score, -1.0e30)
        highest = tl.max(score, 1) * scale
        m = tl.where(highest > state_m + 8.0, highest, state_m) if LAZY else tl.maximum(state_m, highest)
        weight = tl.math.exp2(score * scale - m[:, None])
        shrink = tl.math.exp2(state_m - m)
        if LAZY:
            if tl.max(m - state_m, 0) > 0.0:
                state_o = state_o * shrink[:, None]
        else:
            state_o = state_o * shrink[:, None]
        state_l = state_l * shrink + tl.sum(weight, 1)
        v = values.load([place, start, 0]).reshape(COLS, DIM)
        state_o = tl.dot(weight.to(v.dtype), v, state_o)
        state_m = m
    return state_o, state_l, state_m


@triton.jit
def plain_attention(
    queries, keys, values, out, length_q, length_k, heads, group, scale,
    ROWS: tl.constexpr, COLS: tl.constexpr, DIM: tl.constexpr,
    CAUSAL: tl.constexpr, RAGGED: tl.constexpr, LAZY: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    if CAUSAL:
        tile = tl.num_programs(0) - 1 - tile  # the longest rows first
    head = tl.program_id(1)  # of all batches
    place = head // heads * (heads // group) + head % heads // group
    first = tile * ROWS
    row = first + tl.arange(0, ROWS)
    q = queries.load([head, first, 0]).reshape(ROWS, DIM)
    m = tl.full((ROWS,), -1.0e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    o = tl.zeros((ROWS, DIM), tl.float32)
    whole = length_k // COLS * COLS
    last = length_k
    if CAUSAL:
        whole = tl.minimum(first // COLS * COLS, whole)
        last = tl.minimum(first + ROWS, length_k)
    o, total, m = _over_keys(
        o, total, m, q, keys, values, place, 0, whole, row, length_k, scale, ROWS, COLS, DIM, False, False, LAZY
    )
    if CAUSAL or RAGGED:
        o, total, m = _over_keys(
            o,
            total,
            m,
            q,
            keys,
            values,
            place,
            whole,
            last,
            row,
            length_k,
            scale,
            ROWS,
            COLS,
            DIM,
            CAUSAL,
            RAGGED,
            LAZY,
        )
    out.store([head, first, 0], (o / total[:, None]).to(q.dtype).reshape(1, ROWS, DIM))


def settings(dim: int) -> tuple[int, int, int, int]:
    """(rows, keys, stages, warps): the best single ones of a sweep over 80 on an H200 at head dim 128."""
    return (128, 64, 2, 8) if dim > 128 else (128, 64, 2, 4)


def attend(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, rows: int, cols: int, stages: int, warps: int, lazy: bool
) -> Tensor:
    """q[b h m d], k and v[b g n d], contiguous, d a power of two; returns [b h m d] of q's dtype."""
    b, h, m, d = q.shape
    g, n = k.shape[1], k.shape[2]
    out = torch.empty_like(q)

    def described(x: Tensor, heads: int, length: int, block: int) -> TensorDescriptor:
        return TensorDescriptor(x, [b * heads, length, d], [length * d, d, 1], [1, block, d])

    plain_attention[(triton.cdiv(m, rows), b * h)](
        described(q, h, m, rows), described(k, g, n, cols), described(v, g, n, cols), described(out, h, m, rows),
        m, n, h, h // g, LOG2_E / d**0.5,
        ROWS=rows, COLS=cols, DIM=d, CAUSAL=causal, RAGGED=n % cols != 0, LAZY=lazy,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
