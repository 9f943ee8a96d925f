"""When little is left to gain: the practical ceiling of a chip, and what a rule for stopping would have saved.

The datasheet's floor is there to refuse what cannot be; no kernel reaches it. How near one can come was measured on the
chips named here, and elsewhere the floor itself stands in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from archive.archive import Archive
    from evaluators.evaluation import Evaluation

EPSILON = 0.25  # of the practical ceiling's time
WINDOW = 16  # proposals without a gain

# Chip -> pipe -> what a sustained kernel reaches of the peak in `dsl.hardware`: cuBLAS bf16, 8192 cubed, hot (679 of
# 989 TFLOP/s), and a copy (4.3 of 4.8 TB/s, read plus written); one H200, torch 2.11, triton 3.6.0, November 2026.
REACHED: Mapping[str, Mapping[str, float]] = {"h200": {"matrix": 679 / 989.5, "memory": 4.3 / 4.8}}


def ceiling(evaluation: Evaluation, hardware: str) -> float | None:
    """The time over that of the practical ceiling, geometric mean over the workloads; 1 is as fast as has been seen.

    None where there is no time or no floor. On a chip without a figure it is the time over the datasheet's floor.
    """
    reached = REACHED.get(hardware, {})
    logs = []
    for w in evaluation.workloads:
        time = w.measured_s if evaluation.mode == "measured" else w.predicted_s
        if not time or not w.floor_s or w.floor_s <= 0:
            return None
        share = reached.get(w.bottleneck.split(" ", 1)[0], 1.0)
        logs.append(math.log(time * share / w.floor_s))
    return math.exp(sum(logs) / len(logs)) if logs else None


@dataclass(frozen=True)
class Saved:
    """What a rule keeps and saves on one finished run. stopped: proposals made before it stops, `whole` were made.

    retention: the best score then over the run's best. Shares are of what the run spent; None where that is nothing or
    unknown. gain: retention over the share of tokens (of proposals, where no model was asked) that is spent, as in
    arXiv 2603.29010.
    """

    run: int
    whole: int
    stopped: int
    reason: str
    retention: float
    tokens: float | None
    usd: float | None
    device: float | None

    @property
    def steps(self) -> float:
        return 1 - self.stopped / self.whole if self.whole else 0.0

    @property
    def gain(self) -> float:
        saved = self.tokens if self.tokens is not None else self.steps
        return self.retention / (1 - saved) if saved < 1 else math.inf


def replay_budget(store: Archive, run: int, epsilon: float | None, window: int | None) -> Saved:
    """Walks a finished run again under a rule, from its verdicts alone. Raises UserMistake for one without verdicts."""
    from archive.records import Spend
    from avo.budget import Budget
    from avo.errors import UserMistake
    from avo.history import History

    record = store.run(run)
    history = History.of(store, run, whole=True)
    last = len(history) - 1
    if last < 1 or not history.best().value:
        raise UserMistake(f"run {run} has no proposal with a score to replay")
    rule = Budget(epsilon=epsilon, window=window, hardware=record.hardware)
    stopped, reason = last, ""
    for k in range(1, last + 1):
        found = rule.reached(k, max(0, k - record.jobs), history, 0.0, Spend())
        if found is not None:
            stopped, reason = k - 1, found
            break
    spent = store.spend_by(run, "k")
    before = [s for k, s in spent.items() if k is None or k <= stopped]

    def saved(value: str) -> float | None:
        every = [getattr(s, value) for s in spent.values()]
        if any(v is None for v in every) or not sum(every):
            return None
        return 1 - sum(getattr(s, value) for s in before) / sum(every)

    return Saved(
        run=run,
        whole=last,
        stopped=stopped,
        reason=reason,
        retention=history.best(stopped).value / history.best().value,
        tokens=saved("tokens"),
        usd=saved("usd"),
        device=saved("device_s"),
    )


def mean_retention(found: Sequence[Saved]) -> float:
    """Geometric mean over runs; 0 where a rule stopped one before anything had a score."""
    if any(s.retention <= 0 for s in found):
        return 0.0
    return math.exp(sum(math.log(s.retention) for s in found) / len(found))
