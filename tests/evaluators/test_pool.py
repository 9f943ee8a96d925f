"""A worker may hang, crash, eat memory, lie or print: it costs its own call alone, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from evaluators import pool as pool_module
from evaluators import process
from evaluators.evaluation import Status
from evaluators.pool import Crash, OutOfMemory, TaskError, Timeout, Unavailable, WorkerPool
from evaluators.process import descendants, held

if sys.platform != "linux":
    pytest.skip("worker processes need Linux", allow_module_level=True)

DOUBLES = Path(__file__).with_name("worker_doubles.py")


def gone(pid: int, within: float = 30.0) -> bool:
    """Whether a process ends within so many seconds (a zombie that nobody has reaped yet has ended)."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(2, memory_bytes=400 << 20, extra=DOUBLES) as pool:
        yield pool


def test_echo(pool):
    blobs = [b"abc", b"", bytes(range(256)) * 10_000]
    reply = pool.call("echo", {"word": "hello", "n": [1, None, 2.5]}, blobs, timeout=10)
    assert reply.result["payload"] == {"word": "hello", "n": [1, None, 2.5]}
    assert list(reply.blobs) == blobs
    assert reply.log == "echo says hello\n"
    assert 0 < reply.seconds < 10


def test_several_threads_share_it(pool):
    results, pids = {}, set()

    def work(i):
        for j in range(10):
            reply = pool.call("echo", {"i": i, "j": j}, [bytes([i, j])], timeout=10)
            assert reply.blobs == (bytes([i, j]),)
            results[i, j] = reply.result["payload"]
            pids.add(reply.result["pid"])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {(i, j): {"i": i, "j": j} for i in range(6) for j in range(10)}
    assert len(pids) <= 2


def test_a_hang_is_killed_with_its_children(pool, tmp_path):
    before, began = set(pool.pids()), time.monotonic()
    note = tmp_path / "pids"
    with pytest.raises(Timeout, match="brood took more than 1 s") as failure:
        pool.call("brood", {"file": str(note)}, timeout=1)
    assert failure.value.status is Status.TIMEOUT
    assert time.monotonic() - began < 30  # it would hang for 600 s
    children = [int(pid) for pid in note.read_text().split()]
    assert len(children) == 2 and all(gone(pid) for pid in children)
    assert pool.call("echo", {}, timeout=10).result["pid"] != 0
    killed = before - set(pool.pids())
    assert len(killed) == 1 and all(gone(pid) for pid in killed)


def test_waiting_for_a_processor_is_not_charged(monkeypatch):
    """The system's accounts are played: what computed, and whether it would go on."""
    clock, account = [0.0], [(0.0, True)]
    monkeypatch.setattr(process.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(process, "family_time", lambda pid: account[0])
    charge = process.Charge(1)
    for computed, would in ((0.25, True), (0.25, True), (0.5, True), (0.5, False)):
        clock[0] += 1.0
        account[0] = (computed, would)
        charge.look()
    assert charge.seconds == 0.5 + 1.0 and charge.elapsed == 4.0


def test_computing_sleeping_and_stopping_itself_are_charged(pool):
    with pytest.raises(Timeout, match=r"burn took more than 0\.5 s"):
        pool.call("burn", {"seconds": 60}, timeout=0.5)
    with pytest.raises(Timeout, match=r"children took more than 0\.5 s"):
        pool.call("children", {"seconds": 60}, timeout=0.5)
    began = time.monotonic()
    with pytest.raises(Timeout, match=r"sleep took more than 0\.5 s"):
        pool.call("sleep", {"seconds": 60}, timeout=0.5)
    assert 0.5 <= time.monotonic() - began < 30
    began = time.monotonic()
    with pytest.raises(Timeout, match=r"halt took more than 0\.2 s"):
        pool.call("halt", {}, timeout=0.2)
    assert time.monotonic() - began < 30


def test_a_crash_costs_its_own_call_alone(pool):
    done = []
    other = threading.Thread(target=lambda: done.append(pool.call("sleep", {"seconds": 0.5}, timeout=10)))
    other.start()
    with pytest.raises(Crash, match="killed by SIGSEGV") as failure:
        pool.call("crash", {}, timeout=10)
    assert failure.value.status is Status.CRASH
    assert "Segmentation fault" in failure.value.log  # faulthandler's trace
    other.join()
    assert len(done) == 1
    with pytest.raises(Crash, match="exited with status 7"):
        pool.call("leave", {}, timeout=10)
    assert pool.call("echo", {}, timeout=10).result["payload"] == {}


def asleep(note, count):
    """The processes that said so, in a file, once there are so many; whatever there are after half a minute."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = note.read_text().split("\n")[:-1] if note.exists() else []
        if len(found) >= count:
            break
        time.sleep(0.01)
    return [int(pid) for pid in found]


def test_a_worker_that_somebody_kills_is_replaced_and_asked_again(tmp_path):
    with WorkerPool(1, extra=DOUBLES) as pool:

        def kill(note, times):
            for nth in range(times):
                os.kill(asleep(note, nth + 1)[nth], signal.SIGKILL)

        for times in (1, 2):
            note = tmp_path / str(times)
            killer = threading.Thread(target=kill, args=(note, times))
            killer.start()
            if times == 1:
                assert pool.call("sleep", {"seconds": 1, "file": str(note)}, timeout=60).result is not None
            else:
                with pytest.raises(Unavailable, match="killed by SIGKILL, twice"):
                    pool.call("sleep", {"seconds": 20, "file": str(note)}, timeout=60)
            killer.join()


def test_memory_is_watched(pool):
    with pytest.raises(OutOfMemory, match="the limit is 400 MiB") as failure:
        pool.call("eat_memory", {"step": 4 << 20}, timeout=30)
    assert failure.value.status is Status.OUT_OF_MEMORY
    with pytest.raises(OutOfMemory, match="no_memory ran out of memory"):
        pool.call("no_memory", {}, timeout=10)


def test_whose_fault_it_is(pool):
    with pytest.raises(TaskError, match=r"^the tile is too large$"):
        pool.call("refuse", {}, timeout=10)
    with pytest.raises(Unavailable, match="bug failed: KeyError"):
        pool.call("bug", {}, timeout=10)
    with pytest.raises(Unavailable, match="has no task 'nonesuch'"):
        pool.call("nonesuch", {}, timeout=10)
    with pytest.raises(Unavailable, match="system_exit failed: SystemExit"):
        pool.call("system_exit", {}, timeout=10)
    with pytest.raises(Unavailable, match="has to be JSON"):
        pool.call("unjson", {}, timeout=10)
    with pytest.raises(ValueError, match="has to be JSON"):
        pool.call("echo", {"x": object()}, timeout=10)
    with pytest.raises(ValueError, match="the kinds are plain, compile, interpret"):
        pool.call("echo", {}, timeout=10, kind="fast")


def test_a_forged_answer_is_a_crash(pool):
    with pytest.raises(Crash, match="answered another request"):
        pool.call("forge", {}, timeout=10)
    with pytest.raises(Crash, match="answered nonsense: a frame starts with"):
        pool.call("babble", {}, timeout=10)


def test_prints_are_capped(pool):
    reply = pool.call("chatter", {"lines": 5000}, timeout=20)
    assert 1000 < len(reply.log) <= 64 << 10


def test_keys_are_scrubbed_and_places_private(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GITHUB_TOKEN", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "secret")
    with WorkerPool(1, extra=DOUBLES) as pool:
        result = pool.call("environment", {}, timeout=10).result
        env = result["environment"]
        assert "secret" not in env.values()
        home = Path(env["HOME"])
        assert home.is_dir() and home != Path.home()
        assert {env["TMPDIR"], result["cwd"], str(Path(env["TRITON_CACHE_DIR"]).parent)} == {str(home)}
        assert env["TRITON_DEFAULT_FP_FUSION"] == "1"
        assert not {"torch", "triton", "numpy", "sqlalchemy"} & set(result["modules"])
    assert not home.exists() and not home.parent.exists()


def test_ctrl_c_is_the_parents(pool):
    assert pool.call("interrupt", {}, timeout=10).result == {"alive": True}


def test_a_worker_that_died_idle_blames_nobody():
    with WorkerPool(1, extra=DOUBLES) as pool:
        first = pool.call("echo", {}, timeout=10).result["pid"]
        os.kill(first, signal.SIGKILL)
        assert gone(first)
        assert pool.call("echo", {}, timeout=10).result["pid"] != first


def test_workers_are_recycled():
    with WorkerPool(1, extra=DOUBLES, recycle_after=2) as pool:
        pids = [pool.call("echo", {}, timeout=10).result["pid"] for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_close_ends_calls_in_flight(tmp_path):
    pool = WorkerPool(1, extra=DOUBLES)
    pool.warm(["plain"], wait=True)
    pids, failures = pool.pids(), []

    def work():
        try:
            pool.call("sleep", {"seconds": 60, "file": str(tmp_path / "note")}, timeout=90)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]  # one runs, one waits for a worker
    for thread in threads:
        thread.start()
    assert asleep(tmp_path / "note", 1)
    began = time.monotonic()
    pool.close()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 30
    assert [type(error) for error in failures] == [Unavailable, Unavailable]
    assert all("closed" in str(error) for error in failures)
    assert all(gone(pid) for pid in pids)
    with pytest.raises(Unavailable, match="closed"):
        pool.call("echo", {})
    pool.close()


def test_a_worker_that_cannot_start_is_unavailable(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('no such luck')\n")
    with WorkerPool(1, extra=broken) as pool:
        for _ in range(2):  # and a later call tries anew
            with pytest.raises(Unavailable, match=r"no plain worker could be started.*no such luck"):
                pool.call("echo", {}, timeout=10)
        assert pool.pids() == []
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ntime.sleep(60)\n")
    with WorkerPool(2, extra=slow, start_timeout=0.3) as pool, pytest.raises(Unavailable, match=r"more than 0.3 s"):
        pool.call("echo", {}, timeout=10)


def test_kinds_do_not_wait_for_each_other():
    """Callers of two kinds wait at once; each worker that comes free wakes the one who wants it."""
    with WorkerPool(1, extra=DOUBLES) as pool:
        done = []

        def work(kind):
            pool.call("sleep", {"seconds": 0.05}, timeout=60, kind=kind)
            done.append(kind)

        threads = [threading.Thread(target=work, args=(kind,)) for kind in ["plain", "interpret"] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert sorted(done) == ["interpret"] * 4 + ["plain"] * 4


def test_importing_needs_neither_torch_nor_triton():
    code = "import evaluators.pool, evaluators.compiler, evaluators.cpu, evaluators.machine, sys; print(*sys.modules)"
    block = "import sys; sys.modules.update(torch=None, triton=None, resource=None); "  # as on Windows
    done = subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, check=True)
    assert not {"sqlalchemy", "optuna"} & set(done.stdout.split())


def test_elsewhere_it_says_what_is_missing(monkeypatch):
    with WorkerPool(1) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(pool_module.importlib.util, "find_spec", lambda name: None if name == "triton" else name)
            patch.setattr(pool_module.sys, "platform", "darwin")
            with pytest.raises(Unavailable, match=r"compile workers need triton.*Linux only"):
                pool.call("compile", {})
        with monkeypatch.context() as patch:
            patch.setattr(pool_module.os, "name", "nt")
            with pytest.raises(Unavailable, match="workers need Linux"):
                pool.warm()


def test_no_orphan_when_the_parent_is_killed(tmp_path):
    """The parent dies by SIGKILL while one worker is idle and one hangs."""
    script = textwrap.dedent(f"""
        import threading, time
        from pathlib import Path
        from evaluators.pool import WorkerPool
        pool = WorkerPool(2, extra=Path({str(DOUBLES)!r}))
        pool.warm(["plain"], wait=True)
        note = {str(tmp_path / "note")!r}
        asked = {{"seconds": 600, "file": note}}
        threading.Thread(target=pool.call, args=("sleep", asked), kwargs={{"timeout": 900}}).start()
        while len(pool.pids()) < 2 or not Path(note).exists():
            time.sleep(0.01)
        print(*pool.pids(), flush=True)
        time.sleep(600)
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        left = list(Path(tempfile.gettempdir()).glob(f"avo-workers-{parent.pid}-*"))
        assert len(pids) == 2 and set(pids) <= set(descendants(parent.pid)) and len(left) == 1
        parent.kill()
    assert all(gone(pid) for pid in pids)
    with WorkerPool(1, extra=DOUBLES) as pool:  # the next pool clears away what is left
        pool.warm(["plain"], wait=True)
    assert not left[0].exists()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_memory_is_counted_where_the_first_thread_has_ended():
    code = """
import ctypes, sys, threading
held = bytearray(64 << 20)
threading.Thread(target=sys.stdin.read).start()
sys.stdout.write("ready")
sys.stdout.flush()
ctypes.CDLL(None).syscall(60, 0)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.read(5) == b"ready"
            for _ in range(200):
                if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    break
                time.sleep(0.02)
            assert held(process.pid) >= 64 << 20
        finally:
            process.kill()
