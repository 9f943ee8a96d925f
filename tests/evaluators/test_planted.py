"""Faults planted in the lowering: generated programs must catch each within 300.

python tests/evaluators/test_planted.py        # the table of docs/results/generated.md: which program catches each
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dsl.algebra
import dsl.elaborate
import dsl.tiling.masks
import dsl.tiling.passes
import dsl.tiling.regions
import dsl.tiling.values
from dsl.check import errors
from dsl.diagnostics import ProgramError
from dsl.hardware import hardware
from dsl.lowering import lower
from dsl.lowering.memory import Memory
from dsl.meaning import evaluate
from dsl.parser import parse
from dsl.tile import DotAttr, Op
from dsl.tiling.coordinates import Coordinates, Place
from dsl.tiling.masks import Masks
from dsl.tiling.passes import Passes
from dsl.tiling.regions import Regions
from dsl.tiling.values import Values
from evaluators.failures import TaskError
from evaluators.pool import WorkerPool

sys.path.insert(0, str(Path(__file__).parents[1] / "dsl"))
from agreement import disagreement, emitted_values, slack, tile_values
from generator import generate, scheduled

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def _changed(owner: Any, name: str, change: Callable[..., Any]) -> Plant:
    """Replaces a function by one that gets the original first."""
    original = getattr(owner, name)

    def plant(patch: Patch) -> None:
        patch.setattr(owner, name, lambda *a, **k: change(original, *a, **k))

    return plant


def _stale(original: Any, self: Passes, t: Any) -> None:
    product = self.contraction(t)
    assert product is not None
    a, b, attr, dims = product
    self.here().append(Op("set", None, (self.emit("dot", (a, b), attr, dims, attr.out, "p"),), self.variables[t]))


def _turned(original: Any, self: Values, *args: Any) -> Any:
    found = original(self, *args)
    if found is None:
        return None
    a, b, attr, dims = found
    return a, b, DotAttr(not attr.transpose_a, attr.transpose_b, attr.dtype, attr.out), dims


def _coarse(original: Any, self: Coordinates, coarse: str, fine: str, places: Any) -> Place:
    at = original(self, coarse, fine, places)
    return Place(self.map("max", self.map("-", at.value, self.const(1)), self.const(0)), at.axis, at.tails, at.checked)


def _read(original: Any, self: Coordinates, tensor: str, dtype: str, at: tuple[Place, ...]) -> Any:
    return original(self, tensor, dtype, tuple(replace(p, checked=False) for p in at))


def _selected(original: Any, self: Values, t: Any, places: Any) -> Any:
    known = self.g.make("map", (t.args[1], self.g.const(1)), "+", (), "i32")
    return original(self, self.g.make("select", (t.args[0], known), t.attr, t.axes, t.dtype), places)


def _factors(original: Any, term: Any) -> Any:
    return [(t, "*" if how == "/" else how) for t, how in original(term)]


def _split(original: Any, self: Passes, *args: Any) -> Any:
    parts = original(self, *args)
    return parts[:1] + parts[2:] if len(parts) > 1 else parts


# what is wrong -> how the tile program comes to be wrong
IN_THE_TILE_PROGRAM: dict[str, Plant] = {
    "an accumulator that no new maximum rescales": _changed(Passes, "rescale", lambda f, self, t, scaled: None),
    "a row sum that no new maximum rescales": _changed(
        Passes, "join", lambda f, self, t, part, s: f(self, t, part, [])
    ),
    "an accumulator that forgets the blocks before": _changed(Passes, "accumulate", _stale),
    "a loop that ends a column early": _changed(Passes, "limit", lambda f, s, b, largest, n: f(s, b, largest, n - n)),
    "a tail that no mask guards": _changed(
        Coordinates, "needs_mask", lambda f, self, a: a not in self.k.loops and f(self, a)
    ),
    "whole axes whose padding counts": _changed(Masks, "guarded", lambda f, self, value, *a, **k: value),
    "masked scores of 0": _changed(
        Masks, "masked", lambda f, s, v, a, g, other, n: f(s, v, a, g, 0.0 if other < 0 else other, n)
    ),
    "a mask under a flag that always holds": _changed(
        Masks, "masked", lambda f, s, v, a, g, o, n: f(s, v, a, {}, o, n)
    ),
    "a scale of the block before": _changed(Coordinates, "coarse", _coarse),
    "an operand that is turned": _changed(Values, "contraction", _turned),
    "exponentials to the base 2": lambda patch: patch.setattr(dsl.tiling.values, "LOG2E", 1.0),
    "a divisor that becomes a factor": _changed(dsl.algebra, "factors", _factors),
    "reads out of range that nothing checks": _changed(Coordinates, "access", _read),
    "one too many in a selection": _changed(Values, "selected", _selected),
    "a short block counted as a full one": lambda patch: patch.setattr(
        dsl.elaborate._Elaborator,
        "members",
        lambda s, a, b: s.graph.make("ratio", (), b, (), "i32") if b else s.graph.extent(a),
    ),
    "the blocks between the edges left out": _changed(Passes, "ranges", _split),
    "comparisons that let equals through": _changed(
        Regions, "map", lambda f, s, g, *a, **k: f(s, {"<": "<=", ">": ">="}.get(g, g), *a, **k)
    ),
    "a neutral element of 1 in sums": lambda patch: patch.setitem(dsl.algebra.NEUTRAL, "sum", 1.0),
    "narrow casts left out": _changed(
        Regions,
        "emit",
        lambda f, s, kind, args, attr, *r: args[0] if kind == "cast" and attr == "e4m3" else f(s, kind, args, attr, *r),
    ),
}


def _source(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new)


# what is wrong -> how the emitted source comes to be wrong
IN_THE_SOURCE: dict[str, Plant | Callable[[str], str]] = {
    "strides in the wrong order": _changed(Memory, "strides", lambda f, self, tensor: f(self, tensor)[::-1]),
    "persistent programs that miss tiles": _source("tl.num_programs(0)):", "tl.num_programs(0) + 1):"),
    "a reversed order that is off by one": _source(" - 1 - tile_", " - tile_"),
    "groups of rows of the wrong length": _source("// rows", "// GROUP"),
    "a running sum without its own element": _source("tl.cumsum(", "0.5 * tl.cumsum("),
    "quotients of numbers below zero that round to zero": _changed(dsl.tiling.values, "_plain", lambda f, t: True),
    "stores that no mask guards": lambda text: "\n".join(
        line.split(", mask=")[0] + ")" if "tl.store(" in line and ", mask=" in line else line
        for line in text.splitlines()
    ),
}


PROGRAMS = 300


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as workers:
        yield workers


def _caught(seed: int, plant: Plant | None, run: Callable[..., Any]) -> bool:
    """Whether the program of a seed, right without the fault, shows it."""
    case = generate(seed)
    hw, program = hardware(case.chip), parse(case.text)
    if errors(program, hw, case.extents):
        return False
    program = scheduled(case)
    wanted = evaluate(program, case.arrays, case.params, mode="rounded")
    with Patch.context() as patch:
        patch.setattr(dsl.elaborate, "_recent", {})  # what was elaborated without the fault
        if plant is not None:
            plant(patch)
        try:
            found = run(program, hw, case)
        except ProgramError:
            return False  # refused: nothing was shown
        except (AssertionError, IndexError, ValueError, KeyError, TypeError, TaskError):
            return True
    return bool(
        disagreement(wanted, found) and disagreement(wanted, found, slack(program, case.arrays, case.params, wanted))
    )


def _tile(program: Any, hw: Any, case: Any) -> Any:
    return tile_values(program, hw, case.arrays, case.params)


def _catcher(fault: str, pool: WorkerPool) -> int | None:
    """The first program that shows the fault, or None."""
    plant = IN_THE_TILE_PROGRAM.get(fault) or IN_THE_SOURCE[fault]
    in_the_lowering = fault in IN_THE_TILE_PROGRAM or plant.__name__ == "plant"

    def run(program: Any, hw: Any, case: Any) -> Any:
        if fault in IN_THE_TILE_PROGRAM:
            return tile_values(program, hw, case.arrays, case.params)
        lowered = lower(program, hw)
        if not in_the_lowering:
            changed = plant(lowered.interpretable)  # type: ignore[arg-type]
            if changed == lowered.interpretable:
                raise ProgramError([])
            lowered = type(lowered)(changed, lowered.entry, lowered.kernels, interpretable=changed)
        return emitted_values(pool, program, lowered, case.arrays, case.params)

    known: Any = plant if in_the_lowering else None
    return next((seed for seed in range(PROGRAMS) if _caught(seed, known, run)), None)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # most take seconds; one of them wants 141 programs
@pytest.mark.parametrize("fault", [*IN_THE_TILE_PROGRAM, *IN_THE_SOURCE])
def test_a_planted_fault_is_caught(pool: WorkerPool, fault: str) -> None:
    assert _catcher(fault, pool) is not None


def main() -> int:
    print("| fault | in | caught by program |\n|---|---|---|")
    caught = []
    with WorkerPool(1) as workers:
        for fault in (*IN_THE_TILE_PROGRAM, *IN_THE_SOURCE):
            caught.append(_catcher(fault, workers))
            where = "the tile program" if fault in IN_THE_TILE_PROGRAM else "the emitted source"
            print(f"| {fault} | {where} | {'none' if caught[-1] is None else caught[-1] + 1} |", flush=True)
    return 1 if None in caught else 0


if __name__ == "__main__":
    sys.exit(main())
