"""Triton's autotuner in the forms that people write it, and its clock, where there is no device to tune on."""

import torch
import triton
import triton.language as tl
import triton.testing

WAYS = [triton.Config({"CHUNK": 256}, num_warps=4), triton.Config({"CHUNK": 512}, num_warps=8, num_stages=2)]


@triton.autotune(configs=WAYS, key=["C"], reset_to_zero=["total"])
@triton.jit
def squares(x, total, C, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, C, CHUNK):
        at = start + tl.arange(0, CHUNK)
        v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
        tl.atomic_add(total + row, tl.sum(v * v, 0))


@triton.autotune(configs=WAYS, key=["C"], warmup=5, rep=10, use_cuda_graph=True)
@triton.jit
def scaled(x, w, total, y, C, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    r = tl.rsqrt(tl.load(total + row) / C + 1e-6)
    for start in range(0, C, CHUNK):
        at = start + tl.arange(0, CHUNK)
        v = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
        v = v * r * tl.load(w + at, mask=at < C, other=0.0).to(tl.float32)
        tl.store(y + row * C + at, v.to(y.dtype.element_ty), mask=at < C)


def work(x, w):
    y, total = torch.empty_like(x), torch.zeros(x.shape[0], dtype=torch.float32, device=x.device)
    squares[(x.shape[0],)](x, total, x.shape[1])
    scaled[(x.shape[0],)](x, w, total, y, x.shape[1])
    return y


TOOK = {}


def run(x, w):
    if not TOOK:
        TOOK[x.shape] = triton.testing.do_bench(lambda: work(x, w), warmup=1, rep=1)
    return work(x, w)
