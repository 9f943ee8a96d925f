"""Readings of AMD devices through the `amdsmi` package that ROCm brings, in the form of `evaluators.nvml`.

Names and units follow the AMD SMI Python API reference (rocm.docs.amd.com/projects/amdsmi). Where the package, a
device or a figure is missing, a reading is None: nobody's run depends on it. Never run on an AMD device by us.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any


@functools.lru_cache(maxsize=1)
def library() -> Any:
    """The initialised module, or None where there is none."""
    try:
        import amdsmi

        amdsmi.amdsmi_init()
    except Exception:  # it raises its own kinds where there is no driver, and OSError where its library is missing
        return None
    return amdsmi


class Amd:
    """One device, by its handle."""

    def __init__(self, smi: Any, handle: Any) -> None:
        self._smi, self._handle = smi, handle

    def reading(self) -> dict[str, Any]:
        """The state of this moment: clock in MHz, power in watts, degrees, what holds its clocks down."""
        smi, handle = self._smi, self._handle
        clock = self._ask(lambda: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX))
        power = self._ask(lambda: smi.amdsmi_get_power_info(handle))
        celsius = self._ask(
            lambda: smi.amdsmi_get_temp_metric(
                handle, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            )
        )
        return {
            "sm_mhz": _number(clock, "clk", "cur_clk"),
            "watts": _number(power, "current_socket_power", "average_socket_power"),
            "celsius": celsius if isinstance(celsius, int | float) else None,
            "throttles": [],
        }

    def facts(self) -> dict[str, Any]:
        """What `DeviceFacts` has beside name and memory."""
        smi, handle = self._smi, self._handle
        cap = self._ask(lambda: smi.amdsmi_get_power_cap_info(handle))
        clock = self._ask(lambda: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX))
        processes = self._ask(lambda: smi.amdsmi_get_gpu_process_list(handle)) or []
        limit, default = _number(cap, "power_cap"), _number(cap, "default_power_cap")
        return {
            "power_limit_w": None if limit is None else limit / 1e6,  # given in microwatts
            "power_default_w": None if default is None else default / 1e6,
            "max_sm_mhz": _number(clock, "max_clk"),
            "processes": [p["pid"] for p in processes if isinstance(p, dict) and isinstance(p.get("pid"), int)],
        }

    def _ask(self, question: Any) -> Any:
        with contextlib.suppress(Exception):
            return question()
        return None


def devices() -> list[Amd]:
    """Every device, in the driver's order."""
    smi = library()
    if smi is None:
        return []
    try:
        return [Amd(smi, handle) for handle in smi.amdsmi_get_processor_handles()]
    except Exception:
        return []


def by_index(index: int) -> Amd | None:
    found = devices()
    return found[index] if 0 <= index < len(found) else None


def _number(found: Any, *names: str) -> int | float | None:
    """The first of these fields that is a number: versions of the package name them differently, or say "N/A"."""
    for name in names:
        value = found.get(name) if isinstance(found, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return None
