"""Devices at work: each with its lease, a warm worker and a spare, and the order in which candidates get one."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluators.device import DeviceFacts, Lease, mask_for
from evaluators.failures import Crash, TaskError, Unavailable, WorkerFailure
from evaluators.pool import Reply, WorkerPool

DEVICE_MEMORY = 64 << 30  # resident memory of a device's worker: the libraries alone map several GiB
PREPARE_S = 600.0  # inputs and right answers: ours, never the candidate's
LOAD_S = 60.0  # a worker's first call compiles launchers
MISS_S = 4.0  # one kernel that the compile workers' cache did not have
HEAT_S = 60.0
COLD_S = 15.0  # without work for so long, the card is heated again before anything is timed
SHORTLY = {"least_s": 0.5, "most_s": 2.0}
SPARES = 3  # started and rehearsed beside the worker at work: faults in a row come faster than a start takes
_FAULT = ("avo device fault: ", "Memory access fault by GPU")  # ours; ROCm's, which ends the process by itself


class Slot:
    """One device: its lease, its workers (one at work, and spares), and how busy it has been.

    simulate: no device at all; the worker runs on the CPU in the interpreter, for tests. extra: settings of the workers
    beside their own. tasks: a file whose `TASKS` they have beside theirs.
    """

    def __init__(
        self,
        facts: DeviceFacts,
        cache: Path,
        *,
        simulate: bool = False,
        extra: Mapping[str, str] | None = None,
        tasks: Path | None = None,
    ) -> None:
        self.facts = facts
        seen = {"TRITON_INTERPRET": "1"} if simulate else mask_for(facts)
        settings = {**seen, "TRITON_CACHE_DIR": str(cache), **(extra or {})}
        count = 1 if simulate else 1 + SPARES
        self._pool = WorkerPool(count, memory_bytes=DEVICE_MEMORY, settings=settings, extra=tasks)
        self._lease = Lease(facts.uuid)
        self._lock = threading.Lock()
        self._simulated = simulate
        self.busy_s = 0.0
        self.since: float | None = None
        self.faults = 0
        self.misses = 0
        self.worker: dict[str, Any] = {}
        self.parts: defaultdict[str, float] = defaultdict(float)  # seconds by what the worker did
        self.heats: list[dict[str, Any]] = []
        self._extra_s = LOAD_S
        self._last = -math.inf  # when the device last worked
        self._worked: float | None = None  # when the worker that is at work last was

    def lease(self, wait_s: float = 0.0) -> None:
        """Raises Unavailable where another run of avo has the device."""
        if not self._simulated:
            self._lease.take(wait_s)

    def warm(self) -> None:
        self._pool.warm(("device",))

    def run(self, task: str, payload: dict[str, Any], jobs: Sequence[Mapping[str, Any]], seconds: float) -> Reply:
        """Prepares the jobs, then runs the task on them, on one worker with nothing in between.

        seconds: what the candidate may take. Raises what the pool raises; what fails while preparing is Unavailable.
        """
        with self._lock:
            self.lease(wait_s=60.0)
            if not self.worker:
                self.worker = self._call("device_facts", {}, 60.0).result
            if self._worked is None or time.monotonic() - self._worked > COLD_S:
                warm = time.monotonic() - self._last <= COLD_S  # a worker was lost, the card has hardly rested
                self._ours("heat", SHORTLY if warm else {}, HEAT_S)
            if self.since is None:
                self.since = time.monotonic()
            began = time.monotonic()
            try:
                self._ours("prepare", {"jobs": list(jobs)}, PREPARE_S)
                return self._theirs(task, payload, seconds)
            finally:
                self._last = time.monotonic()
                self.busy_s += self._last - began
                if self._worked is not None:
                    self._worked = self._last

    def _ours(self, task: str, payload: dict[str, Any], seconds: float) -> Reply:
        """What no candidate has a part in."""
        try:
            reply = self._call(task, payload, seconds)
        except Unavailable:
            raise
        except WorkerFailure as failure:
            self._worked = None
            raise Unavailable(f"{task}: {failure.message}", failure.log) from None
        if task == "heat":
            self._worked = time.monotonic()
            self.heats.append(reply.result)
        return reply

    def _theirs(self, task: str, payload: dict[str, Any], seconds: float) -> Reply:
        try:
            reply = self._call(task, payload, seconds + self._extra_s)
            self._extra_s = MISS_S * int(reply.result.get("compilations", {}).get("miss", 0))
            return reply
        except Crash as crash:
            self._lost()
            said = [line for line in crash.log.splitlines() if line.startswith(_FAULT)]
            raise Crash(said[-1].removeprefix(_FAULT[0]) if said else crash.message, crash.log) from None
        except (TaskError, Unavailable):
            raise
        except WorkerFailure:
            self._lost()
            raise

    def _lost(self) -> None:
        """A worker is gone; the spare, which has never launched anything, takes the next call."""
        self.faults += 1
        self._worked, self._extra_s = None, 0.0

    def _call(self, task: str, payload: dict[str, Any], seconds: float) -> Reply:
        began = time.monotonic()
        try:
            reply = self._pool.call(task, payload, timeout=seconds, kind="device")
        except WorkerFailure:
            self.parts["lost to faults"] += time.monotonic() - began
            raise
        inside = 0.0
        for name, spent in reply.result.get("parts", {}).items():
            self.parts[name] += float(spent)
            inside += float(spent)
        self.parts["asking"] += max(0.0, time.monotonic() - began - inside)
        if isinstance(found := reply.result.get("compilations"), dict):
            self.misses += int(found.get("miss", 0))
        return reply

    @property
    def share(self) -> float:
        """Of the time since its first use that the device's worker was at work on candidates."""
        return 0.0 if self.since is None else min(1.0, self.busy_s / max(1e-9, time.monotonic() - self.since))

    def close(self) -> None:
        self._pool.close()
        self._lease.release()


class Queue:
    """Who gets the next free device: whoever came first to the judge, for later proposals wait for its verdict."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._free = list(slots)
        self._waiting: list[int] = []
        self._turn = threading.Condition()
        self._tickets = itertools.count()

    def ticket(self) -> int:
        return next(self._tickets)

    @contextlib.contextmanager
    def device(self, ticket: int) -> Iterator[Slot]:
        with self._turn:
            heapq.heappush(self._waiting, ticket)
            self._turn.wait_for(lambda: bool(self._free) and self._waiting[0] == ticket)
            heapq.heappop(self._waiting)
            slot = self._free.pop()
            self._turn.notify_all()
        try:
            yield slot
        finally:
            with self._turn:
                self._free.append(slot)
                self._turn.notify_all()
