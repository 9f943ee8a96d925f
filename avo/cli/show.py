"""`avo show ID`: a candidate with its program, its verdict and the evidence of every gate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from archive.records import Candidate
    from evaluators.evaluation import Evaluation


def show(
    id: Annotated[str, typer.Argument(help="The start of a digest, or RUN/K such as 1/17.", metavar="ID")],
    archive: ArchiveOption = None,
    program: Annotated[bool, typer.Option("--program", help="Print the program alone.")] = False,
    triton: Annotated[bool, typer.Option("--triton", help="Print the emitted Triton alone.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a candidate: program, verdict, score, time per workload, evidence of every gate.

    Example: avo show 1/17 --program > best.avo
    """
    from avo.cli.console import say, show_json, tame
    from avo.cli.log import summary
    from avo.cli.options import reading
    from avo.errors import UserMistake

    if program and triton:
        raise UserMistake("--program and --triton are two answers; ask for one")
    with reading(archive) as store:
        found = store.candidate(id)
        evaluation = store.evaluation(found)
        lineage = [c.k for c in store.lineage(found.run, found.k)]
    if program:
        say(tame(found.text.rstrip("\n")))
    elif triton:
        if evaluation is None or not evaluation.source:
            raise UserMistake(f"candidate {found.digest[:8]} has no Triton: it was {found.status or 'never judged'}")
        say(tame(evaluation.source.rstrip("\n")))
    elif as_json:
        detail = evaluation.model_dump(mode="json") if evaluation else None
        show_json({**summary(found), "lineage": lineage, "text": found.text, "evaluation": detail})
    else:
        say(_page(found, evaluation, lineage))


def _page(found: Candidate, evaluation: Evaluation | None, lineage: list[int]) -> str:
    from avo.cli.console import tame

    parts = [f"candidate {found.digest}  (run {found.run}, proposal {found.k}, by {tame(found.agent)})"]
    if len(lineage) > 1:
        parts.append("lineage: " + " -> ".join(map(str, lineage)))
    if found.rationale:
        parts.append("why: " + tame(found.rationale))
    parts.append("")
    parts += ["not judged yet"] if evaluation is None else verdict(evaluation)
    parts += ["", "program", "", tame(found.text.rstrip())]
    return "\n".join(parts)


def verdict(evaluation: Evaluation, gates: bool = True) -> list[str]:
    """Status, score, a line per gate and a table per workload, as `show` and `eval` print them."""
    from avo.cli.console import duration, table, tame
    from evaluators.evaluation import score

    lines = [f"status: {evaluation.status}" + (f": {tame(evaluation.message)}" if evaluation.message else "")]
    found = score(evaluation)
    value = found.measured if evaluation.mode == "measured" else found.predicted
    if value:
        room = f", {found.headroom:.2f}x the speed of light's time" if found.headroom else ""
        lines.append(f"score: {value:.4g} {evaluation.unit} {evaluation.mode}{room}")
    if gates and evaluation.gates:
        rows = [[g.gate, "ok" if g.passed else "FAIL", _evidence(g.message, g.evidence)] for g in evaluation.gates]
        lines += ["", table(["gate", "", "evidence"], rows)]
    if evaluation.workloads and evaluation.mode != "none":
        rows = []
        for w in evaluation.workloads:
            seconds = w.measured_s if evaluation.mode == "measured" else w.predicted_s
            scale = 1e-12 if evaluation.unit == "TFLOP/s" else 1e-9
            speed = f"{w.work * scale / seconds:.4g}" if seconds else "-"
            rows.append(
                [duration(seconds) if seconds else "-", speed, duration(w.floor_s), w.bottleneck, w.limiter, w.workload]
            )
        lines += [
            "",
            table([evaluation.mode, evaluation.unit, "floor", "by", "limited by", "workload"], rows, right=(0, 1, 2)),
        ]
    return lines


def _evidence(message: str, evidence: dict[str, Any]) -> str:
    from avo.cli.console import tame

    if message:
        return tame(message)
    text = json.dumps(evidence, ensure_ascii=False)
    return tame(text if len(text) <= 200 else text[:197] + "...")
