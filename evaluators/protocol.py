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

    Two more methods are used where a class has them. `adopt(text, target, evaluation)`: the best program of a run that
    is taken up again, before anything is judged. `promote(text, target, hardware, versus=text)`: an Evaluation of the
    run's best on fresh inputs and on the hidden workloads, beside the seed program; OK means that it may be called so.

    An evaluator that measures may have a method `preview`, called like `evaluate`: a predicted verdict that takes no
    device, for an agent to choose by. It has to be the same for the same program.
    """

    def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation: ...

    def close(self) -> None: ...
