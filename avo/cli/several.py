"""`avo evolve --targets a,b,c`: several runs on one budget, turn by turn, and a table of what came of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dsl.wording import counted

if TYPE_CHECKING:
    from avo.config import RunConfig
    from avo.events import Observer
    from avo.launch import Parts
    from avo.several import Entry, Turn


@dataclass(frozen=True)
class Again:
    """What `--resume` asks for: the runs of this one, of the newest where it is None, with these limits anew."""

    run: int | None
    archive: str
    limits: Mapping[str, Any]


def evolve_several(
    names: str,
    config: RunConfig | None,
    one: Mapping[str, Any],
    announce: Callable[[Parts], None],
    again: Again | None = None,
) -> None:
    """one: what belongs to a single run and cannot stand beside `--targets`. announce: shows the start screen. config:
    None where `again` says which runs are gone on with."""
    from archive.archive import open_archive
    from avo import plugins
    from avo.cli.console import say
    from avo.errors import UserMistake
    from avo.several import evolve, taken_up

    targets = [name.strip() for name in names.split(",")]
    if not all(targets) or len(targets) < 2 or len(set(targets)) < len(targets):
        raise UserMistake(f"--targets wants two or more different targets, A,B,C; got '{names}'")
    for key, value in one.items():
        if value:
            raise UserMistake(f"--{key} belongs to one run and does not go with --targets")
    for name in targets:
        plugins.load("target", name)  # a mistake in the last of them is told before the first begins
    group = None
    if again is not None:
        with open_archive(again.archive, readonly=True) as store:
            found, group = taken_up(store, again.run, targets, again.limits)
        config = found.model_copy(update={"archive": again.archive})  # as it was given: the stored has no password
        say(f"runs {', '.join(str(r) for r in sorted(group.runs.values()))} go on")
    assert config is not None
    with ExitStack() as views:
        entries = evolve(config, targets, observe=lambda turn: _watched(turn, views), begun=announce, group=group)
    say()
    _conclude(entries, names, config.archive)


def _watched(turn: Turn, views: ExitStack) -> Observer:
    from avo.cli.console import say, tame
    from avo.cli.progress import watch
    from avo.run import open_run

    views.close()  # of the turn before
    entry = turn.entry
    rest = f", {turn.left} left" if turn.left is not None else ""
    so_far = f", {_gap(entry)}, {counted(entry.stale, 'proposal without a gain')}" if entry.made else ""
    say(f"\nturn {turn.number}: {tame(entry.config.target)}, {counted(turn.proposals, 'proposal')}{rest}{so_far}")
    view = watch()
    views.enter_context(view)
    if entry.run:
        with open_run(entry.config.archive, entry.run) as run:
            view.state.recall(run.history())
    return view


def _conclude(entries: list[Entry], names: str, archive: str) -> None:
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
    say(f"\navo report RUN{where} shows one of them, avo evolve --resume RUN --steps N{where} goes on with it,")
    say(f"avo evolve --targets {names} --resume --steps N{where} with all")


def _gap(entry: Entry) -> str:
    return f"{entry.gap:.2f}x its ceiling's time" if entry.gap is not None else "no ceiling known"
