"""`avo tell FILE`: judges an answer to `avo ask` and records it in the run as its next proposal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from avo.outside import Told


def tell(
    file: Annotated[str, typer.Argument(help="The answer; - reads standard input.", metavar="FILE")],
    run: Annotated[
        int | None, typer.Option(help="The run to propose in. [default: the newest]", metavar="RUN", min=1)
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help="The candidate that was changed. [default: the best]", metavar="DIGEST")
    ] = None,
    why: Annotated[str, typer.Option(help="What should get faster and why.", metavar="TEXT")] = "",
    expect: Annotated[
        float | None, typer.Option(help="The score hoped for, over the parent's: 1.1.", metavar="RATIO", min=1e-6)
    ] = None,
    by: Annotated[str, typer.Option(help="Who proposes, as it is recorded.", metavar="NAME")] = "outside",
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge an answer to `avo ask` and record it with its verdict. 0 accepted, 1 rejected.

    The answer is a whole program, a whole schedule, a unified diff or directive lines; plain, in a fence, or in prose.

    Example: avo tell answer.md --why "larger tiles read k and v less often" --expect 1.1
    """
    from avo import outside
    from avo.agents.answer import Unreadable, read_answer, remarks
    from avo.cli.ask import existing
    from avo.cli.console import say, show_json
    from avo.errors import UserMistake
    from avo.files import read_text
    from avo.launch import prepare, stored
    from evaluators.evaluation import Status

    text = read_text(file)
    if not by.strip() or len(by) > 60 or not by.isprintable():
        raise UserMistake("--by is the name of who proposes: 1 to 60 printable characters")
    with existing(archive) as store:
        record = store.run(run)
        brief = outside.brief_of(store, record)
        named = parent or remarks(text).parent
        if named:
            brief = outside.started_from(brief, named)
        try:
            answer = read_answer(text, brief.parent.text, brief.language)
        except Unreadable as error:
            raise UserMistake(f"{file}: {error}. Nothing was recorded") from None
        proposal = outside.proposal_of(answer, brief.parent, why, expect)
        parts = prepare(stored(store, record.id), agent=outside.OutsideAgent())
        try:
            found = outside.tell(store, parts, record.id, proposal, by)
        finally:
            parts.evaluator.close()
    if as_json:
        show_json({"run": record.id, "form": answer.form, **_facts(found)})
    else:
        say("\n".join(_lines(found, record.id)))
    if found.judged.status is not Status.OK:
        raise typer.Exit(1)


def _facts(found: Told) -> dict[str, object]:
    c = found.judged
    comparison = vars(found.comparison) if found.comparison is not None else None
    return {
        "k": c.k,
        "digest": c.digest,
        "parents": list(c.parents),
        "committed": c.committed,
        "known": found.known,
        "best": {"k": found.best.k, "digest": found.best.digest, "score": found.best.value or None},
        "over_lineage": comparison,
        "expected": c.hypothesis.expected_gain if c.hypothesis else None,
        "text": c.text,
        "score": c.score.model_dump(mode="json"),
        "evaluation": c.evaluation.model_dump(mode="json"),
    }


def _lines(found: Told, run: int) -> list[str]:
    from avo.cli.console import tame
    from avo.cli.show import verdict

    c = found.judged
    lines = [f"proposal {c.k} of run {run}: {c.digest}", *verdict(c.evaluation)]
    for gate in c.evaluation.gates:
        if not gate.passed and isinstance(text := gate.evidence.get("text"), str):
            lines += ["", tame(text)]  # every complaint with its line, what is legal and the nearest fix
    lines.append("")
    if found.known:
        lines.append("this program was judged before; its verdict holds")
    elif found.comparison is not None:
        lines.append(
            f"{found.comparison.verdict}: {1 / found.comparison.ratio:.3f}x the speed of the best it came from"
            + (f" (expected {c.hypothesis.expected_gain:.2f}x)" if c.hypothesis and c.hypothesis.expected_gain else "")
        )
    lines.append("it is the best of the run" if found.best.digest == c.digest else _best(found))
    return lines


def _best(found: Told) -> str:
    unit = found.best.evaluation.unit
    return f"the best is still proposal {found.best.k}, {found.best.digest[:8]}: {found.best.value:.5g} {unit}"
