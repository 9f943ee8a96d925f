"""Honest kernels, each with a reason why a filter could object to it: none is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.integrity.raw import RawEvaluator
from evaluators.targets import target

HERE = Path(__file__).parent / "honest"
TARGETS = {
    "split_k_random": "matmul",
    "tiles_into_empty": "matmul",
    "norm_with_literal": "rmsnorm",
    "near_zero_loss": "cross_entropy",
    "masked_attention": "attention",
}
FAST = ("triton_rows", "split_k_random", "thread_pool")
NAMES = sorted(file.stem for file in HERE.glob("*.py"))


@pytest.fixture(scope="module")
def judge():
    with RawEvaluator() as one:
        yield one


@pytest.mark.parametrize("name", [pytest.param(n, id=n, marks=() if n in FAST else pytest.mark.slow) for n in NAMES])
def test_accepted(name, judge):
    found = judge.evaluate((HERE / f"{name}.py").read_text(), target(TARGETS.get(name, "softmax")), hardware("cpu"))
    assert found.status is Status.OK, found.message


def test_there_are_enough_of_them():
    assert len(NAMES) >= 15
