"""The floor is the slowest pipe at its peak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsl.hardware import HARDWARE, hardware
from dsl.parser import parse
from dsl.polynomial import LEAST_OPERATIONS
from dsl.work import Counts, work
from evaluators.roofline import speed_of_light

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CHIPS = [hw for hw in HARDWARE.values() if hw.claims_speed]


def attention(causal: bool, n: int = 4096) -> Counts:
    program = parse((EXAMPLES / "attention.avo").read_text())
    return work(program, {"b": 8, "h": 16, "g": 16, "m": n, "n": n, "d": 128, "e": 128}, {"causal": causal})


def test_attention_on_a_b200_is_bound_by_its_matrix_units_once_polynomials_help_with_exponentials() -> None:
    counts, hw = attention(False), hardware("b200")
    floor, helped = speed_of_light(replace(counts, replaceable=0), hw), speed_of_light(counts, hw)
    flops, pairs = 4 * 8 * 16 * 4096**2 * 128, 8 * 16 * (4096**2 + 4096)
    assert floor.times["matrix bf16"] == flops / 2.25e15
    assert floor.times["exponentials"] == pytest.approx(pairs / (148 * 16 * 1.85e9))
    # 8,192 FLOPs a clock against 16 exponentials: with 512 FLOPs an exponential the two take equally long
    assert floor.times["exponentials"] == pytest.approx(floor.times["matrix bf16"], rel=0.02)
    assert floor.bottleneck == "exponentials" and helped.bottleneck == "matrix bf16"
    rate = hw.exp_per_s + hw.alu_flops / 2 / LEAST_OPERATIONS
    assert helped.times["exponentials"] == pytest.approx(pairs / rate)
    few = speed_of_light(replace(counts, replaceable=pairs / 10), hw)
    assert few.times["exponentials"] == pytest.approx(0.9 * pairs / hw.exp_per_s)
    assert floor.floor_s == max(floor.times.values())


def test_attention_on_an_h200_is_bound_by_its_matrix_units() -> None:
    floor = speed_of_light(attention(True), hardware("h200"))
    assert floor.bottleneck == "matrix bf16"
    assert floor.floor_s == 2 * 8 * 16 * 4096**2 * 128 / 989.4e12
    assert not floor.memory_bound and floor.intensity > floor.ridge
    assert floor.ridge == pytest.approx(989.4e12 / 4.8e12)


@pytest.mark.parametrize("hw", CHIPS, ids=lambda hw: hw.name)
def test_half_the_work_is_never_slower(hw) -> None:  # type: ignore[no-untyped-def]
    dense, causal = speed_of_light(attention(False), hw), speed_of_light(attention(True), hw)
    assert causal.floor_s < dense.floor_s
    assert all(causal.times[pipe] <= dense.times[pipe] for pipe in causal.times)


@pytest.mark.parametrize("hw", CHIPS, ids=lambda hw: hw.name)
def test_normalisation_is_bound_by_memory_everywhere(hw) -> None:  # type: ignore[no-untyped-def]
    r, c = 16384, 8192
    w = work(parse((EXAMPLES / "rmsnorm.avo").read_text()), {"r": r, "c": c})
    floor = speed_of_light(w, hw)
    assert floor.bottleneck == "memory" and floor.memory_bound
    assert floor.floor_s == 2 * (2 * r * c + c) / hw.hbm_bytes_per_s


def test_a_tiny_kernel_is_bound_by_its_launch() -> None:
    floor = speed_of_light(work(parse((EXAMPLES / "rmsnorm.avo").read_text()), {"r": 1, "c": 64}), hardware("h200"))
    assert floor.bottleneck == "launch" and floor.floor_s == hardware("h200").launch_s


def test_dtypes_share_the_matrix_units_and_those_without_run_on_the_alus() -> None:
    h200, a100 = hardware("h200"), hardware("a100")
    counts = Counts(flops={"bf16": 1e15, "e4m3": 1e15, "f32": 1e12}, bytes_in=1.0)
    floor = speed_of_light(counts, h200)
    assert floor.floor_s == floor.times["matrix bf16"] + floor.times["matrix e4m3"]
    assert floor.bottleneck == "matrix bf16"
    assert floor.times["alu"] == 1e12 / h200.alu_flops
    assert speed_of_light(counts, a100).bottleneck == "alu"  # no fp8 there, not even emulated


def test_pipelines_have_a_floor_for_each_kernel() -> None:
    w = work(parse((EXAMPLES / "decode_queue.avo").read_text()), {"r": 16, "c": 4096, "f": 11008})
    hw = hardware("b200")
    assert speed_of_light(w, hw).bottleneck == "memory"
    floors = [speed_of_light(k, hw).floor_s for k in w.kernels]
    assert sum(floors) > speed_of_light(w, hw).floor_s


def test_the_host_has_none() -> None:
    with pytest.raises(ValueError, match="no speed claim"):
        speed_of_light(attention(False), hardware("cpu"))
