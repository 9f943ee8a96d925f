"""Enters a level of the sandbox and tries to get out, a layer at a time: `python -m evaluators.integrity.escapes`.

Prints what it tried and could not do, a line each, "LAYER: WHAT"; ends with 1 at what it could do, or where the level
cannot be entered.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from evaluators.integrity import sandbox

_PR_GET_NO_NEW_PRIVS, _PR_CAPBSET_READ = 39, 23
_SET_FLAGS = 0x40086602  # FS_IOC_SETFLAGS


def attempts(level: sandbox.Level, home: Path) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """(layer, what, the attempt): it has to raise OSError."""
    if level != "process":
        files = "Landlock" if level == "full" else "mounts"
        yield files, "writes outside of its folder", lambda: home.with_name("avo-was-here").write_text("x")
        yield files, "writes to shared memory", lambda: Path("/dev/shm/avo-was-here").write_text("x")
        yield files, "reads avo's own source", lambda: Path(__file__).read_text()
        yield files, "reads its parent's memory", lambda: Path(f"/proc/{os.getppid()}/mem").read_bytes()
        yield files, "reads its parent's environment", lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes()
        yield "seccomp", "changes modes outside of its folder", lambda: os.chmod(home.parent, 0o700)
        yield "seccomp", "empties a file that it may only read", lambda: os.open(_copy(home), os.O_RDONLY | os.O_TRUNC)
        yield "seccomp", "opens a socket", socket.socket
        yield "seccomp", "starts a process", lambda: os.fork() or os._exit(0)
        yield "seccomp", "becomes another program", lambda: os.execv("/bin/true", ["true"])
        yield "seccomp", "sends signals", lambda: os.kill(os.getppid(), 0)
        yield "seccomp", "has a file send signals", lambda: fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getpid())
        yield "seccomp", "holds a file up for others", lambda: fcntl.fcntl(_shared(), fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield "seccomp", "watches a folder", lambda: fcntl.fcntl(os.open(".", os.O_RDONLY), fcntl.F_NOTIFY, 2)
        yield "seccomp", "changes a file's attributes", lambda: fcntl.ioctl(_shared(), _SET_FLAGS, bytes(8))
        yield "seccomp", "traces another process", lambda: _called("ptrace", 16, os.getppid(), 0, 0)
        yield "seccomp", "hides from who counts its memory", lambda: _called("prctl", 4, 0, 0, 0, 0)
        yield "seccomp", "makes namespaces", lambda: _called("unshare", 0x10000000)
    yield "limits", "writes a large file", lambda: (home / "large").write_bytes(bytes(sandbox.FILE_BYTES + 1))
    yield "limits", "opens many files", lambda: [os.open("/dev/null", os.O_RDONLY) for _ in range(sandbox.OPEN_FILES)]
    yield "limits", "raises its limits", _raise_limits
    yield "privileges", "gains new ones", _gain
    yield "privileges", "has a capability", _capable


def _copy(home: Path) -> Path:
    """A file of its own stands for those of others: were it emptied, nothing is lost."""
    path = home / "kept"
    path.write_text("kept")
    return path


def _shared() -> int:
    return os.open(os.__file__, os.O_RDONLY)


def _called(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def _raise_limits() -> None:
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * sandbox.FILE_BYTES, 2 * sandbox.FILE_BYTES))
    except ValueError as error:
        raise OSError(str(error)) from None


def _gain() -> None:
    if ctypes.CDLL(None).prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1:
        raise OSError("none can be gained")


def _capable() -> None:
    sets = (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if ctypes.CDLL(None).capget(header, sets) == 0 and not any((sets[0], sets[1], sets[3], sets[4])):
        raise OSError("there is none")  # neither effective nor permitted


def main(arguments: Sequence[str]) -> int:
    level, home = arguments
    assert level in sandbox.LEVELS
    try:
        sandbox.isolate(level)
        sandbox.confine(level, Path(home))
    except (sandbox.NotConfined, OSError) as error:
        print(f"{level}: {error}", file=sys.stderr)
        return 1
    Path(home, "written").write_text("here")
    for layer, what, attempt in attempts(level, Path(home)):
        try:
            attempt()
        except OSError:
            print(f"{layer}: {what}", flush=True)
            continue
        print(f"{level}: a confined process still {what}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
