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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

PARENTS = 3  # programs whose edits are looked at
GRID = 48  # joint settings of the numeric knobs that enter the pool
TPE_EVERY = 5  # one proposal of so many comes from the sampler
TPE_ASKED = 16
_MAX_CHANGES = 3  # knobs that one directed proposal changes, so that a verdict says something about each


@dataclass(frozen=True)
class _Tried:
    """A judged candidate as the agent reads it. score: 0 where it failed."""

    judged: Judged
    program: Program
    setting: Mapping[str, Value]
    score: float


@dataclass(frozen=True)
class _Option:
    """A program that could be proposed: what it changes of its parent and why it should be faster."""

    program: Program
    digest: str
    parent: _Tried
    changes: Mapping[str, tuple[Value, Value]]
    source: str  # "edit", "grid" or "sampler"


class HeuristicAgent:
    """Deterministic under the run's seed. Never offers a program that the check rejects, nor one that was proposed
    before; it gives up where no other is left within reach.

    Option `knobs`: knob name -> values; what it does not name stays as the seed program has it.
    """

    name = "heuristic"

    def propose(self, brief: Brief) -> Proposal | None:
        search = _Search(brief)
        last = brief.candidates[-1].k
        lag = brief.k - last
        under_way: set[str] = set()
        for k in range(last + 1, brief.k):
            option = search.choose(k, max(0, k - lag), under_way)
            if option is not None:
                under_way.add(option.digest)
        option = search.choose(brief.k, last, under_way)
        return None if option is None else search.proposal(option, last)


class _Search:
    """One brief's view: programs parsed and legal values asked once."""

    def __init__(self, brief: Brief) -> None:
        from dsl.anatomy import anatomies

        self.brief = brief
        self.hw: Hardware = brief.hardware
        self.sizes: list[Sizes] = [dict(w.sizes) for w in brief.target.workloads] or [{}]
        self.tried = [t for t in (self._read(c) for c in brief.candidates) if t is not None]
        if not self.tried:
            raise UserMistake(f"the agent 'heuristic' edits programs; the seed of {brief.target.name} is none")
        self.anatomies = anatomies
        given = brief.options.get("knobs")
        self.open = None if given is None else {str(n): tuple(v) for n, v in dict(given).items()}
        self._edits: dict[str, list[tuple[Program, dict[str, tuple[Value, Value]]]]] = {}

    def _read(self, c: Judged) -> _Tried | None:
        """A candidate with its knobs; None where it does not parse or does not mean anything (another agent's)."""
        from dsl.check import errors
        from dsl.diagnostics import ProgramError
        from dsl.knobs import settings
        from dsl.parser import parse

        try:
            program = parse(c.text)
        except ProgramError:
            return None
        if c.status.value in ("parse_error", "check_error", "meaning_error") and errors(program):
            return None
        score = c.value if c.status.value == "ok" else 0.0
        return _Tried(c, program, settings(program, self.hw), score)

    # The choice ---------------------------------------------------------------------------------------------------

    def choose(self, k: int, last: int, under_way: set[str]) -> _Option | None:
        """What proposal k is, by the verdicts up to `last`; `under_way`: what was proposed since the brief."""
        tried = [t for t in self.tried if t.judged.k <= last] or self.tried[:1]
        seen = {c.digest for c in self.brief.candidates} | under_way
        rng = random.Random(entropy(self.brief.seed, k))
        model = self._model(tried)
        parents = self._parents(tried)
        if k % TPE_EVERY == 0:
            options = list(self._unseen(self._sampled(parents[0], tried, k), seen))
            if options:
                return self._best(options, model, rng)
        pool = itertools.chain(*(self._edited(p) for p in parents), self._joint(parents))
        options = list(self._unseen(pool, seen))
        return self._best(options, model, rng) if options else self._anything(tried, seen)

    def _parents(self, tried: Sequence[_Tried]) -> list[_Tried]:
        """The best few that are correct; the newest where none is."""
        good = sorted((t for t in tried if t.score > 0), key=lambda t: (-t.score, t.judged.k))
        distinct = {t.judged.digest: t for t in reversed(good or tried[-1:])}
        return [t for t in good or tried[-1:] if distinct[t.judged.digest] is t][:PARENTS]

    def _best(self, options: Sequence[_Option], model: Surrogate, rng: random.Random) -> _Option:
        from avo.agents.evidence import evidence
        from avo.agents.moves import claims

        found = {id(o.parent): evidence(o.parent.judged.evaluation) for o in options}
        bonus = []
        for o in options:
            gains = [a.gain for a in claims(o.changes, found[id(o.parent)], self._streamed(o.parent.program))]
            bonus.append(0.3 * sum(math.log(g) for g in gains) - 0.01 * len(o.changes))
        worth = model.improvement([self._point(o.program) for o in options], bonus)
        order = sorted(range(len(options)), key=lambda i: (-round(float(worth[i]), 9), rng.random()))
        return options[order[0]]

    def _model(self, tried: Sequence[_Tried]) -> Surrogate:
        from avo.agents.surrogate import Surrogate

        first: dict[str, _Tried] = {}
        for t in tried:
            first.setdefault(t.judged.digest, t)
        return Surrogate([self._point(t.program) for t in first.values()], [t.score for t in first.values()])

    def _point(self, program: Program) -> Point:
        from avo.agents.appraisal import appraise
        from avo.agents.surrogate import Point
        from dsl.knobs import settings
        from dsl.schedule import resolve

        time = 1.0
        for i, kernel in enumerate(self.anatomies(program)):
            schedule = resolve(program, i, self.hw.arch, self.hw.name)
            time *= appraise(kernel, schedule, self.hw, self.sizes[0]).relative_time
        return Point(settings(program, self.hw), -math.log(time))

    # The pool -----------------------------------------------------------------------------------------------------

    def _edited(self, parent: _Tried) -> Iterator[_Option]:
        """Every legal value of every knob, one knob at a time."""
        from dsl.knobs import set_knob
        from dsl.printer import digest

        key = parent.judged.digest
        if key not in self._edits:
            self._edits[key] = [
                (set_knob(parent.program, knob, value), {knob.name: (knob.value, value)})
                for knob in self._knobs(parent.program)
                for value in knob.legal
                if value != knob.value and not (knob.directive == "stream" and value == "none")
            ]
        for program, changes in self._edits[key]:
            yield _Option(program, digest(program), parent, changes, "edit")

    def _joint(self, parents: Sequence[_Tried]) -> Iterator[_Option]:
        """Numeric knobs of one kernel set together, those first that arithmetic likes best."""
        from dsl.printer import digest

        best = parents[0]
        for changes in self._grid(best):
            program = self._with(best.program, {n: new for n, (_, new) in changes.items()})
            yield _Option(program, digest(program), best, changes, "grid")

    def _grid(self, parent: _Tried) -> list[dict[str, tuple[Value, Value]]]:
        from avo.agents.appraisal import appraise
        from dsl.schedule import resolve

        found: list[tuple[float, dict[str, tuple[Value, Value]]]] = []
        numeric = [k for k in self._knobs(parent.program) if k.number and k.directive in _SHAPE]
        for index, kernel in enumerate(self.anatomies(parent.program)):
            schedule = resolve(parent.program, index, self.hw.arch, self.hw.name)
            mine = [k for k in numeric if k.kernel == index][:5]
            for values in itertools.product(*(k.scale for k in mine)):
                pairs = zip(mine, values, strict=True)
                changes = {k.name: (k.value, v) for k, v in pairs if v != k.value}
                if not 2 <= len(changes) <= _MAX_CHANGES:
                    continue
                tile = {
                    **schedule.tile,
                    **{k.key: v for k, v in zip(mine, values, strict=True) if k.directive == "tile"},
                }
                rest = {
                    ("stages" if k.key == "stages" else "warps"): v
                    for k, v in zip(mine, values, strict=True)
                    if k.directive != "tile"
                }
                changed = replace(schedule, tile=tile, **rest)  # type: ignore[arg-type]
                found.append((appraise(kernel, changed, self.hw, self.sizes[0]).relative_time, changes))
        found.sort(key=lambda f: (f[0], sorted(f[1])))
        return [changes for _, changes in found[:GRID]]

    def _sampled(self, parent: _Tried, tried: Sequence[_Tried], k: int) -> Iterator[_Option]:
        """What TPE suggests for the numeric knobs of the best program."""
        from avo.agents.sampler import suggestions
        from dsl.printer import digest

        scales = {n.name: n.scale for n in self._knobs(parent.program) if n.number}
        good = [math.log(t.score) for t in tried if t.score > 0]
        floor = min(good, default=0.0) - 1.0
        history = [(t.setting, math.log(t.score) if t.score > 0 else floor) for t in tried]
        for setting in suggestions(scales, history, entropy(self.brief.seed, k), TPE_ASKED):
            program = self._with(parent.program, setting)
            changes = {n: (parent.setting.get(n, "?"), v) for n, v in setting.items() if parent.setting.get(n) != v}
            yield _Option(program, digest(program), parent, changes, "sampler")

    def _knobs(self, program: Program) -> list[Knob]:
        """The program's knobs, within what the agent's option `knobs` leaves open."""
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

    def _with(self, program: Program, values: Mapping[str, Value]) -> Program:
        """Several knobs set, whatever is legal on the way; `_legal` asks about the whole."""
        from dsl.knobs import knob_named, set_knob

        for name, value in values.items():
            program = set_knob(program, knob_named(program, self.hw, name), value)
        return program

    def _unseen(self, pool: Iterable[_Option], seen: set[str]) -> Iterator[_Option]:
        mine: set[str] = set()
        for option in pool:
            if option.digest in seen or option.digest in mine or not self._legal(option.program):
                continue
            mine.add(option.digest)
            yield option

    def _legal(self, program: Program) -> bool:
        from dsl.check import schedule_diagnostics

        kernels = self.anatomies(program)
        distinct = {tuple(sorted(s.items())): s for s in self.sizes}
        return not any(
            d.severity == "error"
            for sizes in distinct.values()
            for d in schedule_diagnostics(program, self.hw, sizes, kernels)
        )

    def _anything(self, tried: Sequence[_Tried], seen: set[str]) -> _Option | None:
        """The first program that was not seen among the edits of all others, the best parents first."""
        for parent in sorted(tried, key=lambda t: (-t.score, t.judged.k)):
            for option in self._unseen(self._edited(parent), seen):
                return option
        return None

    def _streamed(self, program: Program) -> frozenset[str]:
        return frozenset(a for kernel in self.anatomies(program) for a in kernel.streamable)

    # Words --------------------------------------------------------------------------------------------------------

    def proposal(self, option: _Option, last: int) -> Proposal:
        from avo.agents.evidence import evidence
        from avo.agents.moves import claims
        from dsl.printer import print_program

        found = evidence(option.parent.judged.evaluation)
        answers = claims(option.changes, found, self._streamed(option.parent.program))
        model = self._model([t for t in self.tried if t.judged.k <= last] or self.tried[:1])
        mean, _ = model.predict([self._point(option.program), self._point(option.parent.program)])
        gain = math.exp(float(mean[0] - mean[1]))
        edits = ", ".join(f"{n} {old} -> {new}" for n, (old, new) in option.changes.items())
        how = {"edit": "", "grid": "; set together, by registers and shared memory", "sampler": "; drawn by TPE"}
        claim = answers[0].claim if answers else "no change"
        cause = (answers[0].cause if answers else "") or found.bottleneck
        return Proposal(
            text=print_program(option.program),
            parents=(option.parent.judged.digest,),
            rationale=f"{edits}{how[option.source]}" + (f" (answers {cause})" if cause else ""),
            hypothesis=Hypothesis(claim=claim, expected_gain=round(gain, 3), bottleneck=cause),
        )


_SHAPE = ("tile", "stream", "warps")
