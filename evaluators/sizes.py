"""Does an algorithm mean what the target's own does at the sizes that are checked, scored and promoted?

The tiny shapes of `equivalence` do not say: a program may compare an extent or a place with a number, or keep a sum
in a dtype that it outgrows. So an algorithm that is not the target's is compared with it, in float64, on inputs that
follow from the seed: at the check sizes with every distribution, and at the public and hidden ones on places drawn of
each axis along which both compute every place alone. Extents and positions are those of the whole size there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dsl.assembly import walk
from dsl.diagnostics import ProgramError
from dsl.meaning import evaluate
from dsl.syntax import Binary, Name, Program, Read
from dsl.work import work
from evaluators.equivalence import Meaning, differences, relative_l2
from evaluators.inputs import (
    DISTRIBUTIONS,
    FLOATS,
    Array,
    draw,
    draw_index,
    draw_inputs,
    extents,
    generator,
    indexed_axes,
    input_shapes,
)
from evaluators.places import free_axes, placed
from evaluators.target import Target, TargetError, Workload

_PLACES = 16  # of an axis
_FLOPS = 3e8  # of a size: fewer places where it takes more
_MOST = 1e10  # a size that takes more even so is not asked about
_VALUES = 1 << 23  # of a size's inputs, in the same way
_ROUNDED = 1 << 21  # of larger inputs the exact value alone is asked about
_ROWS = 1 << 11  # different rows of a large input
_WIDE = (None, "f32", "f64", "i32", "bool")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def compare_at_sizes(target: Target, wanted: Program, program: Program, seed: int) -> Meaning:
    """wanted: the target's own program, whose interface `program` has. Each of the checks, public and hidden sizes."""
    reasons: list[str] = []
    cases: list[dict[str, Any]] = []
    names = list(DISTRIBUTIONS)
    sizes = [(w, name, False) for w in target.checks for name in names]
    large = [*target.workloads, *target.hidden]
    sizes += [(w, names[i % len(names)], True) for i, w in enumerate(large)]
    for workload, distribution, cut in sizes:
        case: dict[str, Any] = {"workload": workload.name, "distribution": distribution}
        rng = generator(seed, "meaning at size", workload.name, distribution)
        try:
            problems = _compared(target, wanted, program, workload, distribution, cut, rng, case)
        except (ProgramError, ValueError) as error:  # ValueError: the inputs do not fit it
            problems = [str(error)]
        cases.append(case)
        reasons += [f"{workload.name} ({distribution}): {p}" for p in problems]
    return Meaning(tuple(reasons), {"sizes": cases})


def _compared(
    target: Target,
    wanted: Program,
    program: Program,
    workload: Workload,
    distribution: str,
    cut: bool,
    rng: np.random.Generator,
    case: dict[str, Any],
) -> list[str]:
    asked = workload
    places: dict[str, Array] = {}
    whole = extents(wanted.algorithm, workload)
    if cut:
        lengths = _lengths(wanted, program, workload)
        if lengths is None:
            if _lengths(wanted, wanted, workload) is None:
                return _unasked(wanted, program, case)
            return ["what it computes along some axis depends on the axis's other places, unlike the target's"]
        places = _places(_grouped(wanted, workload), lengths, whole, rng)
        asked = Workload({**workload.sizes, **lengths}, workload.params)
    try:
        inputs = _inputs(target, wanted, asked, distribution, rng)
    except TargetError:  # its own inputs are not to be had at such sizes
        return _unasked(wanted, program, case)
    for axis, at in places.items():
        wanted, program = placed(wanted, axis, whole[axis]), placed(program, axis, whole[axis])
        inputs[f"at_{axis}"] = at
    if places:
        case["places"] = {axis: len(at) for axis, at in places.items()}
    params = dict(workload.params)
    right = evaluate(wanted, inputs, params, mode="exact")
    tier = None
    if sum(value.size for value in inputs.values()) <= _ROUNDED:
        rounded = evaluate(wanted, inputs, params, mode="rounded")
        spread = max((relative_l2(rounded[n], v) for n, v in right.items() if v.dtype.kind == "f"), default=0.0)
        tier = max(target.tier, 2 * spread)
    return differences(program, inputs, params, right, tier, case)


def _unasked(wanted: Program, program: Program, case: dict[str, Any]) -> list[str]:
    """Not asked is not right: what could make the algorithm another one at a size is refused where nobody can look."""
    case["asked"] = False
    more = sorted(_says(program) - _says(wanted))
    return [f"too large to be compared with the target's own algorithm, which has no {more[0]}"] if more else []


def _says(program: Program) -> set[str]:
    """Extents and places that are read as numbers, comparisons, and dtypes that a sum may outgrow."""
    algorithm = program.algorithm
    tensors = {t.name for t in algorithm.inputs} | {t.name for s in algorithm.statements for t in s.targets}
    known = tensors | {p.name for p in algorithm.params}
    found = {f"{t.name} in {t.dtype}" for s in algorithm.statements for t in s.targets if t.dtype not in _WIDE}
    for statement in algorithm.statements:
        every = list(walk(statement.value))
        own = {id(index) for e in every if isinstance(e, Read) for index in e.indices if isinstance(index, Name)}
        found |= {e.id for e in every if isinstance(e, Name) and e.id not in known and id(e) not in own}
        found |= {e.op for e in every if isinstance(e, Binary) and e.op in _COMPARISONS}
    return found


def unasked(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sizes at which an algorithm was not compared with the target's own, by `compare_at_sizes`' evidence."""
    return [str(case.get("workload")) for case in cases if case.get("asked") is False]


def _inputs(
    target: Target, wanted: Program, workload: Workload, distribution: str, rng: np.random.Generator
) -> dict[str, Array]:
    """As `draw_inputs`; large tensors from fewer values, drawn again and again."""
    algorithm = wanted.algorithm
    shapes = input_shapes(algorithm, workload)
    if target.make_inputs is not None or all(math.prod(shape) <= _ROUNDED for shape in shapes.values()):
        return dict(draw_inputs(target, algorithm, workload, distribution, rng))
    axes, sizes = indexed_axes(algorithm), extents(algorithm, workload)
    found: dict[str, Array] = {}
    for t in algorithm.inputs:
        dtype, shape = t.dtype or "f32", shapes[t.name]
        if t.name in axes and dtype not in FLOATS:
            found[t.name] = draw_index(shape, min(sizes[a] for a in axes[t.name]), distribution, rng)
        else:
            rows = draw((min(_ROWS, math.prod(shape[:-1])), *shape[-1:]), dtype, distribution, rng)
            found[t.name] = rows[rng.integers(len(rows), size=math.prod(shape[:-1]))].reshape(shape)
    return found


def _grouped(wanted: Program, workload: Workload) -> dict[str, str]:
    """Fine axis -> coarse one, where both are given and the ratio follows from them: `axis g = h // (H // G)`."""
    given = workload.sizes
    return {a.fine: a.name for a in wanted.algorithm.axes if a.fine and a.fine in given and a.name in given}


def _free(program: Program, groups: dict[str, str]) -> set[str]:
    """Axes along which places, or groups of them, are computed alone."""
    algorithm = program.algorithm
    other = tuple(a for a in algorithm.axes if a.name not in groups.values())
    return free_axes(replace(algorithm, axes=other), positions=True)


def _lengths(wanted: Program, program: Program, workload: Workload) -> dict[str, int] | None:
    """How many places of which axes are asked about; None where that takes too long even so."""
    groups = _grouped(wanted, workload) if program.algorithm.axes == wanted.algorithm.axes else {}
    free = _free(wanted, groups) & _free(program, groups) & set(workload.sizes)
    whole = extents(wanted.algorithm, workload)
    lengths = {axis: min(_PLACES, whole[axis]) for axis in sorted(free - set(groups))}
    for fine, coarse in groups.items():
        if fine in free and whole[fine] % whole[coarse] == 0:
            lengths |= {fine: whole[fine] // whole[coarse], coarse: 1}

    def takes() -> tuple[float, float]:
        """FLOPs; values."""
        cut = Workload({**workload.sizes, **lengths}, workload.params)
        values = sum(float(math.prod(shape)) for shape in input_shapes(wanted.algorithm, cut).values())
        return max(work(p, cut.sizes, workload.params).total_flops for p in (wanted, program)), values

    fixed = {*groups, *groups.values()}
    while any(n > most for n, most in zip(takes(), (_FLOPS, _VALUES), strict=True)):
        long = [axis for axis, n in lengths.items() if n > 1 and axis not in fixed]
        if not long:
            break
        longest = max(long, key=lambda axis: (lengths[axis], whole[axis]))
        lengths[longest] //= 2
    flops, values = takes()
    return lengths if flops <= _MOST and values <= 2 * _VALUES else None


def _places(
    groups: dict[str, str], lengths: dict[str, int], whole: dict[str, int], rng: np.random.Generator
) -> dict[str, Array]:
    """Of each axis its last place and others in order; of grouped ones those of a group."""
    found: dict[str, Array] = {}
    for axis, few in lengths.items():
        if axis in groups.values():
            continue
        if axis in groups and groups[axis] in lengths:
            group = int(rng.integers(whole[groups[axis]]))
            found[axis], found[groups[axis]] = group * few + np.arange(few), np.array([group])
        elif few == whole[axis]:
            found[axis] = np.arange(few)
        else:
            found[axis] = np.sort(np.append(rng.choice(whole[axis] - 1, size=few - 1, replace=False), whole[axis] - 1))
    return found


def differs(wanted: Program, program: Program) -> bool:
    """Whether the algorithm is another than the target's."""
    mine, theirs = program.algorithm, wanted.algorithm
    return (mine.axes, mine.statements) != (theirs.axes, theirs.statements)
