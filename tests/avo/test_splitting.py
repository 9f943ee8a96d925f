"""Products with long sums and few tiles: the sum in blocks, as a line of the algorithm, where the target opens it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from avo.agents import splitting
from avo.agents.heuristic import HeuristicAgent
from avo.agents.protocol import Brief, Judged, Proposal
from avo.workloads import retarget
from dsl.check import errors
from dsl.hardware import hardware
from dsl.meaning import evaluate
from dsl.parser import parse
from dsl.printer import digest, print_program
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult, score
from evaluators.loading import complete
from evaluators.target import Target
from evaluators.targets import seed_text, target

H200 = hardware("h200")
TALL = complete(retarget(target("matmul"), ["tall"]))


@pytest.mark.parametrize("name", ["matmul", "matmul_fp8", "gemm"])
def test_a_sum_in_blocks_means_the_same(name: str) -> None:
    program = parse(seed_text(name))
    blocks = splitting.split(program, 4)
    assert blocks is not None and parse(print_program(blocks)) == blocks
    assert errors(blocks, H200) == [] and splitting.block(blocks) == 4 and splitting.block(program) == 0
    rng = np.random.default_rng(0)
    shapes = {"a": (5, 11), "b": (11, 7), "bias": (7,), "sa": (5,), "sb": (7,)}
    if name == "matmul_fp8":
        shapes["b"] = (7, 11)
    inputs = {t.name: rng.standard_normal(shapes[t.name]) for t in program.algorithm.inputs}
    (right,) = evaluate(program, inputs, {}, mode="exact").values()
    for length in (4, 3):  # the last block is shorter
        (found,) = evaluate(splitting.resplit(blocks, length), inputs, {}, mode="exact").values()
        assert np.allclose(found, right, rtol=1e-12)


@pytest.mark.parametrize("name", ["attention", "softmax", "layernorm", "swiglu"])
def test_other_programs_have_no_such_sum(name: str) -> None:
    assert splitting.split(parse(seed_text(name)), 1024) is None


def test_blocks_give_each_processor_one() -> None:
    program = parse(seed_text("matmul"))
    long, square, few = ({"m": m, "n": n, "k": k} for m, n, k in ((512, 512, 65536), (4096,) * 3, (512, 512, 1024)))
    assert splitting.lengths(program, H200, [square, long]) == [8192, 4096]  # 16 tiles, so 128 or 256 blocks
    assert splitting.lengths(program, H200, [square, few]) == []


def first(job: Target) -> Proposal:
    """The heuristic's, after the seed's verdict."""
    gate = GateResult(gate="compile", passed=True, evidence={"kernels": []})
    rows = [
        WorkloadResult(workload=w.name, work=1e12, floor_s=1e-5, bottleneck="matrix units", predicted_s=1e-3)
        for w in job.workloads
    ]
    found = Evaluation(status=Status.OK, mode="predicted", gates=(gate,), workloads=tuple(rows))
    seed = Judged(0, digest(parse(job.seed)), job.seed, (), "seed", found, score(found))
    proposal = HeuristicAgent().propose(Brief(1, 0, job, H200, seed, seed, (seed,), opens=job.opens))
    assert proposal is not None
    return proposal


def test_a_long_sum_is_tried_in_blocks_where_the_target_opens_it() -> None:
    assert TALL.opens == "all"
    found = first(TALL)
    assert "axis kb = k // 8192" in found.text and "load tma" in found.text
    assert found.rationale.startswith("sum in blocks of 0 -> 8192, tile m 64 -> 128") and found.hypothesis is not None
    assert found.hypothesis.claim.startswith("blocks of a long sum")
    assert "kb" not in first(replace(TALL, opens="schedule")).text
    assert "kb" not in first(replace(complete(target("matmul")), opens="all")).text  # squares fill the chip


def test_a_set_says_what_may_be_changed_there() -> None:
    job = target("matmul")
    assert job.opens == retarget(job, ["squares"]).opens == retarget(job, ["m=512,n=512,k=65536"]).opens == "schedule"
    assert retarget(job, ["squares", "tall"]).opens == job.chosen("tall").opens == "all"
