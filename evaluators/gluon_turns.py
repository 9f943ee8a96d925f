"""Threads of which one at a time goes on: the roles of an emulated Gluon kernel, in an order drawn from a seed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence


class Stuck(Exception):
    """Every role waits for another."""


class Turns:
    """Runs functions as threads of which one at a time goes on, until its next `pause`."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._gates: list[threading.Semaphore] = []
        self._waits: dict[int, Callable[[], bool] | None] = {}  # of threads that have not ended
        self._error: BaseException | None = None
        self._local = threading.local()
        self.late: list[Callable[[], None]] = []  # copies under way
        self.turns: dict[int, int] = {}  # group -> how often it may issue its products

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """Returns when all have ended; raises what one of them raised."""
        self._gates = [threading.Semaphore(0) for _ in functions]
        self._waits = dict.fromkeys(range(len(functions)))
        threads = [threading.Thread(target=self._thread, args=(i, f), daemon=True) for i, f in enumerate(functions)]
        for t in threads:
            t.start()
        self._gates[0].release()
        for t in threads:
            t.join()
        while self.late and self._error is None:
            self.late.pop(0)()
        if self._error is not None:
            raise self._error

    def _thread(self, number: int, function: Callable[[], None]) -> None:
        self._local.number = number
        self._gates[number].acquire()
        try:
            if self._error is None:
                function()
        except BaseException as error:
            self._error = self._error or error
        del self._waits[number]
        if (following := self._next()) is not None:
            self._gates[following].release()

    def pause(self, until: Callable[[], bool] | None = None) -> None:
        """Somebody else may go on; this thread does not before `until` holds."""
        number = self._local.number
        self._waits[number] = until
        following = self._next()
        if following is not None and following != number:
            self._gates[following].release()
            self._gates[number].acquire()
        self._waits[number] = None
        if self._error is not None:
            raise SystemExit

    def _next(self) -> int | None:
        """Whose turn it is: a thread that may go on, after some of the copies under way have arrived. After an error
        all others end, one after another."""
        while self._waits:
            if self._error is not None:
                return next(iter(self._waits))
            ready = [n for n, until in self._waits.items() if until is None or until()]
            if self.late and (not ready or self._draw.random() < 0.3):
                self.late.pop(self._draw.randrange(len(self.late)))()
            elif ready:
                return self._draw.choice(ready)
            else:
                self._error = Stuck("every role waits for another")
        return None
