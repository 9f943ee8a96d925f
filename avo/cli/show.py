"""`avo show ID`: a candidate with its program, its verdict and the evidence of every gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from archive.records import Candidate
    from evaluators.evaluation import Evaluation


_LINEAGE = 20  # ancestors that are named; --json has all


def show(
    id: Annotated[str, typer.Argument(help="The start of a digest, or RUN/K: 1/17, 1/best.", metavar="ID")],
    archive: ArchiveOption = None,
    program: Annotated[bool, typer.Option("--program", help="Print the program alone.")] = False,
    triton: Annotated[bool, typer.Option("--triton", help="Print the emitted Triton alone.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a candidate: program, verdict, score, time per workload, evidence of every gate.

    Example: avo show 1/17 --program > best.avo
    """
    from avo.cli.console import say, show_json, verbatim
    from avo.cli.log import summary
    from avo.cli.options import reading
    from avo.errors import UserMistake

    if program + triton + as_json > 1:
        raise UserMistake("--program, --triton and --json are answers of their own; ask for one")
    with reading(archive) as store:
        found = store.candidate(id)
        evaluation = store.evaluation(found)
        again = store.promotions(found.run).get(found.digest)
        lineage = [c.k for c in store.lineage(found.run, found.k)]
    if program:
        say(verbatim(found.text.rstrip("\n")))
    elif triton:
        if evaluation is None or not evaluation.source:
            raise UserMistake(f"candidate {found.digest[:8]} has no Triton: it was {found.status or 'never judged'}")
        say(verbatim(evaluation.source.rstrip("\n")))
    elif as_json:
        detail = evaluation.model_dump(mode="json") if evaluation else None
        more = {"promotion": again.model_dump(mode="json")} if again else {}
        show_json({**summary(found), "lineage": lineage, "text": found.text, "evaluation": detail, **more})
    else:
        say(_page(found, evaluation, lineage, again))


def _page(found: Candidate, evaluation: Evaluation | None, lineage: list[int], again: Evaluation | None) -> str:
    from avo.cli.console import folded, tame, width

    parts = folded(f"candidate {found.digest}  (run {found.run}, proposal {found.k}, by {tame(found.agent)})", width())
    if len(lineage) > 1:
        names = [str(k) for k in lineage]
        if len(names) > _LINEAGE:
            names[_LINEAGE // 2 : -_LINEAGE // 2] = [f"({len(names) - _LINEAGE} more)"]
        parts += folded("lineage: " + " -> ".join(names), width())
    if found.rationale:
        parts += folded("why: " + tame(found.rationale), width())
    if found.prompts:
        parts.append("prompts: " + tame(found.prompts))
    parts.append("")
    parts += ["not judged yet"] if evaluation is None else verdict(evaluation)
    parts += ["", *promotion(again)] if again is not None else []
    parts += ["", "program", "", tame(found.text.rstrip())]
    return "\n".join(parts)


def verdict(evaluation: Evaluation, gates: bool = True) -> list[str]:
    """Status, score, a line per gate and a table per workload, as `show` and `eval` print them."""
    from avo.cli.console import table, tame
    from avo.cli.evidence import line
    from evaluators.evaluation import score

    lines = [f"status: {evaluation.status}" + (f": {tame(evaluation.message)}" if evaluation.message else "")]
    decided = evaluation.environment.get("review")
    if isinstance(decided, dict):
        was = f"{tame(str(decided.get('by')))} decided, it was {decided.get('was')}: {tame(str(decided.get('reason')))}"
        lines.append(f"reviewed: {was}")
    found = score(evaluation)
    value = found.measured if evaluation.mode == "measured" else found.predicted
    if value:
        room = f", {found.headroom:.2f}x the speed of light's time" if found.headroom else ""
        lines.append(f"score: {value:.4g} {evaluation.unit} {evaluation.mode}{room}")
    if gates and evaluation.gates:
        rows = [
            [g.gate, "ok" if g.passed else "FAIL", tame(g.message or line(g.gate, g.evidence))]
            for g in evaluation.gates
        ]
        lines += ["", table(["gate", "", "evidence"], rows)]
    if evaluation.workloads and evaluation.mode != "none":
        lines += ["", *_times(evaluation)]
    return lines


def promotion(evaluation: Evaluation) -> list[str]:
    """What came of it when it was judged again as the run's best."""
    from avo.cli.console import table, tame
    from avo.report.derive import workload_infos
    from avo.report.promotion import cells, headline

    facts = {w.workload: (w.work, w.floor_s, w.bottleneck) for w in evaluation.workloads}
    infos, shared = workload_infos(list(facts), facts)
    heads, found = cells(evaluation, dict(zip(facts, (i.label for i in infos), strict=True)))
    lines = [tame(headline(evaluation))]
    if found:
        lines += ["", table(heads, found, right=(1, 2, 3)), "MHz and W: of this program / of the seed"]
        lines += [f"all with {shared}"] if shared else []
    return lines


def _times(evaluation: Evaluation) -> list[str]:
    """A line a workload, named by what differs among them; what all share stands below."""
    from avo.cli.console import duration, table
    from avo.report.derive import workload_infos

    scale = 1e-12 if evaluation.unit == "TFLOP/s" else 1e-9

    facts = {w.workload: (w.work, w.floor_s, w.bottleneck) for w in evaluation.workloads}
    infos, shared = workload_infos(list(facts), facts)
    rows = []
    for w, info in zip(evaluation.workloads, infos, strict=True):
        seconds = w.measured_s if evaluation.mode == "measured" else w.predicted_s
        speed = f"{w.work * scale / seconds:.4g}" if seconds else "-"
        time = duration(seconds) if seconds else "-"
        rows.append([info.label, time, speed, duration(w.floor_s), w.limiter])
    heads = ["workload", evaluation.mode, evaluation.unit, "floor", "limited by"]
    return [table(heads, rows, right=(1, 2, 3)), *([f"all with {shared}"] if shared else [])]
