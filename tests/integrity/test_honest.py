"""Honest kernels, each with a reason why a filter could object to it: none is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.integrity.corpus import read
from evaluators.integrity.raw import RawEvaluator

HONEST = [item for item in read(Path(__file__).parent) if item.kind == "honest"]
SLOW = ("masked_attention", "fused_gate", "large_scratch", "swizzled_tiles")


@pytest.fixture(scope="module")
def judge():
    with RawEvaluator() as one:
        yield one


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(k, id=k.name, marks=() if i % 3 == 0 and k.name not in SLOW else pytest.mark.slow)
        for i, k in enumerate(HONEST)
    ],
)
def test_accepted(kernel, judge):
    found = judge.evaluate(kernel.path.read_text(), kernel.job, hardware("cpu"))
    assert found.status is Status.OK, found.message


def test_there_are_enough_of_them_for_enough_reasons():
    assert len(HONEST) >= 60 and len({k.kind_of for k in HONEST}) >= 25
