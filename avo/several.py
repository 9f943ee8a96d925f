"""Several targets on one budget: each is a run of its own, and proposals go where most is left to gain.

Runs take turns of a few proposals. One that is near its practical ceiling or stalls (avo.stopping) ends, and what it
leaves goes to the others: the reallocation of muCUTLASS's budget scheduler (arXiv 2603.29010), done while the runs are
under way. Who is next follows from the verdicts alone, so what was killed is taken up by taking the turns again: those
whose verdicts are there pass at once, and the one that was cut off is finished.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from archive.records import Spend
from avo import choosing
from avo.budget import Budget
from avo.config import RunConfig
from avo.errors import UserMistake
from avo.history import History
from avo.launch import carry_on, full_name, prepare, start, stored
from avo.stopping import EPSILON, WINDOW, ceiling

if TYPE_CHECKING:
    from archive.archive import Archive
    from avo.events import Observer
    from avo.launch import Parts
    from avo.run import Run

TURN = 6  # proposals
_HALF = 8.0  # proposals without a gain that halve what is expected of a run
_UNKNOWN = 2.0  # the gap of a run whose ceiling nobody knows
_ENDED = ("epsilon", "window", "agent")  # this run is done, and the others go on


@dataclass
class Entry:
    """A target and its run. gap: the best time over the practical ceiling; None where there is none. stale: proposals
    without a gain. ended: why it takes no more turns, "" while it does."""

    config: RunConfig
    run: int = 0
    made: int = 0
    gap: float | None = None
    stale: int = 0
    ended: str = ""
    spend: Spend = field(default_factory=Spend)
    wall_s: float = 0.0

    @property
    def promise(self) -> float:
        """What a turn is worth: the logarithm of what is left to gain, halved for every eight proposals in vain."""
        gap = _UNKNOWN if self.gap is None else self.gap
        return float(math.log(max(1.0, gap)) * 0.5 ** (self.stale / _HALF))


@dataclass(frozen=True)
class Turn:
    """What is about to begin. left: proposals of all runs together; None: no such limit."""

    entry: Entry
    number: int
    proposals: int
    left: int | None


@dataclass(frozen=True)
class Group:
    """Runs that share a budget, as each of them has it stored. id: of them all. runs: target -> its run, of those that
    have begun."""

    id: str
    targets: tuple[str, ...]
    runs: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def new(cls, targets: Sequence[str]) -> Group:
        return cls(uuid.uuid4().hex, tuple(map(full_name, targets)))


def taken_up(
    store: Archive, run: int | None, targets: Sequence[str], limits: Mapping[str, Any]
) -> tuple[RunConfig, Group]:
    """What runs that share a budget were begun with, and who they are: those of `run`, else the newest of `targets`.

    limits: a new budget for all of them, over all sessions, as `avo.launch.stored` takes it. Raises UserMistake where
    there are none, or `run` is not one of them.
    """
    wanted = set(map(full_name, targets))
    every = [(r, r.config["together"]) for r in store.runs() if r.config.get("together")]
    found = [(r, t) for r, t in every if set(t["targets"]) == wanted and run in (None, r.id)]
    if not found:
        what = "no run" if run is None else f"run {run}, but not one"
        there = "; ".join(dict.fromkeys(",".join(t["targets"]) for _, t in every))
        raise UserMistake(
            f"{store.where} has {what} that was begun with --targets {','.join(targets)}"
            + (f"; there are those of {there}" if there else "")
        )
    newest, group = found[-1]
    config = stored(store, newest.id, **limits)
    if limits.get("steps") is None and limits.get("minutes") is None:
        config = config.model_copy(update={"steps": group["steps"]})
    runs = {r.config["given"]["target"]: r.id for r, t in every if t["id"] == group["id"]}
    return config, Group(group["id"], tuple(group["targets"]), runs)


def configs(shared: RunConfig, targets: Sequence[str]) -> list[RunConfig]:
    """One configuration a target. The limits are those of all runs together, but for steps: each run is stored with an
    equal share, which is what resuming it alone takes as its limit."""
    chip = choosing.chip(shared.hw)
    shared = shared.model_copy(update={"hw": chip.name}) if shared.hw == choosing.AUTO else shared
    steps = None if shared.steps is None else max(1, shared.steps // len(targets))
    limits = {"epsilon": EPSILON, "window": WINDOW}
    changed = {k: v for k, v in limits.items() if getattr(shared, k) is None} | {"steps": steps}
    return [shared.model_copy(update=changed | {"target": name}) for name in targets]


def evolve(
    shared: RunConfig,
    targets: Sequence[str],
    *,
    turn: int = TURN,
    observe: Callable[[Turn], Observer | None] | None = None,
    begun: Callable[[Parts], None] | None = None,
    group: Group | None = None,
) -> list[Entry]:
    """Runs until the budget is spent or no run is worth a turn; returns the targets with what came of each.

    shared: its steps, minutes, USD, tokens and device seconds are for all together. observe: called before each turn,
    gives who sees its events. begun: see avo.launch.start. group: runs to go on with, from `taken_up`.

    Raises what `avo.launch.start` raises; what was recorded stays, all can be taken up, and each run by itself.
    """
    group = group or Group.new(targets)
    entries = [Entry(c) for c in configs(shared, group.targets)]
    recorded = _recorded(entries, group)
    began = time.monotonic() - sum(e.wall_s for e in entries)
    fresh = {e.config.target for e in entries}  # those that had no turn yet
    number = 0
    while True:
        entry = _next(entries, fresh)
        left = None if shared.steps is None else shared.steps - sum(e.made for e in entries)
        if entry is None or (left is not None and left <= 0):
            break
        number += 1
        proposals = turn if left is None else min(turn, left)
        if left is not None and entry.config.target in fresh:  # so that all have a first turn
            proposals = min(turn, max(1, left // len(fresh)))
        fresh.discard(entry.config.target)
        history = recorded.get(entry.config.target)
        if history is not None and len(history) > entry.made + proposals:  # it had this turn in an earlier session
            _count(entry, history, entry.made + proposals)
            continue
        rest = None if shared.minutes is None else shared.minutes * 60 - (time.monotonic() - began)
        if rest is not None and rest <= 0:
            break
        budget = _budget(entry, entries, shared, proposals, rest)
        observer = observe(Turn(entry, number, proposals, left)) if observe is not None else None
        together = {"id": group.id, "targets": list(group.targets), "steps": shared.steps}
        with _session(entry, budget, observer, begun, together) as run:
            reason = _read(entry, run)
        if reason in _ENDED:
            entry.ended = reason
        elif reason != "steps":  # a limit of all, or the person
            entry.ended = reason
            break
    for entry in entries:
        if entry.run and entry.ended != "interrupted":
            _promote(entry)
    return entries


def _recorded(entries: Sequence[Entry], group: Group) -> dict[str, History]:
    """What earlier sessions judged, by target; the entries are told which run is theirs and what it has used."""
    from archive.archive import open_archive

    found = {}
    if group.runs:
        with open_archive(entries[0].config.archive, readonly=True) as store:
            for entry in entries:
                if run := group.runs.get(entry.config.target):
                    entry.run, entry.wall_s, entry.spend = run, store.run(run).wall_s, store.spend(run)
                    found[entry.config.target] = History.of(store, run)
    return found


def _next(entries: Sequence[Entry], fresh: Collection[str]) -> Entry | None:
    """Who has had no turn yet, in the order given; then the one that promises most, the earlier of equals."""
    first = next((e for e in entries if e.config.target in fresh), None)
    going = [e for e in entries if not e.ended]
    return first or max(going, key=lambda e: e.promise, default=None)


def _budget(entry: Entry, entries: Sequence[Entry], shared: RunConfig, proposals: int, rest: float | None) -> Budget:
    """Of one turn. What the other runs spent is taken off the limits, which a run holds over all its sessions."""
    others = [e.spend for e in entries if e is not entry]
    usd = tokens = device = None
    if shared.max_usd is not None:
        usd = shared.max_usd - sum(s.usd or 0.0 for s in others)
    if shared.max_tokens is not None:
        tokens = shared.max_tokens - sum(s.tokens for s in others)
    if shared.max_device_seconds is not None:
        device = shared.max_device_seconds - sum(s.device_s for s in others)
    return Budget(
        steps=entry.made + proposals,
        minutes=None if rest is None else (entry.wall_s + rest) / 60,
        usd=usd,
        tokens=tokens,
        device_s=device,
        epsilon=entry.config.epsilon,
        window=entry.config.window or None,
        hardware=choosing.chip(entry.config.hw).name,
        final=False,
    )


def _session(
    entry: Entry,
    budget: Budget,
    observer: Observer | None,
    begun: Callable[[Parts], None] | None,
    together: Mapping[str, Any] | None,
) -> Run:
    """One turn of a run, which it begins where there is none yet; the caller closes it."""
    from archive.archive import open_archive

    if not entry.run:
        return start(entry.config, observer=observer, budget=budget, begun=begun, together=together)
    store = open_archive(entry.config.archive, create=False)
    try:
        return carry_on(store, prepare(stored(store, entry.run)), entry.run, observer, budget)
    except BaseException:
        store.close()
        raise


def _read(entry: Entry, run: Run) -> str:
    """What the turn came to is taken into the entry; returns why it ended."""
    record, history = run.record, run.history()
    entry.run, entry.wall_s, entry.spend = run.id, record.wall_s, run.spend
    _count(entry, history, len(history) - 1)
    return record.ended or "steps"


def _count(entry: Entry, history: History, made: int) -> None:
    """Where the run stood after so many proposals."""
    entry.made = made
    entry.gap = ceiling(history.best(made).evaluation, entry.config.hw)
    entry.stale = history.stale(made)


def _promote(entry: Entry) -> None:
    """The winner of a run is measured again and on the hidden sizes, now that no turn follows."""
    with _session(entry, Budget(steps=entry.made), None, None, None):
        pass
