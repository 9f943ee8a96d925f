"""The agent that needs no model: bottleneck-directed edits over the knobs, and Optuna for the numbers.

A proposal is the best of a pool. The pool: every one-knob edit of the best few programs, the settings of all numeric
knobs together that arithmetic likes best, and what TPE suggests. Its order: expected improvement under the arithmetic
of `avo.agents.appraisal` as the verdicts bent it, plus what the parent's evidence says of an edit (`avo.agents.moves`).

Proposal k is a function of the run's seed, k, and the verdicts up to k-J: nothing is kept between calls, and proposals
that are under way while k is made are made again, so that none is proposed twice.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from avo.agents.protocol import Brief, Hypothesis, Judged, Proposal, entropy
from avo.errors import UserMistake

if TYPE_CHECKING:
    from avo.agents.surrogate import Point, Surrogate
    from dsl.anatomy import Sizes
    from dsl.hardware import Hardware
    from dsl.knobs import Knob
    from dsl.syntax import Program

Value = int | str
Changes = Mapping[str, tuple[Value, Value]]  # knob -> (old, new)

PARENTS = 3  # programs whose edits are looked at
GRID_WHOLE, GRID = 2000, 32  # joint settings of the numeric knobs: looked at, and built for the pool
TPE_EVERY = 5  # one proposal of so many comes from the sampler
STALE = 8  # proposals without a better one, after which every other comes from it
TPE_ASKED = 16
TRUST, DOUBT = 0.5, 0.9  # of what the evidence says an edit may save; of what arithmetic hopes beyond it
MAX_CHANGES = 3  # knobs that one directed proposal changes, so that a verdict says something about each


@dataclass(frozen=True)
class _Tried:
    """A judged candidate as the agent reads it. key: names what it does, defaults left out. score: 0: it failed."""

    judged: Judged
    program: Program
    key: str
    score: float


@dataclass(frozen=True)
class _Option:
    """A program that could be proposed: what it changes of its parent and why it should be faster."""

    program: Program
    key: str
    parent: _Tried
    changes: Changes
    source: str  # "edit", "grid" or "sampler"


class HeuristicAgent:
    """Deterministic under the run's seed. Never offers a program that the check rejects, nor one that was proposed
    before; it gives up where no other is left within reach.

    Option `knobs`: knob name -> values; what it does not name stays as the seed program has it. Option `prediction`:
    false takes the arithmetic and the judge's predicted shares away, to see what they are worth. What the object keeps
    between calls only saves time: a new one proposes the same.
    """

    name = "heuristic"
    OPTIONS = ("knobs",)

    def __init__(self) -> None:
        self._space: _Space | None = None

    def propose(self, brief: Brief) -> Proposal | None:
        space = self._space
        if space is None or not space.serves(brief):
            space = self._space = _Space(brief)
        last = brief.candidates[-1].k
        lag = brief.k - last
        under_way: tuple[str, ...] = ()
        for k in range(last + 1, brief.k):
            option = _choose(space, brief, k, max(0, k - lag), under_way)
            if option is not None:
                under_way += (option.key,)
        option = _choose(space, brief, brief.k, last, under_way)
        return None if option is None else _proposal(space, option, brief)


class _Space:
    """The programs around those that were tried, on one chip for one target. Every method is a pure function whose
    results are kept, for a run asks the same again and again."""

    def __init__(self, brief: Brief) -> None:
        self.hw: Hardware = brief.hardware
        self.target = brief.target
        self.options = dict(brief.options)
        given = brief.options.get("knobs")
        self.predicts = bool(brief.options.get("prediction", True))
        self.open = None if given is None else {str(n): tuple(v) for n, v in dict(given).items()}
        self.sizes: list[Sizes] = [dict(w.sizes) for w in brief.target.workloads] or [{}]
        self._read: dict[str, tuple[Program, str] | None] = {}
        self._options: dict[str, list[_Option]] = {}
        self._grids: dict[str, list[tuple[Point, Changes]]] = {}
        self._points: dict[str, Point] = {}
        self._legal: dict[str, bool] = {}
        self.chosen: dict[object, _Option | None] = {}

    def serves(self, brief: Brief) -> bool:
        return brief.hardware == self.hw and brief.target is self.target and dict(brief.options) == self.options

    def know(self, text: str, option: _Option) -> None:
        """Spares parsing what was proposed when it comes back with its verdict."""
        self._read[text] = (option.program, option.key)

    def tried(self, candidates: Sequence[Judged]) -> list[_Tried]:
        """Those that are programs, each once, with their scores."""
        found: dict[str, _Tried] = {}
        for c in candidates:
            read = self.read(c)
            if read is not None and read[1] not in found:
                score = c.value if c.status.value == "ok" else 0.0
                found[read[1]] = _Tried(c, *read, score)
        return list(found.values())

    def read(self, c: Judged) -> tuple[Program, str] | None:
        """Program and key; None where a text does not parse or means nothing: another agent's."""
        from dsl.check import errors
        from dsl.diagnostics import ProgramError
        from dsl.parser import parse

        if c.text not in self._read:
            try:
                program = parse(c.text)
                wrong = c.status.value in ("parse_error", "check_error", "meaning_error") and bool(errors(program))
                self._read[c.text] = None if wrong else (program, _key(program))
            except ProgramError:
                self._read[c.text] = None
        return self._read[c.text]

    def point(self, program: Program, name: str) -> Point:
        """Its knobs, and what arithmetic expects of it."""
        from avo.agents.appraisal import appraise
        from avo.agents.surrogate import Point
        from dsl.anatomy import anatomies
        from dsl.knobs import settings
        from dsl.schedule import resolve

        if name not in self._points:
            time = 1.0
            for i, kernel in enumerate(anatomies(program)):
                schedule = resolve(program, i, self.hw.arch, self.hw.name)
                time *= appraise(kernel, schedule, self.hw, self.sizes[0]).relative_time
            self._points[name] = Point(settings(program, self.hw), -math.log(time))
        return self._points[name]

    def legal(self, program: Program, name: str) -> bool:
        """At every size that is public, and with a lowering."""
        from dsl.anatomy import anatomies
        from dsl.check import schedule_diagnostics, unlowered

        if name not in self._legal:
            kernels = anatomies(program)
            distinct = {tuple(sorted(s.items())): s for s in self.sizes}
            wrong = any(
                d.severity == "error"
                for sizes in distinct.values()
                for d in schedule_diagnostics(program, self.hw, sizes, kernels)
            )
            self._legal[name] = not wrong and not unlowered(program, self.hw, self.sizes[0])
        return self._legal[name]

    def knobs(self, program: Program) -> list[Knob]:
        """The program's knobs, within what the option `knobs` leaves open."""
        from dsl.knobs import knobs

        found = knobs(program, self.hw, self.sizes[0])
        if self.open is None:
            return found
        narrowed = []
        for k in found:
            allowed = self.open.get(k.name, ())
            legal, scale = (tuple(v for v in values if v in allowed) for values in (k.legal, k.scale))
            if len(legal) > 1 or legal not in ((), (k.value,)):
                narrowed.append(replace(k, legal=legal, scale=scale))
        return narrowed

    def edits(self, parent: _Tried) -> list[_Option]:
        """Every legal value of every knob, one knob at a time."""
        from dsl.knobs import set_knob

        key = f"edit {parent.key}"
        if key not in self._options:
            self._options[key] = [
                self._option(set_knob(parent.program, knob, value), parent, {knob.name: (knob.value, value)}, "edit")
                for knob in self.knobs(parent.program)
                for value in knob.legal
                if value != knob.value and not (knob.directive == "stream" and value == "none")
            ]
        return self._options[key]

    def joint(self, parent: _Tried, model: Surrogate) -> list[_Option]:
        """Tiles, stages and warps of one kernel set together: those of which the model expects most."""
        if parent.key not in self._grids:
            self._grids[parent.key] = self._grid(parent)
        grid = self._grids[parent.key]
        if not grid:
            return []
        worth = model.improvement([point for point, _ in grid], [0.0] * len(grid))
        first = sorted(range(len(grid)), key=lambda i: (-round(float(worth[i]), 9), i))[:GRID]
        return [
            self._option(self.set(parent.program, {n: v for n, (_, v) in changes.items()}), parent, changes, "grid")
            for changes in (grid[i][1] for i in first)
        ]

    def _grid(self, parent: _Tried) -> list[tuple[Point, Changes]]:
        """Every combination of up to MAX_CHANGES new numbers, best first by arithmetic; legal or not."""
        from avo.agents.appraisal import appraise
        from avo.agents.surrogate import Point
        from dsl.anatomy import anatomies
        from dsl.schedule import resolve

        found: list[tuple[Point, Changes]] = []
        before = self.point(parent.program, parent.key)
        numeric = [k for k in self.knobs(parent.program) if k.number and k.directive in ("tile", "stream", "warps")]
        for index, kernel in enumerate(anatomies(parent.program)):
            schedule = resolve(parent.program, index, self.hw.arch, self.hw.name)
            now = appraise(kernel, schedule, self.hw, self.sizes[0]).relative_time
            mine = [k for k in numeric if k.kernel == index][:5]
            for values in itertools.product(*(k.scale for k in mine)):
                changes = {k.name: (k.value, v) for k, v in zip(mine, values, strict=True) if v != k.value}
                if not 2 <= len(changes) <= MAX_CHANGES:
                    continue
                tile, rest = dict(schedule.tile), {}
                for k, v in zip(mine, values, strict=True):
                    if k.directive == "tile":
                        tile[k.key] = v
                    else:
                        rest["stages" if k.key == "stages" else "warps"] = v
                changed = replace(schedule, tile=tile, **rest)  # type: ignore[arg-type]
                time = appraise(kernel, changed, self.hw, self.sizes[0]).relative_time / now
                setting = {**before.setting, **{n: v for n, (_, v) in changes.items()}}
                found.append((Point(setting, before.expected - math.log(time)), changes))
        found.sort(key=lambda f: (-f[0].expected, sorted(f[1])))
        return found[:GRID_WHOLE]

    def sampled(self, parent: _Tried, tried: Sequence[_Tried], seed: int) -> list[_Option]:
        """What TPE suggests for the numeric knobs of a program."""
        from avo.agents.sampler import suggestions

        scales = {n.name: n.scale for n in self.knobs(parent.program) if n.number}
        good = [math.log(t.score) for t in tried if t.score > 0]
        floor = min(good, default=0.0) - 1.0
        history = [(self.point(t.program, t.key).setting, math.log(t.score) if t.score > 0 else floor) for t in tried]
        before = self.point(parent.program, parent.key).setting
        found = []
        for setting in suggestions(scales, history, seed, TPE_ASKED):
            changes = {n: (before.get(n, "?"), v) for n, v in setting.items() if before.get(n) != v}
            found.append(self._option(self.set(parent.program, setting), parent, changes, "sampler"))
        return found

    def set(self, program: Program, values: Mapping[str, Value]) -> Program:
        """Several knobs set, whatever is legal on the way; `legal` asks about the whole."""
        from dsl.knobs import knob_named, set_knob

        for name, value in values.items():
            program = set_knob(program, knob_named(program, self.hw, name), value)
        return program

    def _option(self, program: Program, parent: _Tried, changes: Changes, source: str) -> _Option:
        return _Option(program, _key(program), parent, changes, source)

    def streamed(self, program: Program) -> frozenset[str]:
        from dsl.anatomy import anatomies

        return frozenset(a for kernel in anatomies(program) for a in kernel.streamable)


def _key(program: Program) -> str:
    from dsl.knobs import plain
    from dsl.printer import digest

    return digest(plain(program))


# The choice -----------------------------------------------------------------------------------------------------------


def _choose(space: _Space, brief: Brief, k: int, last: int, under_way: tuple[str, ...]) -> _Option | None:
    """What proposal k is, by the verdicts up to `last`; `under_way`: what was proposed since the brief."""
    visible = [c for c in brief.candidates if c.k <= last] or list(brief.candidates[:1])
    seen = {read[1] for c in brief.candidates if (read := space.read(c)) is not None} | set(under_way)
    key = (brief.seed, k, tuple((c.digest, c.value) for c in visible), frozenset(seen))
    if key not in space.chosen:
        tried = space.tried(visible)
        if not tried:
            raise UserMistake(f"the agent 'heuristic' edits programs, and the seed of {brief.target.name} is none")
        space.chosen[key] = _chosen(space, tried, seen, brief.seed, k)
    return space.chosen[key]


def _chosen(space: _Space, tried: list[_Tried], seen: set[str], seed: int, k: int) -> _Option | None:
    rng = random.Random(entropy(seed, k))
    model = _model(space, tried)
    ranked = sorted(tried, key=lambda t: (-t.score, t.judged.k))
    parents = [t for t in ranked if t.score > 0][:PARENTS] or tried[-1:]
    stale = tried[-1].judged.k - parents[0].judged.k
    if k % (TPE_EVERY if stale < STALE else 2) == 0:
        found = _best(space, space.sampled(parents[0], tried, entropy(seed, k)), seen, model, rng)
        if found is not None:
            return found
    pool = [o for p in parents for o in space.edits(p)] + space.joint(parents[0], model)
    found = _best(space, pool, seen, model, rng)
    if found is not None:
        return found
    for parent in ranked:  # nothing left near the best: the first that is new among the edits of all others
        for option in space.edits(parent):
            if option.key not in seen and space.legal(option.program, option.key):
                return option
    return None


def _best(
    space: _Space, options: Sequence[_Option], seen: set[str], model: Surrogate, rng: random.Random
) -> _Option | None:
    """The legal one among those not seen whose expected improvement is largest."""
    new: dict[str, _Option] = {}
    for o in options:
        if o.key not in seen:
            new.setdefault(o.key, o)
    pool = list(new.values())
    if not pool:
        return None
    bonus = [_bonus(space, o) - 0.01 * len(o.changes) for o in pool]
    worth = model.improvement([space.point(o.program, o.key) for o in pool], bonus)
    order = sorted(range(len(pool)), key=lambda i: (-round(float(worth[i]), 9), rng.random()))
    return next((pool[i] for i in order if space.legal(pool[i].program, pool[i].key)), None)


def _bonus(space: _Space, option: _Option) -> float:
    """What the parent's evidence adds to the log score that the model expects of an edit."""
    from avo.agents.evidence import evidence
    from avo.agents.moves import claims

    parent = option.parent
    facts = evidence(parent.judged.evaluation)
    reasons = sum(math.log(a.gain) for a in claims(option.changes, facts, space.streamed(parent.program)))
    hoped = space.point(option.program, option.key).expected - space.point(parent.program, parent.key).expected
    # where the judge told what takes the time, arithmetic is believed only as far as there is time to save
    excess = max(0.0, hoped - reasons) if facts.shares else 0.0
    return TRUST * reasons - DOUBT * excess


def _model(space: _Space, tried: Sequence[_Tried]) -> Surrogate:
    from avo.agents.surrogate import Surrogate

    return Surrogate([space.point(t.program, t.key) for t in tried], [t.score for t in tried])


def _proposal(space: _Space, option: _Option, brief: Brief) -> Proposal:
    from avo.agents.evidence import evidence
    from avo.agents.moves import claims
    from dsl.printer import print_program

    parent = option.parent
    found = evidence(parent.judged.evaluation)
    answers = claims(option.changes, found, space.streamed(parent.program))
    model = _model(space, space.tried(brief.candidates))
    mean, _ = model.predict([space.point(option.program, option.key), space.point(parent.program, parent.key)])
    before = math.log(parent.score) if parent.score > 0 else float(mean[1])
    # as it was chosen by: without the evidence's part an edit that the evidence asks for would seem to be a loss
    expected = round(math.exp(float(mean[0]) + _bonus(space, option) - before), 3)
    claim = answers[0].claim if answers else "no change"
    edits = ", ".join(f"{n} {old} -> {new}" for n, (old, new) in option.changes.items())
    how = {"edit": "", "grid": "; set together, by registers and shared memory", "sampler": "; drawn by TPE"}
    cause = (answers[0].cause if answers else "") or found.bottleneck
    text = print_program(option.program)
    space.know(text, option)
    return Proposal(
        text=text,
        parents=(parent.judged.digest,),
        rationale=f"{edits}{how[option.source]}" + (f" (answers {cause})" if cause else ""),
        hypothesis=Hypothesis(
            claim=claim if expected >= 1 else f"a look where little is known: {claim}",
            expected_gain=expected,
            bottleneck=cause,
        ),
    )
