"""Workers that are copies of a running one: the parent's side of `evaluators.integrity.nursery`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluators.failures import Unavailable
from evaluators.process import Stale, WorkerProcess, held, ready

ANSWER_S = 30.0  # a template answers in milliseconds; it may have been paged out


class Template(WorkerProcess):
    """Runs no task; `fork` makes workers. Any thread may call."""

    _asking: threading.Lock

    def _ask(self, request: dict[str, Any], fds: Sequence[int] = ()) -> Any:
        """Raises Stale where the template is dead."""
        with self._asking:
            try:
                self._socket.settimeout(ANSWER_S)
                socket.send_fds(self._socket, [json.dumps(request).encode()], list(fds))
                data = self._socket.recv(1 << 12)
            except OSError as error:
                # Its late answer would be taken for the next one's: nobody asks it again.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                raise Stale(f"the template of raw workers: {error}") from None
        if not data:
            raise Stale("the template of raw workers has died")
        return json.loads(data)

    def fork(self, home: Path, timeout: float) -> Forked:
        """A confined copy that has greeted. Raises Stale where the template is dead, Unavailable where the copy did
        not come up within `timeout` seconds."""
        home.mkdir(parents=True)
        ours, theirs = socket.socketpair()
        log, log_end = os.pipe()
        try:
            pid = self._ask({"fork": str(home)}, [theirs.fileno(), log_end])
        except BaseException:
            ours.close()
            os.close(log)
            raise
        finally:
            theirs.close()
            os.close(log_end)
        return Forked(self, pid, home, ours, log).started_up(timeout)

    def resident(self) -> int:
        """Its own: what its copies hold is no reason to end it, and them with it."""
        return held(self.pid)

    def _hold(self, kind: str, home: Path, ours: socket.socket, log: int) -> None:
        super()._hold(kind, home, ours, log)
        self._asking = threading.Lock()


class Forked(WorkerProcess):
    """A copy of a template. It is the template's child, so the template is asked for its end."""

    wall = 3  # a candidate can make itself wait: it gives up its turn to whoever else is there

    def __init__(self, template: Template, pid: int, home: Path, ours: socket.socket, log: int) -> None:
        self._template, self._pid = template, pid
        self._ended: tuple[int, int] | None = None
        self._hold(template.kind, home, ours, log)

    @property
    def pid(self) -> int:
        return self._pid

    def started_up(self, timeout: float) -> Forked:
        end = time.monotonic() + timeout
        while not self.ready:
            problem = self.step_start()
            left = end - time.monotonic()
            if problem is None and left <= 0:
                problem = f"it took more than {timeout:g} s"
            if problem is not None:
                log = self.log()
                self.dispose()
                last = next((line for line in reversed(log.splitlines()) if line.strip()), "")
                raise Unavailable(f"no {self.kind} worker could be started: {problem}" + (f" ({last})" if last else ""))
            if not self.ready:
                ready(self.filenos(), left)
        return self

    def _exit(self) -> tuple[int, int] | None:
        if self._ended is None:
            try:
                found = self._template._ask({"status": self._pid})
            except Stale:
                found = (os.CLD_KILLED, 9)  # it goes with its template
            self._ended = None if found is None else (int(found[0]), int(found[1]))
        return self._ended

    def _reap(self) -> None:
        with contextlib.suppress(Stale):
            self._template._ask({"reap": self._pid})

    def _signal(self, number: Any, family: Sequence[int] | set[int]) -> None:
        super()._signal(number, {*family, self._pid} if self._ended is None else family)
