"""Kernels on their way to the compile workers, those of the candidate that came first at the front.

First come, first served by kernel would have all of a run's first candidates end at the same time: a device would wait
for the last kernel of the last of them. Later proposals wait for the verdicts of earlier ones, so these go first.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future

Place = tuple[int, int]  # of the candidate among all, and of the kernel's kind within it


class Builders:
    """So many threads, started when they are first needed; each carries one kernel at a time to a worker."""

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._turn = threading.Condition()
        self._waiting: list[tuple[Place, int, Future[None], Callable[[], None]]] = []
        self._count = itertools.count()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def submit(self, place: Place, work: Callable[[], None]) -> Future[None]:
        """`work` is called when no earlier place waits any more; a future that was cancelled in time never runs."""
        future: Future[None] = Future()
        with self._turn:
            if self._closed:
                future.cancel()
                return future
            heapq.heappush(self._waiting, (place, next(self._count), future, work))
            if len(self._waiting) > self._idle and len(self._threads) < self._most:
                thread = threading.Thread(target=self._carry, name=f"avo-compile-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._turn.notify()
        return future

    def close(self) -> None:
        """What waits is cancelled; what is under way ends with its worker."""
        with self._turn:
            self._closed = True
            for *_, future, _work in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._turn.notify_all()

    def _carry(self) -> None:
        while True:
            with self._turn:
                self._idle += 1
                self._turn.wait_for(lambda: self._waiting or self._closed)
                self._idle -= 1
                if self._closed:
                    return
                *_, future, work = heapq.heappop(self._waiting)
            if not future.set_running_or_notify_cancel():
                continue
            try:
                work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)
