"""Does the program's algorithm mean what the target's reference computes? Asked in float64, on tiny shapes.

Two questions. The exact meaning must equal the reference to 1e-10 relative: both are float64, so more is a difference
in the mathematics. And the rounded meaning must lie within the target's numeric tier of the exact one: the roundings
that the algorithm names may cost that much and no more. Neither depends on the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsl.diagnostics import ProgramError
from dsl.meaning import evaluate
from dsl.syntax import Program
from dsl.wording import counted
from evaluators.inputs import Array, draw_inputs, generator
from evaluators.reference import exact
from evaluators.target import Target, TargetError

EXACT = 1e-10
_FINEST = 1e-12  # distances below are shown as this: they are the noise of float64 sums
DISTRIBUTIONS = ("normal", "large_logits", "near_constant")  # by turns over the tiny shapes


@dataclass(frozen=True)
class Meaning:
    """`reasons` is empty where the program means the reference. `evidence` is JSON."""

    reasons: tuple[str, ...]
    evidence: dict[str, Any]

    @property
    def passed(self) -> bool:
        return not self.reasons


def compare(target: Target, program: Program, seed: int) -> Meaning:
    """Compare on every tiny workload of a completed target, with inputs that follow from `seed` alone.

    Raises TargetError where the reference itself fails.
    """
    reasons: list[str] = []
    cases: list[dict[str, Any]] = []
    for position, workload in enumerate(target.tiny):
        distribution = DISTRIBUTIONS[position % len(DISTRIBUTIONS)]
        rng = generator(seed, "meaning", workload.name, distribution)
        inputs = draw_inputs(target, program.algorithm, workload, distribution, rng)
        right = exact(target, program.algorithm, workload, inputs)
        case: dict[str, Any] = {"workload": workload.name, "distribution": distribution}
        try:
            problems = differences(program, inputs, workload.params, right, target.tier, case)
        except (ProgramError, ValueError) as error:  # ValueError: the inputs do not fit it
            problems = [str(error)]
        cases.append(case)
        reasons += [f"{workload.name} ({distribution}): {p}" for p in problems]
    return Meaning(tuple(reasons), {"limit": EXACT, "tier": target.tier, "cases": cases})


def differences(
    program: Program,
    inputs: Mapping[str, Array],
    params: Mapping[str, int | float | bool],
    right: Mapping[str, Array],
    tier: float | None,
    case: dict[str, Any],
) -> list[str]:
    """What the program means otherwise than `right`; distances go into `case`. tier: None where the named roundings are
    not asked about. Raises ProgramError and ValueError as `evaluate` does."""
    meant = evaluate(program, dict(inputs), dict(params), mode="exact")
    rounded = evaluate(program, dict(inputs), dict(params), mode="rounded") if tier is not None else meant
    problems = []
    for name, value in right.items():
        if meant[name].shape != value.shape:
            problems.append(f"{name} has shape {list(meant[name].shape)}, the reference {list(value.shape)}")
            continue
        if value.dtype.kind != "f":
            different = int(np.count_nonzero(meant[name] != value))
            case[name] = {"different": different}
            if different:
                problems.append(f"{name} differs from the reference in {different} of {counted(value.size, 'place')}")
            continue
        distance, spread = _distance(meant[name], value), relative_l2(rounded[name], meant[name])
        case[name] = {"exact": float(f"{max(distance, _FINEST):.2g}")}
        if tier is not None:
            case[name]["rounded"] = float(f"{spread:.4g}")
        if not distance <= EXACT:
            problems.append(
                f"{name} is {distance:.2g} off the reference (relative to its largest value), limit {EXACT:g}"
            )
        elif tier is not None and not spread <= tier:
            problems.append(
                f"the named roundings put {name} {spread:.2g} off its exact value, the target's tier is {tier:.3g}"
            )
    return problems


def _distance(meant: Array, right: Array) -> float:
    """Largest difference over the largest finite size; infinite where the non-finite values differ."""
    finite = np.isfinite(right)
    if not np.array_equal(np.isfinite(meant), finite) or not np.array_equal(meant[~finite], right[~finite]):
        return float("inf")
    scale = float(np.max(np.abs(right[finite]), initial=0.0))
    gap = float(np.max(np.abs(meant[finite] - right[finite]), initial=0.0))
    return gap / scale if scale else (0.0 if gap == 0.0 else float("inf"))


def relative_l2(rounded: Array, meant: Array) -> float:
    """Of the finite values; infinite where others are finite."""
    finite = np.isfinite(meant) & np.isfinite(rounded)
    if not np.array_equal(np.isfinite(meant), np.isfinite(rounded)):
        return float("inf")
    size = float(np.sqrt(np.sum(meant[finite] ** 2)))
    gap = float(np.sqrt(np.sum((rounded[finite] - meant[finite]) ** 2)))
    return gap / size if size else (0.0 if gap == 0.0 else float("inf"))


def insist(target: Target, program: Program, seed: int = 0) -> None:
    """Raises TargetError unless the target's own seed program means its reference."""
    found = compare(target, program, seed)
    if not found.passed:
        raise TargetError(
            f"target {target.name}: the seed program does not compute what the reference does.\n  "
            + "\n  ".join(found.reasons)
        )
