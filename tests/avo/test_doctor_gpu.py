"""What `avo doctor` says of devices that are here, made up: what they are, what slows them, what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from avo import doctor, profiling_access
from evaluators import device
from evaluators.device import DeviceFacts

CARD = DeviceFacts(name="NVIDIA H200", uuid="GPU-1", memory_bytes=141 << 30, driver="580.1")


def told(monkeypatch: pytest.MonkeyPatch, *devices: DeviceFacts) -> list[doctor.Finding]:
    monkeypatch.setattr(device, "local_devices", lambda: list(devices))
    return list(doctor._gpu())


def test_a_free_card_is_ok_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    first = told(monkeypatch, CARD)[0]
    assert first.verdict == "ok" and first.found == "NVIDIA H200 (h200), 141 GiB, driver 580.1"


def test_what_makes_times_worse_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = CARD.model_copy(update={"processes": (7,), "power_limit_w": 350.0, "power_default_w": 700.0, "mig": True})
    first = told(monkeypatch, busy)[0]
    assert first.verdict == "warn"
    assert all(word in first.found for word in ("compute on NVIDIA H200: 7", "350 W", "MIG"))


def test_a_card_without_peaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first = told(monkeypatch, CARD.model_copy(update={"name": "NVIDIA T4"}))[0]
    assert first.verdict == "warn" and "no peaks" in first.found


def test_a_cpu_build_of_torch_beside_a_card_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "2.13.0+cpu")
    found = {f.name: f for f in told(monkeypatch, CARD)}
    assert found["torch for the gpu"].verdict == "fail" and "build that fits" in found["torch for the gpu"].advice


def test_a_machine_without_a_c_compiler_cannot_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = {f.name: f for f in told(monkeypatch, CARD)}
    assert found["launchers"].verdict == "fail"
    assert found["profiler"].verdict == "warn" and "not on the path" in found["profiler"].found


def test_counters_for_administrators_only_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    params = tmp_path / "params"
    params.write_text("EnableMSI: 1\nRmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(profiling_access, "_PARAMS", params)
    monkeypatch.setattr(profiling_access.shutil, "which", lambda name: "/usr/bin/ncu")
    monkeypatch.setattr(profiling_access.os, "geteuid", lambda: 1000)
    assert profiling_access.access().path is None and "RmProfilingAdminOnly" in profiling_access.access().why_not
    monkeypatch.setattr(profiling_access.os, "geteuid", lambda: 0)
    assert profiling_access.access().path == "/usr/bin/ncu"
