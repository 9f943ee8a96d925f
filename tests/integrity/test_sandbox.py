"""Each level of the sandbox, with the others switched off: what a candidate tries there, and what it is told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
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


# A kernel without a layer, or with an older one: what is done to the module before the level is entered.
OLDER = {
    "Landlock of Linux 5.13": ("full", "sandbox.NEWEST = 1", ""),
    "Landlock of Linux 5.19": ("full", "sandbox.NEWEST = 2", ""),
    "Landlock of Linux 6.2": ("full", "sandbox.NEWEST = 3", ""),
    "Landlock of Linux 6.7": ("full", "sandbox.NEWEST = 4", ""),
    "Landlock of Linux 6.10": ("full", "sandbox.NEWEST = 5", ""),
    "no Landlock": ("full", "sandbox._CREATE_RULESET = 999", "Landlock: the kernel has none"),
    "no user namespaces": ("namespaces", "sandbox._NEWUSER = 1", "unshare"),
    "no mount_setattr": ("namespaces", "sandbox._MOUNT_SETATTR = 999", "mount_setattr"),
    "no seccomp": ("full", "sandbox._PR_SET_SECCOMP = 999", "seccomp"),
    "another processor": ("full", "sandbox.platform.machine = lambda: 'riscv64'", "does not know riscv64"),
    "namespaces without Landlock": ("namespaces", "sandbox._CREATE_RULESET = 999", ""),
    "limits alone": ("process", "sandbox._CREATE_RULESET = sandbox._NEWUSER = 999", ""),
}


@pytest.mark.parametrize("kernel", OLDER)
def test_older_kernels_reach_what_they_can_and_say_what_they_lack(kernel, tmp_path: Path):
    level, change, lacks = OLDER[kernel]
    if problem := sandbox.why_not(level):
        pytest.skip(problem)
    code = f"import sys; from evaluators.integrity import sandbox; {change}; sys.exit(sandbox.main(sys.argv[1:]))"
    (home := tmp_path / "home").mkdir()
    command = [sys.executable, "-P", "-c", code, level, str(home)]
    root = Path(sandbox.__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env={"PYTHONPATH": str(root)})
    assert (done.returncode == 0) == (lacks == ""), done.stderr
    assert lacks in done.stderr and "Traceback" not in done.stderr


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
    text = (
        "import os, subprocess, sys\n"
        "def run(x):\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "    return x * 2\n"
    )
    with WorkerPool(1) as pool:
        found = judged(text, "process", pool)
        assert found.status is Status.GAMING and "processes of its own" in found.message
    assert threading.active_count() >= 1
    alive = [
        p
        for p in Path("/proc").iterdir()
        if p.name.isdigit() and b"time.sleep(600)" in _read(p / "cmdline") and b"avo-workers" in _read(p / "environ")
    ]
    assert alive == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
