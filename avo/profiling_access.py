"""Which profiler may be used here: counters where they are allowed (Nsight Compute, on AMD rocprofv3), else Proton."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Literal

_PARAMS = Path("/proc/driver/nvidia/params")
_ROCPROF = Path("/opt/rocm/bin/rocprofv3")  # where ROCm has it, on the path or not


@dataclass(frozen=True)
class Access:
    """tool: what reads counters here. path: where it is, if it may. why_not: what keeps it from that, and the way out.
    proton: whether Triton's own profiler is here."""

    tool: Literal["ncu", "rocprofv3"]
    path: str | None
    why_not: str
    proton: bool

    @property
    def title(self) -> str:
        return "Nsight Compute" if self.tool == "ncu" else "rocprofv3"


def access(vendor: str = "nvidia") -> Access:
    """For devices of this vendor. Looks at files alone; what the driver really allows shows when the tool runs."""
    proton = _has_proton()
    if vendor == "amd":
        found = shutil.which("rocprofv3") or (str(_ROCPROF) if _ROCPROF.exists() else None)
        why = "" if found else "rocprofv3 is not on the path: install ROCm's rocprofiler-sdk package"
        return Access("rocprofv3", found, why, proton)
    found = shutil.which("ncu")
    if found is None:
        why = "Nsight Compute (ncu) is not on the path: install NVIDIA's nsight-compute package"
        return Access("ncu", None, why, proton)
    if restricted() and os.geteuid() != 0:
        why = (
            "counters are for administrators only on this machine (RmProfilingAdminOnly): run as root, or load the "
            "driver with NVreg_RestrictProfilingToAdminUsers=0"
        )
        return Access("ncu", None, why, proton)
    return Access("ncu", found, "", proton)


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
