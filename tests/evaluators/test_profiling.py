"""The named bottleneck: from Nsight Compute's rows, Proton's tree, and a measured time held against the pipes."""

from __future__ import annotations

import pytest

from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.parser import parse
from evaluators.device import DeviceFacts
from evaluators.failures import TaskError
from evaluators.profiling import by_shares, by_units, profile, read_ncu, read_proton
from evaluators.target import Workload
from evaluators.targets import target
from evaluators.timing import Regime

H200 = hardware("h200")
CARD = DeviceFacts(index=0, name="NVIDIA H200", uuid="GPU-aaaa-1", memory_bytes=141 << 30)
SIZE = Workload({"r": 8, "c": 200})


def rows(**metrics: str) -> str:
    """As `ncu --csv --page details` prints them, with lines of the profiled process above."""
    head = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"'
    lines = ["==PROF== Connected to process 41", "something that the process printed", head]
    units = {"Duration": "us", "Achieved Occupancy": "%", "L2 Cache Throughput": "%"}
    for name, value in metrics.items():
        metric = name.replace("_", " ").replace("L1 TEX", "L1/TEX").replace("SM", "(SM)")
        lines.append(
            f'"0","41","softmax_kernel","GPU Speed Of Light","{metric}","{units.get(metric, "%")}","{value}",""'
        )
    lines.append('"0","41","softmax_kernel","Launch Statistics","Function Cache Configuration","","CachePreferNone",""')
    return "\n".join(lines)


def test_counters_name_the_busiest_unit() -> None:
    text = rows(
        Duration="1,033.25", DRAM_Throughput="91.20", L2_Cache_Throughput="55.10", L1_TEX_Cache_Throughput="40.00",
        Compute_SM_Throughput="33.40", Achieved_Occupancy="61.00",
    )  # fmt: skip
    (kernel,) = read_ncu(text)
    assert kernel.name == "softmax_kernel" and kernel.seconds == pytest.approx(1033.25e-6)
    assert kernel.bottleneck == "memory (HBM)"
    _, why = by_units(kernel.metrics)
    assert why == (
        "busy for 91% of its peak (memory (HBM) 91%, memory (L2) 55%, shared memory and L1 40%, "
        "compute (SM pipes) 33%); occupancy 61%"
    )
    assert "Function Cache Configuration" not in kernel.metrics


def test_where_no_unit_is_busy_it_is_latency() -> None:
    (kernel,) = read_ncu(rows(DRAM_Throughput="31.0", Compute_SM_Throughput="44.0"))
    assert kernel.bottleneck == "latency"
    assert by_units({})[0] == "unknown"


def test_output_of_a_tool_that_was_denied_has_no_kernels() -> None:
    assert read_ncu("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters") == ()


def test_protons_tree_gives_seconds_a_call_by_kernel() -> None:
    leaf = {"children": [], "frame": {"name": "part"}, "metrics": {"count": 20, "time (ns)": 400000}}
    other = {"children": [], "frame": {"name": "combine"}, "metrics": {"count": 20, "time (ns)": 20000}}
    tree = [{"children": [leaf, other], "frame": {"name": "ROOT"}, "metrics": {}}, {"CUDA": {"0": {"arch": "90"}}}]
    found = {k.name: k.seconds for k in read_proton(tree, 20)}
    assert found == {"part": pytest.approx(2e-5), "combine": pytest.approx(1e-6)}


def test_a_measured_time_is_held_against_the_pipes() -> None:
    assert by_shares({"memory": 0.83, "alu": 0.2})[0] == "memory"
    bottleneck, why = by_shares({"matrix bf16": 0.5, "exponentials": 0.3, "launch": 0.001})
    assert bottleneck == "latency" and "matrix bf16 50%" in why and "launch" not in why


def test_a_program_is_profiled_by_events_where_nothing_else_works() -> None:
    job = target("softmax")
    program = parse(job.seed)
    found = profile(
        job, program, lower(program, H200), SIZE, H200, tools=("ncu", "events"),
        why_no_counters="ncu is not on the path", devices=[CARD], simulate=True,
        regime=Regime(untimed_s=0.0, timed_s=1e-3),
    )  # fmt: skip
    assert found.tool == "events" and found.tried == {"ncu": "ncu is not on the path"}
    assert found.seconds and found.bottleneck == "latency" and found.workload == SIZE.name
    assert set(found.shares) >= {"memory", "exponentials"}


@pytest.mark.slow
def test_a_program_that_does_not_run_is_told() -> None:
    job = target("softmax")
    program = parse(job.seed)
    broken = lower(program, H200)
    object.__setattr__(broken, "source", broken.source.replace("return y", "raise ValueError('no')"))
    with pytest.raises(TaskError, match="does not run: ValueError: no"):
        profile(job, program, broken, SIZE, H200, tools=("events",), devices=[CARD], simulate=True)
