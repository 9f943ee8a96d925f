"""Readings of AMD devices through the `amdsmi` package that ROCm brings, in the form of `evaluators.nvml`.

Names and units are those of amdsmi's own Python source, 6.3 to 7.0. Where the package, a device or a figure is missing,
a reading is None: nobody's run depends on it. Never run on an AMD device by us.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

# Counters of `amdsmi_get_gpu_metrics_info` that rise while something holds the clocks down -> what people call it.
_HELD = {
    "ppt_residency_acc": "power cap",
    "prochot_residency_acc": "hardware slowdown",
    "socket_thm_residency_acc": "thermal (hardware)",
    "vr_thm_residency_acc": "thermal (voltage regulators)",
    "hbm_thm_residency_acc": "thermal (memory)",
}


@functools.lru_cache(maxsize=1)
def package() -> Any:
    """The initialised module, or None where there is none."""
    try:
        import amdsmi

        amdsmi.amdsmi_init()
    except Exception:  # it raises its own kinds where there is no driver, and OSError where its library is missing
        return None
    return amdsmi


def uuid(told: str) -> str:
    """The name that ROCm has for a device, `GPU-f330dc4d00dee22b`, from what torch says its uuid is: HIP fills the 16
    bytes with the letters of the serial number."""
    with contextlib.suppress(ValueError):
        letters = bytes.fromhex(told.replace("-", "")).decode("ascii")
        int(letters, 16)
        return f"GPU-{letters.lower()}"
    return f"GPU-{told}"


class Amd:
    """One device, by its handle."""

    def __init__(self, smi: Any, handle: Any) -> None:
        self._smi, self._handle = smi, handle
        self._before: dict[str, int | float] = {}

    def uuids(self) -> set[str]:
        """What it is called: partitions of one device have its serial number in common, and HIP names each."""
        smi, handle = self._smi, self._handle
        asic = self._ask(lambda: smi.amdsmi_get_gpu_asic_info(handle)) or {}
        hip = self._ask(lambda: smi.amdsmi_get_gpu_enumeration_info(handle)) or {}  # from ROCm 6.4 on
        told = [hip.get("hip_uuid"), asic.get("asic_serial")]
        bare = [str(name).lower().removeprefix("gpu-").removeprefix("0x") for name in told if name]
        return {f"GPU-{name}" for name in bare if name != "n/a"}

    def reading(self) -> dict[str, Any]:
        """The state of this moment: clock in MHz (the mean of its dies), power in watts, degrees, what has held its
        clocks down since the last reading."""
        smi, handle = self._smi, self._handle
        metrics = self._ask(lambda: smi.amdsmi_get_gpu_metrics_info(handle)) or {}
        clocks = [c for c in map(_plain, _list(metrics.get("current_gfxclks"))) if c]
        if not clocks:
            clock = self._ask(lambda: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX))
            clocks = [c for c in [_number(clock, "clk", "cur_clk")] if c is not None]
        watts = _number(metrics, "current_socket_power", "average_socket_power")
        if watts is None:
            power = self._ask(lambda: smi.amdsmi_get_power_info(handle))
            watts = _number(power, "current_socket_power", "average_socket_power")
        celsius = _number(metrics, "temperature_hotspot")
        if celsius is None:
            kind, now = smi.AmdSmiTemperatureType, smi.AmdSmiTemperatureMetric
            celsius = _plain(self._ask(lambda: smi.amdsmi_get_temp_metric(handle, kind.HOTSPOT, now.CURRENT)))
        held = {name: value for name in _HELD if (value := _number(metrics, name)) is not None}
        before, self._before = self._before, held
        return {
            "sm_mhz": sum(clocks) / len(clocks) if clocks else None,
            "watts": watts,
            "celsius": celsius,
            "throttles": [_HELD[name] for name, value in held.items() if value > before.get(name, value)],
        }

    def facts(self) -> dict[str, Any]:
        """What `DeviceFacts` has beside what torch says; what is not known is left out."""
        smi, handle = self._smi, self._handle
        cap = self._ask(lambda: smi.amdsmi_get_power_cap_info(handle))
        clock = self._ask(lambda: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX))
        memory = self._ask(lambda: smi.amdsmi_get_gpu_vram_usage(handle))
        driver = self._ask(lambda: smi.amdsmi_get_gpu_driver_info(handle)) or {}
        processes = self._ask(lambda: smi.amdsmi_get_gpu_process_list(handle)) or []
        limit, default = _number(cap, "power_cap"), _number(cap, "default_power_cap")
        used = _number(memory, "vram_used")
        found = {
            "power_limit_w": None if limit is None else limit / 1e6,  # given in microwatts
            "power_default_w": None if default is None else default / 1e6,
            "max_sm_mhz": _number(clock, "max_clk"),
            "memory_used_bytes": None if used is None else int(used) << 20,
            "driver": driver.get("driver_version") or None,
            "processes": [p["pid"] for p in processes if isinstance(p, dict) and isinstance(p.get("pid"), int)],
            "partition": self._partition(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _partition(self) -> str:
        """ "CPX", "CPX NPS4": how it is cut up; "" where it is whole or nobody says."""
        smi, handle = self._smi, self._handle
        asked = (smi.amdsmi_get_gpu_compute_partition, smi.amdsmi_get_gpu_memory_partition)
        told = [self._ask(functools.partial(question, handle)) for question in asked]
        return " ".join(t for t in told if isinstance(t, str) and t not in ("", "N/A", "SPX", "NPS1"))

    def _ask(self, question: Any) -> Any:
        with contextlib.suppress(Exception):
            return question()
        return None


def devices() -> list[Amd]:
    """Every device, in amdsmi's order, which need not be HIP's."""
    smi = package()
    if smi is None:
        return []
    try:
        return [Amd(smi, handle) for handle in smi.amdsmi_get_processor_handles()]
    except Exception:
        return []


def by_uuid(name: str) -> Amd | None:
    """The device of that name (`uuid`); None where amdsmi shows none, for another one's readings would be a lie."""
    return next((device for device in devices() if name in device.uuids()), None)


def _number(found: Any, *names: str) -> int | float | None:
    """The first of these fields that is a number: versions of the package name them differently, or say "N/A"."""
    values = (_plain(found.get(name)) for name in names) if isinstance(found, dict) else ()
    return next((value for value in values if value is not None), None)


def _plain(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
