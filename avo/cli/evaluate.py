"""`avo eval FILE --target T --hw X`: judge one program as a run does, without storing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import JsonOption, WorkloadOption

if TYPE_CHECKING:
    from dsl.hardware import Hardware
    from evaluators.evaluation import Evaluation
    from evaluators.protocol import Evaluator


def evaluate(
    file: Annotated[str, typer.Argument(help="The program; - reads standard input.", metavar="FILE")],
    target: Annotated[
        str | None,
        typer.Option(help="The job: a name, module:NAME or a file. [default: attention]", metavar="TARGET"),
    ] = None,
    hw: Annotated[
        str, typer.Option(help="The chip; auto: the one that is here; cpu judges correctness alone.", metavar="CHIP")
    ] = "b200",
    workload: WorkloadOption = None,
    evaluator: Annotated[
        str, typer.Option(help="Another judge: a name, module:Class or file.py.", metavar="EVALUATOR")
    ] = "local",
    accept_sandbox: Annotated[
        str,
        typer.Option(
            "--accept-sandbox",
            help="For a .py FILE: full, namespaces or process, the weakest that counts.",
            metavar="LEVEL",
        ),
    ] = "full",
    as_json: JsonOption = False,
) -> None:
    """Judge one program: every gate with its evidence, and the time of each workload. 0 accepted, 1 rejected.

    A FILE.py is raw Python with `def run(*inputs, **params)`. It runs in a sandbox; its correctness is
    judged, and its time where the chip is here.

    Example: avo eval attention.avo --target attention --hw b200
    """
    from avo import choosing, plugins
    from avo.cli.console import say, show_json, warn
    from avo.cli.show import verdict
    from avo.files import read_text
    from avo.plugin_answers import evaluation_of
    from avo.workloads import job
    from evaluators.evaluation import Status, score

    text = read_text(file)
    chip = choosing.chip(hw)
    if target is None:
        target = "attention"
        warn(f"judged as {target}, for no --target was named; avo targets lists them")
    found = job(target, workload or [], run=True)
    judge: Evaluator
    if file.endswith(".py") and evaluator == "local":
        judge = _raw(chip, accept_sandbox)
    else:
        choosing.insist_here(evaluator, chip, "--evaluator predicted predicts its times")
        judge = plugins.create("evaluator", choosing.judge(evaluator, chip), {"jobs": 1, "hardware": chip})
    try:
        evaluation = evaluation_of(judge, judge.evaluate(text, found, chip))
    finally:
        judge.close()
    if as_json:
        show_json({**evaluation.model_dump(mode="json"), "score": score(evaluation).model_dump(mode="json")})
    else:
        say("\n".join(verdict(evaluation)))
        if "sandbox" in evaluation.environment:
            say(_sandboxed(evaluation))
    if evaluation.status is Status.UNAVAILABLE:
        raise typer.Exit(3)
    if evaluation.status is not Status.OK:
        raise typer.Exit(1)


def _sandboxed(evaluation: Evaluation) -> str:
    regime = evaluation.environment.get("regime")
    how = f"timed as {regime['name']}: {regime['calls']}" if regime else "judged for correctness alone"
    return f"sandbox: {evaluation.environment['sandbox']['level']}; raw Python, {how}"


def _raw(chip: Hardware, accepted: str) -> Evaluator:
    """The judge of raw Python. Raises UserMistake for an unknown level of the sandbox."""
    from avo import python_arm
    from avo.errors import UserMistake, unknown
    from evaluators.integrity.sandbox import LEVELS

    for level in LEVELS:
        if level == accepted:
            return python_arm.judge(chip, level)
    raise UserMistake(unknown("sandbox level", accepted, LEVELS))
