"""Several targets on one budget: each is a run of its own, and proposals go where most is left to gain.

Runs take turns of a few proposals. One that is near its practical ceiling or stalls (avo.stopping) ends, and what it
leaves goes to the others: the reallocation of muCUTLASS's budget scheduler (arXiv 2603.29010), done while the runs are
under way. Who is next follows from the verdicts alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from archive.records import Spend
from avo import choosing
from avo.budget import Budget
from avo.config import RunConfig
from avo.stopping import EPSILON, WINDOW, ceiling

if TYPE_CHECKING:
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
) -> list[Entry]:
    """Runs until the budget is spent or no run is worth a turn; returns the targets with what came of each.

    shared: its steps, minutes, USD, tokens and device seconds are for all together. observe: called before each turn,
    gives who sees its events. begun: see avo.launch.start.

    Raises what `avo.launch.start` raises; what was recorded stays, and each run can be resumed by itself.
    """
    entries = [Entry(c) for c in configs(shared, targets)]
    began = time.monotonic()
    number = 0
    while True:
        entry = _next(entries)
        left = None if shared.steps is None else shared.steps - sum(e.made for e in entries)
        if entry is None or (left is not None and left <= 0):
            break
        number += 1
        proposals = turn if left is None else min(turn, left)
        if left is not None and not entry.run:  # so that all have a first turn
            proposals = min(turn, max(1, left // sum(not e.run for e in entries)))
        rest = None if shared.minutes is None else shared.minutes * 60 - (time.monotonic() - began)
        if rest is not None and rest <= 0:
            break
        budget = _budget(entry, entries, shared, proposals, rest)
        observer = observe(Turn(entry, number, proposals, left)) if observe is not None else None
        with _session(entry, budget, observer, begun) as run:
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


def _next(entries: Sequence[Entry]) -> Entry | None:
    """Who has had no turn yet, in the order given; then the one that promises most, the earlier of equals."""
    fresh = next((e for e in entries if not e.run), None)
    going = [e for e in entries if not e.ended]
    return fresh or max(going, key=lambda e: e.promise, default=None)


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


def _session(entry: Entry, budget: Budget, observer: Observer | None, begun: Callable[[Parts], None] | None) -> Run:
    """One turn of a run, which it begins where there is none yet; the caller closes it."""
    from archive.archive import open_archive
    from avo.launch import carry_on, prepare, start, stored

    if not entry.run:
        return start(entry.config, observer=observer, budget=budget, begun=begun)
    store = open_archive(entry.config.archive)
    try:
        return carry_on(store, prepare(stored(store, entry.run)), entry.run, observer, budget)
    except BaseException:
        store.close()
        raise


def _read(entry: Entry, run: Run) -> str:
    """What the turn came to is taken into the entry; returns why it ended."""
    record, history = run.record, run.history()
    best = history.best()
    entry.run, entry.wall_s, entry.spend = run.id, record.wall_s, run.spend
    entry.made = len(history) - 1
    entry.gap = ceiling(best.evaluation, record.hardware)
    entry.stale = history.stale(entry.made)
    return record.ended or "steps"


def _promote(entry: Entry) -> None:
    """The winner of a run is measured again and on the hidden sizes, now that no turn follows."""
    with _session(entry, Budget(steps=entry.made), None, None):
        pass
