"""Readings through a driver's library that is not there: a stand-in answers as NVML and AMD SMI document it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from dsl.hardware import hardware
from evaluators import device, nvml
from evaluators.device import NoDevice, local_devices, matching
from evaluators.failures import Unavailable
from evaluators.measured import MeasuredEvaluator

NOT_SUPPORTED = 3


class Library:
    """Two cards. What is None in `facts` is not supported."""

    def __init__(self, **facts: Any) -> None:
        self.facts: dict[str, Any] = {
            "names": [b"NVIDIA H200", b"NVIDIA H200"],
            "power_mw": 612_500,
            "limit_mw": 700_000,
            "default_mw": 700_000,
            "sm_mhz": 1755,
            "celsius": 61,
            "throttles": 0x4,
            "pids": [],
            "mig": 0,
            "used": 600 << 20,
        } | facts

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.facts["names"])
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        handle._obj.value = index.value + 1
        return 0

    def nvmlSystemGetDriverVersion(self, buffer: Any, length: Any) -> int:
        buffer.value = b"580.159.04"
        return 0

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, length: Any) -> int:
        buffer.value = self.facts["names"][handle.value - 1]
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, length: Any) -> int:
        buffer.value = f"GPU-{handle.value}".encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, found: Any) -> int:
        found._obj.total, found._obj.used = 141 << 30, self.facts["used"]
        return 0

    def _number(self, name: str, value: Any) -> int:
        if self.facts[name] is None:
            return NOT_SUPPORTED
        value._obj.value = self.facts[name]
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:
        return self._number("power_mw", value)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, value: Any) -> int:
        return self._number("limit_mw", value)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any, value: Any) -> int:
        return self._number("default_mw", value)

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int, value: Any) -> int:
        assert clock == 1
        return self._number("sm_mhz", value)

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, clock: int, value: Any) -> int:
        value._obj.value = {1: 1980, 2: 3201}[clock]
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, value: Any) -> int:
        return self._number("celsius", value)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, bits: Any) -> int:
        return self._number("throttles", bits)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, rows: Any) -> int:
        count._obj.value = len(self.facts["pids"])
        for row, pid in zip(rows, self.facts["pids"], strict=False):
            row.pid = pid
        return 0

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        return self._number("mig", current)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(**facts: Any) -> Library:
        library = Library(**facts)
        monkeypatch.setattr(nvml, "library", lambda: library)
        return library

    return install


def test_what_the_driver_says_of_a_card(driver: Any) -> None:
    driver(pids=[4711], throttles=0x4 | 0x40, limit_mw=450_000)
    one, two = local_devices()
    assert (one.name, one.uuid, two.uuid, one.driver) == ("NVIDIA H200", "GPU-1", "GPU-2", "580.159.04")
    assert one.memory_bytes == 141 << 30 and one.max_sm_mhz == 1980 and one.max_memory_mhz == 3201
    assert one.processes == (4711,) and one.throttles == ("power cap", "thermal (hardware)")
    said = " ".join(one.warnings())
    assert "4711" in said and "450 W; 700 W" in said and "thermal (hardware)" in said


def test_a_reading_has_what_is_there_and_none_for_the_rest(driver: Any) -> None:
    driver(celsius=None)
    card = nvml.by_uuid("GPU-2")
    assert card is not None
    assert card.reading() == {"sm_mhz": 1755, "watts": 612.5, "celsius": None, "throttles": ["power cap"]}
    driver(power_mw=None, throttles=None, sm_mhz=None)
    assert card.reading() == {"sm_mhz": None, "watts": None, "celsius": 61, "throttles": []}
    assert nvml.by_uuid("GPU-9") is None


def test_an_old_library_without_a_function_is_no_trouble(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver()
    monkeypatch.delattr(Library, "nvmlDeviceGetMigMode")
    monkeypatch.delattr(Library, "nvmlDeviceGetComputeRunningProcesses_v3")
    (one, _) = local_devices()
    assert not one.mig and one.processes == ()


def test_mig_is_refused_and_the_mask_is_kept(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(mig=1)
    with pytest.raises(NoDevice, match=r"MIG.*nvidia-smi -mig 0.*--evaluator predicted"):
        matching(local_devices(), hardware("h200"))
    driver()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [d.uuid for d in local_devices()] == ["GPU-2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    assert [d.index for d in local_devices()] == [0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert local_devices() == []


def test_memory_that_somebody_holds_is_told_where_no_process_shows(driver: Any) -> None:
    driver(used=40 << 30)
    assert "40960 MiB" in " ".join(local_devices()[0].warnings())


def test_a_device_that_another_run_has_is_left_out(
    driver: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver()
    monkeypatch.setattr(device.tempfile, "gettempdir", lambda: str(tmp_path))
    other = device.Lease("GPU-1")
    other.take()
    with MeasuredEvaluator(hardware("h200")) as judge:
        assert [s.facts.uuid for s in judge.slots] == ["GPU-2"]
        assert any("device 0" in w and "in use by another run of avo" in w for w in judge.warnings)
        with pytest.raises(Unavailable, match="in use by another run"):
            MeasuredEvaluator(hardware("h200"))
    other.release()
    with MeasuredEvaluator(hardware("h200")) as judge:
        assert len(judge.slots) == 2


def test_the_structures_are_as_large_as_nvml_says() -> None:
    assert ctypes.sizeof(nvml._Memory) == 24 and ctypes.sizeof(nvml._Process) == 24
