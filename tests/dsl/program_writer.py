"""What random programs are written with: axes, inputs, elementwise dressing, reductions, masks, outputs, pipelines.

Sizes are small and no multiple of a tile. Values are kept to a few units, so that a difference between two ways of
computing is a fault and not an accident of rounding; only what is known exactly is compared or selected by value.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from family import CHIPS

from dsl.rounding import round_to

EXACT, CLOSE, ROUGH = range(3)  # known to the bit; to f32's rounding; to that of a contraction's operands
FLOATS = ("bf16", "f16", "f32")


@dataclass(frozen=True)
class V:
    """A value of the program: how it is written, its axes, its dtype, and how exactly it is known."""

    text: str
    axes: tuple[str, ...]
    dtype: str = "f32"
    declared: bool = False
    level: int = CLOSE
    size: float = 3.0
    positive: bool = False  # above 0.05

    @property
    def named(self) -> bool:
        return self.text.isidentifier()


@dataclass
class Case:
    """A program and what it runs on. `masks`, `quotients`: the kinds in it of masks, of quotients and rests below 0."""

    text: str
    chip: str
    arrays: dict[str, Any]
    params: dict[str, Any]
    extents: dict[str, int]
    masks: list[str]
    quotients: list[str]
    plan: str


@dataclass
class Writer:
    """A program being written."""

    rng: random.Random
    extents: dict[str, int] = field(default_factory=dict)
    axis_lines: list[str] = field(default_factory=list)
    inputs: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    drawn: dict[str, tuple[int | str, float]] = field(default_factory=dict)  # per input: integers below, scale
    ratios: dict[str, int] = field(default_factory=dict)
    param_lines: dict[str, str] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    lines: list[tuple[tuple[V, ...], str]] = field(default_factory=list)
    masks: list[str] = field(default_factory=list)
    quotients: list[str] = field(default_factory=list)
    schedule: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)  # names that a kernel of their own writes

    def __post_init__(self) -> None:
        self.numpy = np.random.default_rng(self.rng.randrange(2**32))

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    # Axes, inputs, params

    def axis(self, name: str, low: int, high: int) -> str:
        self.extents[name] = self.rng.randint(low, high)
        return name

    def batch(self) -> tuple[str, ...]:
        """No, one or two small leading axes."""
        return tuple(self.axis(a, 1, 3) for a in ("b", "h")[: self.rng.choice((0, 1, 1, 2))])

    def blocks(self, fine: str, ratio: int) -> str:
        """A coarse axis over `fine`."""
        name = f"{fine}{'bcg'[sum(self.coarse(a, fine) for a in self.extents)]}"
        self.extents[name] = -(-self.extents[fine] // ratio)  # a first guess: `finish` knows
        self.ratios[name] = ratio
        self.axis_lines.append(f"axis {name} = {fine} // {ratio}")
        return name

    def input(self, axes: tuple[str, ...], dtype: str = "", below: int | str = 0, scale: float = 1.0) -> V:
        """A new input. below: integers under it, or under the extent of that axis."""
        dtype = "i32" if below else dtype or self.rng.choice(("bf16", "f16", "f32", "bf16"))
        name = f"x{len(self.inputs)}"
        for a in axes:  # an input over blocks has whole blocks alone
            if a in self.ratios:
                self.extents[a[0]] = -(-self.extents[a[0]] // self.ratios[a]) * self.ratios[a]
        self.inputs[name] = (axes, dtype)
        self.drawn[name] = (below, scale)
        return V(name, axes, dtype, dtype not in ("i32", "bool"), EXACT, 9 if dtype == "int8" else 4 * scale)

    def array(self, name: str) -> Any:
        """The values of an input."""
        (axes, dtype), (below, scale) = self.inputs[name], self.drawn[name]
        shape = tuple(self.extents[a] for a in axes)
        if below:
            return self.numpy.integers(0, self.extents[below] if isinstance(below, str) else below, shape)
        if dtype == "bool":
            return self.numpy.random(shape) < 0.7
        if dtype == "int8":
            return self.numpy.integers(-9, 10, shape)
        return round_to(self.numpy.standard_normal(shape) * scale, dtype)

    def param(self, name: str, dtype: str, value: Any, default: bool = False) -> str:
        shown = str(value).lower() if dtype == "bool" else str(value)
        self.param_lines[name] = f"param {name} {dtype}" + (f" = {shown}" if default else "")
        if not default:
            self.params[name] = value
        return name

    # Statements

    def let(self, v: V, dtype: str = "") -> V:
        """The value under a name; with a dtype it rounds there."""
        if v.named and not dtype:
            return v
        axes = list(v.axes)
        if self.chance(0.3):
            self.rng.shuffle(axes)
        name = f"v{len(self.lines)}"
        declared = dtype in ("bf16", "f16", "e4m3", "e5m2", "f32", "int8")
        level = v.level if not dtype or dtype == "f32" else ROUGH if v.level else v.level
        new = replace(v, text=name, axes=tuple(axes), dtype=dtype or v.dtype, declared=declared, level=level)
        self.lines.append(((new,), v.text))
        return new

    def ref(self, v: V) -> str:
        """The value where it is read: mostly by name."""
        return v.text if v.named else f"({v.text})" if self.chance(0.5) else self.let(v).text

    def tamed(self, v: V) -> V:
        """Back to a few units."""
        if v.size <= 12:
            return v
        return replace(v, text=f"clamp({v.text}, -8, 8)", size=8.0, dtype="f32", declared=False)

    # Elementwise

    def unary(self, v: V) -> V:
        v = self.tamed(v)
        x = self.let(v).text if not v.named else v.text
        forms: list[tuple[str, float, bool]] = [
            (f"exp(min({x}, 1.5))", 4.5, False), (f"exp2(clamp({x}, -3, 2))", 4, True),
            (f"log(abs({x}) + 0.5)", 3, False), (f"log2(abs({x}) + 0.5)", 4, False),
            (f"sqrt(abs({x}) + 0.25)", 4, True), (f"rsqrt({x} * {x} + 0.5)", 1.5, True), (f"tanh({x})", 1, False),
            (f"sigmoid({x})", 1, False), (f"erf({x})", 1, False), (f"sin({x})", 1, False), (f"cos({x})", 1, False),
            (f"abs({x})", v.size, False), (f"relu({x})", v.size, False), (f"silu({x})", v.size, False),
            (f"gelu({x})", v.size, False), (f"gelu_tanh({x})", v.size, False),
            (f"softplus({x})", v.size + 1, False), (f"min({x}, 1.5)", v.size, False),
            (f"max({x}, -0.5)", v.size, False), (f"clamp({x}, -1, 1.25)", 1.25, False), (f"-{x}", v.size, False),
            (f"1 / (1 + {x} * {x})", 1, False), (f"{x} / 3", v.size, False), (f"0.5 * {x} - 1", v.size + 1, False),
            (f"{x} - {x} * 0.25", v.size, False), (f"exp(-abs({x}))", 1, False),
        ]  # fmt: skip
        if v.level == EXACT and self.chance(0.7):
            forms = []
            forms += [(f"floor({x} * 2)", 2 * v.size, False), (f"where({x} > 0.25, {x}, 0.1 * {x})", v.size, False)]
            forms += [(f"where({x} != {x}, 1, {x})", v.size, False), (f"where({x} <= -0.5, 0.5, {x})", v.size, False)]
        text, size, positive = self.rng.choice(forms)
        return V(text, v.axes, level=max(v.level, CLOSE), size=size, positive=positive)

    def binary(self, v: V, w: V) -> V:
        v, w = self.tamed(v), self.tamed(w)
        axes = self.union(v, w)
        a, b = self.ref(v), self.ref(w)
        forms = [
            (f"{a} + {b}", v.size + w.size), (f"{a} - {b}", v.size + w.size), (f"{a} * {b}", v.size * w.size),
            (f"min({a}, {b})", max(v.size, w.size)), (f"max({a}, {b})", max(v.size, w.size)),
            (f"{a} / (1 + abs({b}))", v.size), (f"{a} * sigmoid({b})", v.size), (f"{b} - 0.5 * {a}", v.size + w.size),
        ]  # fmt: skip
        text, size = self.rng.choice(forms)
        return V(text, axes, level=max(v.level, w.level, CLOSE), size=size)

    def indexed(self, v: V) -> V:
        """Something with an index or an extent in it."""
        if not v.axes:
            return self.unary(v)
        a, x = self.rng.choice(v.axes), self.ref(self.tamed(v))
        n = self.extents[a]
        forms = [
            f"{x} + 0.02 * {a}", f"{x} * ({a} % 3 - 1)", f"where({a} % 2 == 0, {x}, -{x})", f"{x} + {a} // 4 * 0.1",
            f"{x} * rsqrt({a.upper()})", f"where({a} < {a.upper()} // 2, {x}, 0.5 * {x})",
            f"{x} + ({a.upper()} - {a}) / {a.upper()}", f"where({a} == {n // 2}, 1, {x})",
            f"where({a} >= 2 and not ({a} > {n - 3}) or {a} == 0, {x}, 1)", f"where(true, {x}, 0)",
            f"{x} + min({a}, 5) * 0.1 + max({a} - 3, 0) // 2 * 0.05",
        ]  # fmt: skip
        text = self.rng.choice(forms)
        apart = random.Random(f"quotient {x} {a} {len(self.lines)}")  # so that other programs stay what they were
        if apart.random() < 0.6:
            text = self.below_zero(apart, x, a)
        return V(text, v.axes, level=max(v.level, CLOSE), size=v.size + 3)

    def below_zero(self, rng: random.Random, x: str, a: str) -> str:
        """x with a quotient or a rest of numbers below 0 in it, along axis a."""
        kind = rng.choice(("an index", "an input of integers", "floats", "a negative divisor", "a computed divisor"))
        k: int = rng.randint(1, max(1, self.extents[a]))
        n: float = rng.choice((2, 3, 4, 5, 7))
        if kind == "an index":
            i = rng.choice((f"({a} - {k})", f"(0 - {a})", f"({a} - {a.upper()})", f"({k} - 2 * {a})"))
        elif kind == "floats":
            i, n = self.input((a,), "f32").text, rng.choice((0.75, 1.5, -1.25))
        else:
            i = self.input((a,), "int8").text
        if kind == "a negative divisor":
            i, n = rng.choice((i, f"({a} - {k})")), -n
        self.quotients += [kind] + ["a negative divisor"] * (kind == "floats" and n < 0)
        by = f"(2 * {self.input((a,), 'int8').text} + 1)" if kind == "a computed divisor" else f"{n}"
        forms = (f"{x} + 0.1 * ({i} // {by})", f"{x} - 0.2 * ({i} % {by})", f"where({i} // {by} < -1, {x}, 0.5 * {x})")
        return rng.choice((*forms, f"where({i} % {by} == {rng.choice((0, 1, -1))}, {x}, -{x})", f"{x} * ({i} % {by})"))

    def dress(self, v: V, times: int = 2) -> V:
        """Up to that many random elementwise operations."""
        for _ in range(self.rng.randint(0, times)):
            kind = self.rng.random()
            if kind < 0.5 or not v.axes:
                v = self.unary(v)
            elif kind < 0.85:
                axes = tuple(a for a in v.axes if self.chance(0.5))
                dtype = self.rng.choice(("", "", "", "e4m3", "e5m2", "int8"))
                v = self.binary(v, self.input(axes, dtype, scale=0.7))
            else:
                v = self.indexed(v)
        return v

    def union(self, *values: V) -> tuple[str, ...]:
        """The axes of an operator's result; a coarse axis gives way to its fine one."""
        axes = dict.fromkeys(a for v in values for a in v.axes)
        return tuple(a for a in axes if not any(f != a and self.coarse(a, f) for f in axes))

    def coarse(self, a: str, fine: str) -> bool:
        return len(a) == 2 and a[0] == fine

    # Reductions

    def reduced(self, v: V, axes: tuple[str, ...], kind: str = "") -> V:
        rest = tuple(a for a in v.axes if a not in axes)
        over, count = " ".join(axes), int(np.prod([self.extents[a] for a in axes]))
        kind = kind or self.rng.choice(("sum", "mean", "max", "min", "mean", "sum", "prod", "any", "all"))
        if kind in ("any", "all"):
            x = self.input(v.axes, self.rng.choice(("f32", "bf16", "bool")))
            test = x.text if x.dtype == "bool" else f"{x.text} {'>' if kind == 'any' else '<'} 2"
            return V(f"where({kind}[{over}]({test}), 1, 0.25)", tuple(a for a in x.axes if a not in axes), level=CLOSE)
        if kind == "prod":
            return V(f"prod[{over}](1 + tanh({v.text}) / {2 * count})", rest, level=max(v.level, CLOSE), size=2)
        v = self.tamed(v)
        if kind == "sum":
            apart = random.Random(f"divisor {v.text} {len(self.lines)}")  # so that other programs stay what they were
            if rest and apart.random() < 0.6:  # a factor that leaves the sum
                v = replace(v, text=f"({v.text}) / (1 + abs({self.input(rest, 'f32').text}))")
            scale = "" if count < 5 else f" * rsqrt({axes[0].upper()})" if self.chance(0.5) else f" / {count}"
            size = v.size * (np.sqrt(count) if count < 5 else 1)
            return V(f"sum[{over}]({v.text}){scale}", rest, level=max(v.level, CLOSE), size=size)
        return V(f"{kind}[{over}]({v.text})", rest, level=max(v.level, CLOSE), size=v.size)

    # Masks over (row, column) axes

    def mask(self, m: str, n: str, batch: tuple[str, ...]) -> tuple[str, bool]:
        """A bool over some of the axes, and whether every row keeps a column."""
        kinds: dict[str, Callable[[], tuple[str, bool]]] = {
            "causal": lambda: (f"{m} >= {n}", True),
            "strict": lambda: (f"{n} < {m}", False),
            "flag": lambda: (f"not {self.param('causal', 'bool', self.chance(0.5))} or {m} >= {n}", True),
            "bottom right": lambda: (f"{m} + {n.upper()} - {m.upper()} >= {n}", False),
            "window": lambda: (f"{m} >= {n} and {m} - {n} < {self.width()}", False),
            "band": lambda: (f"{m} - {n} < {self.width()} and {n} - {m} <= {self.rng.randint(1, 30)}", False),
            "prefix": lambda: (f"{n} < {self.rng.randint(1, self.extents[n])}", True),
            "suffix": lambda: (f"{n} >= {self.rng.randint(0, self.extents[n] - 1)}", True),
            "either": lambda: (f"{m} >= {n} or {n} < {self.rng.randint(1, 9)}", True),
            "negated": lambda: (f"not ({m} < {n})", True),
            "ahead": lambda: (f"{m} <= {n} + {self.rng.randint(0, 9)}", False),
            "lengths": lambda: (f"{n} < 1 + {self.input(batch, below=n).text}", True),
            "input": lambda: (self.input((*batch, n), "bool").text, False),
            "documents": lambda: (f"{self.input((m,), below=3).text} == {self.input((n,), below=3).text}", False),
            "strided": lambda: (f"({m} + {n}) % 2 == 0", False),
            "blocks": lambda: (self.input((self.blocks(m, 16), self.blocks(n, 16)), "bool").text, False),
            "two conjuncts": lambda: (f"{m} >= {n} and {self.input((n,), 'bool').text}", False),
        }
        kind = self.rng.choice([*kinds, "flag", "blocks"])
        if kind == "flag" and "causal" in self.param_lines:
            kind = "causal"
        self.masks.append(kind)
        return kinds[kind]()

    def width(self) -> str:
        n = self.rng.randint(1, 40)
        return self.param("window", "int", n, self.chance(0.5)) if "window" not in self.param_lines else str(n)

    # The end

    def finish(self, results: list[V], plan: str) -> Case:
        for a, r in self.ratios.items():
            self.extents[a] = -(-self.extents[a[0]] // r)
        arrays = {name: self.array(name) for name in self.inputs}
        outs = []
        for i, v in enumerate(results):
            dtype = "bool" if v.dtype == "bool" else v.dtype if v.dtype in ("i32", "int8") else self.rng.choice(FLOATS)
            if v.dtype == "f32" and self.chance(0.08):
                dtype = self.rng.choice(("e4m3", "e5m2"))
            name, axes = f"y{i}", list(v.axes)
            if self.chance(0.2):
                self.rng.shuffle(axes)
            outs.append(f"{name}[{' '.join(axes)}] {dtype}")
            self.lines.append(((V(name, ()),), self.tamed(v).text if v.dtype == "f32" else v.text))
        lines = [f"kernel {plan}"]
        lines += ["in " + ", ".join(f"{n}[{' '.join(axes)}] {dtype}" for n, (axes, dtype) in self.inputs.items())]
        lines += ["out " + ", ".join(outs), *self.axis_lines, *self.param_lines.values()]
        for targets, text in self.lines:
            left = [t.text if t.text.startswith("y") else f"{t.text}{_shape(t)}" for t in targets]
            lines.append(f"{', '.join(left)} = {text}")
        if cut := self.pipeline():
            lines += ["", "schedule", f"kernels {cut}"]
        elif self.schedule:
            lines += ["", "schedule"]
        lines += self.schedule
        chip = self.rng.choice(CHIPS)
        return Case("\n".join(lines) + "\n", chip, arrays, self.params, self.extents, self.masks, self.quotients, plan)

    def pipeline(self) -> str:
        """Some names in kernels of their own; now and then each output too."""
        names = [" ".join(t.text for t in targets) for targets, _ in self.lines]
        inner = [n for n in names if not n.startswith("y")]
        outs = [n for n in names if n.startswith("y")]
        apart = len(outs) > 1 and self.chance(0.7)
        chosen = [n for n in inner if n in self.cut]
        if inner and self.chance(0.35):
            chosen += [n for n in self.rng.sample(inner, self.rng.randint(1, min(2, len(inner)))) if n not in chosen]
        if not chosen:
            return " | ".join(outs) if apart else ""
        chosen.sort(key=names.index)
        return " | ".join([*chosen, *(outs if apart else [" ".join(outs)])])


def _shape(v: V) -> str:
    return f"[{' '.join(v.axes)}]" + (f" {v.dtype}" if v.declared or v.dtype == "bool" else "")
