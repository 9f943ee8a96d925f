"""The regions of a tile program while it is being filled: where an op goes, and that equal ops are one.

An op lands in the innermost region that its operands need and no deeper, so what does not change in a loop stands
before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dsl.algebra import pivots, pull_scale
from dsl.diagnostics import Diagnostic, ProgramError
from dsl.syntax import Span
from dsl.terms import FLOATS, Term
from dsl.tile import Node, Op, TileKernel, Value

LOW_FLOATS = ("bf16", "f16", "e4m3", "e5m2")
FLOAT_FUNCTIONS = (
    *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos"),
    *("silu", "gelu", "gelu_tanh", "softplus"),
)


class NotLowered(ProgramError):
    """The program is right, but this construct has no lowering (yet, or on this schedule)."""

    def __init__(self, message: str, span: Span | None = None, fix: str = "") -> None:
        super().__init__([Diagnostic("not-lowered", message, span or Span(), fix=fix)])


@dataclass
class Scope:
    """A region being filled. `loop` is the axis that its loop walks (None: the kernel's own body)."""

    body: list[Node]
    loop: str | None = None
    masked: bool = True
    memo: dict[tuple[object, ...], Value] = field(default_factory=dict)
    maxima: dict[Term, Pivot] = field(default_factory=dict)


@dataclass
class Pivot:
    """A running reference: `reference` is what the current region subtracts, in the domain of `factor`.

    `scores`: the core with -inf in its padding, while its block lasts; everything else reads the core as it is.
    """

    term: Term
    core: Term
    factor: Term | None
    variable: Value
    reference: Value
    scores: Value | None = None


class Regions:
    """The open regions, the values in them, and the variables that loops carry."""

    def __init__(self, kernel: TileKernel, outputs: dict[str, Term]) -> None:
        self.k = kernel
        self.g = kernel.graph
        self.outputs = outputs
        exponent, share = kernel.schedule.exponent
        self.log2 = exponent != "exp"
        self.share = int(share[0]) if share else 0  # one of so many exponentials by polynomial; 0: none
        self.scopes = [Scope(kernel.body)]
        self.home: dict[Value, int] = {}
        self.starts: dict[str, Value] = {}
        self.variables: dict[Term, Value] = {}  # reductions over the stream, once their pass has begun
        self.done: set[Term] = set()  # ... and once it has ended
        self.pivots: dict[Term, Pivot] = {}
        self.held: dict[Term, frozenset[str]] = {}  # what `held_dims` found
        # what the loops walk: their axes, and the blocks that ride on them
        self.walked = {*kernel.loops, *(c for c, f in kernel.riders.items() if f in kernel.loops)}
        self.weights = pivots(outputs.values(), self.walked, kernel.bounded.values())
        self.order = {
            a: i for i, a in enumerate((*kernel.grid, *kernel.bounded, *kernel.loops, *kernel.inner, *kernel.whole))
        }
        self.titles = {t: n for n, t in kernel.graph.names.items()}
        for n, t in kernel.graph.names.items():
            while t.op == "cast" and t.args[0].op != "input":  # what is rounded last goes by the name of the result
                t = t.args[0]
                if t.op == "map":
                    self.titles.setdefault(t, n)
            core, scale = pull_scale(self.g, t, False)
            if scale is not None:  # and so does what is scaled last
                self.titles.setdefault(core, n)

    def here(self) -> list[Node]:
        return self.scopes[-1].body

    def emit(
        self, kind: str, args: tuple[Value, ...], attr: object, dims: tuple[str, ...], dtype: str, name: str
    ) -> Value:
        """Appends an op to the innermost region that its operands need (never deeper), once for equal operands."""
        depth = max((self.home.get(a, 0) for a in args), default=0)
        if kind in ("load", "arange", "dot") or depth >= len(self.scopes):
            depth = min(max(depth, 0), len(self.scopes) - 1)
        changing = any(self.changes(a) for a in args)
        if kind in ("dot", "full") or changing:
            depth = len(self.scopes) - 1  # reads a variable, whose value changes from place to place
        scope = self.scopes[depth]
        key = (kind, tuple(map(id, args)), repr(attr) if kind == "load" else attr, type(attr).__name__, dims, dtype)
        if key in scope.memo and kind != "full" and not changing:
            return scope.memo[key]
        value = Value(name, dims, dtype)
        scope.memo[key] = value
        self.home[value] = depth
        scope.body.append(Op(kind, value, args, attr))
        return value

    def changes(self, v: Value) -> bool:
        """Whether a loop that is not over yet assigns this variable."""
        return any(x is v and t not in self.done for t, x in self.variables.items()) or any(
            p.variable is v and t not in self.done for t, p in self.pivots.items()
        )

    def const(self, value: float | bool) -> Value:
        dtype = "bool" if isinstance(value, bool) else "i32" if isinstance(value, int) else "f32"
        return self.emit("const", (), value, (), dtype, str(value))

    def extent_value(self, axis: str) -> Value:
        return self.emit("extent", (), axis, (), "i32", axis.upper())

    def tail(self, axis: str) -> Value:
        return self.emit("tail", (), axis, (), "bool", f"TAIL_{axis.upper()}")

    def map(self, function: str, *args: Value, name: str = "") -> Value:
        dims = self.ordered({d for a in args for d in a.dims})
        if function in ("+", "-", "*", "/", "max", "min") and any(a.dtype in FLOATS for a in args):
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
            "floor_div",
            "floor_mod",
            "neg",
            "max",
            "min",
            "abs",
            "relu",
        ):
            dtype = "i32"
        else:
            dtype = "f32"
        if function in FLOAT_FUNCTIONS:  # they take floats alone
            args = tuple(self.widened(a) if a.dtype in ("i32", "int8", "bool") else a for a in args)
        if dtype == "i32" and function != "where":  # narrow integers would wrap around
            args = tuple(self.whole(a) if a.dtype in ("int8", "bool") else a for a in args)
        if dtype == "f32" or (dtype == "bool" and any(a.dtype in ("bf16", "f16", "e4m3", "e5m2") for a in args)):
            args = tuple(self.widened(a) if a.dtype in ("bf16", "f16", "e4m3", "e5m2") else a for a in args)
        folded = self.folded(function, args)
        return folded if folded is not None else self.emit("map", args, function, dims, dtype, name or "t")

    def folded(self, function: str, args: tuple[Value, ...]) -> Value | None:
        """Integer identities that loop bounds bring: x // 1, x * 1, min(x, x), x + 0."""
        a, b = (args + args)[:2]
        if function in ("min", "max") and a is b:
            return a
        if function == "*" and "1.0" in (a.name, b.name) and "f32" in (a.dtype, b.dtype):
            one, other = (a, b) if a.name == "1.0" else (b, a)
            return other if one.dtype == "f32" and not one.dims else None
        if function in ("*", "//") and b.name == "1" and b.dtype == "i32":
            return a
        if function in ("+", "-") and b.name == "0" and b.dtype == "i32":
            return a
        return None

    def widened(self, v: Value) -> Value:
        return self.emit("cast", (v,), "f32", v.dims, "f32", v.name)

    def whole(self, v: Value) -> Value:
        return self.emit("cast", (v,), "i32", v.dims, "i32", v.name)

    def ordered(self, dims: set[str]) -> tuple[str, ...]:
        return tuple(sorted(dims, key=lambda d: self.order.get(d, 99)))

    def dims(self, axes: Iterable[str]) -> tuple[str, ...]:
        return self.ordered({a for a in axes if a in self.k.lengths or a in self.k.whole})

    def scalar(self, t: Term) -> Value:
        """A scalar float: computed by the launcher where it is built from extents, params and constants alone."""
        if t.op == "const":
            return self.const(t.attr)
        if t not in self.k.hosts:
            known = {*self.g.tensors, *self.g.params, *self.g.axes, *(v.name for v in self.k.hosts.values())}
            name = next(n for i in range(99) if (n := f"scale{i or ''}") not in known)
            self.k.hosts[t] = Value(name, (), "f32")
        value = self.k.hosts[t]
        self.home[value] = 0
        return value

    def title(self, t: Term, otherwise: str) -> str:
        while t not in self.titles and t.op == "cast":
            t = t.args[0]
        return self.titles.get(t, otherwise)
