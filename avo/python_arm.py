"""Runs whose candidates are raw Python: what they begin with, who judges them, and who may propose.

A file that anybody may write is trusted less than a program of the language, so it is judged in a sandbox and by its
behaviour (`evaluators.integrity.raw`), and a verdict from a weak sandbox promotes nothing.
"""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING, Any

from avo.errors import UserMistake

if TYPE_CHECKING:
    from avo.config import RunConfig
    from dsl.hardware import Hardware
    from evaluators.integrity.raw import RawEvaluator
    from evaluators.integrity.sandbox import Level
    from evaluators.target import Target

EDITORS = ("heuristic", "random", "mantis")  # agents that edit programs of the language
_ENTRY = "\n\ndef run(*inputs, **params):\n    return {entry}(*inputs, **params)\n"


def begun(config: RunConfig, target: Target, chip: Hardware) -> Target:
    """The target with the file that the run begins with: `--program`, or what the target's seed lowers to on the chip.

    Raises UserMistake for a program that is no Python file with a function `run`.
    """
    if config.language != "python":
        return target
    if config.program is None:
        return dataclasses.replace(target, start=lowered(target, chip))
    from avo.files import read_text

    text = read_text(config.program)
    if problem := trouble(text):
        raise UserMistake(f"{config.program}: {problem}")
    return dataclasses.replace(target, start=text)


def lowered(target: Target, chip: Hardware) -> str:
    """The Triton of the target's seed program, with the entry that raw candidates have."""
    from dsl.lowering import lower
    from evaluators.inputs import extents
    from evaluators.loading import seed_program

    program = seed_program(target)
    every = [extents(program.algorithm, w) for w in (*target.workloads, *target.hidden, *target.checks)]
    exact = {axis: n for axis, n in every[0].items() if all(sizes[axis] & (sizes[axis] - 1) == 0 for sizes in every)}
    found = lower(program, chip, exact)
    return found.source.rstrip("\n") + _ENTRY.format(entry=found.entry)


def trouble(text: str) -> str:
    """Why this is no raw candidate; "" where it may be one. Runs nothing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        return f"it is no Python: {f'line {line}: ' if line else ''}{getattr(error, 'msg', error)}"
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    names |= {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    names |= {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    return "" if "run" in names else "it has no function `run(*inputs, **params)` at its top level"


def judge(chip: Hardware, accept: Level, jobs: int = 1, *, device: bool | None = None, **options: Any) -> RawEvaluator:
    """The judge of raw Python: on the device where the chip is here (or `device` says that it is), else on the CPU,
    without a time.

    Nobody knows its inputs: their seed is drawn anew, and never the run's.
    """
    from avo import choosing
    from evaluators.integrity.raw import RawEvaluator

    if choosing.judge("local", chip) == "measured" if device is None else device:
        from evaluators.integrity.raw_device import RawDeviceEvaluator

        return RawDeviceEvaluator(chip, jobs, accept=accept, **options)
    return RawEvaluator(jobs, accept=accept, **options)


def insist_agent(name: str) -> None:
    """Raises UserMistake for a built-in agent that cannot write Python."""
    if name in EDITORS:
        raise UserMistake(
            f"the agent {name} edits programs of the language; with --language python a model proposes "
            "(--agent avo --model NAME), or whoever answers `avo ask`"
        )
