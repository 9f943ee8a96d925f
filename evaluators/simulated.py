"""A device and compile workers that only take time, for tests of scheduling and for `benchmarks/throughput.py`.

What they answer has the form of real answers: outputs are right, and a kernel's speed follows from a hash of its source
unless `speed` says otherwise. Nothing of a candidate runs, nothing is compiled: no figure of theirs means anything.
"""

from __future__ import annotations

import hashlib
import math
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from evaluators.device import DeviceFacts
from evaluators.failures import WorkerFailure
from evaluators.machine import MachineCode
from evaluators.pool import Reply

_RIGHT = {"size": 0.0, "top": 0.0, "count": 1}  # figures of an output that is right


class SimulatedPool:
    """Compile workers that sleep: `seconds` a kernel, a little more or less."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._room, self._seconds = threading.Semaphore(workers), seconds
        self.calls = 0

    def warm(self, kinds: Any) -> None:
        pass

    def call(self, task: str, payload: dict[str, Any], timeout: float) -> Reply:
        with self._room:
            self.calls += 1
            share = 0.6 if task == "fill" else 1.0
            time.sleep(share * self._seconds * random.Random(payload["source"]).uniform(0.6, 1.6))
        code = MachineCode(
            kernel=payload["kernel"],
            arch=payload["arch"],
            compiler="simulated",
            registers=168,
            spills=0,
            shared_bytes=98304,
            threads=128,
            code_bytes=8192,
            instructions={"wgmma": 64, "ffma": 600, "mufu": 64},
        )
        return Reply(code.model_dump(mode="json"), (), self._seconds)

    def close(self) -> None:
        pass


class SimulatedSlot:
    """A device that sleeps; what `evaluators.slots.Slot` is to the judge.

    look_s: of a candidate's first visit; block_s: of one ABBA block over eight workloads. speed: source and job ->
    seconds a call instead of those of the hash. trouble: source and task -> what to raise, if anything.
    """

    def __init__(
        self,
        number: int = 0,
        look_s: float = 0.0,
        block_s: float = 0.0,
        *,
        speed: Callable[[str, Any], float] | None = None,
        trouble: Callable[[str, str], Exception | None] | None = None,
        noise: float = 0.004,
    ) -> None:
        self.facts = DeviceFacts(index=number, name="NVIDIA H200", uuid=f"GPU-simulated-{number}")
        self._look_s, self._block_s = look_s, block_s
        self._speed, self._trouble, self._noise = speed or _hashed, trouble, noise
        self._rng = random.Random(number)
        self.bound = ""  # what it says of a short arm that it launched one by one
        self.busy_s = 0.0
        self.since: float | None = None
        self.faults = self.misses = 0
        self.parts: defaultdict[str, float] = defaultdict(float)
        self.heats: list[dict[str, Any]] = []
        self.worker: dict[str, Any] = {}
        self.asked: list[tuple[str, str]] = []  # task and source of every call
        self._alone = threading.Lock()

    def warm(self) -> None:
        pass

    def run(self, task: str, payload: dict[str, Any], jobs: Any, seconds: float) -> Reply:
        if not self._alone.acquire(blocking=False):
            raise AssertionError("two candidates on one device")
        began = time.monotonic()
        self.since = self.since or began
        source = (payload.get("arm") or payload["arms"][0])["source"]
        self.asked.append((task, source))
        try:
            time.sleep(self._look_s if task != "race" else self._block_s * len(payload["order"]) * len(jobs) / 32)
            if self._trouble is not None and (failure := self._trouble(source, task)) is not None:
                self.faults += isinstance(failure, WorkerFailure)
                raise failure
            checks = payload.get("checks", payload["jobs"] if task == "verify" else ())
            timed = payload["timed"] if task == "screen" else payload["jobs"] if task == "race" else ()
            answers = [self._timed(task, payload, job) for job in timed]
            if task == "screen" and _hopeless(answers[: payload["few"]], payload):
                answers = answers[: payload["few"]]
            return Reply({"rows": [self._row(job) for job in checks], "timed": answers}, (), 0.0)
        finally:
            self.parts[task] += time.monotonic() - began
            self.busy_s += time.monotonic() - began
            self._alone.release()

    def _timed(self, task: str, payload: dict[str, Any], job: Any) -> dict[str, Any]:
        samples = []
        for letter in payload["order"] if task == "race" else "A":
            place = "AB".index(letter)
            source = (payload["arms"][place] if task == "race" else payload["arm"])["source"]
            seconds = self._speed(source, job) * math.exp(self._rng.gauss(0, self._noise))
            samples.append({"arm": place, "seconds": seconds, "calls": 10, "wall_s": seconds, "sm_mhz": 1500})
        told = {"graphs": not self.bound, "launch_bound": self.bound, "mutated": []}
        return {"samples": samples, **told, "figures": [{"output": 0, **_RIGHT}]}

    def _row(self, job: Any) -> dict[str, Any]:
        outputs = [
            {
                **{key: t[key] for key in ("name", "dtype", "shape")},
                "contiguous": True,
                "alias": None,
                "unwritten": 0,
                "figures": [{"slice": {}, **_RIGHT}],
            }
            for t in job["outputs"]
        ]
        return {"outputs": outputs, "count": len(outputs), "mutated": [], "strayed": [], "repeatable": True}

    @property
    def share(self) -> float:
        return 0.0 if self.since is None else min(1.0, self.busy_s / max(1e-9, time.monotonic() - self.since))

    def close(self) -> None:
        pass


def _hopeless(answers: list[dict[str, Any]], payload: dict[str, Any]) -> bool:
    limits = [payload["hopeless"].get(job["workload"], math.inf) for job in payload["timed"]]
    return all(a["samples"][0]["seconds"] > limit for a, limit in zip(answers, limits, strict=False))


def _hashed(source: str, job: Any) -> float:
    """Attention at 550 TFLOP/s and less."""
    sizes = job["sizes"]
    flops = 4.0 * sizes["b"] * sizes["h"] * sizes["m"] * sizes["n"] * sizes["d"]
    best = flops * (0.5 if job["params"].get("causal") else 1.0) / 550e12
    return best * math.exp(abs(random.Random(hashlib.sha256(source.encode()).digest()).gauss(0, 0.2)))
