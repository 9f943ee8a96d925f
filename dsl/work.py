"""Work: what a program has to compute and to move at the least, whatever its schedule.

Counted on the algorithm's terms, each once. A divisor or factor that a sum's axes do not touch is taken out of the sum;
and where a mask makes a term irrelevant (it feeds -inf to an exponential or a maximum, or 0 to a sum) only the part
that the mask keeps is counted. A schedule may do both, so the counts are a lower bound of what any schedule runs.

Contraction: a sum of a product whose factors each have an axis that the other lacks; 2 FLOPs a multiply-add, on matrix
units. Everything else is `alu` (one a result; FLOPs too) or `exps` (one a result of a special-function unit: exp, log,
reciprocal, square root, tanh, sine). Index arithmetic, affine masks and casts that no name declares are free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dsl import masks
from dsl.elaborate import elaborate
from dsl.masks import EVERYWHERE, NOWHERE, Reader, Region, intersection, projected, union
from dsl.polynomial import exact_outputs
from dsl.schedule import kernels_of
from dsl.syntax import Binary, Bool, Call, Expr, Name, Number, Program, Unary
from dsl.terms import Graph, Term

# Bytes an element takes in memory; mxfp4 and nvfp4 with their scales (one byte for 32 and for 16 elements).
DTYPE_BYTES = {"f64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "int8": 1, "bool": 1} | {
    "mxfp4": 17 / 32,
    "nvfp4": 9 / 16,
}

# function -> (special-function results, plain operations) per element; erf-based ones by the usual degree-6 polynomial
_COSTS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sin", "cos"), (1, 0)),
    "sigmoid": (2, 1),
    "silu": (2, 2),
    "softplus": (2, 2),
    "erf": (1, 8),
    "gelu": (1, 11),
    "gelu_tanh": (1, 5),
    "neg": (0, 0),  # a sign on an operand is free on every chip here
}


@dataclass(frozen=True)
class Counts:
    """Work at one size. Keys of the FLOP counts are operand dtypes of the matrix units ("f32" where undeclared).

    flops: by the field's convention, in which an affine mask on two axes keeps the area between its boundaries: a
    causal mask with M = N keeps exactly one half, so attention is 4 B H N^2 D / 2. exact_flops: with the index pairs
    counted, N (N + 1) / 2. dense_flops: with no mask at all. exps, alu: results (see the module), by the convention;
    replaceable: those of the exps that a polynomial may compute (`dsl.polynomial`).
    bytes_in, bytes_out: every tensor read or written once.
    """

    flops: Mapping[str, float] = field(default_factory=dict)
    exact_flops: Mapping[str, float] = field(default_factory=dict)
    dense_flops: Mapping[str, float] = field(default_factory=dict)
    exps: float = 0.0
    replaceable: float = 0.0
    alu: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0

    @property
    def bytes(self) -> float:
        """Compulsory traffic, in + out."""
        return self.bytes_in + self.bytes_out

    @property
    def total_flops(self) -> float:
        """FLOPs of all contractions, by the convention: what a TFLOP/s figure counts."""
        return sum(self.flops.values())

    @property
    def kept(self) -> float:
        """The share of the dense contractions that the masks keep, 0..1."""
        dense = sum(self.dense_flops.values())
        return self.total_flops / dense if dense else 1.0


@dataclass(frozen=True)
class KernelWork(Counts):
    """One kernel of the pipeline. What earlier kernels store is read, what it stores is written."""

    writes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work(Counts):
    """The whole algorithm as if one kernel did it, intermediates kept on the chip: what the speed of light is made of.

    kernels: the same for each kernel of the schedule's pipeline. What is not stored is counted in each that uses it.
    """

    kernels: tuple[KernelWork, ...] = ()


def work(program: Program, sizes: Mapping[str, int], params: Mapping[str, int | float | bool] | None = None) -> Work:
    """The work of a checked program at these sizes (axis -> extent, lower case) and params (defaults filled in).

    Under `rank r` it is the work of one rank. Raises ValueError naming an axis whose extent is unknown.
    """
    given = {p.name: p.default for p in program.algorithm.params if p.default is not None} | dict(params or {})
    graph = elaborate(program)[0]
    whole = _Count(graph, sizes, given)
    # a stored selection is an input of the kernels that use it, which still keeps the share that it was made with
    masked = {n: whole.reader.region(t) for n, t in graph.names.items() if t.dtype == "bool"}
    kernels = []
    for i, writes in enumerate(kernels_of(program)):
        counted = _Count(elaborate(program, i)[0], sizes, given, masked)
        kernels.append(KernelWork(**counted.fields(), writes=tuple(writes)))
    return Work(**whole.fields(), kernels=tuple(kernels))


def extents(
    graph: Graph, sizes: Mapping[str, int], params: Mapping[str, int | float | bool] | None = None
) -> tuple[dict[str, int], dict[str, int]]:
    """The extent of every axis, and of every coarse axis its ratio. The rank axis counts 1: work is per rank.

    Raises ValueError naming an axis whose extent follows from nothing.
    """
    known = {k: int(v) for k, v in sizes.items()}
    ratios: dict[str, int] = {}
    for _ in range(len(graph.axes) + 1):
        for name, axis in graph.axes.items():
            try:
                if axis.fine is not None and axis.ratio is not None and name not in ratios:
                    ratios[name] = max(1, int(number(axis.ratio, known, params or {})))
                if axis.fine is not None and name in ratios and name not in known and axis.fine in known:
                    known[name] = -(-known[axis.fine] // ratios[name])
                if axis.free is not None and name not in known:
                    known[name] = int(number(axis.free, known, params or {}))
            except KeyError:
                continue
    if graph.rank:
        known[graph.rank] = 1
    missing = [a for a in graph.axes if a not in known]
    if missing:
        raise ValueError(f"the extent of axis {', '.join(missing)} is not given; known: {', '.join(known) or 'none'}")
    return known, ratios


def number(e: Expr, known: Mapping[str, int], params: Mapping[str, int | float | bool]) -> float:
    """The value of an expression of numbers, params and extents; an axis' name stands for its extent.

    Raises KeyError for anything else, ZeroDivisionError.
    """
    match e:
        case Number(value=value) | Bool(value=value):
            return value
        case Name(id=name):
            return params[name] if name in params else known[name.lower()]
        case Unary(op="-", operand=operand):
            return -number(operand, known, params)
        case Binary(op=op, left=left, right=right):
            a, b = number(left, known, params), number(right, known, params)
            return {
                "+": lambda: a + b,
                "-": lambda: a - b,
                "*": lambda: a * b,
                "//": lambda: a // b,
                "/": lambda: a / b,
                "%": lambda: a % b,
            }[op]()
        case Call(function=f, args=args) if f in ("min", "max"):
            values = [number(a, known, params) for a in args]
            return min(values) if f == "min" else max(values)
    raise KeyError(str(e))


class _Count:
    """Counts one graph. Regions say where a value matters to the outputs and where it is no known constant."""

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        stored: Mapping[str, Region] | None = None,
    ) -> None:
        self.graph = graph
        self.extents, self.ratios = extents(graph, sizes, params)
        self.reader = Reader(self.extents, self.ratios, params, stored or {})
        outputs = _with_factors_moved(graph, graph.outputs.values())
        self.outputs = dict(zip(graph.outputs, outputs, strict=True))
        self.order = _order(outputs)
        self.static: dict[Term, bool] = {}
        self.nonzero: dict[Term, Region] = {}
        self.finite: dict[Term, Region] = {}
        for t in self.order:
            self.static[t] = (
                t.op != "input" and (t.op not in ("read", "select")) and all(self.static[a] for a in t.args)
            )
            self.nonzero[t], self.finite[t] = self._support(t)
        self.relevant = self._relevance()
        self.flops: dict[str, float] = {}
        self.exact: dict[str, float] = {}
        self.dense: dict[str, float] = {}
        self.exps = self.replaceable = self.alu = 0.0
        self.polynomial = not exact_outputs(graph)
        products = {t.args[0] for t in self.order if self._contraction(t)}
        absorbed = {p for p in products if all(self._contraction(u) for u in self.order if p in u.args)}
        for t in self.order:
            if t not in absorbed and not self.static[t]:
                self._cost(t)

    def fields(self) -> dict[str, Any]:
        bytes_in, bytes_out = self._traffic()
        return {
            "flops": self.flops,
            "exact_flops": self.exact,
            "dense_flops": self.dense,
            "exps": self.exps,
            "replaceable": self.replaceable,
            "alu": self.alu,
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
        }  # fmt: skip

    # Where values matter ------------------------------------------------------------------------------------------

    def _support(self, t: Term) -> tuple[Region, Region]:
        """Where the value may differ from 0, and where from -inf; operands are done."""
        nz, fin = self.nonzero, self.finite
        if not t.axes and (value := self.reader.number(t)) is not None:
            return (NOWHERE if value == 0 else EVERYWHERE), (NOWHERE if value == -math.inf else EVERYWHERE)
        a = t.args
        if t.dtype == "bool":
            return self.reader.region(t), EVERYWHERE
        if t.op == "refine":
            return projected(nz[a[0]], t.axes), projected(fin[a[0]], t.axes)
        if t.op == "cast":
            return nz[a[0]], fin[a[0]]
        if t.op != "map":
            return EVERYWHERE, EVERYWHERE
        match t.attr:
            case "where":
                yes, no = self.reader.region(a[0]), self.reader.region(a[0], False)
                return (
                    union(intersection(yes, nz[a[1]]), intersection(no, nz[a[2]])),
                    union(intersection(yes, fin[a[1]]), intersection(no, fin[a[2]])),
                )
            case "exp" | "exp2":
                return fin[a[0]], EVERYWHERE
            case "*":
                sure = [x for x in a if (v := self.reader.number(x)) is not None and v > 0]
                return intersection(nz[a[0]], nz[a[1]]), (intersection(fin[a[0]], fin[a[1]]) if sure else EVERYWHERE)
            case "/" | "softdiv":
                return nz[a[0]], EVERYWHERE
            case "neg" | "abs" | "relu" | "sqrt":
                return nz[a[0]], EVERYWHERE
            case "+":
                return union(nz[a[0]], nz[a[1]]), intersection(fin[a[0]], fin[a[1]])
            case "-":
                return union(nz[a[0]], nz[a[1]]), fin[a[0]]
            case "max":
                return union(nz[a[0]], nz[a[1]]), union(fin[a[0]], fin[a[1]])
        return EVERYWHERE, EVERYWHERE

    def _relevance(self) -> dict[Term, Region]:
        relevant: dict[Term, Region] = dict.fromkeys(self.order, NOWHERE)
        for t in self.outputs.values():
            relevant[t] = EVERYWHERE
        for t in reversed(self.order):
            here = self._domain(relevant[t], t)
            for i, a in enumerate(t.args):
                needed = here
                if t.op == "map" and t.attr == "where" and i:
                    needed = intersection(here, self.reader.region(t.args[0], i == 1))
                elif t.op == "reduce":
                    kind = t.attr[0]
                    kept = (
                        self.nonzero[a] if kind in ("sum", "any") else self.finite[a] if kind == "max" else EVERYWHERE
                    )
                    needed = intersection(here, kept)
                elif t.op in ("scan", "select", "read", "collective"):
                    needed = EVERYWHERE
                relevant[a] = union(relevant[a], projected(needed, a.axes))
        return relevant

    def _domain(self, relevant: Region, t: Term) -> Region:
        """Where t has to be computed: where it matters and is not known to be 0 or -inf."""
        return intersection(intersection(relevant, self.nonzero[t]), self.finite[t])

    # Costs --------------------------------------------------------------------------------------------------------

    def _contraction(self, t: Term) -> str:
        """The operand dtype where t is a contraction for matrix units, else ""."""
        if t.op != "reduce" or t.attr[0] != "sum":
            return ""
        x = t.args[0]
        if x.op != "map" or x.attr != "*":
            return ""
        left, right = (self._own_axes(f) for f in x.args)
        if not (self._beyond(left, right) and self._beyond(right, left)):
            return ""
        named = [f.dtype for f in x.args if f.declared]
        dtype = max(named, key=lambda d: DTYPE_BYTES[d], default="f32")
        return "f32" if dtype == "i32" else dtype

    def _own_axes(self, t: Term) -> frozenset[str]:
        """The axes before coarse ones were spread over their fine ones; a coarse axis of ratio 1 is its fine one."""
        if t.op == "refine" and self.ratios.get(t.attr[0], 1) > 1:
            return self._own_axes(t.args[0])
        return frozenset(t.axes) if t.op != "refine" else frozenset(t.axes) | self._own_axes(t.args[0]) - {t.attr[0]}

    def _beyond(self, mine: frozenset[str], other: frozenset[str]) -> frozenset[str]:
        """My axes that the other lacks, also as an axis finer than mine."""
        return frozenset(a for a in mine - other if not any(self.graph.coarse_over(a, f) for f in other))

    def _points(self, axes: Iterable[str]) -> float:
        return math.prod(self.extents[a] for a in axes)

    def _cost(self, t: Term) -> None:
        domain = self._domain(self.relevant[t], t)
        if t.op == "reduce":
            x = t.args[0]
            over = intersection(projected(domain, x.axes), self.nonzero[x] if t.attr[0] == "sum" else self.finite[x])
            points = self._points(x.axes)
            kept = masks.share(over, self.extents)
            dtype = self._contraction(t)
            if not dtype:
                self.alu += points * kept
                return
            self.flops[dtype] = self.flops.get(dtype, 0.0) + 2 * points * kept
            self.dense[dtype] = self.dense.get(dtype, 0.0) + 2 * points
            exact = masks.share(over, self.extents, exact=True)
            self.exact[dtype] = self.exact.get(dtype, 0.0) + 2 * points * exact
            return
        points = self._points(t.axes) * masks.share(domain, self.extents)
        match t.op:
            case "map" if t.attr in ("/", "softdiv"):
                self.alu += points
                if self.reader.number(t.args[1]) is None:  # one reciprocal for each divisor
                    self.exps += self._points(t.args[1].axes) * masks.share(
                        projected(domain, t.args[1].axes), self.extents
                    )
            case "map" if t.attr == "where" and self.static[t.args[0]]:
                pass  # an affine mask costs only on the tiles that it cuts
            case "map":
                exps, alu = _COSTS.get(t.attr, (0, 1))
                self.exps += exps * points
                if t.attr in ("exp", "exp2") and self.polynomial:
                    self.replaceable += points
                self.alu += alu * points
            case "cast":
                if not t.args[0].declared or t.args[0].dtype != t.dtype:
                    self.alu += points
            case "scan" | "select":
                self.alu += self._points(t.args[0].axes)

    def _traffic(self) -> tuple[float, float]:
        """Bytes of every tensor that is read, and of every one that is written, each once.

        A tensor that is only read by position counts what those reads can touch at the most, if that is less.
        """
        whole: set[str] = set()
        touched: dict[str, float] = {}
        for t in self.order:
            for i, a in enumerate(t.args):
                if a.op != "input":
                    continue
                if t.op == "read" and i == 0:
                    touched[a.attr] = touched.get(a.attr, 0.0) + self._points(t.axes)
                else:
                    whole.add(a.attr)
            if t.op == "input" and t in self.outputs.values():
                whole.add(t.attr)
        bytes_in = 0.0
        for name in whole | touched.keys():
            axes, dtype = self.graph.tensors[name]
            size = self._points(axes)
            bytes_in += (size if name in whole else min(size, touched[name])) * DTYPE_BYTES[dtype]
        bytes_out = 0.0
        for name, t in self.outputs.items():
            axes, dtype = self.graph.tensors.get(name, (t.axes, t.dtype))
            bytes_out += self._points(axes) * DTYPE_BYTES[dtype]
        return bytes_in, bytes_out


def _order(outputs: Iterable[Term]) -> list[Term]:
    """Every term once, operands before users."""
    seen: dict[Term, None] = {}
    for out in outputs:
        for t in out.walk():
            seen.setdefault(t)
    return list(seen)


def _with_factors_moved(graph: Graph, outputs: Iterable[Term]) -> list[Term]:
    """The outputs with each factor and divisor that a sum's axes do not touch applied after that sum."""
    done: dict[Term, Term] = {}
    roots = list(outputs)
    for t in _order(roots):
        args = tuple(done[a] for a in t.args)
        new = t if args == t.args else graph.make(t.op, args, t.attr, t.axes, t.dtype)
        if new.op == "reduce" and new.attr[0] == "sum" and not any(new.attr[2]):
            moved: list[tuple[Term, str]] = []
            inner = _stripped(graph, new.args[0], frozenset(new.attr[1]), moved)
            if moved:
                new = graph.reduce("sum", inner, *new.attr[1:])
                for factor, how in moved:
                    new = graph.map(how, new, factor)
        done[t] = new
    return [done[t] for t in roots]


def _stripped(graph: Graph, t: Term, axes: frozenset[str], moved: list[tuple[Term, str]]) -> Term:
    """t without the factors that have none of `axes`; those are appended to `moved`."""
    if t.op != "map" or t.attr not in ("*", "/", "softdiv"):
        return t
    a, b = t.args
    for factor, rest in ((b, a), (a, b)) if t.attr == "*" else ((b, a),):
        if not axes & set(factor.axes) and axes <= set(rest.axes):
            moved.append((factor, t.attr))
            return _stripped(graph, rest, axes, moved)
    inner = tuple(_stripped(graph, x, axes, moved) if t.attr == "*" or x is a else x for x in (a, b))
    return t if inner == (a, b) else graph.map(t.attr, *inner)
