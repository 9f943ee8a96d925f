"""Pre-started workers that several threads share: no candidate can take the run down, and no child outlives the pool.

A worker serves one call at a time. One that hangs, dies or eats memory costs that call alone: its process group is
killed and another is started in the background. Ctrl-C reaches the parent only (a worker is a session of its own and
ignores SIGINT), which then calls `close`; a `kill -9` of the parent takes the workers with it (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluators.failures import Crash, Killed, OutOfMemory, TaskError, Timeout, Unavailable, WorkerFailure, quoted
from evaluators.forking import Template
from evaluators.process import Stale, WorkerProcess, ready
from evaluators.removing import remove
from evaluators.wire import Frame, WireError
from evaluators.worker import KINDS, TASKS

__all__ = ["Crash", "OutOfMemory", "Reply", "TaskError", "Timeout", "Unavailable", "WorkerFailure", "WorkerPool"]

_PREFIX = "avo-workers-"
_PAUSE_S = 0.05
_SAFE = ("plain", "compile", "interpret")  # kinds in which no code of a candidate runs that could end its process
_HEADER = 1 << 20  # bytes of what one candidate's process says beside its tensors


@dataclass(frozen=True)
class Reply:
    """result: JSON. log: the end of what the worker printed meanwhile. seconds: wall time of the call."""

    result: dict[str, Any]
    blobs: tuple[bytes, ...]
    seconds: float
    log: str = ""


@dataclass
class _Group:
    """The workers of one kind."""

    wanted: bool = False
    starting: list[WorkerProcess] = field(default_factory=list)
    idle: list[WorkerProcess] = field(default_factory=list)
    busy: list[WorkerProcess] = field(default_factory=list)
    failures: int = 0  # starts that failed in a row
    error: Unavailable | None = None

    def all(self) -> list[WorkerProcess]:
        return [*self.starting, *self.idle, *self.busy]


class Session:
    """A worker for several calls of one candidate; it is killed at the end and serves nobody else."""

    def __init__(self, worker: WorkerProcess, memory_bytes: int) -> None:
        self._worker, self._memory_bytes = worker, memory_bytes
        self.charged = 0.0  # seconds of all calls so far, as they count against a limit

    def call(
        self,
        task: str,
        payload: dict[str, Any],
        blobs: Sequence[bytes] = (),
        timeout: float = 60.0,
        most: int = 0,
    ) -> Reply:
        """As `WorkerPool.call`, always in the same worker. most: bytes of tensors that it was asked for, and that are
        taken from it.

        One that died between two calls is a Crash. So is a fault of our own code in it: the process is the candidate's,
        who may have broken that code or made the answer up.
        """
        began = time.monotonic()
        try:
            self._worker.trust(_HEADER, most)
            frame = self._worker.exchange(task, payload, blobs, timeout, self._memory_bytes)
        except Stale as error:
            kind = Unavailable if self._worker.calls <= 1 else Crash
            raise kind("the worker had died between two calls", error.log) from None
        self.charged += self._worker.charged
        ended = isinstance(frame.body.get("result"), dict) or frame.body.get("error") in ("candidate", "memory")
        if not ended:
            said = quoted(str(frame.body.get("message", "no message")))
            raise Crash(f"the worker broke: {said}", self._worker.log())
        return _reply(frame, time.monotonic() - began, self._worker.log())

    def family(self) -> tuple[int, int]:
        """(threads, child processes) of the worker, as the system counts them."""
        return self._worker.family()

    def threads(self) -> dict[int, int]:
        """Thread -> nanoseconds that it has computed, but for the worker's first."""
        return self._worker.threads()


class WorkerPool:
    """`n` workers of each kind, started in the background when the kind is first used or on `warm`; of the kinds
    `raw-LEVEL` one template, from which any number is copied.

    memory_bytes: resident memory that one worker with its children may hold. start_timeout: seconds for a start,
    imports included. recycle_after: calls after which a worker is replaced, for compilers leak. extra: a file whose
    `TASKS` (name -> function) the workers add to theirs; without a kind they run in workers without torch or triton.
    settings: environment variables of the workers beside, or instead of, those of `evaluators.process.environment`.
    """

    def __init__(
        self,
        n: int = 1,
        *,
        memory_bytes: int = 4 << 30,
        start_timeout: float = 120.0,
        recycle_after: int = 1000,
        extra: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        if n < 1:
            raise ValueError(f"a pool has at least one worker of a kind, not {n}")
        self._n = n
        self._memory_bytes = memory_bytes
        self._start_timeout = start_timeout
        self._recycle_after = recycle_after
        self._extra = extra.resolve() if extra else None
        self._settings = dict(settings or {})
        self._groups = {kind: _Group() for kind in KINDS}
        self._changed = threading.Condition()
        self._closed = False
        self._keeper: threading.Thread | None = None
        self._home: Path | None = None
        self._wake: tuple[int, int] | None = None
        self._count = 0
        self._copies: set[WorkerProcess] = set()
        self._spare: dict[str, list[WorkerProcess]] = {}
        self._helpers: set[threading.Thread] = set()
        self._one_at_a_time = threading.Lock()

    # -- for callers -----------------------------------------------------------------------------------------------

    def warm(self, kinds: Sequence[str] = ("compile", "interpret"), *, wait: bool = False) -> None:
        """Starts the workers of these kinds in the background; with `wait`, returns when one of each is ready.

        Raises Unavailable where workers cannot run on this machine, or (with `wait`) did not start.
        """
        for kind in kinds:
            self._want(kind)
        for kind in kinds if wait else ():
            self._release(kind, self._acquire(kind))

    def call(
        self,
        task: str,
        payload: dict[str, Any],
        blobs: Sequence[bytes] = (),
        timeout: float = 60.0,
        *,
        kind: str | None = None,
    ) -> Reply:
        """Runs a task (`evaluators.worker.TASKS`) in a worker; waits for a free one first. Any thread may call.

        timeout: seconds from the moment the worker has the call; time in which it waits for a processor does not count
        (`evaluators.process.Charge`), but ten times the limit is the end. Raises TaskError (the candidate's fault),
        Timeout, Crash, OutOfMemory, or Unavailable (ours). Where nothing of the candidate's can kill its own process (a
        program in the language is only compiled or interpreted), a worker that was killed under the call is replaced
        and asked again once; one that is killed twice is Unavailable.
        """
        kind = kind or (TASKS[task][0] if task in TASKS else "plain")
        killed = 0
        while True:
            worker = self._acquire(kind)
            began = time.monotonic()
            try:
                frame = worker.exchange(task, payload, blobs, timeout, self._memory_bytes)
            except Stale:
                self._retire(kind, worker)
                continue
            except Killed as error:
                self._retire(kind, worker)
                killed += 1
                if self._closed:
                    raise Unavailable("the worker pool was closed during the call") from None
                if kind not in _SAFE:
                    raise
                if killed == 2:
                    raise Unavailable(f"{error.message}, twice", error.log) from None
                continue
            except WireError as error:  # nothing was sent
                self._release(kind, worker)
                raise ValueError(f"{task}: {error}") from None
            except BaseException as error:
                self._retire(kind, worker)
                if self._closed and isinstance(error, WorkerFailure):
                    raise Unavailable("the worker pool was closed during the call") from None
                raise
            log = worker.log()
            self._release(kind, worker)
            return _reply(frame, time.monotonic() - began, log)

    @contextlib.contextmanager
    def session(self, kind: str) -> Iterator[Session]:
        """A copy of this kind's template (`raw-LEVEL`), for one candidate alone. At the end it is killed; its remains
        (a device's context, a folder) are cleared away beside what comes next."""
        worker = self._spared(kind) or self._copy(kind)
        try:
            yield Session(worker, self._memory_bytes)
        except WorkerFailure as failure:
            if self._closed and not isinstance(failure, Unavailable):
                raise Unavailable("the worker pool was closed during the call") from None
            raise
        finally:
            worker.strike()
            self._help(self._clear, worker)

    def prepare(self, kind: str, n: int) -> None:
        """Has `n` copies of this kind waiting, confined and without a candidate, for the sessions to come. Returns at
        once; what goes wrong, the session that wants one will say."""
        self._help(self._prepare, kind, n)

    def settled(self) -> None:
        """Returns when nothing is prepared or cleared away any more: before times are taken."""
        for helper in list(self._helpers):
            helper.join()

    def _prepare(self, kind: str, n: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, _PAUSE_S)  # who judges one candidate alone closes now
        with contextlib.suppress(WorkerFailure), self._one_at_a_time:
            while not self._closed and len(self._spare.get(kind, ())) < n:
                worker = self._copy(kind)
                with self._changed:
                    self._spare.setdefault(kind, []).append(worker)

    def _spared(self, kind: str) -> WorkerProcess | None:
        """One that waits, or that is on its way."""
        if not self._spare.get(kind):
            with self._one_at_a_time:
                pass
        while True:
            with self._changed:
                waiting = self._spare.get(kind)
                if not waiting:
                    return None
                worker = waiting.pop(0)
            if worker.alive():
                return worker
            self._clear(worker)

    def _clear(self, worker: WorkerProcess) -> None:
        worker.dispose()
        with self._changed:
            self._copies.discard(worker)

    def _help(self, work: Callable[..., None], *given: Any) -> None:
        """Does it in a thread that `close` waits for."""

        def run() -> None:
            try:
                work(*given)
            finally:
                with self._changed:
                    self._helpers.discard(thread)

        thread = threading.Thread(target=run, name="avo pool helper", daemon=True)
        with self._changed:
            self._helpers.add(thread)
        thread.start()

    def _copy(self, kind: str) -> WorkerProcess:
        while True:
            template = self._acquire(kind)
            assert isinstance(template, Template)
            with self._changed:
                self._count += 1
                home = template.home.parent / f"{kind}-{self._count}"
            try:
                worker = template.fork(home, self._start_timeout)
            except Stale:
                self._retire(kind, template)
                continue
            except BaseException:
                self._retire(kind, template)
                raise
            self._release(kind, template)
            with self._changed:
                self._copies.add(worker)
            return worker

    def close(self) -> None:
        """Kills every worker, whatever it does, and removes their directories. Calls in flight raise Unavailable."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._poke()
        if self._keeper is not None:
            self._keeper.join()
            atexit.unregister(self.close)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pids(self) -> list[int]:
        """The process ids of all workers, for tests and `avo doctor`."""
        with self._changed:
            every = [worker for group in self._groups.values() for worker in group.all()]
            return [worker.pid for worker in (*every, *self._copies)]

    # -- workers in and out ------------------------------------------------------------------------------------------

    def _want(self, kind: str) -> None:
        """Has the keeper bring `n` workers of a kind up; forgives earlier failures to start."""
        if kind not in self._groups:
            raise ValueError(f"no workers of kind {kind!r}; the kinds are {', '.join(KINDS)}")
        group = self._groups[kind]
        if group.wanted and not self._closed:  # it runs here: every call asks, and looking for torch reads the disk
            return
        if problem := _obstacle(kind):
            raise Unavailable(problem)
        with self._changed:
            if self._closed:
                raise Unavailable("the worker pool is closed")
            if group.wanted:
                return
            group.error, group.failures, group.wanted = None, 0, True
            if self._keeper is None:
                _sweep()
                self._home = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
                self._wake = os.pipe()
                os.set_blocking(self._wake[1], False)
                self._keeper = threading.Thread(target=self._keep, name="avo worker keeper", daemon=True)
                self._keeper.start()
                atexit.register(self.close)
        self._poke()

    def _acquire(self, kind: str) -> WorkerProcess:
        self._want(kind)
        group = self._groups[kind]
        with self._changed:
            while True:
                if self._closed:
                    raise Unavailable("the worker pool is closed")
                if group.idle:
                    group.busy.append(worker := group.idle.pop())
                    return worker
                if group.error is not None:
                    raise Unavailable(group.error.message, group.error.log)
                self._changed.wait()

    def _release(self, kind: str, worker: WorkerProcess) -> None:
        # A fat worker is replaced between two calls, so that one candidate's leak is not the next one's end.
        if worker.calls >= self._recycle_after or worker.resident() > self._memory_bytes // 2:
            self._retire(kind, worker)
            return
        with self._changed:
            self._groups[kind].busy.remove(worker)
            if not self._closed:
                self._groups[kind].idle.append(worker)
            self._changed.notify_all()  # one of those who wait wants this kind
        if self._closed:
            worker.dispose()

    def _retire(self, kind: str, worker: WorkerProcess) -> None:
        worker.dispose()
        with self._changed, contextlib.suppress(ValueError):
            self._groups[kind].busy.remove(worker)
        self._poke()

    def _poke(self) -> None:
        with self._changed:
            if self._wake is not None:
                with contextlib.suppress(BlockingIOError):  # full: the keeper has enough to wake up for
                    os.write(self._wake[1], b"x")

    # -- the keeper thread: it alone starts workers, for Linux ends a child with the thread that started it -----------

    def _keep(self) -> None:
        assert self._wake is not None
        try:
            while not self._closed:
                self._start_missing()
                starting = [w for group in self._groups.values() for w in group.starting]
                again = any(group.wanted and group.failures for group in self._groups.values())
                files = [self._wake[0], *(fd for w in starting for fd in w.filenos())]
                if self._wake[0] in ready(files, 0.5 if starting or again else None):
                    os.read(self._wake[0], 1 << 12)
                self._step_starting()
        finally:
            self._end()

    def _start_missing(self) -> None:
        assert self._home is not None
        for kind, group in self._groups.items():
            with self._changed:
                wanted = 1 if kind.startswith("raw-") else self._n
                missing = wanted - len(group.all()) if group.wanted and group.error is None else 0
            for _ in range(missing):
                with self._changed:
                    self._count += 1
                make = Template if kind.startswith("raw-") else WorkerProcess
                try:
                    worker = make(kind, self._home / f"{kind}-{self._count}", self._extra, self._settings)
                except OSError as error:
                    self._failed(kind, f"{error}", "")
                    break
                with self._changed:
                    group.starting.append(worker)

    def _step_starting(self) -> None:
        for kind, group in self._groups.items():
            for worker in list(group.starting):
                problem = worker.step_start()
                if problem is None and not worker.ready and time.monotonic() - worker.started > self._start_timeout:
                    problem = f"it took more than {self._start_timeout:g} s"
                if problem is not None:
                    log = worker.log()
                    worker.dispose()
                    with self._changed:
                        group.starting.remove(worker)
                    self._failed(kind, problem, log)
                elif worker.ready:
                    with self._changed:
                        group.starting.remove(worker)
                        group.idle.insert(0, worker)  # a new one waits: those that are warm go first
                        group.failures = 0
                        self._changed.notify_all()

    def _failed(self, kind: str, problem: str, log: str) -> None:
        """Twice in a row is a broken machine, not bad luck: those who wait are told."""
        group = self._groups[kind]
        with self._changed:
            group.failures += 1
            if group.failures >= 2 and group.error is None:
                last = next((line for line in reversed(log.splitlines()) if line.strip()), "")
                message = f"no {kind} worker could be started: {problem}" + (f" ({last.strip()})" if last else "")
                group.error, group.wanted = Unavailable(message, log), False
            self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._closed = True
            idle = [w for group in self._groups.values() for w in (*group.starting, *group.idle)]
            busy = [*self._copies, *(w for group in self._groups.values() for w in group.busy)]
            wake, self._wake = self._wake, None
            for group in self._groups.values():
                group.starting, group.idle = [], []
            self._changed.notify_all()
        for worker in busy:
            worker.kill()  # its thread sees the end of the channel and disposes of it
        for worker in idle:
            worker.dispose()
        self.settled()
        for worker in [w for waiting in self._spare.values() for w in waiting]:
            worker.dispose()
        for fd in wake or ():
            os.close(fd)
        if self._home is not None:
            remove(self._home)


def _reply(frame: Frame, seconds: float, log: str) -> Reply:
    body = frame.body
    if isinstance(body.get("result"), dict):
        return Reply(body["result"], frame.blobs, seconds, log)
    message = str(body.get("message", "the worker's answer has neither a result nor an error"))
    if body.get("error") == "candidate":
        raise TaskError(message, log)
    if body.get("error") == "memory":
        raise OutOfMemory(message, log)
    raise Unavailable(message, log)


def _obstacle(kind: str) -> str | None:
    """Why no worker of this kind can run here, if so."""
    if os.name != "posix":
        return "workers need Linux; on this system parse, check, meaning, sol and report work, compiling does not"
    if kind != "plain":
        for module in ("torch", "triton"):
            if importlib.util.find_spec(module) is None:
                where = " (its wheels are for Linux only)" if module == "triton" and sys.platform != "linux" else ""
                return f"{kind} workers need {module}, which is not installed{where}"
    return None


def _sweep() -> None:
    """Removes what pools left behind whose process was killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not owner.isdigit():
            continue
        try:
            os.kill(int(owner), 0)
        except ProcessLookupError:
            remove(path)
        except OSError:
            continue
