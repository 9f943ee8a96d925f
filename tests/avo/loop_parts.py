"""A deterministic evaluator, agent and target for the loop's tests: real protocol, no compiler."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable

from avo.agents import Brief, Hypothesis, Proposal
from dsl.hardware import Hardware, hardware
from evaluators.evaluation import Evaluation, GateResult, Status, WorkloadResult
from evaluators.target import Target, Workload

ALGORITHM = "kernel rows\nin  x[b d] f32\nout y[b d] f32\ny = x * 2\n"
TARGET = Target(
    name="rows",
    reference=lambda x: x * 2,
    seed=ALGORITHM + "\nschedule\ntile b=1\n",
    workloads=(Workload({"b": 8, "d": 8}), Workload({"b": 16, "d": 8})),
    checks=(),
    tiny=(),
)
HW: Hardware = hardware("b200")


def program(b: int, warps: int) -> str:
    return f"{ALGORITHM}\nschedule\ntile b={b}\nwarps {warps}\n"


def noise(text: str, salt: str = "") -> float:
    """0 to 1, from the text alone."""
    return int.from_bytes(hashlib.sha256((salt + text).encode()).digest()[:4], "big") / 2**32


class HashEvaluator:
    """Status and times from a hash of the text: one in five programs is incorrect, one in eight does not compile.

    fault: what comes instead of a judgement, where it gives anything. pause_s: the longest judgement; how long each
    takes depends on the text, so that threads finish out of order.
    """

    def __init__(
        self,
        key: str | None = "hash",
        pause_s: float = 0.0,
        log: str | None = None,
        fault: Callable[[HashEvaluator, str], Evaluation | None] | None = None,
    ) -> None:
        self.key = key
        self.calls: Counter[str] = Counter()
        self.closed = False
        self.most_at_once = 0
        self._at_once = 0
        self._pause_s = pause_s
        self._log = log
        self._fault = fault
        self._lock = threading.Lock()

    def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        faulty = self._fault(self, text) if self._fault is not None else None
        if faulty is not None:
            return faulty
        with self._lock:
            self.calls[text] += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(self._pause_s * noise(text, "pause"))
        verdict = verdict_on(text, target)
        if self._log is not None:
            with open(self._log, "a") as file:
                file.write(hashlib.sha256(text.encode()).hexdigest() + "\n")
        with self._lock:
            self._at_once -= 1
        return verdict

    def close(self) -> None:
        self.closed = True


def verdict_on(text: str, target: Target) -> Evaluation:
    chance = noise(text)
    gates = [GateResult(gate="parse", passed=True, evidence={"inf": float("inf"), "pair": (1, 2)}, seconds=time.time())]
    if text != target.seed and chance < 0.125:
        gates.append(GateResult(gate="compile", passed=False, message="registers"))
        return Evaluation(status=Status.RESOURCE, mode="predicted", gates=tuple(gates), message="too many registers")
    if text != target.seed and chance < 0.325:
        gates.append(GateResult(gate="correctness", passed=False, evidence={"error": chance}))
        return Evaluation(status=Status.INCORRECT, mode="predicted", gates=tuple(gates), message="wrong by 1")
    seconds = 1e-3 * (0.5 + chance)
    return Evaluation(
        status=Status.OK,
        mode="predicted",
        gates=tuple(gates),
        workloads=tuple(
            WorkloadResult(
                workload=w.name, work=1e9, floor_s=2e-4, bottleneck="memory", predicted_s=seconds * n, limiter="latency"
            )
            for n, w in enumerate(target.workloads, 1)
        ),
        source=f"# emitted for\n# {text!r}\n",
        environment={"when": time.time()},
    )


class WalkAgent:
    """Changes one number of a program that it picks; every choice depends on the whole brief."""

    name = "walk"

    def __init__(self, pause_s: float = 0.0, spread: int = 24) -> None:
        self._pause_s = pause_s
        self._spread = spread

    def propose(self, brief: Brief) -> Proposal:
        time.sleep(self._pause_s * noise(str(brief.k), "propose"))
        rng = brief.rng()
        parent = brief.best if rng.random() < 0.6 else rng.choice(brief.candidates)
        # What was seen decides too: a resumed run that saw anything else would go another way.
        seen = hashlib.sha256(
            repr([(c.digest, c.status, c.value, c.committed, c.evaluation.message) for c in brief.candidates]).encode()
        ).digest()[0]
        text = program(b=1 + (rng.randrange(self._spread) + seen) % self._spread, warps=rng.choice((1, 2, 4, 8)))
        if rng.random() < 0.1:
            text = f"not a program {rng.randrange(3)}"
        second = brief.candidates[seen % len(brief.candidates)]
        return Proposal(
            text,
            parents=(parent.digest, second.digest),
            rationale=f"proposal {brief.k}",
            hypothesis=Hypothesis("it may be faster", 1.0 + rng.random(), "latency") if brief.k % 3 == 0 else None,
        )


class Watch:
    """An observer that keeps what it was told, and can act on it."""

    def __init__(self, act: Callable[[object], None] | None = None) -> None:
        self.events: list[object] = []
        self._act = act

    def __call__(self, event: object) -> None:
        self.events.append(event)
        if self._act is not None:
            self._act(event)

    def of(self, kind: type) -> list:
        return [e for e in self.events if isinstance(e, kind)]
