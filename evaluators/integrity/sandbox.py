"""Confines the process that calls it, for good: what raw Python may touch, in three levels.

    full        Landlock (files, TCP, signals to others) and a seccomp filter
    namespaces  user, mount, network and IPC namespaces, and the same filter: for kernels without Landlock
    process     resource limits, no capabilities, an own user id where root and Python can be read by others

All levels set the limits, drop every capability and forbid new privileges. Python's own `ctypes` makes the system calls
(landlock(7), seccomp(2), mount_setattr(2)), so nothing has to be installed. The filter knows x86-64 alone; elsewhere
only the last level is there. Linux only. Imports neither torch nor triton.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import stat
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

Level = Literal["full", "namespaces", "process"]
LEVELS: tuple[Level, ...] = get_args(Level)  # the strongest first

FILE_BYTES = 64 << 20  # the largest file that a candidate may write
OPEN_FILES = 256
_PROJECT = ("avo", "archive", "evaluators", "dsl", "tests", "benchmarks")


class NotConfined(Exception):
    """This level cannot be had here; the message says which step failed."""


# For the parent ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def best() -> Level:
    """The strongest level that works on this machine, found by entering each in a process and trying to get out."""
    return next((level for level in LEVELS if not why_not(level)), "process")


def why_not(level: Level) -> str:
    """Why this level cannot be had here; empty where it can."""
    return probed(level)[0]


@lru_cache(maxsize=len(LEVELS))
def probed(level: Level) -> tuple[str, dict[str, int]]:
    """(why not, layer -> ways out that were tried there and led nowhere), from a process that enters the level."""
    with tempfile.TemporaryDirectory(prefix="avo-sandbox-") as home:
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "evaluators.integrity.escapes", level, home],
                capture_output=True,
                text=True,
                timeout=30,
                cwd=home,
                env={"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PATH": os.environ.get("PATH", "")},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{type(error).__name__}: {error}", {}
    held = dict(Counter(line.partition(": ")[0] for line in done.stdout.splitlines()))
    if done.returncode == 0:
        return "", held
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1], held


def reaches(level: Level, accepted: Level) -> bool:
    """Whether a verdict found at `level` is as strong as `accepted` asks."""
    return LEVELS.index(level) <= LEVELS.index(accepted)


# For the child -------------------------------------------------------------------------------------


def isolate(level: Level) -> None:
    """The part that has to come before any thread is there, so before torch is imported."""
    if level != "namespaces":
        return
    uid, gid = os.getuid(), os.getgid()
    _call("unshare", _libc().unshare(_NEWUSER | _NEWNS | _NEWNET | _NEWIPC | _NEWUTS))
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def confine(level: Level, home: Path) -> None:
    """The rest, after all imports: from here on only `home` can be written. Raises NotConfined."""
    if level != "process" and len(os.listdir("/proc/self/task")) != 1:
        raise NotConfined("there are threads already, which would stay outside")
    _limits()
    if level == "namespaces":
        _mounts(home)
    if level == "process":
        _own_user(home)
    _call("no_new_privs", _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if level == "full":
        _landlock(home)
    _drop_capabilities()
    if level != "process":
        _filter()


def _limits() -> None:
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _own_user(home: Path) -> None:
    """Another user id for each worker, where that still lets Python read its own modules."""
    if os.geteuid() != 0 or not all(_open_to_all(Path(p)) for p in (*_libraries(), home.parent.parent)):
        return
    uid = 200_000 + os.getpid() % 100_000
    # The folder above belongs to the pool alone: it has to be passable, not readable.
    os.chmod(home.parent, 0o711)
    os.chmod(home, 0o700)  # other candidates have other users, and no business here
    for path in (home, *home.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _libc().prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)  # a change of user clears it


def _open_to_all(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return all(p.stat().st_mode & stat.S_IXOTH for p in (path.resolve(), *path.resolve().parents) if p.is_dir())
    return False


def _libraries() -> list[Path]:
    """Where Python and its packages lie, avo's own left out: a candidate needs no judge and no reference."""
    found = [Path("/usr/lib"), Path("/usr/lib64"), Path("/lib"), Path("/lib64"), Path("/usr/local/lib")]
    found += [Path("/etc/ld.so.cache"), Path("/etc/localtime"), Path("/usr/share/zoneinfo")]
    standard = Path(os.__file__).resolve().parent
    found += [standard, standard.parent / "libpython3.so"]
    packages = _package_folders()
    for folder in packages:
        found += [entry for entry in folder.iterdir() if entry.name.partition(".")[0] not in _PROJECT]
    # The standard library may hold site-packages within it: then its entries are listed one by one.
    if any(standard in folder.parents for folder in packages):
        found.remove(standard)
        found += [entry for entry in standard.iterdir() if entry.resolve() not in packages]
    return [path for path in dict.fromkeys(found) if path.exists()]


def _package_folders() -> set[Path]:
    return {Path(p).resolve() for p in sys.path if p and Path(p).name in ("site-packages", "dist-packages")}


# Landlock ------------------------------------------------------------------------------------------

_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute (map), read a file, list a folder
_WRITE = sum(1 << bit for bit in (1, 4, 5, 7, 8))  # write, remove a folder or file, make a folder or file
_FILE_ONLY = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
NEWEST = 6  # version of Landlock's interface that is made use of
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446


def _landlock(home: Path) -> None:
    libc = _libc()
    version = min(libc.syscall(_CREATE_RULESET, None, 0, 1), NEWEST)
    if version < 1:
        raise NotConfined("Landlock: the kernel has none")
    handled = _HANDLED[min(version, 5)]
    fields = [handled] + [0b11] * (version >= 4) + [0b11] * (version >= 6)  # TCP; abstract sockets and signals
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _call("landlock_create_ruleset", libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    write = (_READ | _WRITE | (1 << 14)) & handled & ~1
    for path, access in (
        *((path, _READ) for path in _libraries()),
        # Names alone: Python lists these again where a package was installed meanwhile, and would find nothing.
        *((path, 1 << 3) for path in _package_folders()),
        (home, write),
        *((Path(p), 1 << 2 | 1 << 1) for p in ("/dev/null", "/dev/zero")),
        *((Path(p), 1 << 2) for p in ("/dev/urandom", "/dev/random")),
    ):
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = access & handled & (-1 if path.is_dir() else _FILE_ONLY)
            _call(
                f"landlock_add_rule {path}",
                libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed, fd), 0),
            )
            os.close(fd)
    _call("landlock_restrict_self", libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


# Namespaces ----------------------------------------------------------------------------------------

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x40000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000


def _mounts(home: Path) -> None:
    """Everything read-only but `home`; avo, temporary folders, /proc and a home folder of secrets out of sight."""
    libc = _libc()
    _call("mount private", libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    kept = _call("open_tree", libc.syscall(_OPEN_TREE, _AT_FDCWD, bytes(home), 1 | 0o2000000))
    # A second copy of avo may lie on the path too, beside the one that runs.
    roots = dict.fromkeys([Path(__file__).resolve().parents[2], *_where_avo_lies()])
    hidden = [root / name for root in roots for name in _PROJECT if (root / name).is_dir()]
    hidden += [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run")]
    hidden += [Path("/home"), Path("/root"), Path("/proc")]
    needed = [path.resolve() for path in _libraries()]
    hidden = [p for p in dict.fromkeys(hidden) if p.is_dir() and p != home and p not in needed]
    # libraries inside of what is hidden (an environment under /home or /tmp) come back alone, without their neighbours
    inside = [n for n in dict.fromkeys(needed) if any(p in n.parents for p in hidden)]
    back = {
        n: _call(f"open_tree {n}", libc.syscall(_OPEN_TREE, _AT_FDCWD, bytes(n), 1 | 0o2000000 | _AT_RECURSIVE))
        for n in inside
        if not any(other in n.parents for other in inside)
    }
    for path in hidden:
        if path.is_dir():  # what lies in another hidden folder has gone with it
            _call(f"mount over {path}", libc.mount(b"tmpfs", bytes(path), b"tmpfs", 0, b"size=1m,mode=755"))
    for path, tree in back.items():
        folder = path if stat.S_ISDIR(os.fstat(tree).st_mode) else path.parent
        folder.mkdir(parents=True, exist_ok=True)
        if folder is not path:
            path.touch()
        _call(f"move_mount {path}", libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, bytes(path), 4))
        os.close(tree)
    home.mkdir(parents=True, exist_ok=True)
    _call("move_mount", libc.syscall(_MOVE_MOUNT, kept, b"", _AT_FDCWD, bytes(home), 4))
    os.close(kept)
    _set_attributes(b"/", _AT_RECURSIVE, 1, 0)
    _set_attributes(bytes(home), 0, 0, 1)
    os.chdir(home)


def _where_avo_lies() -> Iterator[Path]:
    """Folders on Python's path, and those that editable installations name, in which packages of avo's are."""
    places = [Path(p) for p in sys.path if p]
    for finder in sys.meta_path:
        mapping = getattr(sys.modules.get(getattr(finder, "__module__", "")), "MAPPING", None)
        if isinstance(mapping, dict):
            places += [Path(p).parent for name, p in mapping.items() if name in _PROJECT]
    yield from (p.resolve() for p in places if (p / "evaluators" / "integrity").is_dir())


def _set_attributes(path: bytes, flags: int, plus: int, minus: int) -> None:
    attributes = struct.pack("=4Q", plus, minus, 0, 0)
    _call(f"mount_setattr {path!r}", _libc().syscall(_MOUNT_SETATTR, _AT_FDCWD, path, flags, attributes, 32))


# seccomp and capabilities --------------------------------------------------------------------------

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_AUDIT_X86_64 = 0xC000003E
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
# By kind. Processes: fork, vfork, execve, execveat. Others' life: kill, tkill, rt_(tg)sigqueueinfo, pidfd_*, ptrace,
# process_vm_*, process_madvise, kcmp, setpriority, ioprio_set, sched_set*. Sockets. System V and POSIX queues and
# shared memory.
# What Landlock leaves open, and an owner may do without any capability: modes, owners, times, attributes, and (before
# its third version) truncation by path. Waiting for all disks; what of others' files lies in
# memory. Files in memory alone, which count as nobody's; watching
# others' files. Mounts, namespaces, modules, keys, bpf, perf, userfaultfd, handles, and io_uring, which would go round
# the filter.
_DENIED = (
    *(57, 58, 59, 322),
    *(62, 200, 129, 297, 424, 434, 438, 101, 310, 311, 440, 312, 141, 142, 144, 203, 251, 314),
    *(41, 42, 43, 49, 50, 53, 288),
    *(29, 30, 31, 64, 68, 240),
    *(155, 161, 165, 166, 167, 168, 169, 175, 176, 246, 248, 249, 250, 272, 298, 300, 303, 304, 308, 313, 320, 321),
    *(76, 90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452, 463, 466),
    *(162, 306),
    *(27, 187, 221, 327, 451),
    *(319, 447, 253, 254, 294),
    *(323, 206, 425, 426, 427, 428, 429, 430, 431, 432, 433, 442),
)
_CLONE, _CLONE3, _TGKILL, _PRLIMIT, _PRCTL, _CLONE_THREAD = 56, 435, 234, 302, 157, 0x10000
_OPEN, _OPENAT, _OPENAT2, _ACCESS, _TRUNC = 2, 257, 437, 3, 0o1000
# It is to end with its parent, to be seen by whoever counts its memory, and to be traced by nobody.
_PRCTLS = (_PR_SET_PDEATHSIG, 4, 35, 36, 0x59616D61)  # PR_SET_: DUMPABLE, MM, CHILD_SUBREAPER, PTRACER
_NEWER = 469  # and all that the filter does not know, as if the kernel had none of them
# What fcntl and ioctl may be asked for: descriptors, their flags, locks, sizes; whether a file is a terminal. Others
# have a file send signals to any process (F_SETOWN), hold up whoever opens it (F_SETLEASE), watch folders (F_NOTIFY),
# or change attributes (FS_IOC_SETFLAGS).
_COMMANDS = (
    (72, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032, 1034)),
    (16, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A)),
)


def _program(own: int) -> Iterator[tuple[int, int, int, int]]:
    """The filter, as classic BPF: (code, jump if true, jump if false, constant)."""
    load, equal, at_least, tested, masked, give = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
    yield load, 0, 0, 4
    yield equal, 1, 0, _AUDIT_X86_64
    yield give, 0, 0, _KILL
    yield load, 0, 0, 0
    yield at_least, 0, 1, 0x40000000  # the x32 numbers
    yield give, 0, 0, _ERRNO | _EPERM
    yield at_least, 0, 1, _NEWER
    yield give, 0, 0, _ERRNO | _ENOSYS
    for number in _DENIED:
        yield equal, 0, 1, number
        yield give, 0, 0, _ERRNO | _EPERM
    yield equal, 0, 1, _CLONE3  # its flags lie in memory, which no filter sees; libc then takes clone
    yield give, 0, 0, _ERRNO | _ENOSYS
    for number, test, constant in (
        (_CLONE, tested, _CLONE_THREAD),  # threads yes, processes no
        (_TGKILL, equal, own),  # abort() is a signal to oneself
        (_PRLIMIT, equal, 0),
    ):
        yield equal, 0, 4, number
        yield load, 0, 0, 16
        yield test, 0, 1, constant
        yield give, 0, 0, _ALLOW
        yield give, 0, 0, _ERRNO | _EPERM
    yield equal, 0, 1, _OPENAT2  # its flags lie in memory; libc then takes openat
    yield give, 0, 0, _ERRNO | _ENOSYS
    # O_RDONLY | O_TRUNC empties a file that may only be read: Landlock before its third version lets it.
    for number, flags in ((_OPEN, 24), (_OPENAT, 32)):
        yield equal, 0, 5, number
        yield load, 0, 0, flags
        yield masked, 0, 0, _ACCESS | _TRUNC
        yield equal, 0, 1, _TRUNC
        yield give, 0, 0, _ERRNO | _EPERM
        yield give, 0, 0, _ALLOW
    for number, commands in _COMMANDS:
        yield equal, 0, len(commands) + 3, number
        yield load, 0, 0, 24
        for left, command in zip(range(len(commands), 0, -1), commands, strict=True):
            yield equal, left, 0, command
        yield give, 0, 0, _ERRNO | _EPERM
        yield give, 0, 0, _ALLOW
    yield equal, 0, 2 * len(_PRCTLS) + 2, _PRCTL
    yield load, 0, 0, 16
    for what in _PRCTLS:
        yield equal, 0, 1, what
        yield give, 0, 0, _ERRNO | _EPERM
    yield give, 0, 0, _ALLOW
    yield give, 0, 0, _ALLOW


def _filter() -> None:
    if platform.machine() != "x86_64" or sys.maxsize < 2**32:
        raise NotConfined(f"seccomp: the filter does not know {platform.machine()}")
    rows = list(_program(os.getpid()))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in rows))
    program = struct.pack("=H6xQ", len(rows), ctypes.addressof(code))
    _call("seccomp", _libc().prctl(_PR_SET_SECCOMP, 2, program, 0, 0))


def _drop_capabilities() -> None:
    header = struct.pack("=Ii", 0x20080522, 0)
    _call("capset", _libc().capset(header, bytes(24)))


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise NotConfined(f"there is no sandbox on {sys.platform}")
    return ctypes.CDLL(None, use_errno=True)


def _call(what: str, result: int) -> int:
    if result < 0:
        raise NotConfined(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result
