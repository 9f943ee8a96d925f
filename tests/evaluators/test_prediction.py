"""Predictions order what was measured, and move the right way when one fact changes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dsl.hardware import HARDWARE, hardware
from dsl.lowering.lowered import Launch, Profile, Segment
from dsl.work import Work
from evaluators.machine import MachineCode, with_occupancy
from evaluators.prediction import Prediction, predict
from evaluators.roofline import speed_of_light
from evaluators.trips import matrix_shapes, read_trips

ROOT = Path(__file__).parents[2]
H200 = hardware("h200")


@pytest.fixture(scope="module")
def calibrate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calibrate", ROOT / "benchmarks" / "calibrate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["calibrate"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


# Against measurements ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("batch, length", [(8, 4096), (2, 16384)], ids=["fitted", "held-out"])
def test_the_order_of_the_measured_settings_is_predicted(
    calibrate: ModuleType, causal: bool, batch: int, length: int
) -> None:
    cases = calibrate.cases((causal, batch, length))
    assert len(cases) == 80
    assert [c.predicted == 0 for c in cases] == [c.measured == 0 for c in cases]  # the same settings do not fit
    figures = calibrate.figures(cases)
    assert figures.spearman >= 0.6
    assert figures.regret <= 0.15


def test_other_kernels_are_predicted_in_a_plausible_order(calibrate: ModuleType) -> None:
    found = {name: (p, w) for name, p, w in calibrate.others()}
    small, large = found["gemm 64x64x32, 1 stage, pointers"][0], found["gemm 128x256x64, 3 stages, tma"][0]
    assert large.seconds < 0.6 * small.seconds
    tflops = found["gemm 128x256x64, 3 stages, tma"][1].total_flops / large.seconds / 1e12
    assert 450 < tflops < 850  # cuBLAS sustains 680 at this size
    for name in ("rmsnorm 16384 x 8192", "softmax 16384 x 4096"):
        prediction, needed = found[name]
        assert 0.4 < needed.bytes / prediction.seconds / H200.hbm_bytes_per_s < 0.95, name


# One fact changes -------------------------------------------------------------------------------------------------

LOOP = {"wgmma": 24, "ffma": 68, "fmul": 132, "fadd": 72, "fmnmx": 72, "ex2": 68, "cvt": 32, "bar": 8, "uniform": 90}


def machine(**changes: object) -> MachineCode:
    facts: dict[str, object] = {
        "kernel": "attention_kernel",
        "arch": "sm_90",
        "compiler": "triton",
        "registers": 250,
        "spills": 0,
        "shared_bytes": 98336,
        "threads": 128,
        "code_bytes": 16000,
        "instructions": {k: n + 20 for k, n in LOOP.items() if k != "wgmma"} | {"wgmma": 24},
        "matrix": {"HGMMA.64x64x16.F32.BF16": 16, "HGMMA.64x128x16.F32.BF16": 8},
        "loops": (LOOP,),
    }
    return with_occupancy(MachineCode.model_validate(facts | changes), H200)


def launch(stages: int = 2, programs: int = 4096, **constexprs: int) -> Launch:
    return Launch({}, dict(constexprs), (), programs, {"num_warps": 4, "num_stages": stages})


def profile(trips: tuple[int, ...] = (64,), tiles: int = 4096, load_bytes: int = 32768) -> Profile:
    loop = Segment("loop", trips, ((128, 64, 128, "bf16"), (128, 128, 64, "bf16")), 8320, 42000, 16512, load_bytes)
    return Profile(tiles, (Segment("tile", (1,), alu=65536, load_bytes=32768, store_bytes=32768), loop))


def seconds(m: MachineCode | None = None, p: Profile | None = None, stages: int = 2, **programs: int) -> float:
    return predict([(launch(stages, **programs), m or machine(), p or profile())], H200).seconds


def with_loop(**changes: int) -> MachineCode:
    return machine(loops=(LOOP | changes,))


@pytest.mark.parametrize("name", ["ffma", "ex2", "ldl", "stl", "bar", "lds", "wgmma", "ldg", "int"])
def test_more_instructions_in_the_loop_are_never_faster(name: str) -> None:
    times = [seconds(with_loop(**{name: LOOP.get(name, 0) + more})) for more in (0, 1, 8, 11)]
    assert times == sorted(times) and times[0] < times[-1]


def test_more_spills_are_never_faster() -> None:
    times = [seconds(machine(spills=n)) for n in (0, 4, 12, 128, 512)]
    assert times == sorted(times) and times[0] < times[-1]
    in_loop = [seconds(with_loop(ldl=n, stl=n).model_copy(update={"spills": n})) for n in (0, 12, 128)]
    assert in_loop == sorted(in_loop) and in_loop[-1] > 1.1 * in_loop[0]


def test_fewer_resident_blocks_are_never_faster() -> None:
    times = [seconds(machine().model_copy(update={"occupancy_blocks": n})) for n in (4, 2, 1)]
    assert times == sorted(times) and times[0] < times[-1]


def test_more_stages_of_the_same_code_hide_more() -> None:
    times = [seconds(stages=n) for n in (1, 2, 3, 4)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[1] > times[2] == times[3]


def test_time_grows_with_the_work() -> None:
    once, twice = seconds(), seconds(p=profile(tiles=8192), programs=8192)
    assert twice == pytest.approx(2 * once, rel=0.05)
    assert seconds(p=profile(trips=(128,))) == pytest.approx(2 * once, rel=0.1)


def test_a_last_wave_that_is_almost_empty_costs() -> None:
    wave = H200.sms * machine().occupancy_blocks
    full, one_more = (seconds(p=profile(tiles=n), programs=n) for n in (wave, wave + 1))
    assert 1.2 * full < one_more < 2.1 * full
    found = predict([(launch(programs=wave + 1), machine(), profile(tiles=wave + 1))], H200)
    assert found.parts["tail wave"] > 0.15 * found.seconds


def test_longest_tiles_first_end_together() -> None:
    rows = tuple(range(4, 128, 4))
    tiles = 2 * len(rows) * 16

    def time(trips: tuple[int, ...]) -> float:
        return seconds(p=profile(trips, tiles), programs=tiles)

    spread = tuple(t for t in rows for _ in range(32))  # each length in one stretch: shortest, or longest, at the end
    assert time(tuple(reversed(spread))) < time(spread)
    even = seconds(p=profile((64,), tiles), programs=tiles)
    assert time(tuple(reversed(spread))) == pytest.approx(even, rel=0.1)


def test_causal_tiles_take_half() -> None:
    rows = tuple(range(2, 130, 2))
    assert seconds(p=profile(rows)) == pytest.approx(seconds(p=profile((66,))), rel=0.05)


def test_one_persistent_block_an_sm_hides_less() -> None:
    assert seconds(programs=H200.sms) > 1.05 * seconds()


def test_nothing_is_faster_than_light() -> None:
    work = Work(flops={"bf16": 1e15}, bytes_in=1e6, bytes_out=1e6)
    found = predict([(launch(), machine(), profile())], H200, work)
    assert found.seconds == speed_of_light(work, H200).floor_s


def test_traffic_beyond_the_bandwidth_sets_the_pace() -> None:
    heavy = profile(load_bytes=1 << 22)
    found = predict([(launch(stages=4), machine(), heavy)], H200)
    assert found.limiter in ("L2 bandwidth", "HBM bandwidth")
    light = Work(bytes_in=1e9, bytes_out=1e8)
    assert predict([(launch(stages=4), machine(), heavy)], H200, light).seconds < found.seconds


def test_kernels_add_up_and_each_is_launched() -> None:
    one = predict([(launch(), machine(), profile())], H200)
    two = predict([(launch(), machine(), profile())] * 2, H200)
    assert two.seconds == pytest.approx(2 * one.seconds)
    assert two.parts["launch"] == pytest.approx(2 * H200.launch_s)


def test_the_parts_of_an_sm_add_up_and_the_limiter_is_the_largest() -> None:
    work = Work(bytes_in=1e8, bytes_out=1e8)
    found: Prediction = predict([(launch(), machine(), profile())], H200, work)
    beside = ("L2 bandwidth", "HBM bandwidth", "launch")
    sm = sum(t for cause, t in found.parts.items() if cause not in beside)
    assert sm + found.parts["launch"] <= found.seconds * (1 + 1e-9)
    assert sm > 0.95 * (found.seconds - found.parts["launch"])
    assert found.limiter == max(found.parts, key=lambda cause: found.parts[cause])
    assert found == predict([(launch(), machine(), profile())], H200, work)


# Every chip -------------------------------------------------------------------------------------------------------

AMD_LOOP = {
    "mfma": 64,
    "ffma": 80,
    "fmul": 150,
    "fadd": 80,
    "fmnmx": 80,
    "ex2": 70,
    "bar": 60,
    "uniform": 100,
    "lds": 24,
}


@pytest.mark.parametrize("hw", [h for h in HARDWARE.values() if h.claims_speed], ids=lambda h: h.name)
def test_every_chip_gets_a_time_above_its_floor(hw) -> None:  # type: ignore[no-untyped-def]
    kinds = {
        "sm_90": ("wgmma", "HGMMA.64x64x16.F32.BF16", 24),
        "sm_100": ("tcgen05.mma", "UTCHMMA", 12),
        "gfx942": ("mfma", "v_mfma_f32_32x32x8_bf16_1k", 64),
        "gfx950": ("mfma", "v_mfma_f32_32x32x16_bf16", 32),
    }
    kind, name, count = kinds.get(hw.arch, ("mma.sync", "HMMA.16816.F32.BF16", 512))
    body = AMD_LOOP if hw.vendor == "amd" else LOOP
    loop = {k: n for k, n in body.items() if k not in ("wgmma", "mfma")} | {kind: count}
    code = machine(
        arch=hw.arch,
        threads=4 * hw.warp_size,
        loops=(loop,),
        instructions=loop,
        matrix={name: count},
        shared_bytes=32768,
    )
    code = with_occupancy(code, hw)
    flops = 4 * 128 * 64 * 128 * 64 * 4096
    work = Work(flops={"bf16": flops}, exps=8192 * 64 * 4096, bytes_in=1e8, bytes_out=1e8)
    found = predict([(launch(), code, profile())], hw, work)
    floor = speed_of_light(work, hw).floor_s
    assert floor < found.seconds < 20 * floor


def test_the_host_and_an_empty_pipeline_are_refused() -> None:
    with pytest.raises(ValueError, match="no speed claim"):
        predict([(launch(), machine(), profile())], hardware("cpu"))
    with pytest.raises(ValueError, match="no kernel"):
        predict([], H200)


# From text to trips -----------------------------------------------------------------------------------------------


def test_shapes_are_read_from_instruction_names() -> None:
    names = {"HGMMA.64x128x16.F32.BF16": 3, "HMMA.16816.F32.BF16": 2, "v_mfma_f32_32x32x8_bf16_1k": 5, "UTCHMMA": 7}
    shapes = matrix_shapes(machine(matrix=names))
    assert [(s.m, s.n, s.k, s.warps, s.count) for s in shapes] == [
        (64, 128, 16, 4, 3),
        (16, 8, 16, 1, 2),
        (32, 32, 8, 1, 5),
    ]


def test_an_unrolled_loop_is_counted_by_the_trip() -> None:
    segments = profile().segments[1:]
    plain = read_trips(machine(), segments, 4, False)
    doubled = machine(loops=({k: 2 * n for k, n in LOOP.items()},), instructions={k: 3 * n for k, n in LOOP.items()})
    assert read_trips(doubled, segments, 4, False).loops == plain.loops


def test_the_loop_over_tiles_of_a_persistent_kernel_is_no_trip() -> None:
    outer = {k: n + 50 for k, n in LOOP.items()} | {"wgmma": 24}
    segments = profile().segments[1:]
    nested = read_trips(machine(loops=(outer, LOOP)), segments, 4, True)
    assert nested.loops == read_trips(machine(), segments, 4, False).loops


def test_without_a_loop_in_the_text_the_profile_stands_in() -> None:
    segments = profile().segments[1:]
    found = read_trips(machine(loops=()), segments, 4, False)
    assert found.loops[0]["ex2"] == 8320 / 128
    assert found.loops[0]["wgmma"] > 0 and not found.straight
    whole = seconds(machine(loops=()))
    assert 0.3 * seconds() < whole < 3 * seconds()
