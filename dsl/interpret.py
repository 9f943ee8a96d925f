"""The tile program run by NumPy, tile by tile: the second of the three things that property tests hold equal.

It follows the tile program exactly (masks, padding, carried variables, rescaling), in float64 with the roundings that
the program names and those of contraction operands. Slow on purpose: it is read before it is fast.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dsl.lowering.launch import block_length, extents, host_value, ratio
from dsl.lowering.lowered import Params
from dsl.polynomial import shared_exp2
from dsl.rounding import round_to
from dsl.tile import If, Loop, Node, Op, TileKernel, Value

Array = np.ndarray[Any, Any]


def run(kernel: TileKernel, tensors: Mapping[str, Array], params: Params | None = None) -> dict[str, Array]:
    """Every tensor that the kernel writes. `tensors`: what it reads, by name, shaped as declared.

    Unwritten elements stay NaN (or the smallest integer), so that a hole shows.
    """
    sizes: dict[str, int] = {}
    for name, array in tensors.items():
        if name in kernel.graph.tensors:
            sizes.update(zip(kernel.graph.tensors[name][0], array.shape, strict=True))
    known = extents(kernel.graph, sizes)
    given = {p.name: p.default for p in kernel.graph.params.values() if p.default is not None} | dict(params or {})
    written: dict[str, Array] = {}
    for name in kernel.tensors()[1]:
        axes, dtype = kernel.graph.tensors[name]
        shape = tuple(known[a] for a in axes)
        written[name] = np.full(shape, np.nan) if dtype not in ("i32", "int8", "bool") else np.full(shape, -(2**31))
    steps = [range(0, known[a], kernel.lengths.get(a, 1)) for a in kernel.grid]
    with np.errstate(all="ignore"):
        for starts in itertools.product(*steps):
            _Tile(kernel, known, given, dict(tensors), written, dict(zip(kernel.grid, starts, strict=True))).run()
    return written


class _Tile:
    def __init__(
        self, kernel: TileKernel, known: dict[str, int], params: Mapping[str, Any], tensors: dict[str, Array],
        written: dict[str, Array], starts: dict[str, int],
    ) -> None:  # fmt: skip
        self.k = kernel
        self.known = known
        self.params = params
        self.tensors = tensors
        self.written = written
        self.starts = starts
        self.values: dict[Value, Any] = {}
        for term, v in kernel.hosts.items():
            self.values[v] = host_value(term, known, params)

    def run(self) -> None:
        self.nodes(self.k.body)

    def nodes(self, nodes: list[Node]) -> None:
        for n in nodes:
            if isinstance(n, Op):
                self.op(n)
            elif isinstance(n, If):
                if self.values[n.condition]:
                    self.nodes(n.body)
            else:
                self.loop(n)

    def loop(self, n: Loop) -> None:
        for start in range(int(self.values[n.lo]), int(self.values[n.hi]), self.k.lengths.get(n.axis, 1)):
            self.values[n.start] = start
            self.nodes(n.body)

    def size(self, dim: str) -> int:
        return block_length(self.k, dim, self.known)

    def spread(self, v: Value, dims: tuple[str, ...]) -> Any:
        """The value with its dims where they stand in `dims`, ready to broadcast."""
        x = self.values[v]
        if not v.dims or v.dims == dims:
            return x
        kept = [d for d in dims if d in v.dims]
        x = np.transpose(x, [v.dims.index(d) for d in kept])
        return x.reshape([self.size(d) if d in v.dims else 1 for d in dims])

    def op(self, n: Op) -> None:
        if n.kind == "set":
            self.values[n.attr] = self.values[n.args[0]]
        elif n.kind == "store":
            self.store(n)
        else:
            assert n.out is not None
            self.values[n.out] = self.compute(n, n.out)

    def compute(self, n: Op, out: Value) -> Any:
        match n.kind:
            case "const":
                return n.attr
            case "full":
                return np.full([self.size(d) for d in out.dims], n.attr) if out.dims else n.attr
            case "extent":
                return self.known[n.attr]
            case "tail":
                return self.known[n.attr] % self.size(n.attr) != 0
            case "block":
                return self.size(n.attr)
            case "ratio":
                return ratio(self.k.graph, n.attr, self.known)
            case "param":
                return self.params[n.attr]
            case "start":
                return self.starts[n.attr]
            case "arange":
                return self.values[n.args[0]] + np.arange(self.size(n.attr))
            case "load":
                return self.load(n, out)
            case "map":
                return scalar_function(n.attr, [self.spread(a, out.dims) for a in n.args])
            case "exp2":
                return shared_exp2(self.values[n.args[0]], n.attr[0])
            case "select":
                flag, a, b = n.args
                return self.spread(a if self.values[flag] else b, out.dims)
            case "cast":
                x = self.values[n.args[0]]
                return round_to(np.asarray(x, dtype=np.float64), n.attr) if n.attr != "f32" else x
            case "scan":
                kind, dim = n.attr
                step = np.maximum if kind == "runmax" else np.add
                return step.accumulate(self.values[n.args[0]], axis=n.args[0].dims.index(dim))
            case "rank":
                x = np.asarray(self.values[n.args[0]])
                lower = np.tri(len(x), k=-1, dtype=bool)
                return ((x[None, :] > x[:, None]) | ((x[None, :] == x[:, None]) & lower)).sum(axis=1)
            case "reduce":
                kind, (dim,) = n.attr
                axis = n.args[0].dims.index(dim)
                folds = {"sum": np.sum, "max": np.max, "min": np.min, "any": np.any, "all": np.all}
                fold = (folds | {"prod": np.prod, "argmax": np.argmax})[kind]
                return fold(self.values[n.args[0]], axis=axis)  # type: ignore[operator]
            case "dot":
                a, b = self.values[n.args[0]], self.values[n.args[1]]
                product = (a.T if n.attr.transpose_a else a) @ (b.T if n.attr.transpose_b else b)
                return product + self.values[n.args[2]] if len(n.args) == 3 else product
        raise AssertionError(n.kind)

    # Memory -----------------------------------------------------------------------------------------------------------

    def address(self, n: Op, args: tuple[Value, ...], dims: tuple[str, ...]) -> tuple[list[Any], Any]:
        """Index arrays per tensor dimension, and where they are in range and unmasked."""
        axes = self.k.graph.tensors[n.attr.tensor][0]
        inside: Any = True
        indices: list[Any] = []
        for axis, c, v in zip(axes, n.attr.coordinates, args, strict=False):
            if n.attr.tma and c.axis:
                at = self.values[v] + np.arange(self.size(c.axis))
                at = at.reshape([-1 if d == c.axis else 1 for d in dims])
            else:
                at = self.spread(v, dims)
            if n.attr.tma or c.checked:
                inside = inside & (np.asarray(at) >= 0) & (np.asarray(at) < self.known[axis])
            indices.append(at)
        for axis, v in zip(n.attr.mask, args[len(axes) :], strict=True):
            inside = inside & (self.spread(v, dims) < self.known[axis])
        return indices, inside

    def load(self, n: Op, out: Value) -> Any:
        source = self.tensors[n.attr.tensor] if n.attr.tensor in self.tensors else self.written[n.attr.tensor]
        indices, inside = self.address(n, n.args, out.dims)
        shape = [self.size(d) for d in out.dims]
        inside = np.broadcast_to(inside, shape)
        full = [np.where(inside, np.broadcast_to(i, shape), 0) for i in indices]
        for i, length in zip(full, source.shape, strict=True):
            if i.size and (i.min() < 0 or i.max() >= length):
                raise IndexError(f"{self.k.name} reads {n.attr.tensor} out of bounds")
        found = source[tuple(full)]
        return np.where(inside, found, np.zeros((), dtype=source.dtype)) if shape else (found if inside else 0)

    def store(self, n: Op) -> None:
        value, *args = n.args
        dims = (
            tuple(c.axis for c in n.attr.coordinates if c.axis)
            if n.attr.tma
            else tuple(dict.fromkeys(d for v in args for d in v.dims))
        )
        indices, inside = self.address(n, tuple(args), dims)
        shape = [self.size(d) for d in dims]
        inside = np.broadcast_to(inside, shape)
        target = self.written[n.attr.tensor]
        x = np.broadcast_to(self.spread(value, dims), shape)
        full = tuple(np.broadcast_to(i, shape)[inside] for i in indices)
        for i, length in zip(full, target.shape, strict=True):
            if i.size and (i.min() < 0 or i.max() >= length):
                raise IndexError(f"{self.k.name} writes {n.attr.tensor} out of bounds")
        target[full] = x[inside] if full else x


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[float])(x)


def scalar_function(name: str, args: list[Any]) -> Any:
    """One elementwise function of the tile program, on numbers or arrays."""
    a = args[0]
    match name:
        case "+":
            return a + args[1]
        case "-":
            return a - args[1]
        case "*":
            return a * args[1]
        case "/":
            return np.divide(a, args[1])
        case "//" | "floor_div":
            return a // args[1]
        case "%" | "floor_mod":
            return a % args[1]
        case "==" | "!=" | "<" | "<=" | ">" | ">=":
            compare = {
                "==": np.equal,
                "!=": np.not_equal,
                "<": np.less,
                "<=": np.less_equal,
                ">": np.greater,
                ">=": np.greater_equal,
            }
            return compare[name](a, args[1])
        case "and":
            return np.logical_and(a, args[1])
        case "or":
            return np.logical_or(a, args[1])
        case "not":
            return np.logical_not(a)
        case "neg":
            return -a
        case "max":
            return np.maximum(a, args[1])
        case "min":
            return np.minimum(a, args[1])
        case "where":
            return np.where(a, args[1], args[2])
        case "sigmoid":
            return 1 / (1 + np.exp(-a))
        case "silu":
            return a / (1 + np.exp(-a))
        case "relu":
            return np.maximum(a, 0)
        case "gelu":
            return 0.5 * a * (1 + _erf(a / math.sqrt(2)))
        case "gelu_tanh":
            return 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))
        case "softplus":
            return np.logaddexp(a, 0)
        case "erf":
            return _erf(a)
        case "rsqrt":
            return 1 / np.sqrt(a)
        case "abs" | "floor" | "exp" | "exp2" | "log" | "log2" | "sqrt" | "tanh" | "sin" | "cos":
            return getattr(np, name)(a)
    raise AssertionError(name)
