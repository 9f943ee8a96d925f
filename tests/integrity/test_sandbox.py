"""Each level of the sandbox, with the others switched off: what a candidate tries there, and what it is told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.integrity import sandbox
from evaluators.integrity.raw import RawEvaluator
from evaluators.pool import WorkerPool
from evaluators.target import Target, Workload

SEED = """
kernel double
in  x[r c] f32
out y[r c] f32
y = x * 2.0

schedule
tile r=4 c=all
grid r
"""
DOUBLE = Target("double", lambda x: x * 2, SEED, (Workload({"r": 64, "c": 64}),), unit="GB/s", torch="any")

# Each attempt gets away with it where it raises nothing.
ESCAPES = {
    "write": "open(os.path.join(os.path.dirname(os.environ['HOME']), 'left'), 'w').write('x')",
    "shm": "open('/dev/shm/avo-test-left', 'w').write('x')",
    "reference": "__import__('evaluators.targets.softmax')",
    "source": "open({source!r}).read()",
    "secret": "open({secret!r}).read()",
    "parent": "open(f'/proc/{{os.getppid()}}/mem', 'rb').read(1)",
    "environ": "open(f'/proc/{{os.getppid()}}/environ', 'rb').read(1)",
    "socket": "__import__('socket').socket()",
    "fork": "os.fork() or os._exit(0)",
    "exec": "os.execv('/bin/true', ['true'])",
    "kill": "os.kill(os.getppid(), 0)",
    "file in memory": "os.memfd_create('left')",
    "watching": "__import__('ctypes').CDLL(None).inotify_init1(0) >= 0 or open('/nowhere')",
    "others' turn at the disk": "__import__('ctypes').CDLL(None).syscall(251, 1, 0, 0x6000) >= 0 or open('/nowhere')",
    "owner of a file": "__import__('fcntl').fcntl(os.pipe()[0], 8, os.getpid())",
    "signal of a file": "__import__('fcntl').fcntl(os.pipe()[0], 10, 9)",
    "owner by ioctl": "__import__('fcntl').ioctl(os.pipe()[0], 0x8901, b'1000') or open('/nowhere')",
    "outlive": "ctypes = __import__('ctypes'); ctypes.CDLL(None, use_errno=True).prctl(1, 0, 0, 0, 0) == 0 or "
    "open('/nowhere')",
    "mode": "os.chmod({secret!r}, 0o777)",
    "owner": "os.chown({secret!r}, os.getuid(), os.getgid())",
    "times": "os.utime({secret!r}, (1, 1))",
    "attribute": "os.setxattr({secret!r}, 'user.left', b'x')",
    "truncate": "os.truncate({secret!r}, 0)",
    "link": "open(os.symlink({secret!r}, os.environ['HOME'] + '/s') or os.environ['HOME'] + '/s').read()",
    "device": "open('/dev/tty')",
    "affinity": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
    "big file": "open(os.environ['HOME'] + '/big', 'wb').write(bytes(100 << 20))",
}
SOURCE = """
import os
found = []
for name, code in {escapes!r}.items():
    try:
        exec(code)
    except BaseException as error:
        if not isinstance(error, (OSError, ImportError)):
            found.append(f"{{name}}: {{error!r}}")
    else:
        found.append(name)

def run(x):
    return x * 2
if found:
    raise ValueError(found)
"""


# A kernel without a layer, or with an older one: what is done to the module before the level is entered, and which
# system calls a filter takes away, as the kernel would: number -> errno.
PERM, UNKNOWN, INVALID = 1, 38, 22
LANDLOCK = dict.fromkeys((444, 445, 446), UNKNOWN)
NEWER_THAN_5_14 = dict.fromkeys(range(448, 475), UNKNOWN)
NEWER_THAN_5_15 = dict.fromkeys(range(449, 475), UNKNOWN)
NO_USERS = {272: PERM}  # unshare
OLDER = {
    "Landlock of Linux 5.13": ("full", "sandbox.NEWEST = 1", {}, ""),
    "Landlock of Linux 5.19": ("full", "sandbox.NEWEST = 2", {}, ""),
    "Landlock of Linux 6.2": ("full", "sandbox.NEWEST = 3", {}, ""),
    "Landlock of Linux 6.7": ("full", "sandbox.NEWEST = 4", {}, ""),
    "Landlock of Linux 6.10": ("full", "sandbox.NEWEST = 5", {}, ""),
    "Ubuntu 22.04, 5.15": ("full", "sandbox.NEWEST = 1", NEWER_THAN_5_15, ""),
    "Ubuntu 22.04, 5.15, namespaces": ("namespaces", "sandbox.NEWEST = 1", NEWER_THAN_5_15, ""),
    "RHEL 9, 5.14": ("namespaces", "", {**NEWER_THAN_5_14, **LANDLOCK}, ""),
    "RHEL 9 has no Landlock": ("full", "", {**NEWER_THAN_5_14, **LANDLOCK}, "Landlock: the kernel has none"),
    "no user namespaces": ("namespaces", "", NO_USERS, "unshare"),
    "user namespaces without rights, as Ubuntu 24.04": ("namespaces", "", {165: PERM}, "mount"),
    "Landlock without user namespaces": ("full", "", NO_USERS, ""),
    "no mount_setattr": ("namespaces", "", {442: UNKNOWN}, "mount_setattr"),
    "no seccomp": ("full", "sandbox._PR_SET_SECCOMP = 999", {}, "seccomp"),
    "no seccomp, namespaces": ("namespaces", "sandbox._PR_SET_SECCOMP = 999", {}, "seccomp"),
    "another processor": ("full", "sandbox.platform.machine = lambda: 'riscv64'", {}, "does not know riscv64"),
    "limits alone": ("process", "sandbox._PR_SET_SECCOMP = 999", {**LANDLOCK, **NO_USERS, 317: INVALID}, ""),
}
TAKE_AWAY = """
import ctypes, struct
rows = [(0x20, 0, 0, 0)]
for number, errno in {calls!r}.items():
    rows += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno)]
rows.append((0x06, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in rows))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("=H6xQ", len(rows), ctypes.addressof(code)), 0, 0) == 0
"""


@pytest.mark.parametrize("kernel", OLDER)
def test_older_kernels_reach_what_they_can_and_say_what_they_lack(kernel, tmp_path: Path):
    level, change, calls, lacks = OLDER[kernel]
    if problem := sandbox.why_not(level):
        pytest.skip(problem)
    code = f"import sys; from evaluators.integrity import escapes, sandbox\n{change}\n"
    if calls:
        code += TAKE_AWAY.format(calls=calls)
    code += "sys.exit(escapes.main(sys.argv[1:]))"
    (home := tmp_path / "home").mkdir()
    command = [sys.executable, "-P", "-c", code, level, str(home)]
    root = Path(sandbox.__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env={"PYTHONPATH": str(root)})
    assert (done.returncode == 0) == (lacks == ""), done.stderr
    assert lacks in done.stderr and "Traceback" not in done.stderr


# A layer that does not do its work is noticed: what is switched off, and what gets through.
BROKEN = {
    "Landlock": ("full", "sandbox._landlock = lambda home: None", "writes outside of its folder"),
    "seccomp": ("full", "sandbox._filter = lambda: None", "a confined process still"),
    "seccomp in namespaces": ("namespaces", "sandbox._filter = lambda: None", "a confined process still"),
    "mounts": ("namespaces", "sandbox._mounts = lambda home: None", "writes outside of its folder"),
    "limits": ("process", "sandbox._limits = lambda: None", "writes a large file"),
    "new privileges": ("process", "sandbox._PR_SET_NO_NEW_PRIVS = 4", "gains new ones"),
    "capabilities": ("process", "sandbox._drop_capabilities = lambda: None", "has a capability"),
}


@pytest.mark.parametrize("layer", BROKEN)
def test_a_layer_that_does_nothing_is_noticed(layer, tmp_path: Path):
    level, change, through = BROKEN[layer]
    if problem := sandbox.why_not(level):
        pytest.skip(problem)
    if layer == "capabilities" and (os.geteuid() != 0 or not _rooted()):
        pytest.skip("a process without capabilities has none to lose")
    (home := tmp_path / "home").mkdir()
    code = f"import sys; from evaluators.integrity import escapes, sandbox\n{change}\n"
    command = [sys.executable, "-P", "-c", code + "sys.exit(escapes.main(sys.argv[1:]))", level, str(home)]
    root = Path(sandbox.__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env={"PYTHONPATH": str(root)})
    assert done.returncode == 1 and through in done.stderr, done.stderr


def _rooted() -> bool:
    """Whether a candidate at the last level stays root here, because Python cannot be read by others."""
    return not all(sandbox._open_to_all(path) for path in sandbox._libraries())


def test_doctor_tries_each_layer():
    from avo.doctor import _sandbox

    found = {f.name: f for f in _sandbox()}
    for level in sandbox.LEVELS:
        problem, held = sandbox.probed(level)
        if not problem:
            assert found[f"sandbox {level}"].verdict == "ok" and "none led out" in found[f"sandbox {level}"].found
            assert {"limits", "privileges"} <= set(held) and (level == "process" or "seccomp" in held)


@pytest.mark.parametrize(("missing", "best"), [(("full",), "namespaces"), (("full", "namespaces"), "process")])
def test_the_next_level_is_taken_where_one_is_missing(missing, best, monkeypatch):
    sandbox.best.cache_clear()
    monkeypatch.setattr(sandbox, "why_not", lambda level: "missing" if level in missing else "")
    try:
        assert sandbox.best() == best
    finally:
        sandbox.best.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def linux():
    if not os.path.exists("/proc/self/task"):
        pytest.skip("needs Linux")


def judged(text, level, pool=None, **more):
    with RawEvaluator(level=level, pool=pool, **more) as judge:
        return judge.evaluate(text, DOUBLE, hardware("cpu"))


def test_the_best_level_is_one_that_works_and_its_probe_says_what_fails():
    assert sandbox.best() in sandbox.LEVELS
    assert sandbox.why_not(sandbox.best()) == ""


@pytest.mark.parametrize("level", ["full", "namespaces"])
def test_nothing_gets_out(level, tmp_path: Path):
    if problem := sandbox.why_not(level):
        pytest.skip(problem)
    secret = tmp_path / "secret"
    secret.write_text("the seed")
    places = {"source": sandbox.__file__, "secret": str(secret)}
    escapes = {name: code.format(**places) for name, code in ESCAPES.items()}
    found = judged(SOURCE.format(escapes=escapes), level)
    assert found.status is Status.OK, found.message
    assert found.environment["sandbox"]["level"] == level


def test_the_last_level_limits_what_it_can_and_is_not_enough_for_promotion(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    text = SOURCE.format(
        escapes={
            "big file": ESCAPES["big file"],
            "key": "os.environ['OPENAI_API_KEY']if'OPENAI_API_KEY'in os.environ else open('/nowhere')",
        }
    )
    with RawEvaluator(level="process") as judge:
        found = judge.evaluate(text, DOUBLE, hardware("cpu"))
        assert found.status is Status.OK and "kept out of promotion" in found.message
        assert found.environment["sandbox"] == {"level": "process", "accepted": "full", "promotable": False}
        refused = judge.promote(text, DOUBLE, hardware("cpu"))
    assert refused.status is Status.SUSPICIOUS and "--accept-sandbox process" in refused.message


def test_a_level_that_is_accepted_promotes():
    assert sandbox.reaches("full", "process") and sandbox.reaches("process", "process")
    assert not sandbox.reaches("process", "namespaces")


def test_no_process_of_a_candidate_outlives_it():
    nap = f"time.sleep(600.{os.getpid()})"  # nobody else's: another suite may run beside this one
    text = (
        "import os, subprocess, sys\n"
        "def run(x):\n"
        f"    subprocess.Popen([sys.executable, '-c', 'import time; {nap}'], start_new_session=True)\n"
        "    return x * 2\n"
    )
    with WorkerPool(1) as pool:
        found = judged(text, "process", pool)
        assert found.status is Status.GAMING and "processes of its own" in found.message
    until = time.monotonic() + 10
    while _asleep(nap) and time.monotonic() < until:
        time.sleep(0.01)
    assert _asleep(nap) == []


def _asleep(nap: str) -> list[Path]:
    return [
        p
        for p in Path("/proc").iterdir()
        if p.name.isdigit() and nap.encode() in _read(p / "cmdline") and b"avo-workers" in _read(p / "environ")
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
