"""The evaluator protocol: the seam that users plug their own class into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from evaluators.evaluation import Evaluation
    from evaluators.target import Target


@runtime_checkable
class Evaluator(Protocol):
    """program text + target + hardware -> Evaluation.

    `evaluate` never raises for a bad candidate: that is a status. It is called from several threads at once where the
    run has `--jobs` above 1. `close` is called once, at the end, also after Ctrl-C.
    """

    def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation: ...

    def close(self) -> None: ...
