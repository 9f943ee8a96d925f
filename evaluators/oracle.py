"""The right answer of a program, and the answer of an honest low-precision kernel, both from the program's own meaning.

Both are the rounded meaning: every named rounding happens, all else is float64. The oracle leaves out the rounding of
the outputs themselves, so that an error is a distance to the value and not to a neighbour of it. The honest answer
keeps that rounding and makes the one choice that the language leaves to a kernel: an undeclared operand of a
contraction is rounded to the declared operand's dtype (attention's probabilities to bf16, say). It is the yardstick
of `evaluators.tolerance`.

Where a computed value is rounded to a named dtype, an honest kernel's float32 sums may stand on the other side of the
boundary between two neighbours than the exact value does: few values, each a whole step away. So the honest answer of
a program with such a name is asked for twice: as it is, and with every value that is so near to a boundary on its
other side. At each place the one farther from the right answer counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dsl.assembly import walk
from dsl.meaning import Rounding, evaluate, rounded_inputs
from dsl.rounding import DTYPES, round_to
from dsl.syntax import Algorithm, Binary, Call, Expr, Name, Program, Read, Statement, Tensor, Unary
from evaluators.inputs import FLOATS, Array
from evaluators.tolerance import FLOORS

# How far a float32 computation may stand from the exact value, relative to it and to the values beside it: that of
# `evaluators.tolerance` for the relative L2 of float32 outputs.
_FLOAT32 = FLOORS["f32"].l2 * FLOORS["f32"].unit


@dataclass(frozen=True)
class Answer:
    """One output. oracle: float64 before its own rounding; honest: rounded; integers and bools as they are in both."""

    dtype: str
    oracle: Array
    honest: Array


def answers(
    program: Program,
    inputs: Mapping[str, Array],
    params: Mapping[str, int | float | bool],
    representable: bool = False,
) -> dict[str, Answer]:
    """What every output should be, in declaration order. Shapes and dtypes are the declared ones.

    representable: inputs have been read from memory of their dtypes, so that none has to be rounded to them."""
    bare = unrounded(program)
    dtypes = output_dtypes(program.algorithm)
    given = dict(inputs) if representable else rounded_inputs(bare, inputs)
    lowered = honest(bare)

    def meant(one: Program, rounding: Rounding) -> dict[str, Array]:
        return evaluate(one, given, dict(params), mode="rounded", rounding=rounding, representable=True)

    sides = _Sides()
    right = loose = meant(bare, sides.keep)
    named = bool(sides.kept)  # of the choice that the language leaves open no side is asked
    if lowered != bare:
        sides = _Sides()
        loose = meant(lowered, sides.keep if named else round_to)
    other = meant(lowered, sides.cross) if named else loose
    return {name: _answer(dtype, right[name], loose[name], other[name]) for name, dtype in dtypes.items()}


def _answer(dtype: str, right: Array, loose: Array, other: Array) -> Answer:
    if dtype not in FLOORS:
        return Answer(dtype, right, other)
    near = round_to(loose, dtype)
    if other is loose:
        return Answer(dtype, right, near)
    far = round_to(other, dtype)
    with np.errstate(invalid="ignore"):
        return Answer(dtype, right, np.where(np.abs(far - right) > np.abs(near - right), far, near))


@dataclass
class _Sides:
    """Rounds computed values: first as they are (`keep`, which notes them), then those near to a boundary to its other
    side (`cross`). Both see the same values in the same order."""

    kept: list[Array] = field(default_factory=list)
    _next: int = 0

    def keep(self, values: Array, dtype: str) -> Array:
        self.kept.append(values)
        return round_to(values, dtype)

    def cross(self, values: Array, dtype: str) -> Array:
        exact = self.kept[self._next]
        self._next += 1
        usual = round_to(exact, dtype)
        reach = _FLOAT32 * _scale(exact) + np.abs(values - exact)  # what crossed before has moved these values
        reach = np.minimum(reach, _step(exact, dtype) / 4)
        below, above = (round_to(x, dtype) for x in (exact - reach, exact + reach))
        crossed = np.where(below != usual, below, above)
        moved = round_to(values, dtype)
        chosen = np.where(moved != usual, moved, crossed)
        return np.where(np.isfinite(values) & np.isfinite(exact) & np.isfinite(chosen), chosen, moved)


def _scale(values: Array) -> Array:
    """Each value's size; where a sum cancels to less, that of the values along the axis on which they are smallest."""
    finite = np.where(np.isfinite(values), values, 0.0)
    least = np.asarray(np.inf) if finite.ndim else np.asarray(0.0)
    for axis in range(finite.ndim):
        least = np.minimum(least, np.sqrt(np.mean(finite**2, axis=axis, keepdims=True)))
    return np.maximum(np.abs(finite), least)


def _step(values: Array, dtype: str) -> Array:
    """The distance between two neighbours of the dtype, there."""
    f = DTYPES[dtype]
    if f.kind == "int":
        return np.ones(np.shape(values))
    _, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    return np.ldexp(1.0, np.maximum(exponent - 1, f.smallest_exponent) - f.mantissa)


def output_dtypes(algorithm: Algorithm) -> dict[str, str]:
    """Output -> dtype; f32 where none is declared."""
    written = {t.name: t.dtype for s in algorithm.statements for t in s.targets}
    return {t.name: t.dtype or written.get(t.name) or "f32" for t in algorithm.outputs}


def named_inside(program: Program) -> str | None:
    """The coarsest narrow dtype that the program names for a value that is no output; None where it names none."""
    bare = unrounded(program).algorithm
    named = [t.dtype for s in bare.statements for t in s.targets if t.dtype]
    named += [t.dtype for t in bare.outputs if t.dtype]
    named += [e.function for s in bare.statements for e in walk(s.value) if isinstance(e, Call) and e.axes is None]
    narrow = [n for n in named if _narrow(n)]
    return min(narrow, key=lambda n: DTYPES[n].mantissa, default=None)


def unrounded(program: Program) -> Program:
    """The program with f64 outputs. An output that a later line reads keeps its dtype: that line sees it rounded."""
    algorithm = program.algorithm
    read = {
        part.id if isinstance(part, Name) else part.tensor
        for s in algorithm.statements
        for part in walk(s.value)
        if isinstance(part, Name | Read)
    }
    free = {t.name for t in algorithm.outputs if t.name not in read and output_dtypes(algorithm)[t.name] in FLOORS}

    def widen(tensor: Tensor) -> Tensor:
        return replace(tensor, dtype="f64") if tensor.name in free else tensor

    statements = tuple(replace(s, targets=tuple(map(widen, s.targets))) for s in algorithm.statements)
    outputs = tuple(map(widen, algorithm.outputs))
    return replace(program, algorithm=replace(algorithm, outputs=outputs, statements=statements))


def honest(program: Program) -> Program:
    """The program with a cast around every contraction operand that a kernel may round (rule 11)."""
    algorithm = program.algorithm
    dtypes = {t.name: t.dtype for t in algorithm.inputs if t.dtype}
    dtypes.update({t.name: t.dtype for s in algorithm.statements for t in s.targets if t.dtype})

    def declared(expr: Expr) -> str | None:
        match expr:
            case Name(id=name) | Read(tensor=name):
                return dtypes.get(name)
            case Call(function=function, axes=None) if function in FLOATS:
                return function
            case _:
                return None

    def rewrite(expr: Expr) -> Expr:
        match expr:
            case Unary():
                return replace(expr, operand=rewrite(expr.operand))
            case Binary():
                return replace(expr, left=rewrite(expr.left), right=rewrite(expr.right))
            case Read():
                return replace(expr, indices=tuple(map(rewrite, expr.indices)))
            case Call(function="sum", args=(Binary(op="*", left=left, right=right) as product,)):
                a, b = declared(left), declared(right)
                left, right = rewrite(left), rewrite(right)
                if a is None and b is not None and _narrow(b):
                    left = Call(b, None, (left,))
                if b is None and a is not None and _narrow(a):
                    right = Call(a, None, (right,))
                return replace(expr, args=(replace(product, left=left, right=right),))
            case Call():
                keywords = tuple((k, rewrite(v)) for k, v in expr.keywords)
                return replace(expr, args=tuple(map(rewrite, expr.args)), keywords=keywords)
            case _:
                return expr

    def step(statement: Statement) -> Statement:
        return replace(statement, value=rewrite(statement.value))

    return replace(program, algorithm=replace(algorithm, statements=tuple(map(step, algorithm.statements))))


def _narrow(dtype: str) -> bool:
    return dtype in ("bf16", "f16", "e4m3", "e5m2")
