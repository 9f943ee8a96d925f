"""Is the program the function? Asked of the function itself, on random inputs: in float64, and in its own dtypes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from avo.errors import UserMistake
from avo.importing.writing import Written
from dsl.anatomy import anatomies
from dsl.meaning import evaluate
from dsl.printer import print_program
from dsl.rounding import round_to
from dsl.syntax import Program
from evaluators.equivalence import EXACT
from evaluators.inputs import FLOATS, Array, draw_inputs, extents, generator
from evaluators.loading import complete, fits
from evaluators.target import Target, TargetError, Workload

# The program may be twice as far from the exact values as the function is in its own dtypes, or this far (relative L2):
# PyTorch rounds after every operator, the program only where it says so.
FLOOR = {"f32": 1e-5, "f16": 5e-3, "bf16": 1e-2, "e4m3": 0.1, "e5m2": 0.2}
_LARGEST = 1 << 24  # elements of one value in a check: the example's own sizes are checked where they are no larger


@dataclass(frozen=True)
class Checked:
    """exact: largest difference over the largest value, in float64. rounded: how far the program's named roundings put
    it from that, own: how far the function is from it in its own dtypes (relative L2, the largest of all outputs).

    sizes: what was compared, by name. refused: sizes that the function itself does not take, and what it said.
    undefined: where the function gives NaN and the program 0: a softmax of nothing but -inf. differs: sizes other than
    the example's at which the two differ, and how.
    """

    exact: float
    rounded: float
    own: float
    sizes: tuple[str, ...]
    refused: tuple[tuple[str, str], ...] = ()
    undefined: tuple[str, ...] = ()
    differs: tuple[tuple[str, str], ...] = ()


class _Refused(Exception):
    """The function does not take these sizes."""


class Differs(Exception):
    """The program is not the function: a fault of the import, or a guess that was wrong."""


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with every cast to a float dtype, and every new float tensor, in float64 instead.

    A target's reference has to be exact, and `x.float()` would round float64 inputs.
    """

    @functools.wraps(function)
    def exact(*args: Any, **kwargs: Any) -> Any:
        import torch

        from avo.importing.float64 import Float64, NormEps

        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with NormEps(), Float64():
                return function(*args, **kwargs)
        finally:
            torch.set_default_dtype(before)

    return exact


def as_target(
    written: Written, program: Program, function: Callable[..., Any], fixed: Mapping[str, Any], order: list[str]
) -> Target:
    """The job as a target: the function in float64 as its reference, the example's sizes as its workload.

    order: the function's tensor arguments; the program's inputs are the same, in the same order.
    """
    exact = in_float64(function)

    def reference(*tensors: Any) -> Any:
        return exact(**dict(zip(order, tensors, strict=True)), **fixed)

    contracts = any(k.contractions for k in anatomies(program))
    return Target(
        name=written.algorithm.name,
        reference=reference,
        seed=print_program(program),
        workloads=(Workload(written.sizes),),
        unit="TFLOP/s" if contracts else "GB/s",
    )


@dataclass(frozen=True)
class Comparison:
    """A program beside the function that it was imported from.

    target: the job of `as_target`. arguments: the function's, by name; order: those of them that are tensors, as the
    program's inputs follow each other.
    """

    target: Target
    program: Program
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    order: Sequence[str]

    def check(self, path: Path, seed: int) -> Checked:
        """At the example's sizes and at small ones. path: of the function's file, for messages.

        Raises Differs where values differ, UserMistake where the function fails at the example's own sizes."""
        whole = complete(self.target)
        example = self.target.workloads[0]
        sizes = list({w.name: w for w in (*whole.tiny[:1], *whole.checks[:1])}.values())
        if _elements(self.program, example) <= _LARGEST and example not in sizes:
            sizes.append(example)
        exact, ours, own, done, refused, undefined, differs = 0.0, 0.0, 0.0, [], [], [], []
        for workload in sizes:
            try:
                gap, distance, theirs, empty = self._asked(workload, seed)
            except _Refused as no:
                refused.append((workload.name, str(no)))
                continue
            except Differs as error:
                if workload == example or example not in sizes:
                    raise
                differs.append((workload.name, str(error)))
                continue
            undefined += empty
            exact, ours, own = max(exact, gap), max(ours, distance), max(own, theirs)
            done.append(workload.name)
        if not done:
            name, said = refused[0]
            raise UserMistake(f"{path}: the function could not be run to check the program: at {name}: {said}")
        return Checked(exact, ours, own, tuple(done), tuple(refused), tuple(undefined), tuple(differs))

    def agrees(self, workload: Workload) -> bool:
        """Whether the function takes these sizes, and the program gives the same there."""
        try:
            fits(self.target, self.program.algorithm, workload)
            self._asked(workload, seed=0)
        except (TargetError, _Refused, Differs):
            return False
        return True

    def _asked(self, workload: Workload, seed: int) -> tuple[float, float, float, list[str]]:
        """As `_compared`, on random inputs. Raises Differs, and _Refused where the function does not take them; what
        fails in the program's own values is no refusal."""
        rng = generator(seed, "import", workload.name)
        try:
            drawn = draw_inputs(self.target, self.program.algorithm, workload, "normal", rng)
            inputs = _tame(self.program, drawn)
            right = self._exact(inputs)
            mine = self._own(inputs)
        except (TargetError, RuntimeError, ValueError, IndexError, TypeError) as error:
            raise _Refused(_said(error)) from error
        return _compared(self.program, inputs, right, mine, workload.name)

    def _exact(self, inputs: Mapping[str, Array]) -> list[Array]:
        """What the function gives in float64."""
        import torch

        tensors = [torch.from_numpy(np.array(inputs[t.name])) for t in self.program.algorithm.inputs]
        with torch.no_grad():
            return [_array(v) for v in _several(self.target.reference(*tensors))]

    def _own(self, inputs: Mapping[str, Array]) -> list[Array]:
        """What the function gives in its own dtypes."""
        import torch

        given = dict(self.arguments)
        for name, tensor in zip(self.order, self.program.algorithm.inputs, strict=True):
            given[name] = torch.from_numpy(np.array(inputs[tensor.name])).to(self.arguments[name].dtype)
        with torch.no_grad():
            return [_array(v) for v in _several(self.function(**given))]


def _compared(
    program: Program, inputs: Mapping[str, Array], right: list[Array], mine: list[Array], sizes: str
) -> tuple[float, float, float, list[str]]:
    """(exact, rounded, own, undefined) as in Checked, of one size. Raises Differs."""
    meant = evaluate(program, inputs, mode="exact")
    rounded = evaluate(program, inputs, mode="rounded")
    exact, ours, own, undefined = 0.0, 0.0, 0.0, []
    for tensor, r, m in zip(program.algorithm.outputs, right, mine, strict=True):
        name = tensor.name
        where = f"{name} at {sizes}"
        if meant[name].shape != r.shape:
            raise Differs(f"{where} has shape {list(meant[name].shape)}, the function's {list(r.shape)}")
        empty = np.isnan(r) & (meant[name] == 0)
        if empty.any():
            undefined.append(where)
            r, m = np.where(empty, 0.0, r), np.where(empty, 0.0, m)
        gap = _gap(meant[name], r)
        if not gap <= EXACT:
            raise Differs(f"{where} is {gap:.2g} off the function (relative, in float64); limit {EXACT:g}")
        floor = max(FLOOR.get(t.dtype or "f32", 0.0) for t in (*program.algorithm.inputs, tensor))
        theirs, distance = _distance(m, r), _distance(rounded[name], r)
        if not distance <= max(2 * theirs, floor):
            raise Differs(
                f"{where}: its roundings put it {distance:.2g} off the exact values (relative L2), "
                f"those of the function {theirs:.2g}"
            )
        exact, ours, own = max(exact, gap), max(ours, distance), max(own, theirs)
    return exact, ours, own, undefined


def _tame(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Float inputs divided by the fourth root of their rows' length, so that a product of two has values of size 1.

    Layers on layers of larger ones end in a softmax that is all or nothing, which no two roundings agree on.
    """
    found = {}
    for t in program.algorithm.inputs:
        x, dtype = inputs[t.name], t.dtype or "f32"
        large = dtype in FLOATS and x.ndim > 0
        found[t.name] = round_to(x / max(1, x.shape[-1]) ** 0.25, dtype) if large else x
    return found


def _elements(program: Program, workload: Workload) -> int:
    lengths = extents(program.algorithm, workload)
    shapes = [axes for k in anatomies(program) for axes in k.values]
    return max((int(np.prod([float(lengths.get(a, 1)) for a in s])) for s in shapes), default=1)


def _said(error: Exception) -> str:
    text = str(error).split("\n")[0]
    return re.sub(r"^target \w+: the reference raised \w+ on \S+: ", "", text)


def _several(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _array(value: Any) -> Array:
    return (value.double() if value.is_floating_point() else value).detach().cpu().numpy()


def _gap(a: Array, b: Array) -> float:
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return float("inf")
    scale = float(np.max(np.abs(b[finite]), initial=0.0)) or 1.0
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0)) / scale


def _distance(a: Array, b: Array) -> float:
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    size = float(np.sqrt(np.sum(b[finite] ** 2))) or 1.0
    return float(np.sqrt(np.sum((a[finite] - b[finite]) ** 2))) / size
