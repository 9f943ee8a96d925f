"""The public face: `from avo import Evaluator, Target, Workload, evolve, load`.

Names resolve on first use (PEP 562), so `import avo` is cheap and loads none of torch, triton, SQLAlchemy and Optuna.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, whose import is most of what `import avo` would take
if TYPE_CHECKING:
    from typing import Any

    from archive.errors import ArchiveError
    from avo.agents import Agent, Brief, Hypothesis, Judged, Proposal
    from avo.config import RunConfig
    from avo.errors import HarnessUnavailable, UserMistake
    from avo.importing import reference_of
    from avo.kernel import Kernel, load
    from avo.launch import evolve, resume
    from avo.run import Run, open_run
    from dsl.diagnostics import Diagnostic, ProgramError
    from dsl.hardware import HARDWARE, Hardware, hardware
    from dsl.knobs import Knob, knobs
    from dsl.parser import parse
    from dsl.syntax import Program
    from evaluators.evaluation import Evaluation, GateResult, Score, Status, WorkloadResult, score
    from evaluators.judge import LocalEvaluator
    from evaluators.protocol import Evaluator
    from evaluators.target import Target, TargetError, Workload, WorkloadSet

_PUBLIC = {
    "Agent": "avo.agents",
    "ArchiveError": "archive.errors",
    "Brief": "avo.agents",
    "Diagnostic": "dsl.diagnostics",
    "Evaluation": "evaluators.evaluation",
    "Evaluator": "evaluators.protocol",
    "GateResult": "evaluators.evaluation",
    "HARDWARE": "dsl.hardware",
    "Hardware": "dsl.hardware",
    "HarnessUnavailable": "avo.errors",
    "Kernel": "avo.kernel",
    "Hypothesis": "avo.agents",
    "Judged": "avo.agents",
    "Knob": "dsl.knobs",
    "LocalEvaluator": "evaluators.judge",
    "Program": "dsl.syntax",
    "ProgramError": "dsl.diagnostics",
    "Proposal": "avo.agents",
    "Run": "avo.run",
    "RunConfig": "avo.config",
    "Score": "evaluators.evaluation",
    "Status": "evaluators.evaluation",
    "Target": "evaluators.target",
    "TargetError": "evaluators.target",
    "UserMistake": "avo.errors",
    "Workload": "evaluators.target",
    "WorkloadResult": "evaluators.evaluation",
    "WorkloadSet": "evaluators.target",
    "evolve": "avo.launch",
    "hardware": "dsl.hardware",
    "knobs": "dsl.knobs",
    "load": "avo.kernel",
    "open_run": "avo.run",
    "parse": "dsl.parser",
    "reference_of": "avo.importing",
    "resume": "avo.launch",
    "score": "evaluators.evaluation",
}

__all__ = [
    "HARDWARE",
    "Agent",
    "ArchiveError",
    "Brief",
    "Diagnostic",
    "Evaluation",
    "Evaluator",
    "GateResult",
    "Hardware",
    "HarnessUnavailable",
    "Hypothesis",
    "Judged",
    "Kernel",
    "Knob",
    "LocalEvaluator",
    "Program",
    "ProgramError",
    "Proposal",
    "Run",
    "RunConfig",
    "Score",
    "Status",
    "Target",
    "TargetError",
    "UserMistake",
    "Workload",
    "WorkloadResult",
    "WorkloadSet",
    "__version__",
    "evolve",
    "hardware",
    "knobs",
    "load",
    "open_run",
    "parse",
    "reference_of",
    "resume",
    "score",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("avo-kernels")
        except PackageNotFoundError:  # run from a checkout that nobody installed
            return "0+unknown"
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'avo' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
