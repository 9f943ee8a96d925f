"""The last program of a row to arrive, whichever it is, puts together what the others stored, and clears the count."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, w, y, parts, count, C, PARTS, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
    tl.store(parts + row * PARTS + part, tl.sum(v * v, 0))
    if tl.atomic_add(count + row, 1) == PARTS - 1:
        total = 0.0
        for p in range(PARTS):
            total += tl.load(parts + row * PARTS + p)
        every = tl.arange(0, WIDE)
        whole = tl.load(x + row * C + every, mask=every < C, other=0.0).to(tl.float32)
        g = tl.load(w + every, mask=every < C, other=0.0).to(tl.float32)
        scaled = whole * tl.rsqrt(total / C + 1e-6) * g
        tl.store(y + row * C + every, scaled.to(y.dtype.element_ty), mask=every < C)
        tl.store(count + row, 0)


def run(x, w):
    (R, C), y = x.shape, torch.empty_like(x)
    parts = triton.cdiv(C, 512)
    kept = torch.empty(R, parts, device=x.device)
    count = torch.zeros(R, dtype=torch.int32, device=x.device)
    rows[(R, parts)](x, w, y, kept, count, C, parts, BLOCK=512, WIDE=triton.next_power_of_2(C))
    return y
