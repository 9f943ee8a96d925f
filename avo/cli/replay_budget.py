"""`avo replay-budget RUN`: what a rule for stopping would have kept and saved on finished runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from avo.cli.options import ArchiveOption, JsonOption

if TYPE_CHECKING:
    from avo.stopping import Saved


def replay_budget(
    runs: Annotated[list[int] | None, typer.Argument(help="Runs. [default: the newest]", metavar="[RUN]...")] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Stop within (1 + N) of the practical ceiling's time; repeatable.", metavar="N", min=0),
    ] = None,
    window: Annotated[
        list[int] | None,
        typer.Option(help="Stop after N proposals without a gain, 0 never; repeatable.", metavar="N", min=0),
    ] = None,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay stopping rules on finished runs: how much of the best score each keeps, and what it saves.

    Without --epsilon and --window it compares a few. Retention is the best score when the rule stops over the run's
    best, gain is retention over the share of tokens (or proposals) still spent; geometric means over several runs.

    Example: avo replay-budget 3 --epsilon 0.25 --window 16
    """
    from avo.cli.console import say, show_json, table
    from avo.cli.options import reading
    from avo.stopping import EPSILON, WINDOW
    from avo.stopping import replay_budget as replayed

    with reading(archive) as store:
        numbers = runs or [store.run().id]
        shares: list[float | None] = list(epsilon or ())
        widths: list[int | None] = list(window or ())
        if not shares and not widths:
            shares, widths = [EPSILON, 1.0, 2.5, None], [8, 12, WINDOW]
        rules = [(e, w) for e in shares or [None] for w in widths or [None]]
        found = [(e, w, [replayed(store, n, e, w or None) for n in numbers]) for e, w in rules]
    if as_json:
        show_json([{"epsilon": e, "window": w or None, **_facts(s)} for e, w, s in found])
        return
    rows = [
        [
            "-" if e is None else f"{e:g}",
            f"{w}" if w else "-",
            " ".join(f"{s.stopped}/{s.whole}" for s in saved),
            ", ".join(dict.fromkeys(s.reason or "none" for s in saved)),
            *(_share(value) for value in list(_facts(saved).values())[:5]),
            f"{_facts(saved)['gain']:.2f}",
        ]
        for e, w, saved in found
    ]
    heads = ["epsilon", "window", "proposals", "stopped by", "kept", "steps", "tokens", "usd", "device", "gain"]
    say(table(heads, rows, right=tuple(range(4, 10))))
    say("\nkept: of the best score. steps, tokens, usd, device: saved of what was spent.")


def _facts(found: list[Saved]) -> dict[str, Any]:
    from avo.stopping import mean_retention

    def mean(values: list[float | None]) -> float | None:
        known = [v for v in values if v is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None

    kept = mean_retention(found)
    tokens, steps = mean([s.tokens for s in found]), mean([s.steps for s in found])
    saved = tokens if tokens is not None else steps or 0.0
    return {
        "retention": kept,
        "steps_saved": steps,
        "tokens_saved": tokens,
        "usd_saved": mean([s.usd for s in found]),
        "device_saved": mean([s.device for s in found]),
        "gain": kept / (1 - saved) if saved < 1 else float("inf"),
        "runs": [vars(s) for s in found],
    }


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
