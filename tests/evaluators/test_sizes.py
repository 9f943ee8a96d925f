"""An algorithm that is not the target's means the same at every size, or is told where not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsl.hardware import hardware
from dsl.parser import parse
from evaluators.equivalence import compare
from evaluators.evaluation import Status
from evaluators.gates import Case, Rejected, compared_gate, parse_gate
from evaluators.judge import LocalEvaluator
from evaluators.loading import complete, seed_program
from evaluators.sizes import compare_at_sizes, differs
from evaluators.target import Target, Workload
from evaluators.targets import target

HEAD = "kernel k\nin  x[r c] bf16\nout y[r c] bf16\n"
NORM_HEAD = "kernel k\nin  x[r c] bf16, w[c] bf16\nout y[r c] bf16\n"


def asked(name, text):
    job = complete(replace(target(name), opens="all"))
    program = parse(text)
    assert differs(seed_program(job), program)
    assert compare(job, program, 0).passed, "wrong at the tiny sizes already"
    return compare_at_sizes(job, seed_program(job), program, 0)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        pytest.param("softmax", "y = where(C < 5000, softmax[c](x), x)", id="an extent"),
        pytest.param("softmax", "y = where(R < 64, softmax[c](x), x)", id="the extent of an axis that is cut"),
        pytest.param("softmax", "y = where(r < 1000, softmax[c](x), x)", id="a place of an axis that is cut"),
        pytest.param("softmax", "y = where(c < 4000, softmax[c](x), x)", id="a place of another axis"),
        pytest.param(
            "rmsnorm", "y = x * rsqrt(sum[c](where(c < 16, x * x, 0.0)) / C + 1e-6) * w", id="a part of a sum"
        ),
        pytest.param("rmsnorm", "s[r] f16 = sum[c](x * x)\ny = x * rsqrt(s / C + 1e-6) * w", id="a sum that overflows"),
        pytest.param(
            "softmax", "y = softmax[c](x) + where(R > 64, 1.0, 0.0) * max[r](0 * x)", id="axes that it ties together"
        ),
    ],
)
def test_what_is_right_at_tiny_sizes_alone_is_found(name, lines):
    found = asked(name, (NORM_HEAD if name == "rmsnorm" else HEAD) + lines + "\n")
    assert not found.passed


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("softmax", "m[r] = max[c](x)\nz[r] = sum[c](exp(x - m))\ny = exp(x - m) / z"),
        ("softmax", "y = where(c >= 0 and r >= 0, softmax[c](x), x)"),
        ("rmsnorm", "s[r] f32 = sum[c](x * x)\ny = x * (w * rsqrt(s / C + 1e-6))"),
    ],
)
def test_another_way_to_the_same_passes(name, lines):
    found = asked(name, (NORM_HEAD if name == "rmsnorm" else HEAD) + lines + "\n")
    assert found.passed, found.reasons
    assert any(case.get("places") for case in found.evidence["sizes"])


@pytest.mark.parametrize("name", ["attention", "cross_entropy", "gemm", "swiglu"])
def test_targets_pass_themselves_at_all_their_sizes(name):
    job = complete(target(name))
    found = compare_at_sizes(job, seed_program(job), seed_program(job), 0)
    assert found.passed, found.reasons
    assert len(found.evidence["sizes"]) == 4 * len(job.checks) + len(job.workloads) + len(job.hidden)
    assert not any(case.get("asked") is False for case in found.evidence["sizes"])


def test_a_size_that_is_too_large_to_ask_about_is_told():
    job = complete(replace(target("softmax"), workloads=(Workload({"r": 2, "c": 1 << 33}),), hidden=()))
    program = parse(HEAD + "y = exp(x - max[c](x)) / sum[c](exp(x - max[c](x)))\n")
    found = compare_at_sizes(job, seed_program(job), program, 0)
    assert found.passed and [c for c in found.evidence["sizes"] if c.get("asked") is False]


SUMS = "kernel sumsq\nin  x[r c] bf16\nout y[r] f32\n"


@pytest.fixture
def gradients():
    """Long along an axis that is summed, of which no part can be asked about."""
    found = Workload({"r": 2, "c": 1 << 25})
    small = tuple(Workload({"r": r, "c": c}) for r, c in ((21, 200), (9, 1000), (12, 4200)))
    tiny = (Workload({"r": 4, "c": 9}), Workload({"r": 3, "c": 16}))
    seed = SUMS + "y = sum[c](x * x)\n\nschedule\ntile r=1 c=4096\ngrid r\nstream c stages=1\nwarps 4\n"
    return complete(
        Target("sums", lambda x: x.square().sum(-1), seed, (found,), small, tiny, opens="all", hidden=(found,))
    )


@pytest.mark.parametrize(
    "lines",
    [
        "y = where(C < 5000, sum[c](x * x), 0.0)",
        "y = sum[c](x * x) / max(1, C // 5000)",
        "s[r] f16 = sum[c](x * x)\ny = s",
    ],
)
def test_what_nobody_can_look_at_is_not_right(gradients, lines):
    found = compare_at_sizes(gradients, seed_program(gradients), parse(SUMS + lines + "\n"), 0)
    assert any("too large to be compared" in reason for reason in found.reasons)


def test_what_was_not_compared_at_every_size_is_not_promoted(gradients):
    """A sum of ones knows the extent too."""
    text = SUMS + "n[r] = sum[c](x * 0 + 1)\ny = sum[c](x * x) / (1 + exp(n - 5000))\n\nschedule\ngrid r\n"
    for said, right in ((text, False), (gradients.seed, True)):
        with LocalEvaluator() as judge:
            case = Case(text=said, target=gradients, wanted=seed_program(gradients), hardware=hardware("h200"))
            parse_gate(case, judge._bench)
            if right:
                assert compared_gate(case, judge._bench) == {}
                continue
            with pytest.raises(Rejected, match="could not be compared") as no:
                compared_gate(case, judge._bench)
            assert no.value.status is Status.SUSPICIOUS
