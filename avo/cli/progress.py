"""What a run shows while it goes: a small panel that renews itself on a terminal, a line an event elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from archive.records import Spend
from avo.cli.console import duration, say, tame
from avo.events import (
    Committed,
    Event,
    Finished,
    Promoted,
    Promoting,
    Proposed,
    Started,
    Stopping,
    Unavailable,
    Verdict,
)
from dsl.wording import counted
from evaluators.evaluation import Status

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from avo.agents import Judged
    from avo.history import History

REASONS = {
    "steps": "all steps are done",
    "minutes": "the time is up",
    "usd": "the money is spent",
    "tokens": "the tokens are spent",
    "device": "the device time is spent",
    "epsilon": "little is left above the speed of light",
    "window": "nothing has got better for long",
    "agent": "the agent has nothing more to propose",
    "interrupted": "stopped by you",
    "unavailable": "the harness was not available",
    "failed": "something failed",
}


@dataclass
class State:
    """The facts of a run so far, as its events tell them."""

    steps: int | None = None
    minutes: float | None = None
    unit: str = ""
    run: int = 0
    done: int = 0
    before: int = 0  # verdicts of earlier sessions
    earlier_s: float = 0.0
    started: float = field(default_factory=time.monotonic)
    seed: Judged | None = None
    best: Judged | None = None
    passed: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    note: str = ""
    spent: str = ""  # by models
    noise: str = ""  # what the same program twice differs by on this device
    busy: float | None = None
    told: list[str] = field(default_factory=list)  # warnings that came up while it went
    first: float | None = None  # when the first verdict came, since the run was taken up
    last: float = 0.0  # and the latest: judging the winner again is not time that candidates took

    def recall(self, history: History) -> None:
        """What earlier sessions of a run found, for one that goes on."""
        judged = history.all()
        if judged:
            self.seed, self.best, self.unit = judged[0], history.best(), judged[0].evaluation.unit
        for one in judged:
            self._count(one)

    def _count(self, judged: Judged) -> None:
        if judged.status is Status.OK:
            self.passed += 1
        else:
            gate = judged.evaluation.failed_gate or str(judged.status)
            self.failures[gate] = self.failures.get(gate, 0) + 1

    def see(self, event: Event) -> None:
        match event:
            case Started():
                self.run, self.steps, self.minutes = event.run, event.steps, event.minutes
                self.before = self.done = event.done
                self.earlier_s, self.started = event.wall_s, time.monotonic()
            case Verdict(candidate=judged):
                self.done += 1
                self.unit = judged.evaluation.unit
                if judged.k == 0:
                    self.seed = judged
                self._count(judged)
                self._device(judged.evaluation.environment)
            case Committed(candidate=judged, best=True):
                self.best = judged
            case Proposed(spend=Spend() as spend):
                self.spent = spent(spend)
            case Unavailable():
                self.note = f"not available, again in {event.wait_s:.0f} s: {event.message}"
            case Stopping():
                self.note = REASONS.get(event.reason, event.reason)
                if event.in_flight:
                    self.note += f"; finishing {event.in_flight} under way"
            case _:
                pass

    def _device(self, environment: Mapping[str, Any]) -> None:
        """What a judge that measures says of its device."""
        floor, busy = environment.get("noise_floor"), environment.get("busy_share")
        if isinstance(floor, dict) and not self.noise:
            pairs, deviation = floor.get("pairs", 0), float(floor.get("deviation", 0.0))
            self.noise = f"{deviation:.2%} a pair (a program against itself, {counted(pairs, 'pair')})"
        if isinstance(busy, int | float):
            self.busy = float(busy)
        self.told += [str(w) for w in environment.get("warnings", ()) if str(w) not in self.told]
        self.last = time.monotonic()
        self.first = self.first or self.last

    def pace(self) -> str:
        """Candidates a minute from the first verdict to the last, and the device's busy share; "" where nothing is
        measured."""
        if self.busy is None or self.first is None or self.done - self.before < 2:
            return ""
        rate = 60 * (self.done - self.before - 1) / max(1e-9, self.last - self.first)
        return f"{counted(round(rate), 'candidate a minute')}, device {self.busy:.0%} busy"

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace so far, or by the time budget, whichever ends first; None before it is known."""
        elapsed = time.monotonic() - self.started
        limits = []
        if self.minutes is not None:
            limits.append(max(0.0, self.minutes * 60 - self.earlier_s - elapsed))
        new = self.done - self.before
        if self.steps is not None and new >= 2:
            limits.append(max(0, self.steps + 1 - self.done) * elapsed / new)
        return min(limits) if limits else None

    def count(self) -> str:
        """`12/48`: proposals judged after the seed, of the budget."""
        judged = max(0, self.done - 1)
        return f"{judged}/{self.steps}" if self.steps is not None else str(judged)

    def scored(self) -> str:
        """The best score with its change over the seed, always with the word predicted or measured."""
        if self.best is None:
            return "none yet"
        text = f"{self.best.value:.4g} {self.unit} {self.best.evaluation.mode}"
        if self.seed is not None and self.seed.value and self.best.k:
            text += f", {self.best.value / self.seed.value:.2f}x the seed"
        return text

    def room(self) -> str:
        """Headroom of the best, with what limits its worst workload."""
        if self.best is None or not self.best.score.headroom:
            return "unknown"
        return f"{self.best.score.headroom:.2f}x the floor's time, limited by {limiter(self.best)}"

    def failed(self) -> str:
        return ", ".join(f"{gate} {n}" for gate, n in self.failures.items()) or "none"


def spent(spend: Spend) -> str:
    """`0.12 USD, 41,000 tokens in (30,000 cached), 5,200 out`; "" where no model was asked."""
    if not spend.tokens:
        return ""
    money = "price unknown" if spend.usd is None else f"{spend.usd:.3g} USD"
    cached = f" ({spend.tokens_cached:,} cached)" if spend.tokens_cached else ""
    return f"{money}, {spend.tokens_in:,} tokens in{cached}, {spend.tokens_out:,} out"


def limiter(judged: Judged) -> str:
    """What limits the workload that is furthest from its floor, as the prediction or the timing names it."""
    times = [
        (seconds / w.floor_s, w.limiter or w.bottleneck)
        for w in judged.evaluation.workloads
        if (seconds := w.measured_s if judged.evaluation.mode == "measured" else w.predicted_s) and w.floor_s > 0
    ]
    return max(times)[1] if times else "nothing that was named"


class Lines:
    """For pipes and logs: one plain line per verdict, commit and trouble."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def __call__(self, event: Event) -> None:
        state = self.state
        quiet, told = not state.noise, len(state.told)
        state.see(event)
        for warning in state.told[told:] if state.before < state.done - 1 else ():  # the first are on the start screen
            say(f"warning: {tame(warning)}")
        if quiet and state.noise:
            say(f"noise floor: {state.noise}")
        match event:
            case Started(done=done) if done:
                before = f"{counted(done, 'verdict')}, {event.pending} under way when it stopped"
                say(f"run {event.run}: goes on after {before}")
            case Started():
                say(f"run {event.run} has begun")
            case Verdict(candidate=judged):
                left = state.left_s
                time_left = f", {_whole(left)} left" if left is not None else ""
                say(f"[{state.count()}] {judged.k} {judged.digest[:8]} {_verdict(judged)}{time_left}")
            case Committed(candidate=judged, best=True) if judged.k:
                say(f"[{state.count()}] new best: {state.scored()}")
                say(f"    {state.room()}; failed: {state.failed()}")
                if state.spent:
                    say(f"    models: {state.spent}")
            case Unavailable() | Stopping():
                say(tame(state.note))
            case Promoting() | Promoted():
                say(promotion_line(event))
            case Finished() if pace := state.pace():
                say(f"pace: {pace}")
            case _:
                pass


class Panel:
    """For a terminal: five lines that renew themselves; each new best stays above them."""

    def __init__(self, state: State, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self.state = state
        self._console = console or Console()
        self._live = Live(console=self._console, refresh_per_second=4, get_renderable=self._draw)

    def __enter__(self) -> Panel:
        return self  # the panel appears when the run has started, below the start screen

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        from rich.text import Text

        self.state.see(event)
        match event:
            case Started():
                self._live.start()
            case Committed(candidate=judged, best=True):
                why = f"  {tame(judged.rationale)}" if judged.rationale else ""
                line = Text(f"{judged.k:>4} {judged.digest[:8]}  {self.state.scored()}{why}")
                line.truncate(self._console.width - 1, overflow="ellipsis")
                self._console.print(line)
            case Promoting():
                self.state.note = promotion_line(event)
            case Promoted():
                self.state.note = ""
                self._console.print(Text(tame(promotion_line(event))))
            case Proposed() | Finished():
                self.state.note = ""
            case _:
                pass

    def _draw(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        state = self.state
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(ratio=1)
        elapsed = time.monotonic() - state.started + state.earlier_s
        total = state.steps if state.steps is not None else (state.minutes or 1) * 60
        done = max(0, state.done - 1) if state.steps is not None else elapsed
        grid.add_row("", ProgressBar(total=total, completed=min(total, done), width=40))
        left = state.left_s
        rest = f", {_whole(left)} left" if left is not None else ""
        grid.add_row("steps", f"{state.count()}, {state.passed} passed every gate, {_whole(elapsed)} so far{rest}")
        grid.add_row("best", Text(state.scored(), style="bold"))
        grid.add_row("headroom", Text(tame(state.room())))
        grid.add_row("failed", Text(state.failed()))
        if state.spent:
            grid.add_row("models", state.spent)
        if state.noise:
            grid.add_row("noise", state.noise)
        if pace := state.pace():
            grid.add_row("device", pace)
        if state.told:
            grid.add_row("warning", Text(tame(state.told[-1]), style="yellow"))
        if state.note:
            grid.add_row("", Text(tame(state.note), style="yellow"))
        return grid


def promotion_line(event: Promoting | Promoted) -> str:
    """What is done with the run's best at the end, and what came of it."""
    who = f"proposal {event.candidate.k}, {event.candidate.digest[:8]}"
    if isinstance(event, Promoting):
        return f"judging the best again, {who}: fresh inputs, and sizes that nobody saw"
    if event.evaluation.status is Status.OK:
        return f"promoted: {who} is right on fresh inputs and on the hidden sizes"
    return f"not promoted: {who}: {tame(event.evaluation.message)}"


def watch() -> Lines | Panel:
    """The right one for where standard output goes."""
    if sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
        return Panel(State())
    return Lines(State())


def _whole(seconds: float) -> str:
    """Nobody waits by the tenth of a second."""
    return "0 s" if seconds < 0.5 else duration(max(1, round(seconds)))


def _verdict(judged: Judged) -> str:
    if judged.status is Status.OK:
        score = f" {judged.value:.4g} {judged.evaluation.unit} {judged.evaluation.mode}" if judged.value else ""
        timing = judged.evaluation.gate("timing")
        few = timing.evidence.get("timed") if timing is not None and not score else None
        return f"ok, timed on {tame(str(few))}" if few else f"ok{score}"
    gate = judged.evaluation.failed_gate
    why = tame(judged.evaluation.message).splitlines()
    return f"{judged.status}" + (f" at {gate}" if gate else "") + (f": {why[0][:160]}" if why else "")
