"""Chips that cannot be: each field is named, with what it wants."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dsl.hardware import HARDWARE, hardware
from dsl.hardware_check import faults

H100 = hardware("h100")


def test_every_chip_of_avos_own_is_possible() -> None:
    for name, chip in HARDWARE.items():
        assert faults(chip) == [], name
    assert faults(dataclasses.replace(H100, name="h100-pcie", sms=np.int64(114), clock_hz=1_755_000_000)) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": ""}, "name is ''; it wants a text"),
        ({"vendor": "NVIDIA"}, "vendor is 'NVIDIA'; legal: nvidia, amd, cpu"),
        ({"aliases": "x"}, "aliases is 'x'; it wants a tuple of texts"),
        ({"triton_arch": 9.0}, "triton_arch is 9.0; it wants what Triton's GPUTarget takes (90, 'gfx942') or None"),
        ({"sms": "132"}, "sms is '132'; it wants a whole number above 0"),
        ({"sms": 0}, "sms is 0; it wants a whole number above 0"),
        ({"shared_bytes": 2.5}, "shared_bytes is 2.5; it wants a whole number above 0"),
        ({"dies": True}, "dies is True; it wants a whole number above 0"),
        ({"hbm_bytes_per_s": float("nan")}, "hbm_bytes_per_s is nan; it wants a finite number above 0"),
        ({"alu_flops": -1.0}, "alu_flops is -1.0; it wants a finite number above 0"),
        ({"launch_s": -1e-6}, "launch_s is -1e-06; it wants a finite number of at least 0"),
        ({"memory_cache_bytes": None}, "memory_cache_bytes is None; it wants a whole number of at least 0"),
        ({"peak_flops": {"f16": 1e15, "bf16": 0.0}}, "peak_flops['bf16'] is 0.0; it wants a finite number above 0"),
        ({"peak_flops": {"f16": 1e15, "fp16": 1e15}}, "peak_flops names 'fp16'; did you mean 'f16'? legal: bf16, e4m3"),
        ({"peak_flops": {"bf16": 1e15}}, "peak_flops has no 'f16'"),
        ({"peak_flops": "1e15"}, "peak_flops is '1e15'; it wants a mapping of dtype to FLOP/s"),
        ({"dtypes": {"f16"}}, "dtypes is {'f16'}; it wants a frozenset of dtypes"),
        ({"emulated": frozenset({"fp4"})}, "emulated names 'fp4'"),
    ],
)
def test_a_field_that_cannot_be_is_named(changed: dict[str, Any], said: str) -> None:
    (found,) = faults(dataclasses.replace(H100, **changed))
    assert said in found
