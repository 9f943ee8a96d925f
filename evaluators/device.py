"""Which devices are here, which chips they are, and who may use one: facts, matching, exclusive leases.

NVIDIA devices are asked through the driver's library, without a CUDA context; AMD's through amdsmi and, in a process of
its own, ROCm's torch. A device whose chip is not known is no device for avo: peaks that nobody cited make no speed of
light.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from dsl.hardware import HARDWARE, Hardware
from evaluators import amd, nvml
from evaluators.failures import Unavailable


class DeviceFacts(BaseModel):
    """One device as it stands. Bytes, watts, MHz. `processes`: ids of others that compute on it when it was asked.

    index: its place among all on NVIDIA, among those that the process may see on AMD. arch, sms: "gfx942" and compute
    units, on AMD alone. mig, partition: how it is cut up, on NVIDIA and on AMD ("CPX"); see `cut_up`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int = 0
    name: str
    uuid: str
    vendor: str = "nvidia"
    arch: str = ""
    sms: int = 0
    driver: str | None = None
    memory_bytes: int = 0
    memory_used_bytes: int = 0
    power_limit_w: float | None = None
    power_default_w: float | None = None
    max_sm_mhz: int | None = None
    max_memory_mhz: int | None = None
    processes: tuple[int, ...] = ()
    mig: bool = False
    partition: str = ""
    throttles: tuple[str, ...] = ()

    def warnings(self, memory_bytes: int = 2 << 30) -> list[str]:
        """What makes its times less than those of a free, uncapped card."""
        found = []
        if self.processes:
            ids = ", ".join(map(str, self.processes))
            found.append(f"other processes compute on {self.name}: {ids}")
        elif self.memory_used_bytes > memory_bytes:
            found.append(f"{self.memory_used_bytes >> 20} MiB of {self.name} are in use by somebody else")
        if self.power_limit_w and self.power_default_w and self.power_limit_w < 0.97 * self.power_default_w:
            found.append(
                f"its power is capped at {self.power_limit_w:.0f} W; {self.power_default_w:.0f} W is the default"
            )
        found += [f"it is throttled now: {reason}" for reason in self.throttles if reason != "power cap"]
        if self.vendor == "amd" and self.power_limit_w is None:
            found.append(
                f"nobody says how {self.name} stands (clock, power, throttling, other processes): install the amdsmi "
                "of this ROCm (pip install /opt/rocm/share/amd_smi)"
            )
        return found


class NoDevice(Exception):
    """The chip that a person asked for is not the one that is here; the message says how to go on.

    predict: the end of the message that names the way without a device; `measuring` is the message without it, for
    verbs that only measure.
    """

    for_people = True

    def __init__(self, measuring: str, predict: str = "") -> None:
        super().__init__(measuring + predict)
        self.measuring = measuring


def local_devices() -> list[DeviceFacts]:
    """The devices that this process may use: those that CUDA_VISIBLE_DEVICES leaves, in its order, and on AMD what
    HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES leave."""
    found = nvml.devices()
    if found:
        version = nvml.driver()
        return visible([DeviceFacts(**d.facts(i), driver=version) for i, d in enumerate(found)], _masked())
    if os.path.exists("/dev/kfd") or os.path.exists("/dev/nvidia0") or shutil.which("nvidia-smi"):
        return _through_torch()
    return []


def _masked() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def visible(devices: list[DeviceFacts], mask: str | None) -> list[DeviceFacts]:
    """What a mask like `1,0` or `GPU-3f2a` leaves of them; a name that fits none ends the list, as in CUDA."""
    if mask is None:
        return devices
    kept: list[DeviceFacts] = []
    for name in (part.strip() for part in mask.split(",")):
        if name.isdigit():
            fits = [d for d in devices if d.index == int(name)]
        else:
            fits = [d for d in devices if name and d.uuid.startswith(name)]
        if len(fits) != 1:
            break
        kept += fits
    return kept


def mask_for(device: DeviceFacts) -> dict[str, str]:
    """The settings under which another process sees this device and no other.

    HIP counts those that ROCR_VISIBLE_DEVICES leaves, which the process inherits, and takes an empty mask for none.
    """
    if device.vendor != "amd":
        return {"CUDA_VISIBLE_DEVICES": device.uuid}
    ours = os.environ.get("HIP_VISIBLE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"HIP_VISIBLE_DEVICES": ours.split(",")[device.index].strip() if ours else str(device.index)}


_ASK = """
import json, torch
rows = []
for i in range(torch.cuda.device_count()):
    p = torch.cuda.get_device_properties(i)
    row = {"index": i, "name": p.name, "uuid": str(getattr(p, "uuid", i)), "memory_bytes": p.total_memory}
    row |= {"vendor": "amd" if torch.version.hip else "nvidia", "driver": torch.version.hip or torch.version.cuda}
    if torch.version.hip:
        row |= {"arch": p.gcnArchName.split(":")[0], "sms": p.multi_processor_count}
        row |= {"max_sm_mhz": getattr(p, "clock_rate", 0) // 1000 or None}
    rows.append(row)
print(json.dumps(rows))
"""


def _through_torch() -> list[DeviceFacts]:
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        return [_facts(dict(row)) for row in _rows()]
    return []


@functools.lru_cache(maxsize=1)
def _rows() -> list[dict[str, Any]]:
    """What torch says, once: it takes seconds to import, and none of it changes."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=120, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _facts(row: dict[str, Any]) -> DeviceFacts:
    """Of what torch says, with what AMD's own library adds where it is there."""
    if row["vendor"] != "amd":
        return DeviceFacts(**{**row, "uuid": f"GPU-{row['uuid']}"})
    name = amd.uuid(row["uuid"])
    device = amd.by_uuid(name)
    more = device.facts() if device is not None else {}
    return DeviceFacts(**{**row, "uuid": name, "name": f"{row['name']} {row['arch']}".strip(), **more})


# -- which chip it is ----------------------------------------------------------------------------------------------

# A part of the device's name -> the chip, most specific first; what follows the number decides between form factors.
_NAMES = (
    (r"\bH200\b", "h200"),
    (r"\bH100\b(?!.*(PCIe|NVL))", "h100"),
    (r"\bB200\b", "b200"),
    (r"\bA100\b", "a100"),
    (r"\bRTX 4090\b", "rtx4090"),
    (r"\bRTX 5090\b", "rtx5090"),
    (r"\bMI300X\b", "mi300x"),
    (r"\bMI355X\b", "mi355x"),
)


def chip_of(device: DeviceFacts) -> Hardware | None:
    """The chip that it is, None where avo knows no peaks for it."""
    for pattern, name in _NAMES:
        if re.search(pattern, device.name) and name in HARDWARE:
            return HARDWARE[name]
    if device.vendor == "amd" and not re.search(r"\bMI\d", device.name):
        return next((chip for chip in HARDWARE.values() if _alike(device, chip)), None)
    return None


def _alike(device: DeviceFacts, chip: Hardware) -> bool:
    """Whether it is that chip by all that is known of it: where the list of names is missing, a machine calls any "AMD
    Radeon Graphics". Chips of one arch differ in memory (MI300X, MI325X) or in clock (MI350X, MI355X)."""
    clock = (device.max_sm_mhz or 0) * 1e6
    near = abs(clock / chip.clock_hz - 1) < 0.03 if chip.clock_hz else False
    memory = abs(device.memory_bytes / chip.hbm_bytes - 1) < 0.1 if chip.hbm_bytes else False
    return device.arch == chip.arch and device.sms == chip.sms and memory and near


def cut_up(device: DeviceFacts, chip: Hardware) -> str:
    """What cuts the device up into parts that have other peaks than the chip; "" where it is whole."""
    if device.mig:
        return "MIG"
    if device.partition:
        return f"the partition mode {device.partition}"
    if device.sms and device.sms < chip.sms:  # nobody says how, but it shows
        return f"a partition mode ({device.sms} of {chip.sms} compute units)"
    return ""


def matching(devices: list[DeviceFacts], hardware: Hardware) -> list[DeviceFacts]:
    """The devices that are this chip. Raises NoDevice where none is, or where one is cut up."""
    mine = [d for d in devices if (chip := chip_of(d)) is not None and chip.name == hardware.name]
    if not mine:
        raise _elsewhere(devices, hardware)
    if cut := [d for d in mine if cut_up(d, hardware)]:
        first = cut[0]
        whole, mask = _WHOLE[hardware.vendor]
        raise NoDevice(
            f"{first.name} (device {first.index}) is cut up by {cut_up(first, hardware)}: a slice has other peaks than "
            f"{hardware.name}. {whole}, choose another device with {mask}",
            f", or predict: --hw {hardware.name} --evaluator predicted",
        )
    return mine


_WHOLE = {  # how to make a device whole, and what chooses another
    "nvidia": ("Switch MIG off (nvidia-smi -mig 0)", "CUDA_VISIBLE_DEVICES"),
    "amd": ("Make it whole (amd-smi set --compute-partition SPX --memory-partition NPS1)", "HIP_VISIBLE_DEVICES"),
}


def automatic(devices: list[DeviceFacts]) -> Hardware:
    """The chip that is here, for `--hw auto`. Raises NoDevice where there is none, or none that is known."""
    known = [chip for d in devices if (chip := chip_of(d)) is not None]
    if not known:
        here = ", ".join(d.name for d in devices)
        what = f"the device here, {here}, is none that avo knows peaks of" if devices else "no device was found here"
        raise NoDevice(f"--hw auto: {what}. Name a chip to predict times for: {', '.join(HARDWARE)}")
    return known[0]


def _elsewhere(devices: list[DeviceFacts], hardware: Hardware) -> NoDevice:
    if not devices:
        return NoDevice(
            f"no {hardware.name} is here, so nothing can be measured", "; --evaluator predicted predicts its times"
        )
    here = ", ".join(dict.fromkeys(d.name for d in devices))
    known = list(dict.fromkeys(chip.name for d in devices if (chip := chip_of(d)) is not None))
    other = f"the device here is {here}, not {hardware.name}"
    if not known:
        return NoDevice(other, ": predict with --evaluator predicted")
    return NoDevice(f"{other}: measure here with --hw {known[0]}", ", or predict with --evaluator predicted")


# -- who may use it ------------------------------------------------------------------------------------------------


class Lease:
    """Sole use of one device among avo's processes on this machine, by a file lock; ends with the process at last."""

    def __init__(self, uuid: str, folder: Path | None = None) -> None:
        place = folder or Path(tempfile.gettempdir())
        self._path = place / f"avo-device-{re.sub(r'[^A-Za-z0-9-]', '_', uuid)}.lock"
        self._file: IO[str] | None = None

    def take(self, wait_s: float = 0.0) -> None:
        """Raises Unavailable where another process holds it and keeps it for longer than that."""
        import fcntl

        if self._file is not None:
            return
        file = open(self._path, "a+")  # noqa: SIM115
        with contextlib.suppress(OSError):
            os.chmod(self._path, 0o666)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    file.seek(0)
                    owner = file.read().strip() or "unknown"
                    file.close()
                    raise Unavailable(
                        f"the device is in use by another run of avo (process {owner}); wait for it, "
                        "or choose another with CUDA_VISIBLE_DEVICES (AMD: HIP_VISIBLE_DEVICES)"
                    ) from None
                time.sleep(0.2)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@contextlib.contextmanager
def held(wait_s: float = 900.0) -> Iterator[None]:
    """Sole use of all devices that this process may use, for a script that computes on them by itself: it waits in line
    behind the runs of avo that are under way. Not around a judge or a bench, which take the lease themselves.

    Does nothing where there is no device. Raises Unavailable where others keep one for longer than `wait_s`.
    """
    with contextlib.ExitStack() as taken:
        for device in local_devices():
            lease = Lease(device.uuid)
            taken.callback(lease.release)
            lease.take(wait_s)
        yield
