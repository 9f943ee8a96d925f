"""Ctrl-C and SIGTERM: the first asks a run to finish what is under way, the second stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While it is entered, in the main thread, the signals come here; elsewhere it does nothing.

    wake is called inside the handler, so it may do no more than what is safe there (`SimpleQueue.put` is).
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.requested = False
        self._wake = wake
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # None: a handler that was not set from Python cannot be put back from it
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._wake()
