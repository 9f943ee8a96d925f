"""`avo tree [RUN]`: the lineage of a run, drawn in text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from avo.report.model import Candidate, ReportModel


def tree(
    run: Annotated[int | None, typer.Argument(help="The run; the newest if left out.", metavar="[RUN]")] = None,
    archive: ArchiveOption = None,
    committed: Annotated[bool, typer.Option("--committed", help="Only what was committed.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also of a run of thousands, where a page would count the rest.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw who descends from whom, failures too; a star is a commit, >> the best.

    Example: avo tree 1 --committed
    """
    from avo.cli.console import say, show_json
    from avo.cli.options import reading
    from avo.report.build import build_model
    from avo.report.keeping import FULL

    with reading(archive) as store:
        model = build_model(store, run, None if everything else FULL)
    shown = [c for c in model.candidates if c.committed or not committed]
    if as_json:
        rest = {} if committed else dict(model.omitted)
        show_json({"run": model.run.id, "kind": model.kind, "candidates": _listed(model, shown), "omitted": rest})
        return
    say("\n".join(_lines(model, shown)))
    if model.above and not committed:
        counted = ", ".join(f"{n} {name}" for name, n in model.omitted.items())
        say(f"\nand {len(model.above)} more ({counted}): `avo tree {model.run.id} --all` draws them")


def _parents(model: ReportModel, shown: list[Candidate]) -> dict[int, int | None]:
    """k -> the nearest ancestor, by first parents, that is shown."""
    above = {**model.above, **{c.k: next(iter(c.parents), None) for c in model.candidates}}
    among = {c.k for c in shown}
    found = {}
    for k in sorted(among):
        at = above[k]
        while at is not None and at not in among:
            at = above.get(at)
        found[k] = at
    return found


def _children(model: ReportModel, shown: list[Candidate]) -> dict[int | None, list[Candidate]]:
    found: dict[int | None, list[Candidate]] = {}
    parents = _parents(model, shown)
    for c in shown:
        found.setdefault(parents[c.k], []).append(c)
    return found


def _lines(model: ReportModel, shown: list[Candidate]) -> list[str]:
    """What leads to the best stands in one column on the left; what branches off it is drawn to the right."""
    from avo.cli.console import cut, tame, width
    from avo.report.derive import ancestors

    best, children = model.best(model.kind), _children(model, shown)
    won = ancestors(model.candidates, best.k if best is not None else None)
    lines: list[str] = []
    # By hand and not by recursion: a lineage of a thousand steps is deeper than Python's stack.
    waiting = [(c, "", "") for c in reversed(children.get(None, []))]
    while waiting:
        c, lead, later = waiting.pop()
        lines.append(cut(tame(f"{lead}{_said(c, model, best)}").replace("\n", " "), width()).rstrip())
        below = children.get(c.k, [])
        if not below:
            continue
        main = next((b for b in below if b.k in won), below[-1])
        waiting.append((main, later, later))
        waiting += [(b, later + "|- ", later + "|  ") for b in reversed(below) if b is not main]
    return lines


def _said(c: Candidate, model: ReportModel, best: Candidate | None) -> str:
    score = getattr(c.score, model.kind)
    good = c.outcome in ("committed", "passed")
    mark = ">>" if best is not None and c.k == best.k else "* " if c.committed else "- "
    why = c.change if good or c.outcome == "repeat" else c.message.split("\n")[0] or c.change
    return f"{mark}{c.k} {c.id} {f'{score:.4g}' if score and good else c.outcome}  {why}"


def _listed(model: ReportModel, shown: list[Candidate]) -> list[dict[str, Any]]:
    parents = _parents(model, shown)
    return [
        {
            "k": c.k,
            "parent": parents[c.k],
            "parents": list(c.parents),
            "digest": c.digest,
            "outcome": c.outcome,
            "committed": c.committed,
            "score": getattr(c.score, model.kind),
            "change": c.change,
        }
        for c in shown
    ]
