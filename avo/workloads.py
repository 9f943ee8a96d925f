"""Sizes that a person names instead of the target's own: `b=4,h=32,g=8,m=1,n=8192,causal=1`, or a set: `decode`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from avo.config import Scalar, pairs
from avo.errors import UserMistake, unknown

if TYPE_CHECKING:
    from dsl.syntax import Program
    from evaluators.target import Target, Workload


def workload(given: str | Mapping[str, Scalar], target: Target) -> Workload:
    """One workload of the target. What is not named is as in the target's first public workload.

    Raises UserMistake for a name that is neither an axis nor a param, an extent below 1 and a param of another type.
    """
    from evaluators.target import Workload

    values = pairs(given) if isinstance(given, str) else dict(given)
    first = target.workloads[0]
    sizes, params = dict(first.sizes), dict(first.params)
    for key, value in values.items():
        if key in sizes:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserMistake(f"workload: the extent {key} is a whole number of at least 1, got {value}")
            sizes[key] = value
        elif key in params:
            params[key] = _param(key, value, params[key])
        else:
            raise UserMistake(unknown(f"axis or param of {target.name}:", key, [*sizes, *params]))
    return Workload(sizes=sizes, params=params)


def of_program(given: str, program: Program) -> Workload:
    """Sizes for a program alone: every axis that its inputs fix, and every param without a default.

    Raises UserMistake for what is missing, unknown or no size.
    """
    from evaluators.target import Workload

    algorithm = program.algorithm
    derived = {a.name for a in algorithm.axes}
    axes = dict.fromkeys(a for t in algorithm.inputs for a in t.axes or () if a not in derived)
    axes |= dict.fromkeys(a for t in algorithm.inputs for a in t.axes or ())
    params = {p.name: p for p in algorithm.params}
    sizes: dict[str, int] = {}
    values: dict[str, bool | int | float] = {p.name: p.default for p in algorithm.params if p.default is not None}
    for key, value in pairs(given).items():
        if key in axes:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserMistake(f"workload: the extent {key} is a whole number of at least 1, got {value}")
            sizes[key] = value
        elif key in params:
            example = {"bool": True, "int": 1}.get(params[key].dtype, 1.0)
            values[key] = _param(key, value, example)
        else:
            raise UserMistake(unknown("axis or param of the program:", key, [*axes, *params]))
    missing = [a for a in axes if a not in sizes and (a not in derived or _coarse(program, a))]
    missing += [p for p in params if p not in values]
    if missing:
        raise UserMistake(f"--workload needs {', '.join(f'{m}=...' for m in missing)} too, or name the --target")
    return Workload(sizes=sizes, params=values)


def _coarse(program: Program, axis: str) -> bool:
    """Whether the axis is one of blocks whose number an input fixes, as grouped heads are."""
    from dsl.syntax import Number

    return any(a.name == axis and a.fine and not isinstance(a.value, Number) for a in program.algorithm.axes)


def _param(key: str, value: Scalar, example: Scalar) -> bool | int | float:
    if isinstance(example, bool):
        if value in (0, 1):  # True and False too
            return bool(value)
        raise UserMistake(f"workload: {key} is 0 or 1, got {value}")
    if isinstance(value, (str, bool)):
        raise UserMistake(f"workload: {key} is a number, got {value}")
    if isinstance(example, int) and not isinstance(value, int):
        raise UserMistake(f"workload: {key} is a whole number, got {value}")
    return value


def job(name: str, given: Iterable[str | Mapping[str, Scalar]] = (), run: bool = False) -> Target:
    """The target of that name (or module:NAME, or file) with these public workloads, completed and looked through.

    `run` also runs its reference on tiny sizes, which takes torch: then a target that is wrong is known before anything
    is judged. Raises UserMistake and evaluators.target.TargetError.
    """
    from avo import plugins
    from evaluators.loading import complete, ready

    target = retarget(plugins.load("target", name), given)
    return ready(target) if run else complete(target)


def retarget(target: Target, given: Iterable[str | Mapping[str, Scalar]]) -> Target:
    """The target with these public workloads instead of its own; the same one where none is given.

    A word without `=` is the name of a set of the target, which brings its hidden sizes, its checks, and what may be
    changed there. Raises UserMistake.
    """
    sizes: dict[str, Workload] = {}
    hidden: dict[str, Workload] = {}
    checks: dict[str, Workload] = {}
    opens = target.opens
    whole = True  # nothing but sets: then their hidden sizes are meant for all of it
    for item in given:
        if isinstance(item, str) and item.strip() and "=" not in item:
            named = chosen(target, item.strip())
            sizes |= {w.name: w for w in named.workloads}
            hidden |= {w.name: w for w in named.hidden}
            checks |= {w.name: w for w in named.checks}
            opens = named.opens if named.opens != target.opens else opens
        else:
            one, whole = workload(item, target), False
            sizes.setdefault(one.name, one)
    if not sizes:
        return target
    return replace(
        target,
        workloads=tuple(sizes.values()),
        hidden=tuple(hidden.values()) if whole else target.hidden,
        checks=tuple(checks.values()) or target.checks,
        opens=opens,
    )


def chosen(target: Target, name: str) -> Target:
    """The target with the sizes of one of its sets. Raises UserMistake."""
    if name not in target.sets:
        if not target.sets:
            raise UserMistake(f"{target.name} has no named sets of workloads; sizes are written b=4,h=32,causal=1")
        raise UserMistake(
            unknown(f"set of workloads of {target.name}", name, target.sets) + "; sizes are written b=4,h=32,causal=1"
        )
    return target.chosen(name)
