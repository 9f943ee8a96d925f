"""From terms and a schedule to the tile program of one kernel.

`tile_kernel` reads top to bottom: axes get their roles, factors move out of sums, maxima that cancel become running
references, the stream is cut into passes, each pass becomes a loop (masked and unmasked parts apart if asked), and what
remains is computed after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from dsl.algebra import (
    NEUTRAL,
    Atom,
    Bound,
    Weight,
    atoms,
    bound,
    constant,
    factors,
    move_factors,
    pivots,
    pull_scale,
)
from dsl.diagnostics import Diagnostic, ProgramError
from dsl.schedule import KernelSchedule
from dsl.syntax import Number, Span
from dsl.terms import FLOATS, Graph, Term
from dsl.tile import Coordinate, DotAttr, If, LoadAttr, Loop, Node, Op, TileKernel, Value

LOG2E = 1.4426950408889634
BYTES = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "int8": 1, "bool": 1}
LOWEST = -3.4028234663852886e38  # stands for -inf as the first running maximum where a mask may hide a whole block


class NotLowered(ProgramError):
    """The program is right, but this construct has no lowering (yet, or on this schedule)."""

    def __init__(self, message: str, span: Span = Span(), fix: str = "") -> None:
        super().__init__([Diagnostic("not-lowered", message, span, fix=fix)])


@dataclass(frozen=True, eq=False)
class Place:
    """Where an axis is read: `value` is the coordinate; `axis` is set while it still is that axis of the tile;
    `tails`: the axes whose tail makes it invalid; `checked`: it may be out of range."""

    value: Value
    axis: str | None
    tails: tuple[str, ...]
    checked: bool = False


Places = dict[str, Place]


@dataclass
class Scope:
    """A region being filled. `loop` is the axis that its loop walks (None: the kernel's own body)."""

    body: list[Node]
    loop: str | None = None
    masked: bool = True
    memo: dict[tuple[object, ...], Value] = field(default_factory=dict)


@dataclass
class Pivot:
    """A running reference: `reference` is what the current region subtracts, in the domain of `factor`."""

    term: Term
    core: Term
    factor: Term | None
    variable: Value
    reference: Value


def tile_kernel(
    graph: Graph, schedule: KernelSchedule, name: str, powers_of_two: frozenset[str] = frozenset()
) -> TileKernel:
    """The tile program of the kernel that writes `graph.outputs`. Whole axes in `powers_of_two` need no padding mask.

    Raises NotLowered where a construct has no lowering on this schedule.
    """
    moved = move_factors(graph, graph.outputs.values())
    outputs = {n: moved[t] for n, t in graph.outputs.items()}
    for old, new in moved.items():
        for n, t in graph.names.items():
            if t is old:
                graph.names[n] = new
    kernel = _roles(graph, schedule, name, outputs, powers_of_two)
    tiler = _Tiler(kernel, outputs)
    tiler.build()
    _drop_dead(kernel)
    return kernel


def _roles(
    graph: Graph, schedule: KernelSchedule, name: str, outputs: dict[str, Term], powers_of_two: frozenset[str]
) -> TileKernel:
    stored = {n: graph.tensors[n][0] for n in outputs}
    written = list(dict.fromkeys(a for axes in stored.values() for a in axes))
    loops = (schedule.stream,) if schedule.stream else ()
    reduced: list[str] = []
    for out in outputs.values():
        for t in out.walk():
            if t.op == "reduce":
                reduced += [a for a in t.attr[1] if a not in reduced]
            if t.op in ("scan", "select", "collective"):
                what = t.attr[0]
                raise NotLowered(f"`{what}` has no lowering yet", graph.lines.get(t, Span()))
            if t.op == "reduce" and any(t.attr[2]):
                raise NotLowered("a reduction within blocks has no lowering yet", graph.lines.get(t, Span()))
    grid = schedule.grid or tuple(a for a in written if schedule.tile.get(a) != "all" and a not in loops)
    if not schedule.directives and not schedule.grid:
        grid, loops, schedule = _naive(written, reduced, schedule)
    for a in grid:
        if a in reduced:
            raise NotLowered(
                f"axis `{a}` is reduced, so it cannot be a grid axis", fix=f"stream {a}, or leave it whole"
            )
        for n, axes in stored.items():
            if a not in axes:
                raise NotLowered(
                    f"output `{n}` has no axis `{a}`, which the grid cuts", fix="write it by another kernel"
                )
    for n, axes in stored.items():
        missing = [a for a in axes if a not in grid and a not in loops and schedule.tile.get(a) not in (None, "all")]
        if missing and schedule.grid:
            raise NotLowered(
                f"output axis `{missing[0]}` of `{n}` has a tile but is not in the grid",
                fix=f"add {missing[0]} to grid",
            )
    lengths = {a: int(schedule.tile[a]) for a in (*grid, *loops) if schedule.tile.get(a, "all") != "all"}
    lengths = {a: n for a, n in lengths.items() if n > 1}
    for a in loops:
        if a not in lengths and schedule.tile.get(a) is None:
            lengths[a] = 64
    seen = [a for out in outputs.values() for t in out.walk() for a in t.axes]
    whole = tuple(
        dict.fromkeys(
            a
            for a in (*seen, *reduced)
            if a not in grid and a not in loops and _held(graph, a, grid, loops, written, reduced)
        )
    )
    padded = frozenset(a for a in whole if a not in powers_of_two)
    return TileKernel(name, graph, schedule, tuple(grid), lengths, whole, padded, loops)


def _held(
    graph: Graph, axis: str, grid: Iterable[str], loops: Iterable[str], written: list[str], reduced: list[str]
) -> bool:
    """Whether the tile holds the axis whole: a coarse axis that is only read at a finer one is not held."""
    return axis in written or axis in reduced or graph.axes[axis].fine is None


def _naive(
    written: list[str], reduced: list[str], schedule: KernelSchedule
) -> tuple[tuple[str, ...], tuple[str, ...], KernelSchedule]:
    """The schedule of a kernel without a block: one row a program, the last axis whole, a single reduction streamed."""
    last = written[-1:] if written and written[-1] not in reduced else []
    return tuple(a for a in written if a not in last), (), schedule


class _Tiler:
    def __init__(self, kernel: TileKernel, outputs: dict[str, Term]) -> None:
        self.k = kernel
        self.g = kernel.graph
        self.outputs = outputs
        self.log2 = kernel.schedule.exponent == "exp2"
        self.scopes = [Scope(kernel.body)]
        self.home: dict[Value, int] = {}
        self.starts: dict[str, Value] = {}
        self.variables: dict[Term, Value] = {}  # reductions over the stream, once their pass has begun
        self.done: set[Term] = set()  # ... and once it has ended
        self.pivots: dict[Term, Pivot] = {}
        self.weights = pivots(outputs.values(), kernel.loops)
        self.masks: dict[Value, tuple[Value, tuple[Value, ...], dict[Value, tuple[Value, ...]], float]] = {}
        self.true: set[Term] = set()  # mask predicates that hold all over the current loop
        self.places: dict[tuple[object, ...], Place] = {}
        self.order = {a: i for i, a in enumerate((*kernel.grid, *kernel.loops, *kernel.whole))}
        self.titles = {t: n for n, t in kernel.graph.names.items()}
        for n, t in kernel.graph.names.items():
            core, scale = pull_scale(self.g, t, False)
            if scale is not None:  # what is scaled later goes by the name of the result
                self.titles.setdefault(core, n)

    # The plan ---------------------------------------------------------------------------------------------------------

    def build(self) -> None:
        for a in self.k.grid:
            self.starts[a] = self.emit("start", (), a, (), "i32", f"{a}0" if a in self.k.lengths else a)
        passes = self.passes()
        for p in range(max(passes.values(), default=-1) + 1):
            reductions = [t for t, q in passes.items() if q == p and t.op == "reduce"]
            stores = [n for n, t in self.outputs.items() if passes.get(t) == p and self.streams(t)]
            if reductions or stores:
                self.run_pass(reductions, stores)
        for n, t in self.outputs.items():
            if not self.streams(t):
                self.store(n, t)

    def streams(self, t: Term) -> bool:
        return any(a in self.k.loops for a in t.axes)

    def passes(self) -> dict[Term, int]:
        """Reduction over the stream -> the pass that computes it; output with the stream's axis -> the pass that stores it.

        A maximum that cancels is used, while it runs, in its own pass; everything else waits for the pass to end (rule 26).
        """
        level: dict[Term, int] = {}
        passes: dict[Term, int] = {}
        for out in self.outputs.values():
            for t in out.walk():
                if t in level:
                    continue
                level[t] = max((level[a] for a in t.args), default=0)
                if t.op == "reduce" and any(a in self.k.loops for a in t.attr[1]):
                    passes[t] = level[t]
                    if t not in self.weights:
                        level[t] += 1
        for out in self.outputs.values():
            if self.streams(out):
                passes[out] = max(level[out], passes.get(out, 0))
        return passes

    # One pass ---------------------------------------------------------------------------------------------------------

    def run_pass(self, reductions: list[Term], stores: list[str]) -> None:
        (axis,) = self.k.loops
        running = [t for t in reductions if t in self.weights]
        sums = [t for t in reductions if t not in self.weights]
        for t in running:
            core, scale = pull_scale(self.g, t.args[0], True)
            factor = scale
            if self.log2:
                factor = self.g.const(LOG2E) if scale is None else self.g.map("*", self.g.const(LOG2E), scale)
            self.titles.setdefault(core, self.title(t.args[0], "s"))
            hidden = constant(t.args[0], lambda x: False if x.dtype == "bool" and x.axes else None, axis) == -math.inf
            first = LOWEST if hidden else -math.inf
            variable = self.variable(t, first, self.title(t.args[0], "s") + "_max")
            self.pivots[t] = Pivot(t, core, factor, variable, variable)
        for t in sums:
            self.variables[t] = self.variable(t, NEUTRAL[t.attr[0]], self.sum_title(t))
        for lo, hi, masked, true, note in self.ranges(axis, reductions, stores):
            start = Value(f"{axis}0" if axis in self.k.lengths else axis, (), "i32")
            loop = Loop(axis, start, lo, hi, masked, [], note)
            self.scopes.append(Scope(loop.body, axis, masked))
            self.starts[axis] = start
            self.home[start] = len(self.scopes) - 1
            self.true = true
            self.pass_body(running, sums, stores)
            self.scopes.pop()
            self.true = set()
            self.scopes[-1].body.append(loop)
            self.places = {k: p for k, p in self.places.items() if self.home.get(p.value, 0) < len(self.scopes)}
        for t in running:
            self.pivots[t].reference = self.pivots[t].variable
        self.done |= set(reductions)

    def variable(self, t: Term, first: float | bool | int, name: str) -> Value:
        dtype = t.dtype
        value = self.emit("full", (), first, self.dims(t.axes), dtype, name)
        variable = Value(name, value.dims, dtype)
        self.home[variable] = len(self.scopes) - 1
        self.here().append(Op("set", None, (value,), variable))
        return variable

    def pass_body(self, running: list[Term], sums: list[Term], stores: list[str]) -> None:
        scaled: list[tuple[Pivot, Value, Value]] = []
        for t in running:
            p = self.pivots[t]
            scores = self.guarded(self.eval(p.core), p.core, t.attr[1], -math.inf)
            self.remember(p.core, scores)
            top = self.reduced("max", scores, t.attr[1], p.variable.name.removesuffix("_max") + "_top")
            if p.factor is not None:
                top = self.map("*", top, self.scalar(p.factor), name=top.name)
            new = self.map("max", p.variable, top, name=p.variable.name + "_new")
            rule, args = self.k.schedule.rescale
            if rule == "lazy":
                slack = float(args[0]) if self.log2 else float(args[0]) * math.log(2)
                late = self.map(">", top, self.map("+", p.variable, self.const(slack)))
                new = self.map("where", late, top, p.variable, name=new.name)
            self.pivots[t].reference = new
            shift = self.map("-", p.variable, new)
            alpha = self.map("exp2" if self.log2 else "exp", shift, name="rescale")
            scaled.append((p, new, alpha))
        for t in sums:
            self.step(t, scaled)
        for p, new, _ in scaled:
            self.here().append(Op("set", None, (new,), p.variable))
        for n in stores:
            self.store(n, self.outputs[n])

    def step(self, t: Term, scaled: list[tuple[Pivot, Value, Value]]) -> None:
        """One block's share of a carried reduction, after rescaling what was carried to the new reference."""
        variable, kind = self.variables[t], t.attr[0]
        factor = [(p, new, a) for p, new, a in scaled if self.weights[p.term].get(t) == Weight(mul=-1)]
        product = self.contraction(t)
        carried = variable
        if product is not None:
            lazy = self.k.schedule.rescale[0] == "lazy"
            # the operands are computed before the accumulator is touched
            a, b, attr, _ = product
            for p, new, alpha in factor:
                body: list[Node] = []
                if lazy:
                    self.here().append(If(self.any_greater(new, p.variable), body, "only where a row's maximum rose"))
                    self.scopes.append(Scope(body))
                self.here().append(Op("set", None, (self.map("*", variable, alpha),), variable))
                if lazy:
                    self.scopes.pop()
            out = self.emit("dot", (a, b, variable), attr, variable.dims, variable.dtype, variable.name)
            self.here().append(Op("set", None, (out,), variable))
            return
        part = self.partial(t)
        for _, _, alpha in factor:
            carried = self.map("*", carried, alpha)
        joined = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "or", "all": "and"}.get(kind)
        if joined is None:
            raise NotLowered(
                f"`{kind}` over a streamed axis has no lowering", self.g.lines.get(t, Span()), "leave the axis whole"
            )
        self.here().append(Op("set", None, (self.map(joined, carried, part, name=variable.name),), variable))

    def any_greater(self, a: Value, b: Value) -> Value:
        rise = self.map("-", a, b)
        for d in rise.dims:
            rise = self.emit("reduce", (rise,), ("max", (d,)), tuple(x for x in rise.dims if x != d), "f32", "rise")
        return self.map(">", rise, self.const(0.0))

    # Loop ranges --------------------------------------------------------------------------------------------------------

    def ranges(
        self, axis: str, reductions: list[Term], stores: list[str]
    ) -> list[tuple[Value, Value, bool, set[Term], str]]:
        """(lo, hi, masked, predicates that hold there, note) of each loop over `axis`.

        Blocks that an affine mask leaves out for every row of the tile are never visited; with `split masked` the
        blocks that it admits for every row are walked without masks.
        """
        bounds = [] if stores else self.bounds(axis, reductions)
        zero, extent = self.const(0), self.extent_value(axis)
        length = self.k.lengths.get(axis, 1)
        lo, hi, full_lo, full_hi = zero, extent, zero, extent
        for b, _ in bounds:
            self.note_order(b)
            if b.upper:
                most, least = self.limit(b, True, 1), self.limit(b, False, 1)
                hi = self.flagged(b.flag, self.map("min", hi, most, name=f"{axis}_end"), hi, f"{axis}_end")
                full_hi = self.flagged(b.flag, self.map("min", full_hi, least), full_hi, f"{axis}_full")
            else:
                least, most = self.limit(b, False, 0), self.limit(b, True, 0)
                lo = self.flagged(b.flag, self.map("max", lo, least), lo, f"{axis}_begin")
                full_lo = self.flagged(b.flag, self.map("max", full_lo, most), full_lo, f"{axis}_from")
        blocks = self.emit("block", (), axis, (), "i32", f"BLOCK_{axis.upper()}") if length > 1 else self.const(1)
        if lo is not zero and length > 1:
            lo = self.map("*", self.map("//", lo, blocks), blocks, name=f"{axis}_begin")
        if length == 1:
            return [(lo, hi, bool(bounds), set(), "")]
        if not self.k.schedule.split_masked:
            return [(lo, hi, True, set(), "")]
        true = {atom.predicate for _, atom in bounds}
        nonnegative = all(b.rest is None and min(b.coefficients.values(), default=0) >= 0 for b, _ in bounds if b.upper)
        full_hi = self.map(
            "*",
            self.map("//", full_hi if nonnegative else self.map("max", full_hi, zero), blocks),
            blocks,
            name=f"{axis}_full",
        )
        parts = []
        if full_lo is zero:
            parts.append((lo, full_hi, False, true, "blocks that no mask touches"))
            parts.append((full_hi, hi, True, set(), "the edge: masks apply"))
            return parts
        up = self.map("-", self.map("+", full_lo, blocks), self.const(1))
        full_lo = self.map("*", self.map("//", up, blocks), blocks)
        full_lo = self.map("min", full_lo, hi, name=f"{axis}_from")
        full_hi = self.map("max", full_hi, full_lo, name=f"{axis}_full")
        parts.append((lo, full_lo, True, set(), "the first edge: masks apply"))
        parts.append((full_lo, full_hi, False, true, "blocks that no mask touches"))
        parts.append((full_hi, hi, True, set(), "the last edge: masks apply"))
        return parts

    def note_order(self, b: Bound) -> None:
        """Rows whose upper bound grows with a grid axis have the longest loops last: longest_first walks it backwards."""
        growing = [a for a, c in b.coefficients.items() if a in self.k.grid and (c > 0) == b.upper]
        if growing and b.upper:
            self.k.reversed_axis = growing[0]

    def bounds(self, axis: str, reductions: list[Term]) -> list[tuple[Bound, Atom]]:
        """Affine masks over `axis` whose falsehood leaves every carried value as it is (rule 29)."""
        found: dict[Term, tuple[Bound, Atom]] = {}
        for r in reductions:
            for t in r.walk():
                if t.op != "map" or t.attr != "where":
                    continue
                for atom in atoms(t.args[0]):
                    b = bound(self.g, atom, axis)
                    if b is None or atom.predicate in found or not self.reachable(b):
                        continue
                    if all(self.unchanged(x, atom.predicate, axis) for x in reductions):
                        found[atom.predicate] = (b, atom)
        return list(found.values())

    def reachable(self, b: Bound) -> bool:
        """Whether the bound's axes have a first and a last index in the tile, known outside the loop."""
        return all(a in self.starts or a in self.k.whole for a in b.coefficients)

    def unchanged(self, reduction: Term, predicate: Term, axis: str) -> bool:
        known = constant(reduction.args[0], lambda t: False if t is predicate else self.under_flag(t, predicate), axis)
        return known is not None and known == NEUTRAL.get(reduction.attr[0])

    @staticmethod
    def under_flag(t: Term, predicate: Term) -> bool | None:
        # the bound applies only where the flag holds, so there the whole conjunct is false
        return False if t.op == "map" and t.attr == "or" and predicate in t.args else None

    def limit(self, b: Bound, largest: bool, plus: int) -> Value:
        """The bound's limit at the row of the tile that makes it largest (or smallest), plus a constant."""
        total: Value | None = None
        for a, c in b.coefficients.items():
            last = (c > 0) == largest
            edge = self.starts[a] if a in self.starts else self.const(0)
            if last and (a in self.k.lengths or a in self.k.whole):
                # plus 1 for an exclusive end folds into the tile's length
                held = a in self.k.lengths
                step = self.emit("block", (), a, (), "i32", f"BLOCK_{a.upper()}") if held else self.extent_value(a)
                edge = self.map("+", edge, step)
                edge = edge if plus == 1 and c > 0 and total is None else self.map("-", edge, self.const(1))
                used = plus == 1 and c > 0 and total is None
                plus = 0 if used else plus
            scaled = edge if c == 1 else self.map("*", edge, self.const(c))
            total = scaled if total is None else self.map("+", total, scaled)
        if b.rest is not None:
            rest = self.eval(b.rest)
            total = rest if total is None else self.map("+", total, rest)
        if plus or total is None:
            total = self.const(plus) if total is None else self.map("+", total, self.const(plus))
        return total

    def flagged(self, flag: Term | None, a: Value, b: Value, name: str) -> Value:
        return a if flag is None else self.emit("select", (self.eval(flag), a, b), None, a.dims, a.dtype, name)

    # Values -------------------------------------------------------------------------------------------------------------

    def here(self) -> list[Node]:
        return self.scopes[-1].body

    def emit(
        self, kind: str, args: tuple[Value, ...], attr: object, dims: tuple[str, ...], dtype: str, name: str
    ) -> Value:
        """Appends an op to the innermost region that its operands need (never deeper), once for equal operands."""
        depth = max((self.home.get(a, 0) for a in args), default=0)
        if kind in ("load", "arange", "dot") or depth >= len(self.scopes):
            depth = min(max(depth, 0), len(self.scopes) - 1)
        if kind in ("dot", "full") or any(a in self.variables.values() or self.is_pivot(a) for a in args):
            depth = len(self.scopes) - 1  # reads a variable, whose value changes from place to place
        scope = self.scopes[depth]
        key = (kind, tuple(map(id, args)), repr(attr) if kind == "load" else attr, type(attr).__name__, dims, dtype)
        if (
            key in scope.memo
            and kind not in ("full",)
            and not any(a in self.variables.values() or self.is_pivot(a) for a in args)
        ):
            return scope.memo[key]
        value = Value(name, dims, dtype)
        scope.memo[key] = value
        self.home[value] = depth
        scope.body.append(Op(kind, value, args, attr))
        return value

    def is_pivot(self, v: Value) -> bool:
        return any(p.variable is v for p in self.pivots.values())

    def const(self, value: float | bool) -> Value:
        dtype = "bool" if isinstance(value, bool) else "i32" if isinstance(value, int) else "f32"
        return self.emit("const", (), value, (), dtype, str(value))

    def extent_value(self, axis: str) -> Value:
        return self.emit("extent", (), axis, (), "i32", axis.upper())

    def map(self, function: str, *args: Value, name: str = "") -> Value:
        dims = self.ordered({d for a in args for d in a.dims})
        if function in ("+", "-", "*", "/", "softdiv", "max", "min") and any(a.dtype in FLOATS for a in args):
            dtype = "f32"
        elif function in ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not"):
            dtype = "bool"
        elif function == "where":
            dtype = args[1].dtype if args[1].dtype == args[2].dtype else "f32"
        elif all(a.dtype in ("i32", "int8", "bool") for a in args) and function in (
            "+",
            "-",
            "*",
            "//",
            "%",
            "neg",
            "max",
            "min",
            "abs",
            "relu",
        ):
            dtype = "i32"
        else:
            dtype = "f32"
        if dtype == "f32" or (dtype == "bool" and any(a.dtype in ("bf16", "f16", "e4m3", "e5m2") for a in args)):
            args = tuple(self.widened(a) if a.dtype in ("bf16", "f16", "e4m3", "e5m2") else a for a in args)
        folded = self.folded(function, args)
        return folded if folded is not None else self.emit("map", args, function, dims, dtype, name or "t")

    def folded(self, function: str, args: tuple[Value, ...]) -> Value | None:
        """Integer identities that loop bounds bring: x // 1, x * 1, min(x, x), x + 0."""
        a, b = (args + args)[:2]
        if function in ("min", "max") and a is b:
            return a
        if function in ("*", "//") and b.name == "1" and b.dtype == "i32":
            return a
        if function in ("+", "-") and b.name == "0" and b.dtype == "i32":
            return a
        return None

    def widened(self, v: Value) -> Value:
        return self.emit("cast", (v,), "f32", v.dims, "f32", v.name)

    def ordered(self, dims: set[str]) -> tuple[str, ...]:
        return tuple(sorted(dims, key=lambda d: self.order.get(d, 99)))

    def dims(self, axes: Iterable[str]) -> tuple[str, ...]:
        return self.ordered({a for a in axes if a in self.k.lengths or a in self.k.whole})

    def scalar(self, t: Term) -> Value:
        """A scalar float: computed by the launcher where it is built from extents, params and constants alone."""
        if t.op == "const":
            return self.const(t.attr)
        if t not in self.k.hosts:
            self.k.hosts[t] = Value("scale" if not self.k.hosts else f"scale{len(self.k.hosts)}", (), "f32")
        value = self.k.hosts[t]
        self.home[value] = 0
        return value

    def title(self, t: Term, otherwise: str) -> str:
        while t not in self.titles and t.op == "cast":
            t = t.args[0]
        return self.titles.get(t, otherwise)

    def sum_title(self, t: Term) -> str:
        if t in self.titles:
            return self.titles[t]
        if self.is_product(t):
            return "acc"
        pivot = next((p for p, table in self.weights.items() if table.get(t) == Weight(mul=-1)), None)
        return "total" if pivot is None else self.title(pivot.args[0], "s") + "_sum"

    # Coordinates --------------------------------------------------------------------------------------------------------

    def place(self, axis: str, places: Places) -> Place:
        if axis in places:
            return places[axis]
        loop_depth = next((i for i, s in enumerate(self.scopes) if s.loop == axis), 0)
        key = ("axis", axis, id(self.starts.get(axis)))
        if key not in self.places:
            if axis in self.k.loops and axis not in self.starts:
                raise NotLowered(f"axis `{axis}` is read outside its stream")
            start = self.starts[axis] if axis in self.starts else self.const(0)
            value = start
            if axis in self.k.lengths or axis in self.k.whole:
                value = self.emit("arange", (start,), axis, (axis,), "i32", f"{axis}s")
            elif axis not in self.starts:
                raise NotLowered(f"axis `{axis}` has no place in this kernel's tile")
            self.places[key] = Place(value, axis, (axis,))
        del loop_depth
        return self.places[key]

    def coarse(self, coarse: str, fine: str, places: Places) -> Place:
        """The place of a coarse axis at its fine one: index // ratio, a scalar where one block holds the whole tile."""
        at = self.place(fine, places)
        key = ("coarse", coarse, id(at))
        if key not in self.places:
            axis = self.g.axes[coarse]
            assert axis.fine is not None
            below = at if axis.fine == fine else self.coarse(axis.fine, fine, places)
            value = below.value
            ratio = axis.ratio.value if isinstance(axis.ratio, Number) else None
            length = self.k.lengths.get(fine, 1)
            if (
                below is at
                and at.axis == fine
                and ratio
                and isinstance(ratio, int)
                and ratio % length == 0
                and fine in self.starts
            ):
                value = self.starts[fine]  # the tile lies within one block
            step = self.emit("ratio", (), coarse, (), "i32", f"{coarse}_ratio")
            value = self.map("//", value, step, name=coarse)
            self.places[key] = Place(value, None, at.tails if value.dims else ())
        return self.places[key]

    def needs_mask(self, axis: str) -> bool:
        if axis in self.k.loops:
            return axis in self.k.lengths and next((s.masked for s in self.scopes if s.loop == axis), True)
        if axis in self.k.whole:
            return axis in self.k.padded
        return axis in self.k.lengths

    def in_range(self, axis: str) -> Value:
        at = self.place(axis, {})
        return self.map("<", at.value, self.extent_value(axis), name=f"in_{axis}")

    # Terms --------------------------------------------------------------------------------------------------------------

    def key(self, t: Term, places: Places) -> tuple[object, ...]:
        return ("term", t, tuple((a, id(p)) for a, p in sorted(places.items()) if a in t.axes))

    def remember(self, t: Term, v: Value, places: Places | None = None) -> None:
        self.scopes[self.home.get(v, len(self.scopes) - 1)].memo[self.key(t, places or {})] = v

    def eval(self, t: Term, places: Places | None = None) -> Value:
        places = {a: p for a, p in (places or {}).items() if a in t.axes}
        key = self.key(t, places)
        for scope in reversed(self.scopes):
            if key in scope.memo:
                return scope.memo[key]
        value = self.compute(t, places)
        running = any(
            t_.op == "reduce" and t_ not in self.done and (t_ in self.variables or t_ in self.pivots) for t_ in t.walk()
        )
        if running:  # valid in this pass alone
            self.scopes[-1].memo[key] = value
        else:
            self.scopes[min(self.home.get(value, 0), len(self.scopes) - 1)].memo[key] = value
        return value

    def compute(self, t: Term, places: Places) -> Value:
        match t.op:
            case "const":
                return self.const(t.attr)
            case "extent":
                return self.extent_value(t.attr)
            case "ratio":
                return self.emit("ratio", (), t.attr, (), "i32", f"{t.attr}_ratio")
            case "param":
                return self.emit("param", (), t.attr, (), t.dtype, t.attr)
            case "index":
                return self.place(t.attr, places).value
            case "input":
                axes, _ = self.g.tensors[t.attr]
                return self.load(t, tuple(self.place(a, places) for a in axes))
            case "refine":
                coarse, fine = t.attr
                return self.eval(t.args[0], {**places, coarse: self.coarse(coarse, fine, places)})
            case "read":
                return self.read(t, places)
            case "cast":
                inner = self.eval(t.args[0], places)
                return (
                    inner
                    if inner.dtype == t.attr
                    else self.emit("cast", (inner,), t.attr, inner.dims, t.attr, self.title(t, inner.name))
                )
            case "reduce":
                return self.reduction(t, places)
            case "map":
                return self.mapped(t, places)
        raise NotLowered(f"`{t.op}` has no lowering yet", self.g.lines.get(t, Span()))

    def load(self, t: Term, at: tuple[Place, ...]) -> Value:
        """One tile of a tensor; dims in memory order. Out of range reads 0."""
        dims = tuple(dict.fromkeys(d for p in at for d in p.value.dims))
        values, attr = self.access(t.attr, t.dtype, at)
        return self.emit("load", values, attr, dims, t.dtype, t.attr)

    def access(self, tensor: str, dtype: str, at: tuple[Place, ...]) -> tuple[tuple[Value, ...], LoadAttr]:
        """Operands and attributes of a load or store: by descriptor, or by pointers with masks for the tails."""
        coordinates = tuple(Coordinate(p.axis if p.value.dims else None, p.checked) for p in at)
        if self.by_descriptor(tensor, dtype, at):
            firsts = tuple(self.starts.get(p.axis or "", self.const(0)) if p.value.dims else p.value for p in at)
            return firsts, LoadAttr(tensor, coordinates, (), True)
        tails = tuple(dict.fromkeys(a for p in at for a in p.tails if self.needs_mask(a)))
        vectors = tuple(self.place(a, {}).value for a in tails)
        return (*(p.value for p in at), *vectors), LoadAttr(tensor, coordinates, tails)

    def by_descriptor(self, tensor: str, dtype: str, at: tuple[Place, ...]) -> bool:
        """TMA moves tiles of two or more dims whose last one is contiguous in memory and at least 16 bytes long."""
        if self.k.schedule.load != "tma" or not at or len(at) > 5 or dtype not in BYTES:
            return False
        last = at[-1]
        if any(p.checked or (p.value.dims and p.axis is None) for p in at) or not last.value.dims:
            return False
        held = sum(bool(p.value.dims) for p in at)
        length = self.k.lengths.get(last.value.dims[0], 16)
        return held >= 2 and length * BYTES[dtype] >= 16

    def read(self, t: Term, places: Places) -> Value:
        source, *indices = t.args
        at = []
        for axis, i in zip(t.attr, indices, strict=True):
            if i.op == "index":
                p = self.place(i.attr, places)
                at.append(Place(p.value, p.axis if p.axis == axis else None, p.tails, checked=i.attr != axis))
            else:
                value = self.eval(i, places)
                tails = tuple(a for a in i.axes if self.needs_mask(a))
                at.append(Place(value, None, tails, checked=True))
        if source.op == "input":
            return self.load(source, tuple(at))
        # a computed value under another name of its axis: the same computation, read elsewhere
        if any(p.checked and i.op != "index" for p, i in zip(at, indices, strict=True)):
            raise NotLowered(
                "reading a computed value by a computed index needs it stored",
                self.g.lines.get(t, Span()),
                "name it in `kernels` so that an earlier kernel stores it",
            )
        return self.eval(source, dict(zip(t.attr, at, strict=True)))

    def mapped(self, t: Term, places: Places) -> Value:
        if t.attr == "where":
            return self.where(t, places)
        if t.attr == "exp" and t.args[0].op == "map" and t.args[0].attr == "-":
            value = self.exponential(t, places)
            if value is not None:
                return value
        if (
            not t.axes
            and t.dtype == "f32"
            and all(a.op in ("extent", "param", "const", "map", "ratio") for a in t.walk())
        ):
            return self.scalar(t)
        args = tuple(self.eval(a, places) for a in t.args)
        function = t.attr
        if function == "softdiv" and not any(x.op == "const" and x.attr == -math.inf for x in t.args[1].walk()):
            function = "/"  # no mask can empty the slice, so the sum is not 0
        return self.map(function, *args, name=self.title(t, "t"))

    def exponential(self, t: Term, places: Places) -> Value | None:
        """exp(u - x): one multiply-add and one exponential, in base 2 where the schedule says so."""
        u, x = t.args[0].args
        pivot = self.pivots.get(x) if not places else None
        name = self.title(t, "p")
        if pivot is not None:
            reference = pivot.reference
            if u is pivot.term.args[0]:
                core, factor = pivot.core, pivot.factor
            else:
                core, factor = u, self.g.const(LOG2E) if self.log2 else None
        elif self.log2:
            core, scale = pull_scale(self.g, u, False)
            factor = self.g.const(LOG2E) if scale is None else self.g.map("*", self.g.const(LOG2E), scale)
            reference = self.map("*", self.eval(x, places), self.const(LOG2E))
        else:
            return None
        value = self.eval(core, places)
        if factor is not None:
            value = self.map("*", value, self.scalar(factor))
        return self.map("exp2" if self.log2 else "exp", self.map("-", value, reference), name=name)

    def where(self, t: Term, places: Places) -> Value:
        """A mask. Conjuncts that hold all over the loop vanish; those under a compile-time flag become its branch."""
        condition, a, b = t.args
        always: list[Value] = []
        flagged: dict[Value, tuple[Value, ...]] = {}
        for atom in atoms(condition):
            if atom.predicate in self.true:
                continue
            value = self.eval(atom.predicate, places)
            if atom.flag is None:
                always.append(value)
            else:
                flag = self.eval(atom.flag)
                flagged[flag] = (*flagged.get(flag, ()), value)
        value = self.eval(a, places)
        if not always and not flagged:
            return value
        if b.op == "const":
            return self.masked(value, tuple(always), flagged, b.attr, self.title(t, "t"))
        other = self.eval(b, places)
        if flagged:
            mask = self.eval(condition, places)
            return self.map("where", mask, value, other, name=self.title(t, "t"))
        mask = always[0]
        for m in always[1:]:
            mask = self.map("and", mask, m)
        return self.map("where", mask, value, other, name=self.title(t, "t"))

    def masked(
        self, value: Value, always: tuple[Value, ...], flagged: dict[Value, tuple[Value, ...]], other: float, name: str
    ) -> Value:
        def under(masks: tuple[Value, ...]) -> Value:
            if not masks:
                return value
            mask = masks[0]
            for m in masks[1:]:
                mask = self.map("and", mask, m)
            return self.map("where", mask, value, self.const(other), name=name)

        result = under(always)
        for flag, extra in flagged.items():
            yes = under((*extra, *always))
            result = self.emit("select", (flag, yes, result), None, yes.dims, yes.dtype, name)
        self.masks[result] = (value, always, flagged, other)
        return result

    def guarded(
        self, value: Value, term: Term, axes: Iterable[str], neutral: float | bool | int, places: Places | None = None
    ) -> Value:
        """The value with the neutral element in the padding of `axes`, where it is not neutral there already."""
        tails = []
        for a in axes:
            if self.needs_mask(a) and a in value.dims:
                pad = self.padding(term, a)
                if pad is None or pad != neutral:
                    tails.append(self.in_range(a))
        if not tails:
            return value
        if value in self.masks and self.masks[value][3] == neutral:
            inner, always, flagged, _ = self.masks[value]
            return self.masked(inner, (*always, *tails), flagged, neutral, value.name)  # type: ignore[arg-type]
        return self.masked(value, tuple(tails), {}, neutral, value.name)  # type: ignore[arg-type]

    def padding(self, term: Term, axis: str) -> float | bool | None:
        """The term's value past the end of `axis`, where loads read 0."""

        def known(t: Term) -> float | None:
            if t.op == "map" and t.attr == "exp" and t.args[0].op == "map" and t.args[0].attr == "-":
                u, x = t.args[0].args
                if x in self.pivots and x not in self.done and u is x.args[0] and axis in x.attr[1]:
                    return 0.0  # its operand was guarded for the running maximum
            return 0.0 if t.op == "input" and axis in t.axes else None

        return constant(term, known, axis)

    # Reductions ---------------------------------------------------------------------------------------------------------

    def reduction(self, t: Term, places: Places) -> Value:
        if t in self.pivots:
            p = self.pivots[t]
            if self.log2:
                return self.map("*", p.reference, self.const(1 / LOG2E), name=self.title(t, p.variable.name))
            return p.reference
        if t in self.variables:
            return self.variables[t]
        product = self.contraction(t, places)
        if product is not None:
            a, b, attr, dims = product
            return self.emit("dot", (a, b), attr, dims, attr.out, self.title(t, "product"))
        return self.partial(t, places)

    def partial(self, t: Term, places: Places | None = None) -> Value:
        kind, axes = t.attr[0], t.attr[1]
        value = self.eval(t.args[0], places)
        neutral = NEUTRAL.get(kind)
        if neutral is None:
            raise NotLowered(f"`{kind}` has no lowering yet", self.g.lines.get(t, Span()))
        value = self.guarded(value, t.args[0], axes, neutral)
        if value.dtype in ("bf16", "f16", "e4m3", "e5m2"):
            value = self.widened(value)
        return self.reduced(kind, value, axes, self.title(t, f"{self.title(t.args[0], value.name)}_{kind}"))

    def reduced(self, kind: str, value: Value, axes: Iterable[str], name: str) -> Value:
        for a in axes:
            if a in value.dims:
                rest = tuple(d for d in value.dims if d != a)
                value = self.emit("reduce", (value,), (kind, (a,)), rest, value.dtype, name)
        return value

    def is_product(self, t: Term) -> bool:
        return t.attr[0] == "sum" and self.operands(t) is not None

    def operands(self, t: Term) -> tuple[Term, Term, str] | None:
        """The two operands of a matrix product and the axis it sums over, or None where `t` is no such product."""
        if t.op != "reduce" or t.attr[0] != "sum":
            return None
        held = [a for a in t.attr[1] if a in self.k.lengths or a in self.k.whole]
        parts = factors(t.args[0])
        if len(held) != 1 or len(parts) < 2 or any(how != "*" for _, how in parts):
            return None
        (axis,) = held
        groups: list[list[Term]] = []
        for p, _ in sorted(parts, key=lambda x: -len(self.dims(x[0].axes))):
            free = set(self.dims(p.axes)) - {axis}
            home = next((g for g in groups if free <= set(self.dims(g[0].axes))), None)
            if (
                home is not None
                and (home[0] is not p)
                and not (len(groups) == 1 and free and not home[0].declared and p.declared)
            ):
                home.append(p)
            else:
                groups.append([p])
        if len(groups) != 2:
            return None
        a, b = (self.product_of(g) for g in groups)
        fa, fb = set(self.dims(a.axes)) - {axis}, set(self.dims(b.axes)) - {axis}
        if axis not in a.axes or axis not in b.axes or len(fa) != 1 or len(fb) != 1 or fa & fb:
            return None
        (da,), (db,) = fa, fb
        if min(self.length(da), self.length(db), self.length(axis)) < 16:
            return None
        return (a, b, axis) if self.order[da] < self.order[db] else (b, a, axis)

    def product_of(self, group: list[Term]) -> Term:
        result = group[0]
        for t in group[1:]:
            result = self.g.map("*", result, t)
        return result

    def length(self, dim: str) -> int:
        return self.k.lengths.get(dim, 16)

    def contraction(
        self, t: Term, places: Places | None = None
    ) -> tuple[Value, Value, DotAttr, tuple[str, ...]] | None:
        found = self.operands(t)
        if found is None:
            return None
        a, b, axis = found
        if a.declared and b.declared and a.dtype != b.dtype:
            raise NotLowered(
                f"a contraction of {a.dtype} with {b.dtype}",
                self.g.lines.get(t, Span()),
                "cast one to the other's dtype",
            )
        dtype = a.dtype if a.declared else b.dtype if b.declared else "f32"
        values = []
        for term, other in ((a, b), (b, a)):
            value = self.eval(term, places)
            if self.needs_mask(axis):
                zero, others = self.padding(term, axis), self.padding(other, axis)
                if zero != 0 and (others != 0 or not _finite(term)):
                    value = self.guarded(value, term, (axis,), 0.0)
            if value.dtype != dtype:
                value = self.emit("cast", (value,), dtype, value.dims, dtype, value.name)
            values.append(value)
        va, vb = values
        (m,) = (d for d in va.dims if d != axis)
        (n,) = (d for d in vb.dims if d != axis)
        out = "i32" if dtype == "int8" else "f32"
        attr = DotAttr(va.dims != (m, axis), vb.dims != (axis, n), dtype, out)
        return va, vb, attr, (m, n)

    # Stores -------------------------------------------------------------------------------------------------------------

    def store(self, name: str, t: Term) -> None:
        axes, dtype = self.g.tensors[name]
        value = self.eval(t)
        if value.dtype != dtype:
            value = self.emit("cast", (value,), dtype, value.dims, dtype, name)
        at = tuple(self.place(a, {}) for a in axes)
        values, attr = self.access(name, dtype, at)
        self.here().append(Op("store", None, (value, *values), attr))


def _finite(term: Term) -> bool:
    return not any(
        x.op == "map" and x.attr in ("exp", "exp2", "log", "/", "softdiv", "rsqrt") and x.axes for x in term.walk()
    )


def _drop_dead(kernel: TileKernel) -> None:
    """Removes ops whose value nobody reads, until none is left."""
    while True:
        used: set[Value] = set()

        def note(nodes: list[Node]) -> None:
            for n in nodes:
                if isinstance(n, Op):
                    used.update(n.args)
                elif isinstance(n, If):
                    used.add(n.condition)
                    note(n.body)
                else:
                    used.update((n.lo, n.hi))
                    note(n.body)

        def prune(nodes: list[Node]) -> int:
            dropped = 0
            for n in nodes:
                if not isinstance(n, Op):
                    dropped += prune(n.body)
            keep = [n for n in nodes if not isinstance(n, Op) or n.out is None or n.out in used]
            dropped += len(nodes) - len(keep)
            nodes[:] = keep
            return dropped

        note(kernel.body)
        if not prune(kernel.body):
            return
