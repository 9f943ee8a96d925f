"""Which calls a judgement makes beside those of the distributions."""

from __future__ import annotations

import numpy as np
import pytest

from dsl.hardware import hardware
from evaluators.inputs import generator
from evaluators.integrity import plan
from evaluators.integrity.calls import _Case, right
from evaluators.loading import complete, seed_program
from evaluators.targets import target
from evaluators.tolerance import verdict


def case(name: str, thorough: bool = True) -> _Case:
    job = complete(target(name))
    return _Case("", job, seed_program(job), 1, "full", 60.0, hardware("cpu"), "raw-full", thorough)


def test_operands_that_go_by_way_of_float16_show() -> None:
    one = case("matmul")
    found = plan._of_other_size(one, generator(1, "plan"))
    assert sorted(call.row["places"].partition(" times ")[2] for call in found) == ["2^-30", "2^20"]
    for call in found:
        wanted = right(one.program, call.inputs, {})["c"]
        assert verdict(wanted.honest, wanted.oracle, wanted.honest, wanted.dtype).passed
        with np.errstate(over="ignore", invalid="ignore"):
            a, b = (np.asarray(call.inputs[n], np.float16).astype(np.float64) for n in ("a", "b"))
            got = a @ b
        assert not verdict(got, wanted.oracle, wanted.honest, wanted.dtype).passed, call.row["places"]
    assert len(plan._of_other_size(case("matmul", thorough=False), generator(2, "plan"))) == 1


@pytest.mark.parametrize("name", ["softmax", "layernorm", "matmul_f16"])
def test_nothing_where_the_answer_does_not_follow_or_its_dtype_cannot(name: str) -> None:
    assert plan._of_other_size(case(name), generator(1, "plan")) == []
