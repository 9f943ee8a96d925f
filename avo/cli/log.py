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
    last: Annotated[int, typer.Option("--last", "-n", help="At most so many, the newest.", min=1)] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the runs and how each stands, or the candidates of one run with their verdicts.

    Example: avo log 1
    """
    from avo.cli.console import say, show_json, table, tame
    from avo.cli.options import reading

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
        found = store.candidates(run, sort="-k", limit=last, text=False)[::-1]
        if as_json:
            show_json([summary(c) for c in found])
            return
        rows = []
        for c in found:
            verdict = f"{c.value:.4g} {c.mode}" if c.value else tame(c.message)
            parents = ",".join(map(str, c.parents)) or "-"
            rows.append([str(c.k), c.digest[:8], parents, str(c.status or "pending"), verdict])
        say(table(["k", "digest", "from", "status", "score, or why not"], rows, right=(0,)))


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
