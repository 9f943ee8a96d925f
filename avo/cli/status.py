"""`avo status [RUN]`: where a run stands, in a few lines, also while it is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from archive.archive import Archive


def status(
    run: Annotated[int | None, typer.Argument(help="The run; the newest if left out.", metavar="[RUN]")] = None,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say who writes a run, how far it is, what it found and what it spent. Disturbs nothing.

    Example: avo status --archive avo.db
    """
    from avo.cli.console import entry, say, show_json, tame
    from avo.cli.options import reading

    with reading(archive) as store:
        facts = _facts(store, run)
    if as_json:
        show_json(facts)
        return
    state = facts["state"] + (f" ({facts['ended']})" if facts["ended"] and facts["ended"] != facts["state"] else "")
    what = f"{facts['run']}: {facts['target']} on {facts['hardware']}, agent {facts['agent']}, {state}"
    say(entry("run", tame(what)))
    if facts["holder"]:
        say(entry("writer", tame(facts["holder"])))
    for other in facts["members"]:
        if other != facts["holder"]:
            say(entry("beside it", tame(other)))
    if facts["message"]:
        say(entry("message", tame(facts["message"])))
    done, given = facts["steps"]["done"], facts["steps"]["given"]
    # one that was taken up again with more steps has passed the limit that it began with
    steps = "" if given is None else f" of {given}" if done <= given else f", begun with {given}"
    counts = ", ".join(f"{name} {n}" for name, n in facts["statuses"].items())
    say(entry("steps", f"{done}{steps}; {counts}"))
    best = facts["best"]
    if best:
        over = f", {best['over_seed']:.2f}x the seed" if best["over_seed"] else ""
        say(entry("best", f"{best['score']:.4g} {best['mode']} by {best['digest'][:8]}, proposal {best['k']}{over}"))
    else:
        say(entry("best", "nothing correct yet"))
    spent = ", ".join(f"{name} {value:.6g}" for name, value in facts["spent"].items() if value)
    say(entry("spent", spent or "nothing"))


def _facts(store: Archive, number: int | None) -> dict[str, Any]:
    row = store.run(number)
    best, seed = store.best(row.id), store.candidates(row.id, ks=[0], text=False)
    spend, given = store.spend(row.id), row.given
    counts = store.counts(row.id)
    return {
        "run": row.id,
        "target": row.target,
        "hardware": row.hardware,
        "agent": row.agent,
        "state": row.state,
        "ended": row.ended,
        "message": row.message,
        "holder": row.holder,
        "members": store.members(row.id),
        "steps": {"done": max(0, sum(counts.values()) - 1), "given": given.get("steps")},
        "statuses": dict(sorted(counts.items(), key=lambda item: (item[0] != "ok", -item[1]))),
        "best": None
        if best is None
        else {
            "k": best.k,
            "digest": best.digest,
            "mode": best.mode,
            "score": best.value,
            "over_seed": best.value / seed[0].value if seed and seed[0].mode == best.mode and seed[0].value else None,
        },
        "spent": {
            "minutes": row.wall_s / 60,
            "device seconds": spend.device_s,
            "USD": spend.usd,
            "tokens": spend.tokens,
        },
    }
