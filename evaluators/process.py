"""One worker process: how it is started, spoken to, watched and killed.

It runs in a session of its own with a scrubbed environment and a private directory, and speaks frames
(`evaluators.wire`) over a socket that nobody prints to. What it prints goes to a pipe whose end is kept for messages.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import site
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluators import wire
from evaluators.failures import Crash, Killed, OutOfMemory, Timeout, WorkerFailure
from evaluators.removing import remove

TICK_S = 0.05  # how often a running task's memory and life are looked at
LOG_BYTES = 64 << 10  # the end of what a worker printed, kept for messages
WALL = 10  # a call may take so many times its limit by the clock on the wall, on a machine that is busy elsewhere
_GRACE_S = 0.2  # between SIGTERM and SIGKILL
_CLOCK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

# All that a worker sees of the parent's environment: no keys, no tokens, no proxies.
_KEPT = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_CUOBJDUMP_PATH", "TRITON_NVDISASM_PATH"),
)
# The launcher of a kernel is a little C program, compiled where it is launched.
_KEPT_FOR_DEVICES = (
    "CC",
    "CUDA_HOME",
    "CUDA_PATH",
    "ROCM_PATH",
    "HIP_PATH",
    "ROCR_VISIBLE_DEVICES",  # HIP_VISIBLE_DEVICES counts what it leaves
    "TRITON_LIBCUDA_PATH",
    "TRITON_LIBHIP_PATH",
)


_SPENT = "/proc/{}/task/{}/schedstat"
_INTERPRETED = ("interpret", "raw-full", "raw-namespaces", "raw-process")


class Stale(WorkerFailure):
    """The worker had died while it was idle: no candidate's fault, another worker takes the call."""


def cores() -> int:
    """Cores that this process may use: under taskset or in a container they are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def environment(kind: str, home: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a worker that lives in `home`. One thread each, for the workers are the parallelism.

    settings: what is otherwise than here; the device of a worker of kind "device", say."""
    names = (*_KEPT, *_KEPT_FOR_DEVICES) if kind.endswith("device") else _KEPT
    kept = {name: os.environ[name] for name in names if name in os.environ}
    places = [str(Path(__file__).resolve().parents[1]), *(p for p in sys.path if p and os.path.exists(p))]
    return kept | {
        "HOME": str(home),
        "TMPDIR": str(home),
        "XDG_CACHE_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(places)),
        "PYTHONUSERBASE": site.getuserbase(),  # HOME has moved, and with it where Python would look
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",  # these kinds never touch a device
        "HIP_VISIBLE_DEVICES": "-1",  # HIP takes an empty mask for none
        "TRITON_HOME": str(home),
        "TRITON_CACHE_DIR": str(home / "triton"),
        "TRITON_DEFAULT_FP_FUSION": "1",
        # Read when triton is imported, hence two kinds of workers.
        "TRITON_INTERPRET": "1" if kind in _INTERPRETED else "0",
        **(settings or {}),
    }


class WorkerProcess:
    """A started worker. Whoever holds it uses it alone; only `kill` is for any thread."""

    wall = WALL

    def __init__(
        self, kind: str, home: Path, extra: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Starts it and returns at once. `home` is made for it and removed with it. Linux ends it with the thread that
        called this, so call from one that lives as long as the worker is wanted."""
        home.mkdir(parents=True)
        ours, theirs = socket.socketpair()
        log, log_end = os.pipe()
        command = [sys.executable, "-P", "-m", "evaluators.worker", kind, str(theirs.fileno()), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command + ([str(extra)] if extra else []),
                stdin=subprocess.DEVNULL,
                stdout=log_end,
                stderr=log_end,
                cwd=home,
                env=environment(kind, home, settings),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(log)
            raise
        finally:
            theirs.close()
            os.close(log_end)
        self._hold(kind, home, ours, log)

    def _hold(self, kind: str, home: Path, ours: socket.socket, log: int) -> None:
        self.kind = kind
        self.home = home
        self.calls = 0
        self.ready = False
        self.charged = 0.0  # seconds of the last call, see `Charge`
        self._log = bytearray()
        self._decoder = wire.Decoder()
        self._killed = False
        self._killing = threading.Lock()
        os.set_blocking(log, False)
        self._socket, self._log_fd, self.started = ours, log, time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    def filenos(self) -> list[int]:
        """What to select on while it starts."""
        return [self._socket.fileno(), self._log_fd]

    # -- life ----------------------------------------------------------------------------------------------------

    def step_start(self) -> str | None:
        """None while all is well (then see `ready`); else why it did not start. Never blocks."""
        self._drain_log()
        self._socket.setblocking(False)
        try:
            while data := self._socket.recv(1 << 16):
                self._decoder.feed(data)
        except BlockingIOError:
            pass
        except OSError as error:
            return f"the channel broke: {error}"
        else:
            return self._death()
        try:
            self.ready = self.ready or self._decoder.next() is not None
        except wire.WireError as error:
            return f"it did not greet: {error}"
        return None

    def alive(self) -> bool:
        return not self._killed and self._exit() is None

    def log(self) -> str:
        """The end of what it printed since the last call began."""
        self._drain_log()
        return self._log.decode("utf-8", "replace")

    def resident(self) -> int:
        """Bytes of memory that it and all it started hold; 0 where the system does not say."""
        return sum(held(pid) for pid in (self.pid, *descendants(self.pid)))

    def family(self) -> tuple[int, int]:
        """(threads, child processes) of it, as the system counts them."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/task")), sum(map(_lives, descendants(self.pid)))
        except OSError:
            return 0, 0

    def threads(self) -> dict[int, int]:
        """Thread -> nanoseconds that it has computed, as the system counts them; the first thread is left out."""
        found = {}
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{self.pid}/task"):
                with (
                    contextlib.suppress(OSError, IndexError, ValueError),
                    open(_SPENT.format(self.pid, thread)) as spent,
                ):
                    found[int(thread)] = int(spent.read().split()[0])
        return {thread: spent for thread, spent in found.items() if thread != self.pid}

    def kill(self) -> None:
        """TERM, then KILL, to its process group and every descendant; returns when it is gone."""
        with self._killing:
            if self._killed:
                return
            family = descendants(self.pid)  # a child in a session of its own escapes the group, not this list
            self._signal(signal.SIGTERM, family)
            deadline = time.monotonic() + _GRACE_S
            # WNOWAIT leaves the leader a zombie, so that its number cannot be given to strangers before the KILL.
            while self._exit() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            self._signal(signal.SIGKILL, {*family, *descendants(self.pid)})
            self._reap()
            self._killed = True

    def strike(self) -> None:
        """KILL to its process group and every descendant, without a wait: `kill` has still to be called."""
        with self._killing:
            if not self._killed:
                self._signal(signal.SIGKILL, descendants(self.pid))

    def dispose(self) -> None:
        """Kills it and gives back what it held here: its directory and our ends of its channels."""
        self.kill()
        if self._log_fd >= 0:
            self._socket.close()
            os.close(self._log_fd)
            self._log_fd = -1
        remove(self.home)

    def _signal(self, number: signal.Signals, family: Sequence[int] | set[int]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        for pid in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _reap(self) -> None:
        """Waits for its end, after which its number may be given to strangers."""
        self._process.wait()

    def _exit(self) -> tuple[int, int] | None:
        """(si_code, si_status) of a dead worker, without reaping it."""
        try:
            info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return (os.CLD_EXITED, self._process.returncode or 0)
        return (info.si_code, info.si_status) if info else None

    def _death(self) -> str:
        deadline = time.monotonic() + 1.0  # the channel closes a moment before the process is gone
        while (end := self._exit()) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        if end is None:
            return "it closed its channel"
        code, status = end
        if code == os.CLD_EXITED:
            return f"it exited with status {status}"
        with contextlib.suppress(ValueError):
            return f"it was killed by {signal.Signals(status).name}"
        return f"it was killed by signal {status}"

    def _drain_log(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._log_fd, 1 << 16):
                self._log += data
                del self._log[:-LOG_BYTES]

    # -- calls ---------------------------------------------------------------------------------------------------

    def trust(self, header: int, blobs: int) -> None:
        """At most so many bytes of a reply's header and blobs are taken from now on."""
        self._decoder.most = header, blobs

    def exchange(
        self, task: str, payload: dict[str, Any], blobs: Sequence[bytes], timeout: float, memory_bytes: int
    ) -> wire.Frame:
        """One call. Raises Timeout, Crash, OutOfMemory (the worker is then to be killed), Stale, or WireError where the
        request itself cannot be sent.

        timeout: seconds of its own time (`Charge`), so that a verdict does not depend on what else the machine does; of
        a worker of kind "device" seconds on the wall, for there a device does the work."""
        nonce = secrets.token_hex(16)
        frame = wire.request(nonce, task, payload, blobs)
        self.log()
        self._log.clear()
        self.calls += 1
        if not self.alive():
            raise Stale("the worker had died while it was idle")
        try:
            self._socket.settimeout(self.wall * timeout)
            wire.send(self._socket, frame)
        except wire.Closed:
            # It runs nothing before the whole request is there.
            raise Stale("the worker had died while it was idle") from None
        except TimeoutError:
            raise Timeout(f"{task} took more than {timeout:g} s", self.log()) from None
        return self._await(task, nonce, timeout, memory_bytes)

    def _await(self, task: str, nonce: str, timeout: float, memory_bytes: int) -> wire.Frame:
        self._socket.setblocking(False)
        peak = 0
        charge = Charge(self.pid, wall=self.kind.endswith("device"))
        while True:
            if charge.seconds >= timeout:
                raise Timeout(f"{task} took more than {timeout:g} s", self.log())
            if charge.elapsed >= self.wall * timeout:
                wall = f"{task} took more than {self.wall * timeout:g} s by the clock"
                raise Timeout(f"{wall}; its limit is {timeout:g} s of its own", self.log())
            readable = ready([self._socket.fileno(), self._log_fd], min(max(0.0, timeout - charge.seconds), TICK_S))
            charge.look()
            self.charged = charge.seconds
            self._drain_log()
            if self._socket.fileno() in readable:
                try:
                    data = self._socket.recv(4 << 20)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                if not data:
                    raise self._crash(peak, memory_bytes)
                self._decoder.feed(data)
                try:
                    reply = self._decoder.next()
                except wire.WireError as error:
                    raise Crash(f"the worker answered nonsense: {error}", self.log()) from None
                if reply is None:
                    continue
                if reply.nonce != nonce or self._decoder.pending:
                    raise Crash("the worker answered another request than was asked", self.log())
                return reply
            peak = max(peak, size := self.resident())
            if size > memory_bytes:
                raise OutOfMemory(f"{task} held {_mib(size)} of memory; the limit is {_mib(memory_bytes)}", self.log())

    def _crash(self, peak: int, memory_bytes: int) -> WorkerFailure:
        how = self._death()
        if "SIGKILL" in how and 2 * peak > memory_bytes > 0:  # the kernel was faster than our watch
            return OutOfMemory(f"the worker was killed while it held {_mib(peak)} of memory", self.log())
        kind = Killed if "SIGKILL" in how else Crash
        return kind(f"the worker died under the task: {how}", self.log())


class Charge:
    """The time that a call is charged with: what its processes computed, and what they slept; not what they waited for
    a processor, so that a busy machine ends no call early. wall: all time counts, as where a device does the work."""

    def __init__(self, pid: int, wall: bool = False) -> None:
        self.seconds = 0.0
        self._pid, self._wall = pid, wall
        self._began = self._last = time.monotonic()
        self._computed = 0.0 if wall else family_time(pid)[0]

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def look(self) -> None:
        """To be called every few hundredths of a second while the call runs."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        if self._wall:
            self.seconds += passed
            return
        computed, busy = family_time(self._pid)
        mine, self._computed = max(0.0, computed - self._computed), max(computed, self._computed)
        # the system counts in hundredths of a second, so one that computes may seem to have done nothing for a while
        self.seconds += mine if busy or mine else passed


def family_time(pid: int) -> tuple[float, bool]:
    """(seconds that a process, its children and all that they waited for have computed; whether one of them would go on
    computing if it were let: it is running, or waits for a processor). A stop is no such wait, nor is one for a disk:
    it can bring about both as often as it likes."""
    ticks, busy = 0, False
    for member in (pid, *descendants(pid)):
        with contextlib.suppress(OSError, IndexError, ValueError):
            for thread in os.listdir(f"/proc/{member}/task"):
                with open(f"/proc/{member}/task/{thread}/stat") as stat:
                    busy = busy or stat.read().rpartition(")")[2].split()[0] == "R"
            with open(f"/proc/{member}/stat") as stat:
                ticks += sum(map(int, stat.read().rpartition(")")[2].split()[11:15]))  # utime stime cutime cstime
    return ticks / _CLOCK, busy


def ready(files: Sequence[int], timeout: float | None) -> set[int]:
    """The descriptors that can be read or have ended. `poll`, for `select` stops at descriptor 1024."""
    poll = select.poll()
    for fd in files:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"


def descendants(pid: int) -> list[int]:
    """Every living descendant of a process, from /proc; empty where there is none."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{parent}/task/{thread}/children") as children:
                    new = [int(child) for child in children.read().split()]
                    found += new
                    waiting += new
    return found


def _lives(pid: int) -> bool:
    """Whether it has not ended: one that nobody has asked for is in the list still."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


_HELD = ("VmRSS:", "VmPTE:", "VmSwap:")  # what lies in memory, what the system needs to know where, what was moved out


def held(pid: int) -> int:
    """Bytes of memory that one process holds; 0 where the system does not say. Where its first thread has ended while
    others go on, only theirs tell."""
    try:
        size = _held(f"/proc/{pid}/status")
        if not size:
            size = max(
                (_held(f"/proc/{pid}/task/{thread}/status") for thread in os.listdir(f"/proc/{pid}/task")), default=0
            )
        return size
    except (OSError, IndexError, ValueError):
        return 0


def _held(file: str) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(file) as status:
        return sum(int(line.split()[1]) for line in status if line.startswith(_HELD)) << 10
    return 0
