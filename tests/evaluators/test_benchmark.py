"""Programs beside libraries, on a simulated device: who is timed, who is told why not, and what the ratios say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from avo.benchmark_page import markdown, trouble
from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.parser import parse
from evaluators import baselines
from evaluators.benchmark import Bench, Entry, program_entry
from evaluators.benchmark_result import Arm, Benchmark, Interval
from evaluators.device import DeviceFacts
from evaluators.target import Target, Workload
from evaluators.targets import BUILTIN, target
from evaluators.timing import Regime

H200 = hardware("h200")
CARD = DeviceFacts(index=0, name="NVIDIA H200", uuid="GPU-aaaa-1", memory_bytes=141 << 30)
QUICK = Regime(untimed_s=0.0, timed_s=1e-3)
WRONG = (
    "import os, signal\n\ndef zeros(x):\n    return x * 0\n\n\ndef dies(x):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
)


def entries(job: Target) -> list[Entry]:
    found = [program_entry("seed", job.seed, parse(job.seed), job, H200)]
    return found + [Entry(Arm(name=b.name, kind=b.role, about=b.about)) for b in baselines.of(job.name)]


@pytest.fixture(scope="module")
def card() -> Iterator[Bench]:
    with Bench(H200, devices=[CARD], simulate=True) as found:
        yield found


def measured(card: Bench, job: Target, arms: list[Entry]) -> Benchmark:
    return card.run(job, arms, rounds=3, regime=QUICK)


def test_every_target_has_baselines_that_it_can_be_held_against() -> None:
    for name in BUILTIN:
        roles = [b.role for b in baselines.of(name)]
        assert "baseline" in roles, name
        assert len({b.name for b in baselines.of(name)}) == len(roles)
    assert baselines.of("something else") == []


def test_all_arms_run_side_by_side_and_whoever_cannot_says_why(card: Bench, tmp_path: Path) -> None:
    """One worker, four kinds of arms, one that gives a wrong answer and one that takes the worker down."""
    own = tmp_path / "own.py"
    own.write_text(WRONG)
    job = replace(target("softmax"), workloads=(Workload({"r": 8, "c": 200}),))
    more = [Entry(Arm(name=f"own.py:{f}", kind="function"), module=str(own)) for f in ("zeros", "dies", "missing")]
    found = measured(card, job, entries(job) + more)
    (row,) = found.rows
    by = {o.arm: o for o in row.outcomes}
    assert row.best_baseline == "eager" and by["eager"].speed == Interval(value=1, low=1, high=1)
    seed = by["seed"]
    assert seed.seconds and seed.rate and seed.speed and seed.speed.low <= seed.speed.value <= seed.speed.high < 1
    assert seed.of_floor and seed.of_floor < 1 and seed.of_ceiling
    assert by["copy"].seconds and by["copy"].error is None, "a limit gives no answer to judge"
    assert "wrong answer: relative L2 1" in by["own.py:zeros"].reason
    assert by["own.py:dies"].reason.startswith("Killed") and by["own.py:dies"].seconds is None
    assert "no function missing" in by["own.py:missing"].reason
    assert "GPU only" in by["torch.compile"].reason
    assert row.measurement is not None and len(row.measurement.samples) == 3 * 2 * len(row.measurement.names)
    assert Benchmark.model_validate_json(found.model_dump_json()) == found
    page = markdown(found)
    assert "sustained regime" in page and "own.py:dies: Killed" in page and "3 rounds" in page
    assert len(trouble(found)) == 4


@pytest.mark.parametrize("causal", [False, True])
def test_the_plain_kernel_computes_attention_with_tails_and_groups(card: Bench, causal: bool) -> None:
    sizes = {"b": 1, "h": 4, "g": 2, "m": 200, "n": 200, "d": 64, "e": 64}
    job = replace(target("attention"), workloads=(Workload(sizes, {"causal": causal}),))
    (row,) = measured(
        card, job, [Entry(Arm(name=n, kind="baseline")) for n in ("plain Triton", "plain lazy", "FA2")]
    ).rows
    assert [o.reason for o in row.outcomes] == ["", "", ""]
    assert all(o.error is not None and o.error[0] <= 2 * o.error[1] for o in row.outcomes)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("layernorm", {"r": 8, "c": 100}),
        ("gemm", {"m": 40, "n": 72, "k": 64}),
        ("matmul_fp8", {"m": 48, "n": 80, "k": 64}),
        ("cross_entropy", {"r": 8, "c": 300}),
    ],
)
def test_baselines_give_the_targets_answer(card: Bench, name: str, sizes: dict[str, int]) -> None:
    job = replace(target(name), workloads=(Workload(sizes),))
    (row,) = measured(card, job, entries(job)).rows
    for outcome in row.outcomes:
        assert "wrong" not in outcome.reason, outcome
    right = [o for o in row.outcomes if o.error is not None]
    assert len(right) >= (1 if name == "matmul_fp8" else 2)


def test_a_library_that_writes_to_its_keys_gets_keys_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def sageattn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensor_layout: str, is_causal: bool) -> object:
        k -= k.mean(dim=2, keepdim=True)  # as version 1.0.6 does
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    monkeypatch.setitem(sys.modules, "sageattention", SimpleNamespace(sageattn=sageattn))  # type: ignore[arg-type]
    one = next(b for b in baselines.of("attention") if b.name == "SageAttention")
    given = [torch.randn(1, 2, 16, 8) for _ in range(3)]
    before = given[1].clone()
    call = one.make(baselines.Setting(given, {"causal": True}, 0))
    found = [call(0, given) for _ in range(2)]
    assert torch.equal(given[1], before)
    right = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=True)
    assert all(torch.allclose(x, right, atol=1e-5) for x in found)


def test_a_program_that_is_not_legal_on_the_chip_is_told_before_anything_runs() -> None:
    job = target("softmax")
    text = job.seed.replace("grid r", "grid r c")
    with pytest.raises(ProgramError):
        program_entry("mine", text, parse(text), job, H200)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_device_measures_attention_beside_cudnn() -> None:
    job = target("attention")
    job = replace(job, workloads=job.workloads[:1])
    arms = [Entry(Arm(name=n, kind="baseline")) for n in ("cuDNN", "plain Triton")]
    with Bench(H200) as one:
        (row,) = one.run(job, arms, rounds=2).rows
    assert all(o.seconds and not o.reason for o in row.outcomes)
