"""Facts of chips: every number has a source, and the numbers agree with each other."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dsl.hardware import HARDWARE, Hardware, UnknownHardware, hardware

CHIPS = [hw for hw in HARDWARE.values() if hw.claims_speed]
NEEDS_NO_SOURCE = {"name", "title", "aliases", "vendor", "arch", "triton_arch", "emulated", "sources"}


@pytest.mark.parametrize("hw", CHIPS, ids=lambda hw: hw.name)
def test_every_number_has_a_source(hw: Hardware) -> None:
    fields = {f.name for f in dataclasses.fields(Hardware)} - NEEDS_NO_SOURCE
    assert fields <= set(hw.sources)
    assert all(len(s) > 6 for s in hw.sources.values())


@pytest.mark.parametrize("hw", CHIPS, ids=lambda hw: hw.name)
def test_numbers_agree(hw: Hardware) -> None:
    assert set(hw.dtypes) <= set(hw.peak_flops)
    assert not hw.dtypes & hw.emulated
    assert hw.shared_bytes <= hw.shared_bytes_sm
    assert hw.max_threads_sm % hw.warp_size == 0
    # a peak is a whole number of multiply-adds per clock and SM
    per_clock = hw.peak_flops["bf16"] / hw.sms / hw.clock_hz
    assert per_clock == pytest.approx(2 ** round(math.log2(per_clock)), rel=0.01)
    assert hw.exp_per_s == pytest.approx(hw.sms * hw.clock_hz * (32 if hw.arch == "gfx950" else 16))
    assert hw.peak("bf16") == hw.peak("f16") > hw.peak("f32")
    assert hw.l2_bytes_per_s > hw.hbm_bytes_per_s


def test_figures_that_people_know() -> None:
    b200 = hardware("b200")
    assert (b200.peak("bf16"), b200.hbm_bytes_per_s, b200.sms) == (2.25e15, 8e12, 148)
    assert (b200.shared_bytes, b200.shared_bytes_sm) == (227 * 1024, 228 * 1024)
    h200 = hardware("h200")
    assert (h200.peak("bf16"), h200.hbm_bytes_per_s, h200.sms) == (989.4e12, 4.8e12, 132)
    mi300x = hardware("mi300x")
    assert (mi300x.sms, mi300x.dies, mi300x.shared_bytes, mi300x.warp_size) == (304, 8, 65536, 64)
    assert mi300x.peak("e4m3") == mi300x.peak("f16")  # emulated


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("B200", "b200"),
        ("NVIDIA H200", "h200"),
        ("gfx942", "mi300x"),
        ("GFX950", "mi355x"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("sm_100", "b200"),
        ("rtx-5090", "rtx5090"),
        ("cpu", "cpu"),
    ],
)
def test_names(said: str, meant: str) -> None:
    assert hardware(said).name == meant


def test_an_unknown_chip_lists_the_known_ones_nearest_first() -> None:
    with pytest.raises(UnknownHardware) as e:
        hardware("mi250")
    known = str(e.value).removeprefix("unknown chip 'mi250'; known, nearest first: ").split(", ")
    assert known[0] == "mi300x"
    assert sorted(known) == sorted(HARDWARE)


def test_a_plugged_in_chip() -> None:
    mine = dataclasses.replace(hardware("h200"), name="h20", title="NVIDIA H20", aliases=("h20 sxm",), sms=78)
    assert hardware("NVIDIA H20", extra=[mine]).sms == 78
    assert hardware("h200", extra=[mine]).sms == 132
    with pytest.raises(ValueError, match=r"two chips are called 'b200': NVIDIA B200 .* and my B200"):
        hardware("h200", extra=[dataclasses.replace(mine, name="b200", title="my B200")])


def test_the_host_claims_no_speed() -> None:
    cpu = hardware("cpu")
    assert not cpu.claims_speed and cpu.triton_arch is None and cpu.has_tma
    assert cpu.peak("bf16") == 0.0


def test_aliases_name_one_chip_each() -> None:
    names = [n for hw in HARDWARE.values() for n in (hw.name, *hw.aliases)]
    assert len(names) == len(set(names))
