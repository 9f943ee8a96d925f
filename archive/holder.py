"""Who writes a run, and whether that process still lives.

A holder is (host, boot, pid namespace, pid, start time of the pid). On the same host, boot and namespace the process
table tells for certain. For any other holder nothing can be asked, so its beat is watched for a while: a counter that
does not move belongs to nobody. No clock is compared with another.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Holder:
    """`boot` and `namespace` are "" where the system has none to tell; `started` is in the kernel's own ticks."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Holder:
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> Holder:
    pid = os.getpid()
    return Holder(platform.node(), _boot(), _namespace(), pid, _started(pid) or "")


def new_token() -> str:
    return secrets.token_hex(16)


def liveness(holder: Holder) -> Literal["alive", "dead", "unknown"]:
    """Whether that process still runs. "unknown" where this host cannot tell."""
    here = this_process()
    if holder.host != here.host:
        return "unknown"
    if holder.boot and here.boot and holder.boot != here.boot:
        return "dead"  # the machine has started anew since
    if holder.namespace != here.namespace or sys.platform == "win32":
        return "unknown"
    if not _exists(holder.pid):
        return "dead"
    started = _started(holder.pid)
    if started is None:
        return "unknown" if holder.started else "alive"
    return "alive" if started == holder.started else "dead"  # another start: the number went to another process


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id")


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat; a zombie has ended. None where there is no such file, "" for a zombie."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before may hold blanks and brackets
    return "" if fields[0] in "ZX" else fields[19]


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
