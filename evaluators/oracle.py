"""The right answer of a program, and the answer of an honest low-precision kernel, both from the program's own meaning.

Both are the rounded meaning: every named rounding happens, all else is float64. The oracle leaves out the rounding of
the outputs themselves, so that an error is a distance to the value and not to a neighbour of it. The honest answer
keeps that rounding and makes the one choice that the language leaves to a kernel: an undeclared operand of a
contraction is rounded to the declared operand's dtype (attention's probabilities to bf16, say). It is the yardstick
of `evaluators.tolerance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dsl.assembly import walk
from dsl.meaning import evaluate
from dsl.rounding import round_to
from dsl.syntax import Algorithm, Binary, Call, Expr, Name, Program, Read, Statement, Tensor, Unary
from evaluators.inputs import FLOATS, Array
from evaluators.tolerance import FLOORS


@dataclass(frozen=True)
class Answer:
    """One output. oracle: float64 before its own rounding; honest: rounded; integers and bools as they are in both."""

    dtype: str
    oracle: Array
    honest: Array


def answers(
    program: Program, inputs: Mapping[str, Array], params: Mapping[str, int | float | bool]
) -> dict[str, Answer]:
    """What every output should be, in declaration order. Shapes and dtypes are the declared ones."""
    bare = unrounded(program)
    dtypes = output_dtypes(program.algorithm)
    right = evaluate(bare, dict(inputs), dict(params), mode="rounded")
    lowered = honest(bare)
    loose = right if lowered == bare else evaluate(lowered, dict(inputs), dict(params), mode="rounded")
    return {
        name: Answer(dtype, right[name], round_to(loose[name], dtype) if dtype in FLOORS else loose[name])
        for name, dtype in dtypes.items()
    }


def output_dtypes(algorithm: Algorithm) -> dict[str, str]:
    """Output -> dtype; f32 where none is declared."""
    written = {t.name: t.dtype for s in algorithm.statements for t in s.targets}
    return {t.name: t.dtype or written.get(t.name) or "f32" for t in algorithm.outputs}


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
