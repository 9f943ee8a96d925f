"""What can go wrong with a call to a worker, as types: each says whose fault it is."""

from __future__ import annotations

import re
from typing import ClassVar

from evaluators.evaluation import Status


class WorkerFailure(Exception):
    """A call that brought no result. `log` is the end of what the worker printed; `status` is what the candidate gets.

    A TaskError has no status of its own: the gate that made the call knows what it means.
    """

    status: ClassVar[Status | None] = None

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.log = log


class TaskError(WorkerFailure):
    """The candidate's fault, found by the task: the compiler or the run refused it. The message is for people."""


class Timeout(WorkerFailure):
    """The task ran past its limit; the worker and everything it started were killed."""

    status = Status.TIMEOUT


class Crash(WorkerFailure):
    """The worker died under the task."""

    status = Status.CRASH


class Killed(Crash):
    """Somebody killed the worker under the task: the system or a person. A program in the language cannot do that."""


class OutOfMemory(WorkerFailure):
    """The worker's resident memory passed the limit, or an allocation failed."""

    status = Status.OUT_OF_MEMORY


class Unavailable(WorkerFailure):
    """The harness's fault: no worker could be started, the pool was closed, or the task itself is broken."""

    status = Status.UNAVAILABLE


def quoted(words: str, most: int = 400) -> str:
    """What somebody else wrote, in one line of at most so many characters, marked as a quotation that it cannot end."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in words).split()).translate(_NO_QUOTES)
    return f'"{line if len(line) <= most else line[: most - 1].rstrip() + "…"}"'


_NO_QUOTES = str.maketrans(dict.fromkeys('"“”„`', "'"))


def gist(message: str) -> str:
    """Of a message with lines the one that says what went wrong: the first, after the place in the source. What comes
    behind it is detail (a CUDA error ends in four lines of advice)."""
    lines = [line for line in message.splitlines() if line.strip()]
    return next((line for line in lines if not _PLACE.match(line)), lines[-1] if lines else "it failed")


_PLACE = re.compile(r"line \d+: ")
