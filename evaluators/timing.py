"""From raw samples to figures: the regime that they were taken in, paired ratios, intervals, the noise floor.

Sustained regime: the card is brought to its steady state first, then an arm runs at least 15 ms untimed and 30 ms timed
back to back, two arms alternate (ABBA), no sleeps, no clock changes, fresh inputs that take turns. A short burst after
a pause runs 5-10% faster on a card that its power limit holds, so no figure of one regime is ever compared with one of
another. Workers only sample; this is the parent's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from dsl.wording import counted

CLOCKS_DIFFER = 1.5  # the host's clock may show this much more than the device's before somebody has to look
CLOCKS_FROM_S = 5e-3  # of a segment; below it the host's own work shows


@dataclass(frozen=True)
class Regime:
    """How a figure was taken; stands beside every one that is published. rounds: ABBA blocks at most."""

    name: str = "sustained"
    untimed_s: float = 0.015
    timed_s: float = 0.030
    rounds: int = 12

    def facts(self) -> dict[str, Any]:
        return asdict(self)


SUSTAINED = Regime()
# For candidates among each other, on a card that is kept under load: half as long, so twice as many.
RACING = Regime("racing", untimed_s=0.005, timed_s=0.015, rounds=6)


class Sample(BaseModel):
    """One segment of one arm: seconds a call by the device's clock and by the host's, and the card's state in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: int
    seconds: float
    calls: int
    wall_s: float
    sm_mhz: int | None = None
    watts: float | None = None
    celsius: int | None = None
    throttles: tuple[str, ...] = ()


class State(BaseModel):
    """The card at a moment: SM clock, power, heat, and what held its clocks down; None where the driver is silent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sm_mhz: int | None = None
    watts: float | None = None
    celsius: int | None = None
    throttles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ratio:
    """A geometric mean with the interval that holds it with `confidence`."""

    value: float
    low: float
    high: float
    confidence: float = 0.95


def suspicious(samples: Sequence[Sample]) -> str | None:
    """Why these samples cannot be believed: not finite, or work that the device's events did not see."""
    for s in samples:
        if not (math.isfinite(s.seconds) and s.seconds > 0 and s.calls >= 1):
            return f"a segment of {counted(s.calls, 'call')} took {s.seconds!r} s a call"
        if s.wall_s * s.calls > CLOCKS_FROM_S and s.wall_s > CLOCKS_DIFFER * s.seconds:
            return (
                f"the host waited {s.wall_s:.3g} s a call where the device's clock saw {s.seconds:.3g} s: "
                "something ran outside of the timed stream, or the host could not keep up"
            )
    return None


def paired(samples: Sequence[Sample]) -> list[float]:
    """The log of time(A) / time(B) of each ABBA block: a drift of the clock within it cancels."""
    return rounds_paired(samples, 0, 1, 2)


def in_pairs(samples: Sequence[Sample]) -> list[float]:
    """The log of time(A) / time(B) of each AB or BA: the quickest answer that there is; a drift cancels over two."""
    found = []
    for i in range(0, len(samples) - 1, 2):
        logs = {s.arm: math.log(s.seconds) for s in samples[i : i + 2]}
        found.append(logs[0] - logs[1])
    return found


def palindrome(arms: int) -> list[int]:
    """One round of so many arms: ABBA of two, ABCCBA of three; a single arm has nobody to take turns with."""
    return [*range(arms), *reversed(range(arms))] if arms > 1 else [0]


def rounds_paired(samples: Sequence[Sample], one: int, other: int, arms: int) -> list[float]:
    """The log of time(one) / time(other) of each round of `palindrome(arms)`."""
    length = len(palindrome(arms))
    found = []
    for i in range(0, len(samples) - length + 1, length):
        logs: tuple[list[float], list[float]] = ([], [])
        for s in samples[i : i + length]:
            if s.arm in (one, other):
                logs[s.arm == other].append(math.log(s.seconds))
        found.append(sum(logs[0]) / len(logs[0]) - sum(logs[1]) / len(logs[1]))
    return found


def bootstrap(values: Sequence[float], seed: int, confidence: float = 0.95, draws: int = 2000) -> Ratio:
    """exp of the mean of logs, with the percentile interval of its bootstrap (Efron 1979); seeded, so repeatable."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError("an interval needs at least one value")
    rng = np.random.default_rng(seed)
    means = array[rng.integers(0, array.size, size=(draws, array.size))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Ratio(float(np.exp(array.mean())), float(np.exp(low)), float(np.exp(high)), confidence)


def median(samples: Sequence[Sample], arm: int = 0) -> float:
    """The middle of an arm's seconds a call."""
    return float(np.median([s.seconds for s in samples if s.arm == arm]))


def spread(values: Sequence[float]) -> float:
    """Standard deviation of logs around their own mean; 0 for fewer than two."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class NoiseFloor:
    """What a program against itself shows: `deviation` of one pair's log ratio over so many pairs, and its bias."""

    deviation: float
    bias: float
    pairs: int

    def facts(self) -> dict[str, float]:
        return {"deviation": float(f"{self.deviation:.3g}"), "bias": float(f"{self.bias:.3g}"), "pairs": self.pairs}


def noise_floor(pairs: Sequence[Sequence[float]]) -> NoiseFloor:
    """Pooled over workloads: each inner list is the log ratios of one workload's A/A pairs."""
    freedom = sum(max(0, len(b) - 1) for b in pairs)
    squares = sum(float(np.var(b, ddof=1)) * (len(b) - 1) for b in pairs if len(b) > 1)
    every = [v for b in pairs for v in b]
    deviation = math.sqrt(squares / freedom) if freedom else 0.0
    return NoiseFloor(deviation, float(np.mean(every)) if every else 0.0, len(every))


class Measurement(BaseModel):
    """Arms measured against each other in one regime: raw samples in the order that they were taken, and the figures.

    graphs: calls were launched from CUDA graphs. launch_bound: what to know of a short arm that was not. sets: of
    inputs that took turns. before, after: the card. heat: how it was brought to its steady state (None: it was not),
    with the TFLOP/s of the load.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: tuple[str, ...]
    samples: tuple[Sample, ...]
    regime: Regime
    graphs: bool = False
    launch_bound: str = ""
    sets: int = 1
    before: State = State()
    after: State = State()
    heat: dict[str, Any] | None = None

    def of(self, name: str) -> list[Sample]:
        place = self.names.index(name)
        return [s for s in self.samples if s.arm == place]

    def seconds(self, name: str) -> float:
        """The middle of an arm's seconds a call."""
        return median(self.samples, self.names.index(name))

    def ratio(self, name: str, over: str, seed: int = 0, confidence: float = 0.95) -> Ratio:
        """time(name) / time(over), paired by rounds, with the bootstrap's interval; below 1 is faster than `over`."""
        if name == over:
            return Ratio(1.0, 1.0, 1.0, confidence)
        places = self.names.index(name), self.names.index(over)
        return bootstrap(rounds_paired(self.samples, *places, len(self.names)), seed, confidence)

    def clocks(self, name: str) -> State:
        """The card while this arm ran: means of its segments."""
        return mean_state(self.of(name))

    @property
    def trouble(self) -> str | None:
        """Why these samples cannot be believed, if so."""
        return suspicious(self.samples)


def mean_state(samples: Sequence[Sample]) -> State:
    def mean(values: list[float]) -> float | None:
        return sum(values) / len(values) if values else None

    mhz = mean([s.sm_mhz for s in samples if s.sm_mhz is not None])
    watts = mean([s.watts for s in samples if s.watts is not None])
    celsius = mean([s.celsius for s in samples if s.celsius is not None])
    return State(
        sm_mhz=None if mhz is None else round(mhz),
        watts=None if watts is None else round(watts, 1),
        celsius=None if celsius is None else round(celsius),
        throttles=tuple(sorted({t for s in samples for t in s.throttles})),
    )
