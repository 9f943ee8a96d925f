"""The built-in targets: every one is complete, its seed means its reference, and its checks exercise tails."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from dsl.parser import parse
from evaluators.equivalence import compare
from evaluators.inputs import DISTRIBUTIONS, draw_inputs, generator, input_shapes
from evaluators.loading import complete, fits
from evaluators.oracle import answers
from evaluators.target import TargetError
from evaluators.targets import BUILTIN, target


@pytest.mark.parametrize("name", BUILTIN)
def test_a_target_is_complete_and_fits_its_seed(name: str) -> None:
    job = target(name)
    assert job.name == name and job.summary
    assert complete(job) is job, "built-ins give all their sizes themselves"
    algorithm = parse(job.seed).algorithm
    for workload in (*job.workloads, *job.hidden, *job.checks, *job.tiny):
        fits(job, algorithm, workload)
    for group in (job.workloads, job.hidden, job.checks, job.tiny):
        assert len({w.name for w in group}) == len(group)
    assert not {w.name for w in job.workloads} & {w.name for w in job.hidden}


@pytest.mark.parametrize("name", BUILTIN)
def test_the_seed_means_the_reference(name: str) -> None:
    found = compare(target(name), parse(target(name).seed), seed=11)
    assert found.passed, found.reasons


@pytest.mark.parametrize("name", BUILTIN)
def test_checks_have_tails_and_none_and_answers_that_are_not_degenerate(name: str) -> None:
    job = target(name)
    program = parse(job.seed)
    assert len(job.checks) >= len(DISTRIBUTIONS), "each distribution is drawn in every judgement"
    ragged = [w for w in job.checks if max(w.sizes.values()) % 64]
    assert len(ragged) >= 4 and any(all(n % 64 == 0 for n in w.sizes.values() if n > 16) for w in job.checks)
    for workload, distribution in zip(job.checks, DISTRIBUTIONS, strict=False):
        inputs = draw_inputs(job, program.algorithm, workload, distribution, generator(5, workload.name))
        assert {k: v.shape for k, v in inputs.items()} == input_shapes(program.algorithm, workload)
        for output, answer in answers(program, inputs, dict(workload.params)).items():
            assert np.isfinite(answer.oracle).all(), f"{output} of {workload.name}, {distribution}"
            assert np.abs(answer.oracle).max() > 1e-2
            assert answer.oracle.std() > 1e-3 * np.abs(answer.oracle).mean(), f"{output} hardly depends on its inputs"


@pytest.mark.parametrize(("name", "chosen"), [(n, s) for n in BUILTIN for s in target(n).sets])
def test_a_named_set_is_whole(name: str, chosen: str) -> None:
    job = target(name)
    found = complete(job.chosen(chosen))
    assert job.sets[chosen].summary and found.hidden
    algorithm = parse(job.seed).algorithm
    for workload in (*found.workloads, *found.hidden, *found.checks):
        fits(found, algorithm, workload)
    assert not {w.name for w in found.workloads} & {w.name for w in found.hidden}
    few = {w.sizes["m"] for w in found.workloads if w.sizes.get("m", 99) < 99}
    assert few <= {w.sizes.get("m") for w in found.checks}, "each small row count is checked as it is"
    if "d" in found.workloads[0].sizes:
        assert {w.sizes["d"] for w in found.workloads} <= {w.sizes["d"] for w in found.checks}


def test_a_set_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(TargetError, match="has no set of workloads 'long'; it has: grouped, d64, d256"):
        target("attention").chosen("long")


def test_attention_has_the_workloads_of_the_paper() -> None:
    job = target("attention")
    assert len(job.workloads) == 8
    for w in job.workloads:
        assert w.sizes["b"] * w.sizes["m"] == 32768 and w.sizes["h"] == 16 and w.sizes["d"] == 128
    assert {w.params["causal"] for w in job.workloads} == {False, True}
    assert {w.sizes["d"] for w in job.checks} == {64, 128}
    assert any(w.sizes["h"] != w.sizes["g"] for w in job.checks), "grouped heads are checked"
    assert any(w.sizes["m"] != w.sizes["n"] for w in job.checks)


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(TargetError, match=r"unknown target 'atention'; did you mean 'attention'\? known: attention, "):
        target("atention")


def test_loading_a_target_imports_neither_torch_nor_triton() -> None:
    code = (
        "import sys; from evaluators.targets import BUILTIN, target; [target(n) for n in BUILTIN]; "
        "sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_sums_in_8_bits_are_of_whole_16_bytes_so_that_programs_may_load_by_tma() -> None:
    job = target("matmul_fp8")
    every = [*job.workloads, *job.hidden, *job.checks]
    every += [w for s in job.sets.values() for w in (*s.workloads, *s.hidden, *s.checks)]
    assert all(w.sizes["k"] % 16 == 0 for w in every)
    assert any(w.sizes["k"] % 32 for w in job.checks)  # tails are still looked at
