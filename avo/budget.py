"""What a run may use, what is left of it, and when it is enough."""

from __future__ import annotations

from dataclasses import dataclass

from archive.records import Spend
from avo.agents.protocol import Left
from avo.history import History
from avo.stopping import ceiling


@dataclass(frozen=True)
class Budget:
    """Limits over all sessions of a run; None: no such limit.

    steps: proposals after the seed. epsilon: stop when something better than the seed takes no more than (1 + epsilon)
    of the time at the practical ceiling of `hardware` (avo.stopping). window: stop after so many proposals without a
    gain. These three depend on verdicts alone, so a resumed run stops where an undisturbed one does; the others depend
    on clocks and prices. final: False where another session of the run follows at once, so that its winner is not
    measured again yet.
    """

    steps: int | None = None
    minutes: float | None = None
    usd: float | None = None
    tokens: int | None = None
    device_s: float | None = None
    epsilon: float | None = None
    window: int | None = None
    hardware: str = ""
    final: bool = True

    @property
    def priced(self) -> bool:
        """Whether the ledger has to be asked."""
        return self.usd is not None or self.tokens is not None or self.device_s is not None

    def left(self, k: int, wall_s: float, spend: Spend) -> Left:
        """What is left when proposal k is about to be made, itself included."""
        return Left(
            steps=None if self.steps is None else self.steps - k + 1,
            seconds=None if self.minutes is None else self.minutes * 60 - wall_s,
            usd=None if self.usd is None or spend.usd is None else self.usd - spend.usd,
            tokens=None if self.tokens is None else self.tokens - spend.tokens,
            device_s=None if self.device_s is None else self.device_s - spend.device_s,
        )

    def exceeded(self, spend: Spend) -> str | None:
        """Which limit this spend is above: "usd" or "tokens"; None where it is within both, or there is none."""
        if self.usd is not None and (spend.usd is None or spend.usd > self.usd):
            return "usd"
        return "tokens" if self.tokens is not None and spend.tokens > self.tokens else None

    def reached(self, k: int, seen: int, history: History, wall_s: float, spend: Spend) -> str | None:
        """Why proposal k, which sees the verdicts up to `seen`, is not made; None where it is."""
        left = self.left(k, wall_s, spend)
        limits = {
            "steps": left.steps,
            "minutes": left.seconds,
            "usd": left.usd,
            "tokens": left.tokens,
            "device": left.device_s,
        }
        for reason, rest in limits.items():
            if rest is not None and rest <= 0:
                return reason
        if self.usd is not None and spend.usd is None:
            return "usd"  # a price is unknown, so the limit cannot be kept
        best = history.best(seen)
        if self.epsilon is not None and best.k > 0:
            over = ceiling(best.evaluation, self.hardware)
            if over is not None and over <= 1 + self.epsilon:
                return "epsilon"
        if self.window is not None and history.stale(seen) >= self.window:
            return "window"
        return None
