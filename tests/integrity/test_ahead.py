"""Kernels that the interpreter takes and no compiler does, without a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.integrity import ahead
from evaluators.integrity.raw import RawEvaluator
from evaluators.targets import target

HONEST = Path(__file__).parent / "honest"
CHANGES = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, C, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    most = -float("inf")
    for i in range(0, C, BLOCK):
        at = i + tl.arange(0, BLOCK)
        v = tl.load(x + row * C + at, mask=at < C, other=-float("inf")).to(tl.float32)
        most = tl.maximum(tl.max(v, 0), most)
    total = 0
    for i in range(0, C, BLOCK):
        at = i + tl.arange(0, BLOCK)
        v = tl.load(x + row * C + at, mask=at < C, other=-float("inf")).to(tl.float32)
        total = total + tl.exp(v - most)
    whole = tl.sum(total, 0)
    for i in range(0, C, BLOCK):
        at = i + tl.arange(0, BLOCK)
        v = tl.load(x + row * C + at, mask=at < C, other=-float("inf")).to(tl.float32)
        tl.store(y + row * C + at, (tl.exp(v - most) / whole).to(y.dtype.element_ty), mask=at < C)


def run(x):
    y = torch.empty_like(x)
    rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=256)
    return y
"""
SEVEN = CHANGES.replace("total = 0\n", "total = tl.zeros([BLOCK], tl.float32)\n").replace(
    "BLOCK=256", "BLOCK=256, num_warps=7"
)


@pytest.mark.slow  # a template of its own, and three judgements
def test_what_no_compiler_takes_is_told_before_a_promotion() -> None:
    with RawEvaluator() as judge:
        assert judge.evaluate(CHANGES, target("softmax"), hardware("cpu")).status is Status.OK, (
            "the interpreter takes it"
        )
        judge.compiles = True
        judged = {
            name: judge.evaluate(text, target("softmax"), hardware("cpu"))
            for name, text in (
                ("changes", CHANGES),
                ("seven", SEVEN),
                ("honest", (HONEST / "counter_reset.py").read_text()),
            )
        }
    assert {name: found.status for name, found in judged.items()} == {
        "changes": Status.COMPILE_ERROR,
        "seven": Status.COMPILE_ERROR,
        "honest": Status.OK,
    }
    assert "Loop-carried variable total" in judged["changes"].message and "sm_90" in judged["changes"].message
    assert "num_warps must be a power of 2" in judged["seven"].message
    gate = judged["honest"].gate("integrity")
    assert gate is not None and gate.evidence["compiled"] == ahead.TAKEN


@pytest.mark.parametrize(
    ("said", "chip"),
    [
        ("ValueError: type fp8e4b8 not supported in this architecture", True),
        ("KeyError: 'Keyword argument waves_per_eu was specified but unrecognised'", True),
        ("AssertionError: num_warps must be a power of 2", False),
        ("Loop-carried variable acc has initial type int32 but is re-assigned to <['256'], fp32> in loop!", False),
    ],
)
def test_what_another_chip_may_have_is_no_fault(said: str, chip: bool) -> None:
    assert (ahead._OF_ANOTHER.search(said) is not None) == chip
