"""What the judge found out about one candidate, as far as the next edit can use it: shares of time, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluators.evaluation import Evaluation

# Whole times that run beside those of the SM, and what comes on top: a share each of the time, not of a sum.
_BESIDE = ("L2 bandwidth", "HBM bandwidth")


@dataclass(frozen=True)
class Evidence:
    """shares: cause -> its part of the time, 0 to 1, mean over the workloads; empty where the evaluator tells none.

    bottleneck: the largest of them, or what the evaluator calls the limiter; "" where nothing is known.
    occupancy_limit: "registers", "shared memory", ... or "".
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    bottleneck: str = ""
    registers: int = 0
    spills: int = 0
    occupancy_blocks: int = 0
    occupancy_limit: str = ""

    def share(self, causes: tuple[str, ...]) -> float:
        """How much of the time these causes take; a guess of 0.1 where nothing is known."""
        if not self.shares:
            return 0.1
        return min(1.0, sum(self.shares.get(c, 0.0) for c in causes))


def evidence(evaluation: Evaluation) -> Evidence:
    """Reads the compile gate's kernels and the workloads' parts; takes what is there of a user's own evaluator."""
    kernels = _kernels(evaluation)
    widest = max(kernels, key=lambda k: int(k.get("registers", 0)), default={})
    shares = _shares(evaluation)
    limiters = [w.limiter for w in evaluation.workloads if w.limiter]
    bottleneck = max(shares, key=lambda c: shares[c]) if shares else max(limiters, key=limiters.count, default="")
    return Evidence(
        shares=shares,
        bottleneck=bottleneck,
        registers=int(widest.get("registers", 0)),
        spills=max((int(k.get("spills", 0)) for k in kernels), default=0),
        occupancy_blocks=int(widest.get("occupancy_blocks", 0)),
        occupancy_limit=str(widest.get("occupancy_limit", "")),
    )


def _kernels(evaluation: Evaluation) -> list[Mapping[str, Any]]:
    gate = evaluation.gate("compile")
    found = gate.evidence.get("kernels", []) if gate is not None else []
    return [k for k in found if isinstance(k, dict)] if isinstance(found, list) else []


def _shares(evaluation: Evaluation) -> dict[str, float]:
    total: dict[str, float] = {}
    count = 0
    for w in evaluation.workloads:
        parts = w.detail.get("parts")
        time = w.measured_s or w.predicted_s
        if not isinstance(parts, dict) or not parts or not time:
            continue
        count += 1
        inside = {c: float(t) for c, t in parts.items() if c not in _BESIDE}
        whole = sum(inside.values()) or 1.0
        for cause, t in inside.items():
            total[cause] = total.get(cause, 0.0) + t / whole
        for cause in _BESIDE:
            if cause in parts:
                # bandwidth matters where it is nearly the whole time, and not before
                total[cause] = total.get(cause, 0.0) + min(1.0, float(parts[cause]) / time) ** 4
    return {c: t / count for c, t in total.items()} if count else {}
