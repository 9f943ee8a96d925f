"""Which profiler may be used here: Nsight Compute where counters are allowed, else Proton, else events alone."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib import util
from pathlib import Path

_PARAMS = Path("/proc/driver/nvidia/params")


@dataclass(frozen=True)
class Access:
    """ncu: its path where it may read counters. why_not: what keeps it from that, and how to change it."""

    ncu: str | None
    why_not: str
    proton: bool


def access() -> Access:
    """Looks at files alone; what the driver really allows shows when the tool runs."""
    found = shutil.which("ncu")
    proton = _has_proton()
    if found is None:
        return Access(None, "Nsight Compute (ncu) is not on the path: install NVIDIA's nsight-compute package", proton)
    if restricted() and os.geteuid() != 0:
        return Access(
            None,
            "counters are for administrators only on this machine (RmProfilingAdminOnly): run as root, or load the "
            "driver with NVreg_RestrictProfilingToAdminUsers=0",
            proton,
        )
    return Access(found, "", proton)


def restricted() -> bool:
    """Whether the driver keeps counters to administrators; True is its default."""
    try:
        lines = _PARAMS.read_text().splitlines()
    except OSError:
        return False
    return any(line.replace(" ", "") == "RmProfilingAdminOnly:1" for line in lines)


def _has_proton() -> bool:
    try:
        return util.find_spec("triton.profiler") is not None
    except (ImportError, ValueError):
        return False
