"""The three ways to a program's value, and whether two of them agree: meaning, tile program, emitted Triton."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dsl.extents import extents_of
from dsl.hardware import Hardware
from dsl.interpret import run
from dsl.lowering import tile_program
from dsl.lowering.lowered import Lowered
from dsl.meaning import _inputs, _Meaning, evaluate
from dsl.named_arrays import Named
from dsl.printer import print_program
from dsl.rounding import round_to
from dsl.syntax import Program

Arrays = Mapping[str, Any]
TOLERANCE = 1e-2  # of an output's norm: contraction operands may be rounded to the other's dtype, sums run in f32


def tile_values(program: Program, hw: Hardware, inputs: Arrays, params: Arrays) -> dict[str, Any]:
    """What the tile programs write, kernel after kernel. Raises ProgramError where there is no lowering."""
    found = dict(inputs)
    for kernel in tile_program(program, hw):
        found.update(run(kernel, found, params))
    return found


def emitted_values(pool: Any, program: Program, lowered: Lowered, inputs: Arrays, params: Arrays) -> dict[str, Any]:
    """What the emitted source returns from the corrected interpreter, in a worker of `pool`."""
    from evaluators.cpu import Tensor, interpret
    from evaluators.inputs import decode, encode

    tensors = [
        Tensor(t.name, t.dtype or "f32", inputs[t.name].shape, encode(inputs[t.name], t.dtype or "f32"))
        for t in program.algorithm.inputs
    ]
    found = interpret(pool, lowered.interpretable, lowered.entry, tensors, params)
    assert not found.mutated and not found.strayed
    return {
        t.name: decode(got.data, got.dtype, got.shape)
        for t, got in zip(program.algorithm.outputs, found.outputs, strict=True)
    }


def distance(wanted: Any, found: Any) -> float:
    """The norm of the difference over that of the wanted value; what both hold alike, NaN and infinities too, is no
    difference."""
    with np.errstate(all="ignore"):
        wanted, found = np.asarray(wanted, dtype=float), np.asarray(found, dtype=float)
        off = np.where((found == wanted) | (np.isnan(found) & np.isnan(wanted)), 0.0, found - wanted)
        size = np.linalg.norm(np.where(np.isfinite(wanted), wanted, 0.0))
        return float(np.linalg.norm(off) / max(size, 1e-6))


def disagreement(wanted: Arrays, found: Arrays, slack: Mapping[str, float] | None = None) -> str:
    """The first output that is too far off, or nothing. slack: what each may be off beyond TOLERANCE."""
    for name, answer in wanted.items():
        error = distance(answer, found[name])
        if not error < TOLERANCE + (slack or {}).get(name, 0.0):
            return f"{name} is {error:.1e} off"
    return ""


def hold(program: Program, chip: str, inputs: Arrays, params: Arrays, found: Arrays) -> None:
    """Asserts that these are the program's values."""
    off = disagreement(evaluate(program, inputs, params, mode="rounded"), found)
    assert not off, f"{off} on {chip} with {dict(params)}:\n{print_program(program)}"


class _Shaken(_Meaning):
    """The meaning in arithmetic that is off by the rounding of f32 everywhere, of bf16 in operands of contractions."""

    def shake(self, seed: int) -> None:
        self.random, self.noise = np.random.default_rng(seed), 2.0**-22

    def map(self, f: Any, *operands: Named) -> Named:
        return self.shaken(super().map(f, *operands))

    def shaken(self, x: Named) -> Named:
        if x.data.dtype.kind != "f" or not hasattr(self, "random"):
            return x
        return Named(x.axes, x.data * (1 + self.noise * self.random.uniform(-1, 1, x.data.shape)))

    def value(self, e: Any) -> Named:
        found = super().value(e)
        return self.shaken(found) if self.noise > 2.0**-20 else found

    def contraction(self, product: Any, over: Any) -> Named:
        narrow = {"e5m2": 2.0**-3, "e4m3": 2.0**-4}  # an undeclared operand may be rounded to the declared one's dtype
        given = {t.dtype for t in self.algorithm.inputs} | {
            t.dtype for s in self.algorithm.statements for t in s.targets
        }
        before, self.noise = self.noise, max((narrow[d] for d in given & narrow.keys()), default=2.0**-9)
        try:
            return super().contraction(product, over)
        finally:
            self.noise = before


def slack(program: Program, inputs: Arrays, params: Arrays, wanted: Arrays) -> dict[str, float]:
    """How far rounding alone moves each output: a program may round a value that lies between two of a narrow dtype."""
    given = _inputs(program, inputs)
    extents = extents_of(program, {k: v.shape for k, v in given.items()}, params)
    most = dict.fromkeys(wanted, 0.0)
    with np.errstate(all="ignore"):
        for seed in range(3):
            meaning = _Shaken(program, given, extents, "rounded", round_to)
            meaning.shake(seed)
            for name, value in meaning.run(set()).items():
                most[name] = max(most[name], 4 * distance(wanted[name], value))
    return most
