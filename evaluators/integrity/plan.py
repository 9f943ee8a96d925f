"""Which calls a raw candidate is judged by: workloads, distributions and sizes that follow from a seed and the text."""

from __future__ import annotations

import math
import statistics
from contextlib import suppress
from dataclasses import replace

import numpy as np

from dsl.meaning import evaluate
from dsl.work import work
from evaluators.inputs import (
    DISTRIBUTIONS,
    FLOATS,
    draw_inputs,
    extents,
    faint,
    far_out,
    generator,
    pairings,
    representable,
)
from evaluators.integrity.calls import FAINT, _Call, _Case, _drawn, right
from evaluators.integrity.narrow_sums import Recipe, planted, recipes
from evaluators.loading import fits
from evaluators.oracle import output_dtypes
from evaluators.target import Target, TargetError, Workload

_TOGETHER = 4  # times the longest of the checks: what several axes of one long call are at most
_LONGER, _MUCH_LONGER = 8, 200  # times the longest of the checks: what one axis of a long call is; before a promotion
_FLOPS, _VALUES = 2e8, 1 << 22  # of a long call's right answer; so many times as much before a promotion:
_MORE = 4
_WIDE, _FAR_UP, _FAR_DOWN = ("bf16", "f32"), 2.0**20, 2.0**-30  # dtypes of float32's range; beyond that of float16
_PATIENCE, _AT_LEAST = 20.0, 5.0  # times what a long call should take; seconds


def _plan(case: _Case) -> None:
    """Each check with two distributions, or with all where it is to be thorough, some once more, and some at sizes that
    nobody has named, these with places far out, one with faint rows (all, where it is to be thorough), and those in
    which sums in less than float32, or dtypes of less range, show: in an order and number that the text cannot know.
    Then what is long."""
    rng = generator(case.seed, "raw", case.target.name, case.text)
    names = list(DISTRIBUTIONS)
    first = pairings(case.target.checks, rng)
    rounds = (0, 1, 2, 3) if case.thorough else (0, 2)
    pairs = [(w, names[(names.index(d) + more) % len(names)]) for more in rounds for w, d in first]
    extra = [pairs[int(i)] for i in rng.integers(len(pairs), size=int(rng.integers(1, 4)))]
    extra += [(_other_size(case, w, rng), d) for w, d in (pairs[int(i)] for i in rng.integers(len(pairs), size=2))]
    extra += [(w, "normal") for w in case.target.checks] if case.thorough else []
    checks = case.target.checks
    dim = checks if case.thorough else [checks[int(rng.integers(len(checks)))]]
    every = [
        *((w, d, "") for w, d in pairs),
        *((w, d, "far") for w, d in extra),
        *((w, "normal", "faint") for w in dim),
    ]
    calls = [*(_planned(case, *one, rng) for one in every), *_planted(case, rng), *_of_other_size(case, rng)]
    case.calls += [calls[int(place)] for place in rng.permutation(len(calls))]
    for workload in _long_sizes(case, rng):
        with suppress(TargetError):  # the target has no inputs of that size
            call = _planned(case, workload, names[int(rng.integers(len(names)))], "", rng)
            if not _bounded(case, call):
                call = _planned(case, workload, "normal", "", rng)
            case.calls.append(replace(call, long=True))
            if case.thorough:
                case.calls += [replace(one, long=True) for one in _planted_at(case, workload, rng)]


def _of_other_size(case: _Case, rng: np.random.Generator) -> list[_Call]:
    """A call in which one input is far larger or smaller as a whole than any other call has it (before a promotion, one
    of each), where the right answer is so much larger or smaller too: what goes by way of a dtype of less range shows.
    None where no input is of that kind, or the output's dtype is itself of less range."""
    algorithm = case.program.algorithm
    if not set(output_dtypes(algorithm).values()) <= {*_WIDE}:
        return []
    checks = case.target.checks
    call = _drawn(case, checks[int(rng.integers(len(checks)))], "normal", rng)
    names = [t.name for t in algorithm.inputs if (t.dtype or "f32") in _WIDE and call.inputs[t.name].ndim > 1]
    factors = [_FAR_UP, _FAR_DOWN]
    found: list[_Call] = []
    for factor in (factors[int(i)] for i in rng.permutation(2)):
        for name in (names[int(i)] for i in rng.permutation(len(names))):
            changed = replace(call, inputs={**call.inputs, name: call.inputs[name] * factor})
            if _follows(case, call, changed, factor) and _bounded(case, changed):
                power = int(math.log2(factor))
                row = {"workload": call.workload.name, "distribution": "normal", "places": f"{name} times 2^{power}"}
                found.append(replace(changed, row=row))
                break
        if found and not case.thorough:
            break
    return found


def _follows(case: _Case, call: _Call, changed: _Call, factor: float) -> bool:
    """Whether the right answers are so many times as large as before."""
    params = {p.name: p.default for p in case.program.algorithm.params if p.default is not None}
    params |= call.workload.params
    before, after = (evaluate(case.program, dict(c.inputs), params, mode="exact") for c in (call, changed))
    return all(np.allclose(after[name], factor * before[name], rtol=1e-9, atol=0.0) for name in before)


def _planted(case: _Case, rng: np.random.Generator) -> list[_Call]:
    """A call of each recipe of the target's, at the check where it was found to show; before a promotion at the others
    too."""
    found = []
    for recipe in recipes(case.target, case.program, right):
        for check in case.target.checks if case.thorough else (recipe.check,):
            found += _planted_by(case, recipe, check, rng)
    return found


def _planted_at(case: _Case, workload: Workload, rng: np.random.Generator) -> list[_Call]:
    """Those of a long size whose long axis is summed along: a kernel may add otherwise where sums are longer."""
    known = {axis: max(w.sizes[axis] for w in case.target.checks) for axis in workload.sizes}
    over = [axis for axis, n in workload.sizes.items() if n > known[axis]]
    every = recipes(case.target, case.program, right)
    return [call for r in every if [r.axis] == over for call in _planted_by(case, r, workload, rng)]


def _planted_by(case: _Case, recipe: Recipe, workload: Workload, rng: np.random.Generator) -> list[_Call]:
    inputs = planted(case.target, case.program, recipe, workload, right, rng)
    if inputs is None:
        return []
    row = {"workload": workload.name, "distribution": recipe.kind, "places": "sums of large parts"}
    return [_Call(workload, recipe.kind, inputs, row, planted=True)]


def _planned(case: _Case, workload: Workload, distribution: str, places: str, rng: np.random.Generator) -> _Call:
    """places: "far" or "faint" for what some of them are."""
    call = _drawn(case, workload, distribution, rng)
    call.row |= {"workload": workload.name, "distribution": distribution}
    if not places:
        return call
    dtypes = {t.name: t.dtype or "f32" for t in case.program.algorithm.inputs}
    change = far_out if places == "far" else faint
    inputs = {name: change(value, dtypes[name], rng) for name, value in call.inputs.items()}
    row = {**call.row, "places": "some far out" if places == "far" else FAINT}
    changed = replace(call, inputs=inputs, row=row)
    return changed if places == "far" or _bounded(case, changed) else call


def _bounded(case: _Case, call: _Call) -> bool:
    """Whether the right answer is finite, and not so near to the end of its dtype that an honest one may not be."""
    defaults = {p.name: p.default for p in case.program.algorithm.params if p.default is not None}
    exact = evaluate(case.program, dict(call.inputs), {**defaults, **call.workload.params}, mode="exact")
    dtypes = output_dtypes(case.program.algorithm)
    floats = [(np.asarray(exact[name]), dtype) for name, dtype in dtypes.items() if dtype in FLOATS]
    with np.errstate(over="ignore"):
        return all(np.isfinite(representable(1.05 * value, dtype)).all() for value, dtype in floats)


def _other_size(case: _Case, workload: Workload, rng: np.random.Generator) -> Workload:
    """The check with its longer axes cut by a random part, in steps that keep their factors of 2 up to 8; the check
    itself where the target cannot be asked for that."""
    sizes = dict(workload.sizes)
    for axis, n in sizes.items():
        step = math.gcd(n, 8)
        most = n // (3 * step)
        if n >= 16 and most and _varies(case, axis):
            sizes[axis] = n - step * int(rng.integers(1, most + 1))
    other = Workload(sizes, workload.params)
    try:
        draw_inputs(case.target, case.program.algorithm, other, "normal", rng)
    except TargetError:
        return workload
    return other if _fits(case, other) else workload


def _varies(case: _Case, axis: str) -> bool:
    """An axis that is a power of two, or one number, wherever the target names it (attention's head dimension) is what
    kernels are written for, and stays."""
    lengths = {w.sizes[axis] for w in _named(case.target) if axis in w.sizes}
    return len(lengths) > 1 and any(length & (length - 1) for length in lengths)


def _named(target: Target) -> tuple[Workload, ...]:
    return (*target.checks, *target.workloads, *target.hidden)


def _fits(case: _Case, workload: Workload) -> bool:
    try:
        fits(case.target, case.program.algorithm, workload)
    except TargetError:
        return False
    return True


def _long_sizes(case: _Case, rng: np.random.Generator) -> list[Workload]:
    """Sizes with one axis about as long as a public or hidden one and the others as short as any check has them: what
    is only right where everything is short shows, and the interpreter bears it. Of one axis, and no more than _LONGER
    times the checks; of all where it is to be thorough. Axes that follow from others stay, and those that are
    of one length wherever the target names them go together."""
    target, named = case.target, _named(case.target)
    tied = {name for a in case.program.algorithm.axes for name in (a.name, a.fine)}
    base = target.checks[int(rng.integers(len(target.checks)))]
    free = [axis for axis in base.sizes if axis not in tied and _varies(case, axis)]
    short = {axis: min(w.sizes[axis] for w in target.checks) for axis in free}
    groups = {tuple(b for b in free if all(w.sizes[a] == w.sizes[b] for w in named)): None for a in free}
    found: list[Workload] = []
    for group in groups:
        lengths = [w.sizes[group[0]] for w in named]
        known = max(w.sizes[group[0]] for w in target.checks)
        most = min(max(lengths), (_MUCH_LONGER if case.thorough else _LONGER) * known)
        fitting = sorted({n for n in lengths if known < n <= most} or {most})
        step = math.gcd(*lengths, 64)
        n = ((fitting[-1] if case.thorough else int(rng.choice(fitting))) // step - int(rng.integers(4))) * step
        workload = Workload({**base.sizes, **short, **dict.fromkeys(group, n)}, base.params)
        while n > known and _takes_long(case, workload):
            n = n // (2 * step) * step
            workload = Workload({**workload.sizes, **dict.fromkeys(group, n)}, base.params)
        if n > known and _fits(case, workload):
            found.append(workload)
    if case.thorough and len(groups) > 1:
        found += _long_together(case, base, list(groups))
    return found if case.thorough or not found else [found[int(rng.integers(len(found)))]]


def _long_together(case: _Case, base: Workload, groups: list[tuple[str, ...]]) -> list[Workload]:
    """All of these axes longer than in any check at once, as far as the interpreter bears it: offsets that are right
    while one of them is short are seen to be wrong."""
    target, named = case.target, _named(case.target)
    sizes = dict(base.sizes)
    steps = {group: math.gcd(*(w.sizes[group[0]] for w in named), 64) for group in groups}
    for group in groups:
        known = max(w.sizes[group[0]] for w in target.checks)
        n = min(max(w.sizes[group[0]] for w in named), _TOGETHER * known) // steps[group] * steps[group]
        sizes |= dict.fromkeys(group, n)
    workload = Workload(sizes, base.params)
    while _takes_long(case, workload, together=True):
        group = max(groups, key=lambda g: sizes[g[0]] / max(w.sizes[g[0]] for w in target.checks))
        n = sizes[group[0]] // (2 * steps[group]) * steps[group]
        if n < max(w.sizes[group[0]] for w in target.checks):
            return []
        sizes |= dict.fromkeys(group, n)
        workload = Workload(sizes, base.params)
    return [workload] if _fits(case, workload) else []


def _takes_long(case: _Case, workload: Workload, together: bool = False) -> bool:
    """Whether the right answer takes much time or memory."""
    algorithm = case.program.algorithm
    sizes = extents(algorithm, workload)
    every = (*algorithm.inputs, *algorithm.outputs, *(t for s in algorithm.statements for t in s.targets))
    values = sum(math.prod(sizes[a] for a in t.axes or ()) for t in every)
    more = _MORE if case.thorough and not together else 1
    flops = work(case.program, workload.sizes, workload.params).total_flops
    return values > more * _VALUES or flops > more * _FLOPS


def long_limit(case: _Case) -> float:
    """Seconds for a long call: many times what the calls before it took for each operation and value, so that one that
    hangs where things are long does not hold the judge up for long."""

    def size(call: _Call) -> float:
        flops = work(case.program, call.workload.sizes, call.workload.params).total_flops
        return 1.0 + flops + sum(x.size for x in call.inputs.values())

    rates = [call.spent / size(call) for call in case.calls if call.made and not call.long]
    longest = max((size(call) for call in case.calls if call.long), default=0.0)
    return max(_AT_LEAST, _PATIENCE * statistics.median(rates) * longest) if rates else math.inf
