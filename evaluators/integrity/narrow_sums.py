"""Inputs on which a sum that is kept in too narrow a dtype shows.

A kernel that adds in float16 between blocks, or stores partial sums in it, is off by some 2^-12: on ordinary inputs
less than a bf16 output's own rounding, which nobody can tell from honest work. So some inputs are planted so that
partial sums are large and the whole is not:

- cancel: half of the places along a summed axis are pairs that cancel, far larger than the rest; with small whole
  numbers everywhere else, so that float32 adds them exactly in any order and on any hardware;
- offset: values far from zero beside their spread, for a mean that is subtracted;
- heavy, shift: one place outweighs a block of the others, which a narrow sum then loses; drawn: as they are.

Terms of one sign do not cancel, and what their narrow sum is off by moves all values of a row by one factor. So there
the mean of a row's relative errors is asked for too, in which the output's own rounding averages out (`leaning`).

Which of these serves which sum of a program is found by trying them on the program's own meaning: with that sum in
narrow parts it has to be rejected, and with all sums in float32, rounded down and in other orders, and with computed
operands rounded before they are rescaled, it has to stay far below every limit. What a program declares to be narrow
is in the right answer's yardstick, and stays legal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dsl.meaning import Adding, evaluate
from dsl.rounding import round_to
from dsl.syntax import Program
from evaluators.inputs import Array, draw_inputs, generator, representable
from evaluators.oracle import Answer, honest, output_dtypes, unrounded
from evaluators.target import Target, TargetError, Workload
from evaluators.tolerance import FLOORS, verdict

Right = Callable[[Program, Mapping[str, Array], Mapping[str, Any]], dict[str, Answer]]  # `calls.right`

# 8-bit floats are left out: tensor cores add their products in about 14 bits, which is no fault of a kernel's.
_PLANTED = ("f32", "f16", "bf16")
_SMALL = 3  # the largest of the small whole numbers
_CLEAR = 0.6  # of a limit: what float32 sums may reach; half of it is the output's own rounding
_SURE = 1.5  # of a limit: what narrow sums have to reach
_LEAST = 16  # places along an axis, below which nothing is planted
_KNOWN = 64  # targets whose recipes are remembered

PLANTED = "on inputs planted so that sums are small and those of their parts large, where float32 sums are right"
_ROW = 256  # values of a row, below which their mean says little
_STANDARD_ERRORS = 8.0  # of a row's mean error: below is chance

Kind = Literal["drawn", "cancel", "offset", "heavy", "shift"]


@dataclass(frozen=True)
class Recipe:
    """What is planted along `axis` of the input `tensor`. size: how much larger the large is. check: where it was found
    to show."""

    kind: Kind
    tensor: str
    axis: str
    size: float
    check: Workload


def recipes(target: Target, program: Program, right: Right) -> tuple[Recipe, ...]:
    """Those by which the program's sums show, as far as there are any; the same ones for the same target."""
    key = (program, target.make_inputs, repr(target.checks))
    if key not in _found:
        if len(_found) >= _KNOWN:
            _found.clear()
        _found[key] = tuple(_search(target, program, right))
    return _found[key]


_found: dict[Any, tuple[Recipe, ...]] = {}


def planted(
    target: Target, program: Program, recipe: Recipe, workload: Workload, right: Right, rng: np.random.Generator
) -> dict[str, Array] | None:
    """Inputs of that size; None where float32 sums might miss a limit there, or nothing can be planted."""
    for _ in range(2):
        inputs = _made(target, program, recipe, workload, rng)
        if inputs is None:
            return None
        params = _params(program, workload)
        if _bears_float32(program, inputs, params, right(program, inputs, params)):
            return inputs
    return None


def _params(program: Program, workload: Workload) -> dict[str, Any]:
    return {**{p.name: p.default for p in program.algorithm.params if p.default is not None}, **workload.params}


# Which recipe for which sum -------------------------------------------------------------------------


def _search(target: Target, program: Program, right: Right) -> Iterator[Recipe]:
    rng = generator(0, "narrow sums", target.name)
    chosen: list[Recipe] = []
    for site, (length, check) in enumerate(_sites(target, program)):
        drawn = Recipe("drawn", "", "", 0, check)
        if length < _LEAST or _shown(target, program, drawn, site, right, rng, plainly=True) == len(_NARROW):
            continue
        best: tuple[int, Recipe | None] = 0, None
        for recipe in (*(r for r in chosen if r.check is check), *_possible(program, check, length), drawn):
            count = _shown(target, program, recipe, site, right, rng)
            if count > best[0]:
                count = min(count, _shown(target, program, recipe, site, right, rng))  # not by chance
            if count > best[0]:
                best = count, recipe
            if count == len(_NARROW):
                break
        if best[1] is not None and best[1] not in chosen:
            chosen.append(best[1])
            yield best[1]


def _sites(target: Target, program: Program) -> list[tuple[int, Workload]]:
    """Of each sum its longest length in any check, and that check."""
    found: dict[int, tuple[int, Workload]] = {}
    for check in target.checks:
        lengths: list[int] = []

        def whole(part: Callable[[slice], Array], n: int, seen: list[int] = lengths) -> Array:
            seen.append(n)
            return part(slice(None))

        try:
            inputs = draw_inputs(target, program.algorithm, check, "normal", generator(0, check.name))
        except TargetError:
            continue
        evaluate(program, inputs, _params(program, check), adding=whole)
        for site, n in enumerate(lengths):
            if n > found.get(site, (0, check))[0]:
                found[site] = n, check
    return [found[site] for site in sorted(found)]


def _possible(program: Program, check: Workload, length: int) -> Iterator[Recipe]:
    tensors = [t for t in program.algorithm.inputs if (t.dtype or "f32") in _PLANTED]
    places = [(t.name, a) for t in tensors for a in t.axes or () if check.sizes.get(a) == length]
    kinds: tuple[tuple[Kind, tuple[float, ...]], ...] = (
        ("cancel", (256, 16)),
        ("offset", (32, 64)),
        ("shift", (7, 9, 5)),
        ("heavy", (32, 64, 16)),
    )
    for kind, sizes in kinds:
        for size in sizes:
            for tensor, axis in places:
                yield Recipe(kind, tensor, axis, size, check)


def _shown(
    target: Target,
    program: Program,
    recipe: Recipe,
    site: int,
    right: Right,
    rng: np.random.Generator,
    plainly: bool = False,
) -> int:
    """How many of the narrow ways are rejected; 0 where float32 may be, too. plainly: by the usual figures alone."""
    inputs = _made(target, program, recipe, recipe.check, rng)
    if inputs is None:
        return 0
    params = _params(program, recipe.check)
    wanted = right(program, inputs, params)
    count = 0
    for adding in _NARROW:
        got = evaluate(program, inputs, params, adding=_only(site, adding))
        if _reach(program, got, wanted, plainly) >= _SURE:
            count += 1
        elif not count:
            return 0  # the first is the easiest to see
    return count if _bears_float32(program, inputs, params, wanted) else 0


def _bears_float32(
    program: Program, inputs: Mapping[str, Array], params: Mapping[str, Any], wanted: Mapping[str, Answer]
) -> bool:
    rounded = honest(unrounded(program))
    for adding in _HONEST:
        exact = evaluate(program, dict(inputs), params, adding=adding)
        other = evaluate(rounded, dict(inputs), params, mode="rounded", adding=adding)
        if max(_reach(program, exact, wanted), _reach(program, other, wanted)) > _CLEAR:
            return False
    if rounded == unrounded(program):
        return True
    scaled = evaluate(rounded, dict(inputs), params, mode="rounded", rounding=_at_a_scale)
    return _reach(program, scaled, wanted) <= _CLEAR


def _at_a_scale(values: Array, dtype: str) -> Array:
    """A computed operand, rounded as a kernel that rescales its sums has it: in another proportion in each block, so
    that equal values are rounded apart (attention with a running maximum)."""
    scales = np.random.default_rng(0).uniform(0.5, 1.0, size=values.shape)
    return round_to(values * scales, dtype) / scales


def _reach(program: Program, got: Mapping[str, Array], wanted: Mapping[str, Answer], plainly: bool = False) -> float:
    """The largest figure as a part of its limit."""
    most = 0.0
    for name, dtype in output_dtypes(program.algorithm).items():
        value = np.asarray(round_to(got[name], dtype) if dtype in FLOORS else got[name])
        found = verdict(value, wanted[name].oracle, wanted[name].honest, dtype)
        figures = [f for f in found.evidence.values() if isinstance(f, dict) and f.get("limit")]
        if found.reasons and not figures:
            return math.inf
        most = max([most, *(f["value"] / f["limit"] for f in figures)])
        if not plainly:
            leaned, limit, _ = _lean(value, wanted[name])
            most = max(most, leaned / limit)
    return most


# All of a row by one factor -------------------------------------------------------------------------


def leaning(got: Array, answer: Answer) -> str:
    """Why an output of planted inputs, in its dtype, is wrong all the same: values of a row are off by one factor."""
    found, limit, row = _lean(got, answer)
    if found <= limit:
        return ""
    return f"all of row {row} is off by {found:.3g} of its values, limit {limit:.3g}: as sums in less than float32 are"


def _lean(got: Array, answer: Answer) -> tuple[float, float, int]:
    """(the largest mean relative error of a row, or 0; its limit; the row)."""
    right = answer.oracle
    if answer.dtype not in FLOORS or right.ndim < 2 or right.shape[-1] < _ROW:
        return 0.0, 1.0, 0
    n = right.shape[-1]
    mine, ours, rounded = (x.reshape(-1, n) for x in (got, right, answer.honest))
    sizes = np.abs(ours)
    # What is small, or no number, says nothing of a factor.
    counted = np.isfinite(mine) & np.isfinite(rounded) & np.isfinite(ours) & (sizes > _NORMAL)
    counted &= sizes >= np.median(sizes, axis=1, keepdims=True) / 4
    many = counted.sum(1)
    rows = np.flatnonzero(many >= _ROW)
    if not rows.size:
        return 0.0, 1.0, 0
    counted, many = counted[rows], many[rows]
    base = np.where(counted, ours[rows], 1.0)
    errors, honest_errors = (np.where(counted, x[rows] - ours[rows], 0.0) / base for x in (mine, rounded))
    mean, honest_mean = errors.sum(1) / many, honest_errors.sum(1) / many
    chance = np.sqrt((honest_errors**2).sum(1) / many / many)
    floor = FLOORS["f32"].l2 * FLOORS["f32"].unit
    limit = np.maximum(np.maximum(_STANDARD_ERRORS * chance, 2 * np.abs(honest_mean).max()), floor)
    worst = int(np.argmax(np.abs(mean) / limit))
    return float(abs(mean[worst])), float(limit[worst]), int(rows[worst])


_NORMAL = 2.0**-14  # below it float16 has fewer digits


# Ways to add ----------------------------------------------------------------------------------------


def _only(site: int, adding: Adding) -> Adding:
    """That way for one sum of a program, exact ones for the others."""
    count = 0

    def add(part: Callable[[slice], Array], n: int) -> Array:
        nonlocal count
        count += 1
        return adding(part, n) if count - 1 == site else part(slice(None))

    return add


def _carried(width: int, rounded: Callable[[Array], Array], backwards: bool = False) -> Adding:
    """Block after block is added to a sum that is rounded each time."""

    def add(part: Callable[[slice], Array], n: int) -> Array:
        step = min(width, -(-n // 2))
        begins = range(0, n, step)
        total: Array | None = None
        for begin in reversed(begins) if backwards else begins:
            piece = part(slice(begin, begin + step))
            total = rounded(piece if total is None else total + piece)
        assert total is not None
        return total

    return add


def _stored(count: int, rounded: Callable[[Array], Array]) -> Adding:
    """So many parts are rounded, and added in float32."""

    def add(part: Callable[[slice], Array], n: int) -> Array:
        step = -(-n // count)
        total: Array = sum(rounded(part(slice(begin, begin + step))) for begin in range(0, n, step))  # type: ignore[assignment]
        return total

    return add


def _in(dtype: str) -> Callable[[Array], Array]:
    return lambda values: round_to(values, dtype)


def _cut(values: Array) -> Array:
    """To float32 towards zero, as tensor cores add."""
    nearest = values.astype(np.float32)
    over = np.abs(nearest.astype(np.float64)) > np.abs(values)
    return np.where(over, np.nextafter(nearest, np.float32(0)), nearest).astype(np.float64)


_NARROW = (_carried(32, _in("f16")), _carried(128, _in("f16")), _stored(2, _in("bf16")), _stored(2, _in("f16")))
_HONEST = (_carried(16, _cut), _carried(64, _in("f32"), backwards=True))


# Planting -------------------------------------------------------------------------------------------


def _made(
    target: Target, program: Program, recipe: Recipe, workload: Workload, rng: np.random.Generator
) -> dict[str, Array] | None:
    try:
        inputs = dict(draw_inputs(target, program.algorithm, workload, "normal", rng))
    except TargetError:
        return None
    tensors = {t.name: (t.axes or (), t.dtype or "f32") for t in program.algorithm.inputs}
    if recipe.kind == "drawn":
        return inputs
    axes, dtype = tensors[recipe.tensor]
    at = axes.index(recipe.axis)
    base = inputs[recipe.tensor]
    n = base.shape[at]
    if n < _LEAST:
        return None
    if recipe.kind != "cancel":
        rows = np.moveaxis(base, at, -1)
        planted = _one_sided(recipe, rows.shape, _unit(base), rng)
        inputs[recipe.tensor] = representable(np.moveaxis(planted, -1, at), dtype)
        return inputs
    order = rng.permutation(n)
    one, other = order[: n // 4], order[n // 4 : 2 * (n // 4)]
    for name, (its, its_dtype) in tensors.items():
        if recipe.axis not in its or its_dtype not in _PLANTED:
            continue
        place = its.index(recipe.axis)
        small = np.moveaxis(_whole_numbers(inputs[name].shape, rng), place, -1)
        if name == recipe.tensor:
            small[..., one] = rng.integers(4, 8, size=small[..., one].shape) * (recipe.size / 4)
            small[..., one] *= rng.choice([-1.0, 1.0], size=small[..., one].shape)
            small[..., other] = -small[..., one]
        else:
            small[..., other] = small[..., one]
        inputs[name] = representable(np.moveaxis(small, -1, place) * _unit(inputs[name]), its_dtype)
    return inputs


def _whole_numbers(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return rng.integers(1, _SMALL + 1, size=shape) * rng.choice([-1.0, 1.0], size=shape)


def _unit(values: Array) -> float:
    """The power of 2 by which small whole numbers become about as large as the values."""
    size = float(np.sqrt(np.mean(values**2)))
    return float(2.0 ** round(math.log2(size / 2))) if size > 0 else 1.0


def _one_sided(recipe: Recipe, shape: tuple[int, ...], unit: float, rng: np.random.Generator) -> Array:
    """Rows (last axis) of terms of one sign: a narrow sum of them loses what is small."""
    if recipe.kind == "offset":
        return unit * (rng.choice([-1.0, 1.0]) * recipe.size + rng.integers(-_SMALL, _SMALL + 1, size=shape))
    n = shape[-1]
    values = rng.uniform(0.75, 1.25, size=shape)
    values = unit * values * rng.choice([-1.0, 1.0], size=shape) if recipe.kind == "heavy" else values - recipe.size
    rows = values.reshape(-1, n)
    first = rng.random(len(rows)) < 0.75  # most begin with it, the others end with it
    place = rng.integers(max(1, n // 16), size=len(rows))
    place = np.where(first, place, n - 1 - place)
    rows[np.arange(len(rows)), place] = unit * recipe.size if recipe.kind == "heavy" else 1.0
    return rows.reshape(shape)
