"""`avo evolve --targets a,b,c`: several runs on one budget, turn by turn, and a table of what came of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from avo.config import RunConfig
    from avo.events import Observer
    from avo.launch import Parts
    from avo.several import Entry, Turn


def evolve_several(names: str, config: RunConfig, one: Mapping[str, Any], announce: Callable[[Parts], None]) -> None:
    """one: what belongs to a single run and cannot stand beside `--targets`. announce: shows the start screen."""
    from avo import plugins
    from avo.cli.console import say
    from avo.errors import UserMistake
    from avo.several import evolve

    targets = [name.strip() for name in names.split(",") if name.strip()]
    if len(targets) < 2 or len(set(targets)) < len(targets):
        raise UserMistake(f"--targets wants two or more different targets, A,B,C; got '{names}'")
    for key, value in one.items():
        if value:
            raise UserMistake(f"--{key} belongs to one run and does not go with --targets")
    for name in targets:
        plugins.load("target", name)  # a mistake in the last of them is told before the first begins
    with ExitStack() as views:
        entries = evolve(config, targets, observe=lambda turn: _watched(turn, views), begun=announce)
    say()
    _conclude(entries, config.archive)


def _watched(turn: Turn, views: ExitStack) -> Observer:
    from avo.cli.console import say, tame
    from avo.cli.progress import watch
    from avo.run import open_run

    views.close()  # of the turn before
    entry = turn.entry
    rest = f", {turn.left} left" if turn.left is not None else ""
    so_far = f", {_gap(entry)}, {entry.stale} proposals without a gain" if entry.run else ""
    say(f"\nturn {turn.number}: {tame(entry.config.target)}, {turn.proposals} proposals{rest}{so_far}")
    view = watch()
    views.enter_context(view)
    if entry.run:
        with open_run(entry.config.archive, entry.run) as run:
            view.state.recall(run.history())
    return view


def _conclude(entries: list[Entry], archive: str) -> None:
    from avo.cli.console import say, table, tame
    from avo.cli.progress import REASONS
    from avo.run import open_run

    rows = []
    for e in entries:
        if not e.run:
            rows.append([tame(e.config.target), "-", "0", "-", "-", "-", "it had no turn"])
            continue
        with open_run(archive, e.run) as run:
            history = run.history()
            best, seed = history.best(), history.all()[0]
        score = f"{best.value:.4g} {best.evaluation.unit} {best.evaluation.mode}" if best.value else "-"
        gain = f"{best.value / seed.value:.2f}x" if seed.value and best.value else "-"
        why = REASONS.get(e.ended, e.ended) if e.ended else "the budget is spent"
        gap = f"{e.gap:.2f}x" if e.gap is not None else "-"
        rows.append([tame(e.config.target), str(e.run), str(e.made), score, gain, gap, why])
    head = ["target", "run", "made", "best", "gain", "over ceiling", "ended"]
    say(table(head, rows, right=(1, 2, 4, 5)))
    where = "" if archive == "avo.db" else f" --archive {archive}"
    say(f"\navo report RUN{where} shows one of them, avo evolve --resume RUN --steps N{where} goes on with it")


def _gap(entry: Entry) -> str:
    return f"{entry.gap:.2f}x its ceiling's time" if entry.gap is not None else "no ceiling known"
