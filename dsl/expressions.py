"""The terms of expressions: names, reads, operators and calls, their axes and dtypes, and what is wrong with them."""

from __future__ import annotations

import math

from dsl.diagnostics import Diagnostic, nearest
from dsl.habits import FUNCTIONS_ELSEWHERE
from dsl.syntax import Algorithm, AxisIn, Binary, Bool, Call, Expr, Name, Number, Read, Span, Unary
from dsl.terms import BLOCK_DTYPES, DTYPES, INTEGERS, Graph, Term
from dsl.wording import counted

UNARY = [
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "rsqrt",
    "tanh",
    "sigmoid",
    "erf",
    "sin",
    "cos",
    "abs",
    "floor",
    "relu",
    "silu",
    "gelu",
    "gelu_tanh",
    "softplus",
]
ARITY = dict.fromkeys(UNARY, 1) | {"min": 2, "max": 2, "clamp": 3, "where": 3}
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "any", "all", "softmax", "argmax")
SCANS = ("runmax", "runsum")
SELECTIONS = ("topk", "bottomk")
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_to_all", "all_gather")
FUNCTIONS = (*ARITY, *REDUCTIONS, *SCANS, *SELECTIONS, *COLLECTIVES, "quantize", *DTYPES)


class Stop(Exception):
    """This expression cannot be typed; its diagnostic is already noted."""


class Expressions:
    """Terms in `graph`, whose names and axes are known so far; `diagnostics` collects what is wrong."""

    def __init__(self, algorithm: Algorithm, graph: Graph) -> None:
        self.algorithm = algorithm
        self.graph = graph
        self.diagnostics: list[Diagnostic] = []

    def expr(self, e: Expr) -> Term:
        g = self.graph
        match e:
            case Bool(value=value):
                return g.const(value)
            case Number(value=value):
                return g.const(value)
            case Name():
                return self.name(e)
            case Read():
                return self.read(e)
            case Unary(op="-", operand=Number(value=value)):
                return g.const(-value)
            case Unary(op=op, operand=operand):
                term = self.noted(g.map("neg" if op == "-" else "not", self.expr(operand)), e.span)
                if op == "not" and term.args[0].dtype != "bool":
                    self.error("not-a-bool", "`not` takes a bool", e.span, fix="compare first: not (x > 0)")
                return term
            case Binary(op=op, left=left, right=right):
                return self.noted(g.map(op, *self.both(left, right)), e.span)
            case Call():
                return self.noted(self.call(e), e.span)
        raise AssertionError(e)

    def both(self, *parts: Expr) -> list[Term]:
        """Every part is looked at before giving up, so that one run reports all errors."""
        terms, failed = [], False
        for p in parts:
            try:
                terms.append(self.expr(p))
            except Stop:
                failed = True
        if failed:
            raise Stop
        return terms

    def noted(self, term: Term, span: Span) -> Term:
        self.graph.lines.setdefault(term, span)
        return term

    def name(self, e: Name) -> Term:
        g = self.graph
        if e.id in g.names:
            return g.names[e.id]
        if e.id in g.inputs:
            axes, dtype = g.tensors[e.id]
            return g.make("input", (), e.id, axes, dtype)
        if e.id in g.axes:
            return g.index(e.id)
        if e.id.isupper() and e.id.lower() in g.axes:
            return g.extent(e.id.lower())
        if e.id in g.params:
            kind = {"bool": "bool", "int": "i32"}.get(g.params[e.id].dtype, "f32")
            return g.make("param", (), e.id, (), kind)
        if e.id == "inf":
            return g.const(math.inf)
        known = (*g.names, *g.inputs, *g.axes, *(a.upper() for a in g.axes), *g.params)
        later = [t.name for s in self.algorithm.statements for t in s.targets]
        own = any(t.name == e.id and t.span.line == e.span.line for s in self.algorithm.statements for t in s.targets)
        if own:
            self.error(
                "used-before",
                f"`{e.id}` is used in the line that assigns it",
                e.span,
                fix="a new name for the new value; of recurrences there are runsum and runmax: "
                "h[t] = a h[t-1] + x is exp(s) * runsum[t](x * exp(-s)), s[t] = runsum[t](log(a))",
            )
        elif e.id in later:
            self.error("used-before", f"`{e.id}` is used before it is assigned", e.span, fix="move its line up")
        else:
            self.unknown("name", e.id, known, e.span)
        raise Stop

    def read(self, e: Read) -> Term:
        g = self.graph
        tensor = self.name(Name(e.tensor, e.span))
        if tensor.op in ("index", "extent", "param"):
            self.error("not-a-tensor", f"`{e.tensor}` is no tensor and cannot be read by position", e.span)
            raise Stop
        axes = g.shapes[e.tensor][0] if e.tensor in g.shapes else tensor.axes
        if len(e.indices) != len(axes):
            self.error(
                "read-rank",
                f"`{e.tensor}` has {counted(len(axes), 'axis', 'axes')} ({' '.join(axes)}), read with {len(e.indices)}",
                e.span,
                fix=f"{e.tensor}[{' '.join(axes)}] with one index for each",
            )
            raise Stop
        indices = self.both(*e.indices)
        for i, term in zip(e.indices, indices, strict=True):
            if term.dtype not in ("i32", "int8"):
                self.error(
                    "read-index",
                    "an index must be an integer",
                    i.span,
                    fix="an axis, an integer tensor or integer arithmetic",
                )
                raise Stop
        if all(t.op == "index" and t.attr == a for t, a in zip(indices, axes, strict=True)):
            return tensor  # the plain form, written with its axes
        aligned, union = g.align(*indices)
        ordered = tuple(axes)  # which dimension of the tensor each index stands for
        return self.noted(g.make("read", (tensor, *aligned), ordered, union, tensor.dtype), e.span)

    def call(self, e: Call) -> Term:
        g, f = self.graph, e.function
        if f == "quantize":
            self.error(
                "quantize-form",
                "quantize stands alone on the right side of two names",
                e.span,
                legal="q, s = quantize(x, int8)",
            )
            raise Stop
        if e.keywords:
            self.error(
                "keyword",
                f"`{f}` takes no keyword",
                e.span,
                fix=f"{f}[n](x) reduces over axis n" if f in REDUCTIONS else "",
            )
            raise Stop
        if e.axes is not None:
            if f in REDUCTIONS:
                return self.reduction(e)
            if f in SCANS or f in SELECTIONS or f in COLLECTIVES:
                return self.bracketed(e)
            if f in ARITY or f in DTYPES:
                self.error("bracket", f"`{f}` works element by element and takes no axis", e.span, fix=f"{f}(x)")
                raise Stop
        if f in BLOCK_DTYPES:
            self.error(
                "block-dtype",
                f"`{f}` is no function: its blocks of {BLOCK_DTYPES[f]} lie along the last axis of a name",
                e.span,
                fix=f"a line of its own: xq[m k] {f} = x",
            )
            raise Stop
        if f in DTYPES:
            self.arity(e, 1)
            return g.cast(self.expr(e.args[0]), f)
        if (f in ("max", "min") and len(e.args) == 1) or (f in REDUCTIONS and f not in ARITY):
            self.error("reduction-axis", f"`{f}` needs the axis that it reduces", e.span, legal=f"{f}[n](x)")
            raise Stop
        if f not in ARITY:
            if f in FUNCTIONS:
                self.error("reduction-axis", f"`{f}` needs its axes in brackets", e.span, legal=f"{f}[n](x)")
            else:
                self.unknown("function", f, FUNCTIONS, e.span)
            raise Stop
        self.arity(e, ARITY[f])
        args = self.both(*e.args)
        if f == "where" and args[0].dtype != "bool":
            self.error("not-a-bool", "where takes a bool first", e.span, legal="where(m >= n, x, -inf)")
        if f == "clamp":
            return g.map("min", g.map("max", args[0], args[1]), args[2])
        return g.map(f, *args)

    def arity(self, e: Call, n: int) -> None:
        if len(e.args) != n:
            self.error("arity", f"`{e.function}` takes {n} argument{'s' * (n > 1)}, got {len(e.args)}", e.span)
            raise Stop

    def reduction(self, e: Call, accumulator: str = "") -> Term:
        g, f = self.graph, e.function
        self.arity(e, 1)
        x = self.expr(e.args[0])
        axes, within = [], []
        for a in e.axes or ():
            self.known_axis(a)
            if a.axis not in x.axes:
                self.error(
                    "axis-absent",
                    f"{f}[{a.axis}]: the operand has no axis `{a.axis}`",
                    a.span,
                    legal="an axis of the operand: " + " ".join(x.axes),
                )
                raise Stop
            self.true_block(a)
            axes.append(a.axis)
            within.append(a.within or "")
        over, blocks = tuple(axes), tuple(within)
        if f == "argmax" and len(over) != 1:
            self.error("one-axis", "`argmax` takes one axis", e.span, legal="argmax[n](x)")
            raise Stop
        if f == "softmax":
            shifted = g.map("exp", g.map("-", x, g.reduce("max", x, over, blocks)))
            return g.map("softdiv", shifted, g.reduce("sum", shifted, over, blocks))
        if f == "mean":
            count = g.const(1)
            for axis, block in zip(over, blocks, strict=True):
                members = self.members(axis, block)
                count = members if count.op == "const" else g.map("*", count, members)
            return g.map("/", g.reduce("sum", x, over, blocks), count)
        return g.reduce(f, x, over, blocks, accumulator)

    def known_axis(self, a: AxisIn) -> None:
        """The axis in a bracket exists, or it is said which do and `Stop` raised."""
        if a.axis not in self.graph.axes:
            self.unknown("axis", a.axis, tuple(self.graph.axes), a.span)
            raise Stop

    def true_block(self, a: AxisIn) -> None:
        """`a / within`: that axis is made of blocks of this one, or `Stop` is raised."""
        if a.within and not self.graph.coarse_over(a.within, a.axis):
            self.error(
                "not-a-block",
                f"`{a.within}` is not coarse over `{a.axis}`",
                a.span,
                fix=f"axis {a.within} = {a.axis} // 64",
            )
            raise Stop

    def members(self, axis: str, block: str) -> Term:
        """How many of `axis` a reduction meets: its extent, or the block's real length (rule 5)."""
        g = self.graph
        if not block:
            return g.extent(axis)
        ratio = g.make("ratio", (), block, (), "i32")
        left = g.map("-", g.extent(axis), g.map("*", g.index(block), ratio))
        return g.map("min", ratio, left)

    def bracketed(self, e: Call) -> Term:
        g, f = self.graph, e.function
        for a in e.axes or ():
            self.known_axis(a)
        axes = tuple(a.axis for a in e.axes or ())
        if f in SELECTIONS:
            self.arity(e, 2)
            x, k = self.both(*e.args)
            if len(axes) != 1 or axes[0] not in x.axes:
                self.error("axis-absent", f"{f} takes one axis of its operand", e.span, legal=" ".join(x.axes))
                raise Stop
            if k.axes or k.dtype != "i32":
                self.error(
                    "topk-count", f"{f} takes how many as a scalar integer", e.span, legal=f"{f}[n](x, 5 * N // 100)"
                )
                raise Stop
            return g.make("select", (x, k), (f, axes[0]), x.axes, "bool")
        self.arity(e, 1)
        x = self.expr(e.args[0])
        if f in SCANS:
            a = (e.axes or ())[0]
            if len(axes) != 1 or a.axis not in x.axes:
                self.error("axis-absent", f"{f} takes one axis of its operand", e.span, legal=" ".join(x.axes))
                raise Stop
            self.true_block(a)
            if f == "runsum" and a.within:  # the sum up to the end of each block
                x = g.reduce("sum", x, axes, (a.within,))
                return g.make("scan", (x,), (f, a.within, ""), x.axes, x.dtype if x.dtype == "i32" else "f32")
            result = tuple((a.within or a.axis) if x_ == a.axis else x_ for x_ in x.axes)
            return g.make("scan", (x,), (f, a.axis, a.within or ""), result, "i32" if x.dtype in INTEGERS else "f32")
        if not g.rank or axes[:1] != (g.rank,):
            self.error("no-rank", f"{f} needs the rank axis first", e.span, legal=f"rank r, then {f}[r ...](x)")
            raise Stop
        if g.rank not in x.axes:
            self.error("axis-absent", f"{f}[{g.rank}]: the operand is not sharded on `{g.rank}`", e.span)
            raise Stop
        other = axes[1] if len(axes) > 1 else ""
        if (f == "all_reduce") == bool(other):
            self.error("collective-form", f"{f} takes {'one axis' if f == 'all_reduce' else 'two axes'}", e.span)
            raise Stop
        result = {
            "all_reduce": tuple(a for a in x.axes if a != g.rank),
            "reduce_scatter": tuple(g.rank if a == other else a for a in x.axes if a != g.rank),
            "all_to_all": tuple({g.rank: other, other: g.rank}.get(a, a) for a in x.axes),
            "all_gather": tuple(other if a == g.rank else a for a in x.axes),
        }[f]
        return g.make("collective", (x,), (f, g.rank, other), result, x.dtype)

    # Diagnostics --------------------------------------------------------------------------------------------------

    def dtype(self, name: str, span: Span) -> str:
        if name not in DTYPES:
            self.unknown("dtype", name, DTYPES, span)
            return "f32"
        return name

    def unknown(self, what: str, name: str, known: tuple[str, ...], span: Span) -> None:
        near = nearest(name, known)
        fix = FUNCTIONS_ELSEWHERE.get(name, "") if what == "function" else ""
        self.error(
            "unknown-" + what.split()[-1],
            f"unknown {what} `{name}`",
            span,
            legal=", ".join(dict.fromkeys(known)),
            fix=fix or (f"`{near}`" if near else ""),
        )

    def error(self, rule: str, message: str, span: Span, legal: str = "", fix: str = "") -> None:
        self.diagnostics.append(Diagnostic(rule, message, span, legal, fix))
