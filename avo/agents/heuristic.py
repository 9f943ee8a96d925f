"""The agent that needs no model: bottleneck-directed edits over the knobs, and Optuna for the numbers.

A proposal is the best of a pool. The pool: every one-knob edit of the best few programs, the joint settings of several
knobs that the model likes best, and what TPE suggests. Its order: expected improvement under the arithmetic of
`avo.agents.appraisal` as the verdicts bent it, plus what the parent's evidence says of an edit (`avo.agents.moves`).

Where times are measured and the judge can predict them too, the best of the pool are compiled and predicted first, a
few at a time; predictions, corrected by what was measured of others, then decide which of them takes the device's time.

Proposal k is a function of the run's seed, k, and the verdicts up to k-J: nothing is kept between calls, and proposals
that are under way while k is made are made again, so that none is proposed twice.
"""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from avo.agents.protocol import Brief, Hypothesis, Proposal, entropy
from avo.agents.sampler import STARTUP
from avo.agents.space import Option, Preview, Space, Tried, Waiting
from avo.errors import UserMistake

if TYPE_CHECKING:
    from avo.agents.evidence import Evidence
    from avo.agents.surrogate import Model, Point

PARENTS = 3  # programs whose edits are looked at
TPE_EVERY = 5  # one proposal of so many comes from the sampler
STALE = 8  # proposals without a better one, after which every other comes from it
TRUST, DOUBT = 0.5, 0.9  # of what the evidence says an edit may save; of what arithmetic hopes beyond it
ROUNDS, AT_ONCE = 1, 8  # of previews for a proposal, and how many are compiled side by side in each
ALIKE = 2  # proposals under way at once with the same tiles: the next one tries others
MOST_LAG = 4  # --jobs beyond which nothing is previewed: proposals would wait for each other's compilations


class HeuristicAgent:
    """Deterministic under the run's seed. Never offers a program that the check rejects, nor one that was proposed
    before; it gives up where no other is left within reach.

    Where the target opens its algorithm, a sum that leaves the chip idle is first tried in blocks (`splitting`).

    Option `knobs`: knob name -> values; what it does not name stays as the seed program has it. Option `prediction`:
    false takes the arithmetic, the predicted shares of time and the previews away, to see what they are worth. Option
    `previews`: rounds of previews for a proposal, 0 for none. What the object keeps between calls only saves time: a
    new one proposes the same.
    """

    name = "heuristic"
    OPTIONS = ("knobs", "prediction", "previews")

    def __init__(self) -> None:
        self._space: Space | None = None
        self._lock = threading.Lock()  # proposals under way are made again by each later one: once is enough

    def propose(self, brief: Brief) -> Proposal | None:
        with self._lock:
            return self._propose(brief)

    def _propose(self, brief: Brief) -> Proposal | None:
        space = self._space
        if space is None or not space.serves(brief):
            space = self._space = Space(brief)
        last = brief.candidates[-1].k
        lag = brief.k - last
        # What is under way is made again, each as it was: by the verdicts that it saw, beside what was under way then.
        # Some of that is judged by now, and stands in the brief.
        made: dict[int, Waiting] = {c.k: Waiting(*read) for c in brief.candidates if (read := space.read(c))}
        for k in range(last + 1, brief.k):
            seen = max(0, k - lag)
            option = _choose(space, brief, k, seen, _between(made, seen, k))
            if option is not None:
                made[k] = Waiting(option.program, option.key)
        option = _choose(space, brief, brief.k, last, _between(made, last, brief.k))
        return None if option is None else _proposal(space, option, brief)


def _between(made: Mapping[int, Waiting], last: int, k: int) -> tuple[Waiting, ...]:
    return tuple(made[j] for j in range(last + 1, k) if j in made)


def _choose(space: Space, brief: Brief, k: int, last: int, under_way: tuple[Waiting, ...]) -> Option | None:
    """What proposal k is, by the verdicts up to `last`; `under_way`: what was proposed since the brief."""
    visible = [c for c in brief.candidates if c.k <= last] or list(brief.candidates[:1])
    seen = {read[1] for c in brief.candidates if (read := space.read(c)) is not None} | {o.key for o in under_way}
    key = (brief.seed, k, tuple((c.digest, c.value) for c in visible), frozenset(seen))
    if key not in space.chosen:
        tried = space.tried(visible)
        if not tried:
            raise UserMistake(f"the agent 'heuristic' edits programs, and the seed of {brief.target.name} is none")
        space.chosen[key] = _chosen(space, tried, seen, brief, k, last, under_way)
    return space.chosen[key]


def _chosen(
    space: Space, tried: list[Tried], seen: set[str], brief: Brief, k: int, last: int, under_way: Sequence[Waiting]
) -> Option | None:
    rng = random.Random(entropy(brief.seed, k))
    model = _model(space, tried, under_way)
    ranked = sorted(tried, key=lambda t: (-t.score, t.judged.k))
    parents = [t for t in ranked if t.score > 0][:PARENTS] or tried[-1:]
    stale = tried[-1].judged.k - parents[0].judged.k
    for option in space.algorithms(tried[0]):  # no number makes up for a chip that is mostly idle
        if option.key not in seen and space.legal(option.program, option.key):
            return option
    crowded = _crowded(space, under_way)
    preview = _preview(space, brief, k, last)
    if preview is not None:
        found = _previewed(space, tried, parents, seen, brief, k, preview, rng, under_way)
        if found is not None:
            return found
    elif len(tried) >= STARTUP and k % (TPE_EVERY if stale < STALE else 2) == 0:
        found = _best(space, space.sampled(parents[0], tried, entropy(brief.seed, k)), seen, model, rng)
        if found is not None:
            return found
    pool = _pool(space, parents, model)
    for options in ([o for o in pool if _tiles(space, o) not in crowded], pool):
        found = _best(space, options, seen, model, rng)
        if found is not None:
            return found
    for parent in ranked:  # nothing left near the best: the first that is new among the edits of all others
        for option in space.edits(parent):
            if option.key not in seen and space.legal(option.program, option.key):
                return option
    return None


def _tiles(space: Space, option: Option | Waiting) -> tuple[object, ...]:
    """What most of a kernel's time hangs on: tile lengths, and whether warps have roles."""
    setting = space.point(option.program, option.key).setting
    return tuple((n, v) for n, v in setting.items() if "tile " in n or "roles " in n)


def _crowded(space: Space, under_way: Sequence[Waiting]) -> set[tuple[object, ...]]:
    counts = Counter(_tiles(space, o) for o in under_way)
    return {tiles for tiles, n in counts.items() if n >= ALIKE}


def _pool(space: Space, parents: Sequence[Tried], model: Model) -> list[Option]:
    """Edits of the best few, joint settings of the best, and both again from where each idiom leads."""
    found = [o for p in parents for o in space.edits(p)] + space.joint(parents[0], model)
    for base in space.idioms(parents[0]):
        changed = space.itself(base, parents[0])
        near = [*space.edits(base), *space.joint(base, model)]
        found += [changed, *(replace(o, parent=parents[0], changes={**changed.changes, **o.changes}) for o in near)]
    return found


def _best(space: Space, options: Sequence[Option], seen: set[str], model: Model, rng: random.Random) -> Option | None:
    """The legal one among those not seen whose expected improvement is largest."""
    return next(iter(_first(space, options, seen, model, rng, 1)), None)


def _first(
    space: Space, options: Sequence[Option], seen: set[str], model: Model, rng: random.Random, count: int
) -> list[Option]:
    """The legal ones among those not seen whose expected improvement is largest, at most so many."""
    new: dict[str, Option] = {}
    for o in options:
        if o.key not in seen:
            new.setdefault(o.key, o)
    pool = list(new.values())
    if not pool:
        return []
    bonus = [_bonus(space, o) - 0.01 * len(o.changes) for o in pool]
    worth = model.improvement([space.point(o.program, o.key) for o in pool], bonus)
    order = sorted(range(len(pool)), key=lambda i: (-round(float(worth[i]), 9), rng.random()))
    found: list[Option] = []
    for i in order:
        if space.legal(pool[i].program, pool[i].key):
            found.append(pool[i])
            if len(found) == count:
                break
    return found


def _bonus(space: Space, option: Option) -> float:
    """What the parent's evidence adds to the log score that the model expects of an edit."""
    from avo.agents.moves import claims

    parent = option.parent
    facts = _evidence(space, parent)
    reasons = sum(math.log(a.gain) for a in claims(option.changes, facts, space.streamed(parent.program)))
    hoped = space.point(option.program, option.key).expected - space.point(parent.program, parent.key).expected
    # where the judge told what takes the time, arithmetic is believed only as far as there is time to save
    excess = max(0.0, hoped - reasons) if facts.shares else 0.0
    return TRUST * reasons - DOUBT * excess


def _evidence(space: Space, parent: Tried) -> Evidence:
    from avo.agents.evidence import Evidence, evidence

    if not space.predicts:
        return Evidence()
    if parent.judged.digest not in space.found:
        space.found[parent.judged.digest] = evidence(parent.judged.evaluation)
    return space.found[parent.judged.digest]


def _model(space: Space, tried: Sequence[Tried], under_way: Sequence[Waiting] = ()) -> Model:
    """Fitted on the verdicts. What is under way counts as if it were what is expected: the next one looks elsewhere."""
    from avo.agents.surrogate import Surrogate

    points, scores = [space.point(t.program, t.key) for t in tried], [t.score for t in tried]
    model = Surrogate(points, scores)
    if not under_way or model.best == 0.0:
        return model
    waiting = [space.point(o.program, o.key) for o in under_way]
    mean, _ = model.predict(waiting)
    believed = Surrogate([*points, *waiting], [*scores, *map(math.exp, mean)])
    believed.best = model.best
    return believed


# Previews -------------------------------------------------------------------------------------------------------------


def _preview(space: Space, brief: Brief, k: int, last: int) -> Preview | None:
    """How to have a program predicted, where that is not what the run's judge does anyway. Not before the first verdict
    after the seed's, nor with many under way: nobody shall wait for proposals."""
    measured = brief.candidates[0].evaluation.mode == "measured"
    few = last > 0 and k - last <= MOST_LAG
    return brief.preview if measured and few and space.predicts and space.options.get("previews", ROUNDS) else None


def _quick(space: Space, option: Option | Waiting) -> bool:
    """Whether its compilation takes seconds. Warps with roles take half a minute: they are measured unseen."""
    setting = space.point(option.program, option.key).setting
    return not any(v for n, v in setting.items() if n.endswith("roles mma"))


def _previewed(
    space: Space,
    tried: list[Tried],
    parents: list[Tried],
    seen: set[str],
    brief: Brief,
    k: int,
    preview: Preview,
    rng: random.Random,
    under_way: Sequence[Waiting],
) -> Option | None:
    """Compiles and predicts the best of the pool, round by round, then takes the one that measurements make the best.

    Every round goes by all predictions so far, of what was judged and what was only looked at."""
    from avo.agents.surrogate import Corrected

    judged = {t.key: t.judged.score.predicted or 0.0 for t in tried}
    looked: dict[str, tuple[Option, float]] = {}
    rounds = int(space.options.get("previews", ROUNDS))
    waiting = _known(space, under_way, preview)
    sampled = space.sampled(parents[0], tried, entropy(brief.seed, k), 4)
    pool: list[Option] = []
    for turn in range(rounds + 1):
        known = [(space.point(t.program, t.key), judged[t.key]) for t in tried]
        known += [(space.point(o.program, o.key), value) for o, value in looked.values()]
        scores = [(space.point(t.program, t.key), t.score) for t in tried]
        model = Corrected(known + waiting, scores, [point for point, _ in waiting])
        if turn == rounds:
            break
        pool = _pool(space, parents, model) + sampled
        quick = [o for o in pool if _quick(space, o)]
        new = _first(space, quick, seen | set(looked), model, rng, AT_ONCE)
        for option, value in zip(new, space.predicted(new, preview), strict=True):
            looked[option.key] = (option, value)
        if not new:
            break
    ready = [o for o, value in looked.values() if value > 0]
    ready += _first(space, [o for o in pool if not _quick(space, o)], seen, model, rng, 1)
    if not ready:
        return None
    worth = model.improvement([space.point(o.program, o.key) for o in ready], [0.0] * len(ready))
    return ready[max(range(len(ready)), key=lambda i: (round(float(worth[i]), 9), -i))]


def _known(space: Space, options: Sequence[Waiting], preview: Preview) -> list[tuple[Point, float]]:
    quick = [o for o in options if _quick(space, o)]
    values = space.predicted(quick, preview)
    return [(space.point(o.program, o.key), v) for o, v in zip(quick, values, strict=True) if v > 0]


# The proposal ---------------------------------------------------------------------------------------------------------


def _proposal(space: Space, option: Option, brief: Brief) -> Proposal:
    from avo.agents.moves import claims
    from dsl.printer import print_program

    parent = option.parent
    found = _evidence(space, parent)
    answers = claims(option.changes, found, space.streamed(parent.program))
    model = _model(space, space.tried(brief.candidates))
    mean, _ = model.predict([space.point(option.program, option.key), space.point(parent.program, parent.key)])
    before = math.log(parent.score) if parent.score > 0 else float(mean[1])
    # as it was chosen by: without the evidence's part an edit that the evidence asks for would seem to be a loss
    expected = round(math.exp(float(mean[0]) + _bonus(space, option) - before), 3)
    claim = answers[0].claim if answers else "no change"
    edits = ", ".join(f"{n} {old} -> {new}" for n, (old, new) in option.changes.items())
    how = {
        "edit": "",
        "grid": "; set together, by what the model expects",
        "idiom": "; they pay off together",
        "sampler": "; drawn by TPE",
        "algorithm": "; a line of the algorithm, which the target opens",
    }
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
