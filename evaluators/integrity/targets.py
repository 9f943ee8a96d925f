"""Is a target itself fit to judge by? Answers that do none of the work are put before its own tolerances.

Each answer is a way to skip the job: a constant, a copy of an input, the output for other inputs, an output that
ignores one input or one param, or is constant along one axis. They are stronger than what a candidate could do, for
they know the right answer's mean, its rows' means and its spread. An answer passes a target if it passes every check of
one judgement; a target that lets one through rewards whoever finds it, and is refused when loaded (`insist_fit`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from dsl.assembly import walk
from dsl.diagnostics import ProgramError
from dsl.meaning import evaluate
from dsl.rounding import round_to
from dsl.syntax import Algorithm, Call, Program
from evaluators.inputs import DISTRIBUTIONS, Array, draw_inputs, extents, faint, generator
from evaluators.integrity.mutants import mutants
from evaluators.oracle import Answer, answers
from evaluators.target import Target, TargetError, Workload
from evaluators.tolerance import FLOORS, verdict

Outputs = dict[str, Array]
_EXACT = 1e-9  # of exact answers, relative L2: below it they are the same


@dataclass(frozen=True)
class Finding:
    """One test of a target: what was tried, what was seen, and what it means.

    verdict: "pass"; "fail": the target rewards this answer; "note": nothing is wrong, but a person should know.
    """

    test: str
    tried: str
    seen: str
    verdict: Literal["pass", "fail", "note"]
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Check:
    """One check with its right answer; `other` holds the inputs of another draw, `own` the exact answer once asked."""

    workload: Workload
    distribution: str
    inputs: Mapping[str, Array]
    right: Mapping[str, Answer]
    other: Mapping[str, Array]
    rng: np.random.Generator
    own: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Way:
    """A way to skip the job. `make` gives None where it cannot be tried at this check."""

    test: str
    tried: str
    make: Callable[[_Check], Outputs | None]


def audit(target: Target, seed: int = 0) -> list[Finding]:
    """Every test of a completed target, on every check with every distribution. Imports no torch.

    An answer fails the target if it passes all checks of some judgement: each judgement takes the checks with the
    distributions by turns from one of them, so there are as many judgements as distributions.
    """
    program = _program(target)
    names = list(DISTRIBUTIONS)
    table = {
        (place, name): _check(target, program, workload, name, seed)
        for place, workload in enumerate(target.checks)
        for name in names
    }
    judgements = [
        [(place, names[(first + place) % len(names)]) for place in range(len(target.checks))]
        for first in range(len(names))
    ]
    found = [_honest(list(table.values()))]
    for way in _ways(target, program):
        caught: dict[tuple[int, str], str | None] = {}
        for key, check in table.items():
            made = way.make(check)
            if made is not None:
                caught[key] = _caught(check, made)
        found.append(_finding(way, target, judgements, caught))
    small = sorted(range(len(target.checks)), key=lambda i: _elements(program.algorithm, target.checks[i]))
    for way in _parts_left_out(program):
        caught = {}
        for judgement in judgements:
            for key in sorted(judgement, key=lambda key: small.index(key[0])):
                made = way.make(table[key])
                if made is not None:
                    caught[key] = _caught(table[key], made)
                    if caught[key] is not None:
                        break
        found.append(_finding(way, target, judgements, caught))
    found += _literals(target, program, table, seed)
    found += _notes(target, program, table)
    return found


def insist_fit(target: Target, seed: int = 0) -> None:
    """Raises TargetError where an answer that skips the job passes every check of one judgement.

    A completed target; the answer is kept for the object. An answer is dropped at the first check that catches it, so
    this costs little more than the right answers of one or two checks.
    """
    with _LOCK:
        if _FIT.get(id(target)) is target:
            return
    program = _program(target)
    names = list(DISTRIBUTIONS)
    first = int(generator(seed, "fit", target.name).integers(len(names)))
    # Small checks first: most answers are caught by the first check that they meet.
    order = sorted(range(len(target.checks)), key=lambda i: _elements(program.algorithm, target.checks[i]))
    left = [*_ways(target, program), *_parts_left_out(program)]
    tried: dict[str, int] = {}
    for place in order:
        check = _check(target, program, target.checks[place], names[(first + place) % len(names)], seed)
        staying = []
        for way in left:
            made = way.make(check)
            if made is None:
                staying.append(way)
            elif _caught(check, made) is None:
                tried[way.test] = tried.get(way.test, 0) + 1
                staying.append(way)
        left = staying
        if not left:
            break
    passed = [way for way in left if tried.get(way.test)]
    if passed:
        lines = "\n".join(f"  {way.test}: {way.tried}" for way in passed)
        raise TargetError(
            f"target {target.name}: an answer that does not do the job passes all {len(order)} checks:\n{lines}\n"
            "Change the inputs (make_inputs), the checks or the reference so that the answer depends on all of them; "
            "`avo audit --target` shows each test."
        )
    with _LOCK:
        _FIT[id(target)] = target


_FIT: dict[int, Target] = {}
_LOCK = threading.Lock()


# The ways -----------------------------------------------------------------------------------------


def _ways(target: Target, program: Program) -> Iterator[_Way]:
    yield _Way("zeros", "zeros of the right shape", lambda c: _each(c, lambda a: np.zeros_like(a.oracle)))
    yield _Way("ones", "ones of the right shape", lambda c: _each(c, lambda a: np.ones_like(a.oracle)))
    yield _Way("constant", "the right answer's mean everywhere", lambda c: _each(c, _mean))
    yield _Way("row means", "each row's right mean along the row", lambda c: _each(c, _row_means))
    yield _Way("random", "normal noise with the right mean and spread", lambda c: _each(c, lambda a: _noise(a, c.rng)))
    yield _Way("stale buffer", "the right answer for other inputs of the same kind", lambda c: _of(program, c, c.other))
    for tensor in program.algorithm.inputs:
        yield _Way(f"copy of {tensor.name}", f"input {tensor.name} itself", lambda c, n=tensor.name: _copy(c, n))  # type: ignore[misc]
    for tensor in program.algorithm.inputs:
        yield _Way(
            f"input {tensor.name}",
            f"the right answer with another {tensor.name}: one that does not read it",
            lambda c, n=tensor.name: _of(program, c, {**c.inputs, n: c.other[n]}),  # type: ignore[misc]
        )
    for output in program.algorithm.outputs:
        for place, axis in enumerate(output.axes or ()):
            yield _Way(
                f"axis {axis} of {output.name}",
                f"the first right values along {axis}, repeated",
                lambda c, n=output.name, p=place: _repeated(c, n, p),  # type: ignore[misc]
            )
    for name, values in _params(target).items():
        for value in values if len(values) > 1 else ():
            yield _Way(
                f"param {name}={value}",
                f"the right answer with {name} fixed at {value}: one that does not read it",
                lambda c, n=name, v=value: _of(program, c, c.inputs, {n: v}),  # type: ignore[misc]
            )


def _parts_left_out(program: Program) -> Iterator[_Way]:
    """Half of an input's places along an axis that is reduced not read; the program without a term, a factor, a call or
    a branch."""
    every = [e for s in program.algorithm.statements for e in walk(s.value)]
    reduced = {a.axis for e in every if isinstance(e, Call) for a in e.axes or ()}
    for tensor in program.algorithm.inputs:
        for place, axis in enumerate(tensor.axes or ()):
            if axis not in reduced:
                continue
            for half in ("first", "second"):
                yield _Way(
                    f"{half} half of {axis} of {tensor.name}",
                    f"the right answer with other values in the {half} half of {tensor.name} along {axis}",
                    lambda c, n=tensor.name, p=place, h=half: _halved(program, c, n, p, h == "second"),  # type: ignore[misc]
                )
    for one in mutants(program):
        if not one.literal:
            yield _Way(one.name, one.tried, lambda c, p=one.program: _another_answer(c, program, p))  # type: ignore[misc]


def _halved(program: Program, check: _Check, name: str, place: int, second: bool) -> Outputs | None:
    values, other = np.array(check.inputs[name]), np.asarray(check.other[name])
    extent = values.shape[place]
    if extent < 4:
        return None
    half = slice(extent // 2, extent) if second else slice(0, extent // 2)
    where = (*[slice(None)] * place, half)
    values[where] = other[where]
    return _exact(program, check, {**check.inputs, name: values})


def _another_answer(check: _Check, program: Program, changed: Program) -> Outputs | None:
    """The changed program's exact answer; None where it has none, or the same as the program's own: then it skips
    nothing, but is another way to the answer (a softmax without its maximum)."""
    if not check.own:
        check.own.update(_exact(program, check, check.inputs) or {})
    found = _exact(changed, check, check.inputs)
    if found is None or all(_same(found[name], check.own[name]) for name in found):
        return None
    return found


def _exact(program: Program, check: _Check, inputs: Mapping[str, Array]) -> Outputs | None:
    """None where the program has no answer there, or one of another shape."""
    try:
        with np.errstate(all="ignore"):
            made = evaluate(program, dict(inputs), dict(check.workload.params), mode="exact")
    except (ProgramError, ValueError, ArithmeticError, LookupError):
        return None
    found = {name: np.asarray(made[name]) for name in check.right}
    return found if all(found[name].shape == answer.oracle.shape for name, answer in check.right.items()) else None


def _same(a: Array, b: Array) -> bool:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    finite = np.isfinite(y)
    if not np.array_equal(np.isfinite(x), finite):
        return False
    return bool(np.linalg.norm(x[finite] - y[finite]) <= _EXACT * max(1e-300, float(np.linalg.norm(y[finite]))))


def _literals(
    target: Target, program: Program, table: Mapping[tuple[int, str], _Check], seed: int
) -> Iterator[Finding]:
    """Numbers in the program (an epsilon) that no check tells from others, rows that are tiny or zero included."""
    every = [one for one in mutants(program) if one.literal]
    dtypes = {t.name: t.dtype or "f32" for t in program.algorithm.inputs}
    checks = list(table.values())
    for check in [c for (_, name), c in table.items() if name == "normal"] if every else []:
        rng = generator(seed, "audit faint", target.name, check.workload.name)
        inputs = {name: faint(value, dtypes[name], rng) for name, value in check.inputs.items()}
        right = answers(program, inputs, check.workload.params)
        if all(np.isfinite(answer.oracle).all() for answer in right.values()):
            checks.append(replace(check, inputs=inputs, right=right, distribution="faint rows", own={}))
    for one in every:
        seen = "no check tells it from the right one"
        verdict_: Literal["pass", "note"] = "note"
        for check in reversed(checks):
            made = _another_answer(check, program, one.program)
            if made is not None and (why := _caught(check, made)) is not None:
                seen, verdict_ = f"rejected by {check.workload.name} ({check.distribution}): {why}", "pass"
                break
        yield Finding(one.name, one.tried, seen, verdict_)


def _each(check: _Check, make: Callable[[Answer], Array]) -> Outputs:
    return {name: make(answer) for name, answer in check.right.items()}


def _finite(array: Array) -> Array:
    values = np.asarray(array, dtype=np.float64)
    return np.where(np.isfinite(values), values, 0.0)


def _mean(answer: Answer) -> Array:
    return np.full(answer.oracle.shape, _finite(answer.oracle).mean() if answer.oracle.size else 0.0)


def _row_means(answer: Answer) -> Array:
    values = _finite(answer.oracle)
    if values.ndim < 2:
        return _mean(answer)
    return np.broadcast_to(values.mean(axis=-1, keepdims=True), values.shape).copy()


def _noise(answer: Answer, rng: np.random.Generator) -> Array:
    values = _finite(answer.oracle)
    return values.mean() + values.std() * rng.standard_normal(values.shape) if values.size else values


def _copy(check: _Check, name: str) -> Outputs | None:
    """The input, or its transpose, cut or repeated to the output's shape; None where its rank does not allow it."""
    made: Outputs = {}
    for output, answer in check.right.items():
        values = np.asarray(check.inputs[name], dtype=np.float64)
        shape = answer.oracle.shape
        if values.shape == shape:
            made[output] = values
        elif values.T.shape == shape:
            made[output] = values.T.copy()
        elif values.ndim == len(shape) and values.size:
            made[output] = np.resize(values, shape)
        else:
            return None
    return made


def _of(
    program: Program, check: _Check, inputs: Mapping[str, Array], params: Mapping[str, Any] | None = None
) -> Outputs:
    """The right answer of another question, or of this one where the other is no different here."""
    given = {**check.workload.params, **(params or {})}
    same = all(np.array_equal(inputs[n], check.inputs[n]) for n in check.inputs)
    if same and given == dict(check.workload.params):
        return {name: answer.honest for name, answer in check.right.items()}
    return {name: answer.honest for name, answer in answers(program, inputs, given).items()}


def _repeated(check: _Check, output: str, place: int) -> Outputs | None:
    honest = check.right[output].honest
    if honest.shape[place] < 2:
        return None
    made = {name: answer.honest for name, answer in check.right.items()}
    first = np.take(honest, [0], axis=place)
    made[output] = np.broadcast_to(first, honest.shape).copy()
    return made


# Checks and findings ------------------------------------------------------------------------------


def _program(target: Target) -> Program:
    from evaluators.loading import seed_program

    return seed_program(target)


def _check(target: Target, program: Program, workload: Workload, distribution: str, seed: int) -> _Check:
    rng = generator(seed, "audit", target.name, workload.name, distribution)
    inputs = draw_inputs(target, program.algorithm, workload, distribution, rng)
    other = draw_inputs(target, program.algorithm, workload, distribution, rng)
    return _Check(workload, distribution, inputs, answers(program, inputs, workload.params), other, rng)


def _elements(algorithm: Algorithm, workload: Workload) -> int:
    total = 1
    for extent in extents(algorithm, workload).values():
        total *= extent
    return total


def _caught(check: _Check, made: Outputs) -> str | None:
    """Why the check rejects this answer; None where it does not."""
    for name, answer in check.right.items():
        values = made[name]
        if answer.dtype in FLOORS:
            values = round_to(np.asarray(values, dtype=np.float64), answer.dtype)
        else:
            values = np.asarray(values).astype(answer.oracle.dtype)
        found = verdict(values, answer.oracle, answer.honest, answer.dtype)
        if not found.passed:
            return f"{name}: {found.reasons[0]}"
    return None


def _honest(checks: list[_Check]) -> Finding:
    wrong = [
        (c, why)
        for c in checks
        if (why := _caught(c, {name: answer.honest for name, answer in c.right.items()})) is not None
    ]
    tried = "what an honest low-precision kernel gives"
    if not wrong:
        return Finding("honest", tried, f"accepted by all {len(checks)} checks", "pass", {"checks": len(checks)})
    check, why = wrong[0]
    seen = f"rejected by {len(wrong)} of {len(checks)} checks, {check.workload.name} ({check.distribution}): {why}"
    return Finding("honest", tried, seen, "fail", {"checks": len(checks), "rejected": len(wrong)})


def _finding(
    way: _Way,
    target: Target,
    judgements: list[list[tuple[int, str]]],
    caught: Mapping[tuple[int, str], str | None],
) -> Finding:
    if not caught:
        return Finding(way.test, way.tried, "no other answer, or the shapes do not allow it", "pass", {"checks": 0})
    rejected = sum(why is not None for why in caught.values())
    evidence = {"checks": len(caught), "rejected": rejected}
    for judgement in judgements:
        met = [caught[key] for key in judgement if key in caught]
        if met and all(why is None for why in met):
            kind = judgement[0][1]
            seen = f"accepted by all {len(met)} checks of the judgement that begins with {kind} inputs"
            return Finding(way.test, way.tried, seen, "fail", evidence)
    first = next(key for key, why in caught.items() if why is not None)
    seen = f"rejected by {rejected} of {len(caught)} checks, e.g. {target.checks[first[0]].name}: {caught[first]}"
    return Finding(way.test, way.tried, seen, "pass", evidence)


def _notes(target: Target, program: Program, table: Mapping[tuple[int, str], _Check]) -> Iterator[Finding]:
    """Range, and params of one value: facts that decide nothing alone."""
    for name in program.algorithm.outputs:
        spreads = []
        for check in table.values():
            values = _finite(check.right[name.name].oracle)
            size = float(np.sqrt(np.mean(values**2))) if values.size else 0.0
            spreads.append(float(values.max() - values.min()) / size if size else 0.0)
        most = max(spreads)
        yield Finding(
            f"range of {name.name}",
            "largest less smallest right value, over the rms, in the widest check",
            f"{most:.3g} (at least 0.01 wanted)",
            "pass" if most > 0.01 else "fail",
            {"most": float(f"{most:.4g}")},
        )
    for param, settings in _params(target).items():
        if len(settings) == 1:
            check = next(iter(table.values()))
            other = _another(settings[0])
            moved = _of(program, check, check.inputs, {param: other})
            matters = _caught(check, moved) is not None
            yield Finding(
                f"param {param}",
                f"{param}={other} instead of {settings[0]}, the one value in the checks",
                "another answer" if matters else "the same answer: the param changes nothing here",
                "pass" if matters else "note",
            )


def _params(target: Target) -> dict[str, list[Any]]:
    """Param -> the values that the checks give it."""
    found: dict[str, list[Any]] = {}
    for workload in target.checks:
        for name, value in workload.params.items():
            if value not in found.setdefault(name, []):
                found[name].append(value)
    return found


def _another(value: Any) -> Any:
    return (not value) if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 2 + 1
