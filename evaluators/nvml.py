"""Readings of NVIDIA devices straight from the driver's library: no CUDA context, no torch, a few microseconds each.

Structures and numbers follow the NVML API reference (docs.nvidia.com/deploy/nvml-api). Where the library or a figure is
missing, a reading is None: nobody's run depends on it.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_SM_CLOCK = 1
_MEMORY_CLOCK = 2
_GPU_TEMPERATURE = 0
# nvmlClocksThrottleReason*: bit -> what people call it. Idle and application settings are no trouble.
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


@functools.lru_cache(maxsize=1)
def library() -> Any:
    """The initialised library, or None where there is no NVIDIA driver."""
    try:
        found = ctypes.CDLL("libnvidia-ml.so.1")
        return found if found.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


class Nvml:
    """One device, by its handle."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle

    def number(self, function: str, *arguments: int) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._call(function, *arguments, ctypes.byref(value)) else None

    def text(self, function: str) -> str | None:
        buffer = ctypes.create_string_buffer(128)
        return buffer.value.decode() if self._call(function, buffer, ctypes.c_uint(len(buffer))) else None

    def memory(self) -> tuple[int, int] | None:
        """(total, used) bytes."""
        found = _Memory()
        return (found.total, found.used) if self._call("nvmlDeviceGetMemoryInfo", ctypes.byref(found)) else None

    def throttles(self) -> tuple[str, ...]:
        bits = ctypes.c_ulonglong()
        if not self._call("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.byref(bits)):
            return ()
        return tuple(name for bit, name in THROTTLES.items() if bits.value & bit)

    def processes(self) -> tuple[int, ...]:
        """Ids of the processes that compute on it, as the driver sees them (a container may see none of its own)."""
        count = ctypes.c_uint(64)
        rows = (_Process * 64)()
        for function in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
            if self._call(function, ctypes.byref(count), rows):
                return tuple(rows[i].pid for i in range(count.value))
        return ()

    def mig(self) -> bool:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        return self._call("nvmlDeviceGetMigMode", ctypes.byref(current), ctypes.byref(pending)) and current.value == 1

    def reading(self) -> dict[str, Any]:
        """The state of this moment: SM clock in MHz, power in watts (the driver's average), degrees, throttles."""
        milliwatts = self.number("nvmlDeviceGetPowerUsage")
        return {
            "sm_mhz": self.number("nvmlDeviceGetClockInfo", _SM_CLOCK),
            "watts": None if milliwatts is None else milliwatts / 1000,
            "celsius": self.number("nvmlDeviceGetTemperature", _GPU_TEMPERATURE),
            "throttles": list(self.throttles()),
        }

    def facts(self, index: int) -> dict[str, Any]:
        memory = self.memory()
        power = self.number("nvmlDeviceGetEnforcedPowerLimit")
        default = self.number("nvmlDeviceGetPowerManagementDefaultLimit")
        return {
            "index": index,
            "name": self.text("nvmlDeviceGetName") or "",
            "uuid": self.text("nvmlDeviceGetUUID") or "",
            "memory_bytes": memory[0] if memory else 0,
            "memory_used_bytes": memory[1] if memory else 0,
            "power_limit_w": None if power is None else power / 1000,
            "power_default_w": None if default is None else default / 1000,
            "max_sm_mhz": self.number("nvmlDeviceGetMaxClockInfo", _SM_CLOCK),
            "max_memory_mhz": self.number("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK),
            "processes": list(self.processes()),
            "mig": self.mig(),
            "throttles": list(self.throttles()),
        }

    def _call(self, function: str, *arguments: Any) -> bool:
        known = getattr(library(), function, None)
        return known is not None and known(self._handle, *arguments) == 0


def devices() -> list[Nvml]:
    """Every device that the driver shows, in its order; none where there is no driver."""
    found = library()
    count = ctypes.c_uint()
    if found is None or found.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    handles = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if found.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0:
            handles.append(Nvml(handle))
    return handles


def driver() -> str | None:
    """The driver's version."""
    found = library()
    buffer = ctypes.create_string_buffer(96)
    if found is None or found.nvmlSystemGetDriverVersion(buffer, ctypes.c_uint(len(buffer))) != 0:
        return None
    return buffer.value.decode()


def by_uuid(uuid: str) -> Nvml | None:
    return next((d for d in devices() if d.text("nvmlDeviceGetUUID") == uuid), None)
