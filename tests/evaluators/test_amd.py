"""A machine with ROCm's torch and AMD devices, made up at its edges: what torch, amdsmi and rocprofv3 say there.

torch's properties are those of an MI300X as people report them; amdsmi's answers have the fields, units and "N/A"s of
its Python source (7.0.2); rocprofv3's CSV has the columns of its documentation. None of it ran on a device.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from avo import choosing, doctor, profiling_access
from avo.errors import UserMistake
from dsl.hardware import hardware
from evaluators import amd, benchmark, device, installed, nvml, process, sustained
from evaluators.baselines import attention, products
from evaluators.device import DeviceFacts, NoDevice, chip_of, cut_up, local_devices, mask_for, matching
from evaluators.device_tasks import facts_task
from evaluators.failures import Crash
from evaluators.integrity.raw_device import RawDeviceEvaluator
from evaluators.profiling import read_rocprof
from evaluators.slots import Slot

MI300X = hardware("mi300x")
SERIALS = ("f330dc4d00dee22b", "1ff168be1f0fb7df")
TOLD = {  # of each device, as torch's properties have it: HIP's uuid is the letters of the serial number
    "name": "AMD Instinct MI300X",
    "memory_bytes": 196592 << 20,
    "vendor": "amd",
    "driver": "6.4.43482",
    "arch": "gfx942",
    "sms": 304,
    "max_sm_mhz": 2100,
}


def letters(serial: str) -> str:
    """`66333330-6463-3464-3030-646565323262`"""
    text = serial.encode().hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def rows(count: int = 2, **more: Any) -> list[dict[str, Any]]:
    return [{**TOLD, "index": i, "uuid": letters(SERIALS[i]), **more} for i in range(count)]


class Smi(types.ModuleType):
    """The module `amdsmi` of a machine with two devices, which it lists in another order than HIP."""

    class AmdSmiClkType:
        GFX = 1

    class AmdSmiTemperatureType:
        HOTSPOT = 1

    class AmdSmiTemperatureMetric:
        CURRENT = 0

    def __init__(self) -> None:
        super().__init__("amdsmi")
        self.compute, self.memory, self.cap, self.processes = "SPX", "NPS1", 750, [[], []]
        self.metrics: dict[str, Any] = {
            "temperature_hotspot": 61,
            "average_socket_power": "N/A",
            "current_socket_power": 712,
            "current_gfxclk": 1890,
            "throttle_status": "N/A",
            "indep_throttle_status": "N/A",
            "current_gfxclks": [1890, 1900, 1880, 1890, 1895, 1885, 1890, 1890],
            "accumulation_counter": 1000,
            "prochot_residency_acc": 0,
            "ppt_residency_acc": 100,
            "socket_thm_residency_acc": 0,
            "vr_thm_residency_acc": 0,
            "hbm_thm_residency_acc": 0,
        }

    def amdsmi_init(self) -> None: ...

    def amdsmi_get_processor_handles(self) -> list[int]:
        return [1, 0]

    def amdsmi_get_gpu_asic_info(self, handle: int) -> dict[str, Any]:
        return {
            "market_name": "AMD Instinct MI300X", "asic_serial": f"0x{SERIALS[handle].upper()}",
            "num_compute_units": 304, "target_graphics_version": "gfx942",
        }  # fmt: skip

    def amdsmi_get_gpu_enumeration_info(self, handle: int) -> dict[str, Any]:
        uuid = f"GPU-{SERIALS[handle]}"
        return {"drm_render": 128, "drm_card": 1, "hsa_id": 2, "hip_id": handle, "hip_uuid": uuid}

    def amdsmi_get_gpu_metrics_info(self, handle: int) -> dict[str, Any]:
        return dict(self.metrics)

    def amdsmi_get_clock_info(self, handle: int, kind: int) -> dict[str, Any]:
        return {"clk": 132, "min_clk": 132, "max_clk": 2100, "clk_locked": False, "clk_deep_sleep": "N/A"}

    def amdsmi_get_power_info(self, handle: int) -> dict[str, Any]:
        return {"socket_power": 140, "current_socket_power": 140, "average_socket_power": "N/A", "power_limit": 750}

    def amdsmi_get_temp_metric(self, handle: int, kind: int, metric: int) -> int:
        return 44

    def amdsmi_get_power_cap_info(self, handle: int) -> dict[str, Any]:
        micro = {"power_cap": self.cap, "default_power_cap": 750, "dpm_cap": 0, "max_power_cap": 750}
        return {name: watts * 10**6 for name, watts in micro.items()}

    def amdsmi_get_gpu_vram_usage(self, handle: int) -> dict[str, Any]:
        return {"vram_total": 196592, "vram_used": 285}

    def amdsmi_get_gpu_driver_info(self, handle: int) -> dict[str, Any]:
        return {"driver_name": "amdgpu", "driver_version": "6.14.14", "driver_date": "N/A"}

    def amdsmi_get_gpu_process_list(self, handle: int) -> list[dict[str, Any]]:
        memory = {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": 1 << 30}
        return [{"name": "N/A", "pid": p, "mem": 1 << 30, "memory_usage": memory} for p in self.processes[handle]]

    def amdsmi_get_gpu_compute_partition(self, handle: int) -> str:
        return self.compute

    def amdsmi_get_gpu_memory_partition(self, handle: int) -> str:
        return self.memory


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch) -> Iterator[Smi]:
    fake = Smi()
    monkeypatch.setitem(sys.modules, "amdsmi", fake)
    amd.package.cache_clear()
    yield fake
    amd.package.cache_clear()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """Without NVIDIA's driver, with AMD's; torch is asked in a process of its own."""
    for mask in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(mask, raising=False)
    monkeypatch.setattr(nvml, "devices", lambda: [])
    exists = os.path.exists
    monkeypatch.setattr(device.os.path, "exists", lambda path: path == "/dev/kfd" or exists(path))
    device._rows.cache_clear()

    def has(found: list[dict[str, Any]]) -> None:
        said = f"a warning of ROCm's\n{json.dumps(found)}\n"
        monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, said, ""))
        device._rows.cache_clear()

    yield has
    device._rows.cache_clear()


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has one MI300X, by ROCm's torch."""
    told = types.SimpleNamespace(
        name="AMD Instinct MI300X", gcnArchName="gfx942:sramecc+:xnack-", total_memory=196592 << 20,
        multi_processor_count=304, uuid=letters(SERIALS[0]), L2_cache_size=4 << 20, major=9, minor=4,
    )  # fmt: skip
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: told)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 4))


# What is here -------------------------------------------------------------------------------------


def test_a_device_is_what_torch_and_amdsmi_say_together(machine: Any, smi: Smi) -> None:
    machine(rows())
    smi.processes[1] = [4711]
    first, second = local_devices()
    assert (first.name, first.uuid) == ("AMD Instinct MI300X gfx942", "GPU-f330dc4d00dee22b")
    assert (first.driver, first.power_limit_w, first.power_default_w) == ("6.14.14", 750.0, 750.0)
    assert first.memory_used_bytes == 285 << 20 and first.warnings() == []
    assert "4711" in second.warnings()[0]  # amdsmi's first handle is HIP's second device
    assert matching([first, second], MI300X) == [first, second]
    assert choosing.chip("auto") is MI300X and choosing.judge("local", MI300X) == "measured"


def test_a_capped_device_is_told_and_one_that_nobody_reads_too(machine: Any, smi: Smi) -> None:
    machine(rows(1))
    smi.cap = 550
    assert "capped at 550 W; 750 W is the default" in local_devices()[0].warnings()[0]
    sys.modules["amdsmi"] = None  # type: ignore[assignment]
    amd.package.cache_clear()
    (told,) = local_devices()[0].warnings()
    assert "install the amdsmi" in told and chip_of(local_devices()[0]) is MI300X


@pytest.mark.parametrize(
    ("told", "chip"),
    [
        ({}, "mi300x"),
        ({"name": "AMD Instinct MI300X VF"}, "mi300x"),
        ({"name": "AMD Radeon Graphics"}, "mi300x"),  # a container without the list of names
        ({"name": "", "memory_bytes": 256 << 30}, None),  # an MI325X
        ({"name": "AMD Instinct MI325X"}, None),
        ({"name": "AMD Instinct MI300A", "sms": 228}, None),
        ({"name": "AMD Instinct MI355X", "arch": "gfx950", "sms": 256, "max_sm_mhz": 2400}, "mi355x"),
        ({"name": "AMD Instinct MI350X", "arch": "gfx950", "sms": 256, "max_sm_mhz": 2200}, None),
        ({"name": "", "arch": "gfx950", "sms": 256, "max_sm_mhz": 2400, "memory_bytes": 288 * 10**9}, "mi355x"),
        ({"name": "", "arch": "gfx950", "sms": 256, "max_sm_mhz": 2200, "memory_bytes": 288 * 10**9}, None),
    ],
)
def test_which_chip_it_is(told: dict[str, Any], chip: str | None) -> None:
    found = chip_of(DeviceFacts(uuid="GPU-1", **{**TOLD, **told}))
    assert (found.name if found else None) == chip


def test_a_part_of_a_device_is_not_measured(machine: Any, smi: Smi) -> None:
    machine(rows(2, sms=38, memory_bytes=24 << 30))
    smi.compute, smi.memory = "CPX", "NPS4"
    assert cut_up(local_devices()[0], MI300X) == "the partition mode CPX NPS4"
    with pytest.raises(UserMistake, match=r"CPX NPS4: a slice.*amd-smi set.*SPX.*HIP_VISIBLE_DEVICES.*predicted"):
        choosing.judge("local", MI300X)
    bare = DeviceFacts(uuid="GPU-1", **{**TOLD, "sms": 38})
    with pytest.raises(NoDevice, match="38 of 304 compute units"):  # without amdsmi it shows as well
        matching([bare], MI300X)


# Who sees it --------------------------------------------------------------------------------------


def test_a_worker_sees_the_device_that_was_found_whatever_masks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    second = DeviceFacts(uuid="GPU-1", index=1, **TOLD)
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    assert mask_for(second) == {"HIP_VISIBLE_DEVICES": "1"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")  # HIP takes it where its own is not set
    assert mask_for(second) == {"HIP_VISIBLE_DEVICES": "6"}
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3, 2")
    assert mask_for(second) == {"HIP_VISIBLE_DEVICES": "2"}
    assert mask_for(DeviceFacts(name="NVIDIA H200", uuid="GPU-9")) == {"CUDA_VISIBLE_DEVICES": "GPU-9"}


def test_workers_that_touch_no_device_see_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2,3")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    assert process.environment("compile", tmp_path)["HIP_VISIBLE_DEVICES"] == "-1"  # HIP takes "" for no mask
    seen = process.environment("device", tmp_path, {"HIP_VISIBLE_DEVICES": "1"})
    assert (seen["ROCR_VISIBLE_DEVICES"], seen["HIP_VISIBLE_DEVICES"]) == ("2,3", "1")
    assert "ROCR_VISIBLE_DEVICES" not in process.environment("compile", tmp_path)


def test_raw_python_is_refused_there_with_what_works() -> None:
    with pytest.raises(NoDevice, match=r"raw Python is not timed on AMD Instinct MI300X.*--hw cpu"):
        RawDeviceEvaluator(MI300X)


# How it stands ------------------------------------------------------------------------------------


def test_a_reading_has_clock_power_heat_and_what_held_the_clocks(smi: Smi) -> None:
    found = amd.by_uuid("GPU-f330dc4d00dee22b")
    assert found is not None
    assert found.reading() == {"sm_mhz": 1890.0, "watts": 712, "celsius": 61, "throttles": []}
    smi.metrics |= {"ppt_residency_acc": 140, "hbm_thm_residency_acc": 3}
    assert found.reading()["throttles"] == ["power cap", "thermal (memory)"]
    assert found.reading()["throttles"] == []
    smi.metrics = {"current_gfxclks": ["N/A"] * 8, "current_socket_power": "N/A", "ppt_residency_acc": "N/A"}
    assert found.reading() == {"sm_mhz": 132, "watts": 140, "celsius": 44, "throttles": []}
    assert amd.by_uuid("GPU-0123456789abcdef") is None  # never another one's readings


def test_a_worker_reads_its_own_device(smi: Smi, rocm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sustained.threading.Thread, "start", lambda self: None)  # one reading is enough
    meter = sustained.Meter()
    assert meter.now() == {"sm_mhz": 1890, "watts": 712, "celsius": 61, "throttles": []}
    facts, _ = facts_task({}, ())
    assert (facts["uuid"], facts["arch"], facts["sms"]) == ("GPU-f330dc4d00dee22b", "gfx942", 304)
    assert facts["runtime"] == "6.4.43482" and facts["cudnn"] is None  # MIOpen's version is none of cuDNN's
    told = benchmark._versions({"vendor": "amd", **facts})
    assert told["rocm"] == "6.4.43482" and "cuda" not in told


def test_inputs_are_cold_behind_the_cache_that_hip_does_not_tell(rocm: None) -> None:
    """HIP has 4 MiB, the L2 of one die; 256 MiB lie between the L2s and memory."""
    assert sustained.cache_bytes() == 256 << 20
    assert sustained.rotation(100 << 20) == 8


def test_a_call_that_hip_cannot_capture_is_launched_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "HIP error: operation not permitted when stream is capturing"
    monkeypatch.setattr(torch.cuda, "Stream", lambda: (_ for _ in ()).throw(RuntimeError(said)))
    assert sustained.Arm("one", lambda place: None).capture() is False


def test_a_fault_that_ends_the_process_is_told_in_rocms_words(tmp_path: Any) -> None:
    fault = "Memory access fault by GPU node-2 (Agent handle: 0x5581) on address 0x7f0000000000. Reason: Unknown."
    slot = Slot(DeviceFacts(uuid="GPU-1", **TOLD), tmp_path, simulate=True)

    def call(*_: Any, **__: Any) -> Any:
        raise Crash("signal 6", f"a line\n{fault}\n")

    slot._pool.call = call  # type: ignore[method-assign]
    with pytest.raises(Crash, match="Memory access fault by GPU node-2"):
        slot._theirs("screen", {}, 1.0)
    slot.close()


# What it is held against, and what looks at it ----------------------------------------------------


def test_baselines_have_the_names_of_rocms_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as there:
            there.setattr(torch.version, "hip", "6.4.43482")
            ours = importlib.reload(attention).BASELINES["attention"], importlib.reload(products).BASELINES["gemm"]
        assert [b.name for b in ours[0]][:3] == ["flash", "efficient", "FlexAttention"]
        assert [b.name for b in ours[1]][:2] == ["hipBLASLt", "hipBLASLt addmm"]
    finally:
        importlib.reload(attention)
        importlib.reload(products)
    assert [b.name for b in attention.BASELINES["attention"]][:2] == ["cuDNN", "FA2"]


def counters(name: str, *values: float, kernel: str = "softmax_kernel.kd") -> str:
    """As `rocprofv3 --pmc` writes it: a row for each launch, cold ones first."""
    head = (
        '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id",'
        '"Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
        '"Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"'
    )
    lines = [head]
    for place, value in enumerate(values, start=7):
        began = 1569078135380312 + 10**6 * place
        row = f'{place},{place},"Agent 1",2,9,9,262144,5,"{kernel}",256,0,0,12,4,32,"{name}",{value:e}'
        lines.append(f"{row},{began},{began + 100_000}")
    return "\n".join(lines) + "\n"


def test_counters_of_rocprofv3_name_the_busiest_unit() -> None:
    passes = [counters("MfmaUtil", 1.0, 12.5), counters("VALUBusy", 9.0, 31.0), counters("OccupancyPercent", 40, 41)]
    passes += [counters("FetchSize", 0, 200_000), counters("WriteSize", 0, 200_000)]
    passes += [counters("VALUBusy", 99.0, kernel="elementwise_kernel")]
    (kernel,) = read_rocprof(passes, ["softmax_kernel"], MI300X.hbm_bytes_per_s)
    assert kernel.seconds == pytest.approx(1e-4)
    assert kernel.metrics["MfmaUtil"] == (12.5, "%")  # of the last launch, which is warm
    assert kernel.metrics["HBM"][0] == pytest.approx(100 * 400_000 * 1024 / 1e-4 / 5.3e12)
    assert kernel.bottleneck == "memory (HBM)"
    assert read_rocprof(["", "no csv"], ["softmax_kernel"], 1.0) == ()


def test_the_doctor_speaks_of_rocms_tools(monkeypatch: pytest.MonkeyPatch, machine: Any, smi: Smi) -> None:
    machine(rows(1))
    monkeypatch.setattr(profiling_access.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "2.9.1+rocm6.4")
    found = {f.name: f for f in doctor._gpu()}
    assert found["gpu 0"].verdict == "ok" and "AMD Instinct MI300X gfx942 (mi300x), 191 GiB" in found["gpu 0"].found
    assert "rocprofv3 is not on the path" in found["profiler"].found
    monkeypatch.setattr(profiling_access.shutil, "which", lambda name: f"/opt/rocm/bin/{name}")
    assert profiling_access.access("amd").path == "/opt/rocm/bin/rocprofv3"
    machine([])
    (told,) = doctor._gpu()
    assert "amd-smi, at HIP_VISIBLE_DEVICES" in told.advice


def test_rocms_triton_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "pytorch-triton-rocm":
            raise installed.metadata.PackageNotFoundError(name)
        return "3.6.0"

    monkeypatch.setattr(installed.metadata, "version", version)
    assert installed.version("triton") == "3.6.0" and installed.version("torch") is None
    (found,) = doctor._triton()
    assert found.verdict == "ok" and found.found == "3.6.0"
    versions = {"torch": "2.9.0+rocm6.4", "triton": "3.5.0"}
    monkeypatch.setattr(installed.metadata, "version", versions.__getitem__)
    (found,) = doctor._triton()
    assert found.verdict == "fail" and "ROCm build of torch" in found.advice  # PyPI's Triton is not its own
