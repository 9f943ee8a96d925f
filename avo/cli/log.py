"""`avo log [RUN]`: the runs of an archive, or the candidates of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from archive.archive import Archive
    from archive.records import Candidate, Run


def log(
    run: Annotated[int | None, typer.Argument(help="List the candidates of this run.", metavar="[RUN]")] = None,
    archive: ArchiveOption = None,
    last: Annotated[int, typer.Option("--last", "-n", help="At most so many: the newest, or the best.", min=1)] = 50,
    best: Annotated[bool, typer.Option("--best", help="The best scores first, instead of by number.")] = False,
    status: Annotated[
        str | None, typer.Option("--status", help="Only these: ok, incorrect, ..., pending.", metavar="STATUS")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only what this agent proposed.", metavar="NAME")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs and how each stands, or the candidates of one run with their verdicts.

    Example: avo log 1 --best -n 5
    """
    from avo.cli.console import say, show_json, table, tame
    from avo.cli.options import reading
    from avo.errors import UserMistake

    wanted = _wanted(status)
    if run is None and (best or status is not None or agent is not None):
        raise UserMistake("--best, --status and --agent choose among the candidates of a run: avo log RUN --best")
    with reading(archive) as store:
        if run is None:
            entries = [_run(store, r) for r in store.runs()[-last:]]
            if as_json:
                show_json(entries)
            elif not entries:
                say(f"{store.where} holds no run yet; `avo evolve` makes one")
            else:
                rows = [
                    [
                        str(e["run"]),
                        e["target"],
                        e["hardware"],
                        e["standing"],
                        str(e["candidates"]),
                        str(e["accepted"]),
                        _best(e),
                    ]
                    for e in entries
                ]
                say(table(["run", "target", "chip", "state", "candidates", "ok", "best"], rows, right=(0, 4, 5)))
            return
        store.run(run)  # says so where there is no such run
        sort: Any = "-k"
        if best:
            top = store.best(run)
            sort = top.mode if top is not None else "predicted"
        found = store.candidates(run, sort=sort, limit=last, text=False, agent=agent, **wanted)
        if not best:
            found = found[::-1]
        if as_json:
            show_json([summary(c) for c in found])
            return
        rows = []
        for c in found:
            verdict = f"{c.value:.4g} {c.mode}" if c.value else tame(c.message)
            parents = ",".join(map(str, c.parents)) or "-"
            rows.append([str(c.k), c.digest[:8], parents, str(c.status or "pending"), verdict])
        say(table(["k", "digest", "from", "status", "score, or why not"], rows, right=(0,)))


def _wanted(status: str | None) -> dict[str, Any]:
    """What `--status` asks of the archive. Raises UserMistake for a word that is no status."""
    from avo.errors import UserMistake, unknown
    from evaluators.evaluation import Status

    if status is None:
        return {}
    if status == "pending":
        return {"pending": True}
    known = [s.value for s in Status]
    if status not in known:
        raise UserMistake(unknown("status", status, [*known, "pending"]))
    return {"status": Status(status)}


def _run(store: Archive, run: Run) -> dict[str, Any]:
    counts = store.counts(run.id)
    best = store.best(run.id)
    return {
        "run": run.id,
        "target": run.target,
        "hardware": run.hardware,
        "agent": run.agent,
        "seed": run.seed,
        "jobs": run.jobs,
        "state": run.state,
        "ended": run.ended,
        "standing": run.standing,
        "created": run.created_at.isoformat(timespec="seconds"),
        "candidates": sum(counts.values()),
        "accepted": counts.get("ok", 0),
        "statuses": counts,
        "best": summary(best) if best else None,
    }


def _best(entry: dict[str, Any]) -> str:
    best = entry["best"]
    if best is None:
        return "-"
    value = best["score"][best["mode"]]
    return f"{value:.4g} {best['mode']} ({best['digest'][:8]})"


def summary(c: Candidate) -> dict[str, Any]:
    """A candidate in JSON, without its texts and evidence. `parents` are numbers of proposals in the same run."""
    score = {"measured": c.score.measured, "predicted": c.score.predicted, "headroom": c.score.headroom}
    return {
        "run": c.run,
        "k": c.k,
        "digest": c.digest,
        "parents": list(c.parents),
        "agent": c.agent,
        "status": str(c.status) if c.status else None,
        "mode": c.mode,
        "failed_gate": c.failed_gate,
        "message": c.message,
        "score": score,
        "reused": c.reused,
        "rationale": c.rationale,
    }
