"""The correctness gate end to end: a hand-written attention kernel passes, and each way to get it wrong does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import dsl.lowering
from dsl.hardware import hardware
from evaluators.evaluation import Evaluation, Status
from evaluators.judge import LocalEvaluator
from evaluators.pool import WorkerPool
from evaluators.targets import target

SOURCE = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, H, M, G, N,
    D: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):
    m0 = tl.program_id(0) * BM
    bh = tl.program_id(1)
    g = bh // H * G + bh % H // (H // G)
    ms = m0 + tl.arange(0, BM)
    ds = tl.arange(0, D)
    q = tl.load(q_ptr + (bh * M + ms[:, None]) * D + ds[None, :], mask=(ms < M)[:, None], other=0.0)
    top = tl.full((BM,), -1e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    last = N
    if CAUSAL:
        last = tl.minimum(N, m0 + BM)
    for n0 in tl.range(0, last, BN):
        ns = n0 + tl.arange(0, BN)
        k = tl.load(k_ptr + (g * N + ns[:, None]) * D + ds[None, :], mask=(ns < N)[:, None], other=0.0)
        s = tl.dot(q, k.T) * scale
        s = tl.where((ns < N)[None, :], s, float("-inf"))
        if CAUSAL:
            s = tl.where(ms[:, None] >= ns[None, :], s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        rescale = tl.exp(top - new)
        p = tl.exp(s - new[:, None])
        total = total * rescale + tl.sum(p, 1)
        v = tl.load(v_ptr + (g * N + ns[:, None]) * D + ds[None, :], mask=(ns < N)[:, None], other=0.0)
        acc = acc * rescale[:, None] + tl.dot(p.to(tl.bfloat16), v)
        top = new
    o = acc / total[:, None]
    tl.store(o_ptr + (bh * M + ms[:, None]) * D + ds[None, :], o.to(tl.bfloat16), mask=(ms < M)[:, None])


def attention(q, k, v, causal):
    B, H, M, D = q.shape
    G, N = k.shape[1:3]
    o = torch.empty_like(q)
    kernel[(triton.cdiv(M, 64), B * H)](q, k, v, o, D**-0.5, H, M, G, N, D=D, CAUSAL=causal, BM=64, BN=64)
    return o
"""

CHECKS = target("attention").checks
JOB = replace(target("attention"), checks=CHECKS[:4] + CHECKS[5:])


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as workers:
        yield workers


def judge(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, source: str) -> Evaluation:
    true = dsl.lowering.lower

    def lower(*args: Any, **options: Any) -> Any:
        return replace(true(*args, **options), source=source, interpretable=source, entry="attention")

    monkeypatch.setattr(dsl.lowering, "lower", lower)
    return LocalEvaluator(seed=1, pool=pool).evaluate(JOB.seed, JOB, hardware("cpu"))


def test_the_right_kernel_passes(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = judge(pool, monkeypatch, SOURCE)
    assert found.status is Status.OK, found.message


FAULTS = {
    "no rescale of the sums": ("acc = acc * rescale[:, None] +", "acc = acc +"),
    "no running maximum": ("new = tl.maximum(top, tl.max(s, 1))", "new = tl.zeros((BM,), tl.float32)"),
    "the last tile is skipped": ("last = N\n", "last = N - BN\n"),
    "the causal edge is off by one": ("ms[:, None] >= ns[None, :]", "ms[:, None] + 1 >= ns[None, :]"),
    "no mask on the tail": ('tl.where((ns < N)[None, :], s, float("-inf"))', "s"),
    "another head's keys": ("bh % H // (H // G)", "bh % H % G"),
    "the scale is 1% off": ("* scale\n", "* scale * 1.01\n"),
    "sums in bf16": (
        "tl.dot(p.to(tl.bfloat16), v)",
        "tl.dot(p.to(tl.bfloat16), v)\n        acc = acc.to(tl.bfloat16).to(tl.float32)",
    ),
    "a read behind the end": ("mask=(ns < N)[:, None], other=0.0)\n        s =", "mask=None)\n        s ="),
    "a write behind the end": ("o.to(tl.bfloat16), mask=(ms < M)[:, None])", "o.to(tl.bfloat16))"),
    "rows that are never written": ("mask=(ms < M)[:, None])\n\n", "mask=(ms < M - 1)[:, None])\n\n"),
    "an input that is overwritten": ("    return o\n", "    q.zero_()\n    return o\n"),
    "its answer in an input's memory": ("o = torch.empty_like(q)", "o = q"),
    "the output transposed": ("    return o\n", "    return o.transpose(2, 3).contiguous().transpose(2, 3)\n"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_does_not(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    old, new = FAULTS[fault]
    assert old in SOURCE
    found = judge(pool, monkeypatch, SOURCE.replace(old, new))
    assert found.status is Status.INCORRECT and found.failed_gate == "correctness", (fault, found.status, found.message)
    assert any("reasons" in case for case in found.gates[-1].evidence["cases"])
