"""From the syntax tree to the term DAG: names, axes and dtypes resolved, everything wrong reported at once."""

from __future__ import annotations

import keyword
import math

from dsl.algebra import bottomless
from dsl.assembly import walk
from dsl.diagnostics import Diagnostic, nearest
from dsl.schedule import kernels_of
from dsl.syntax import Algorithm, Binary, Bool, Call, Expr, Name, Number, Program, Read, Span, Statement, Tensor, Unary
from dsl.terms import BLOCK_DTYPES, DTYPES, INTEGERS, Axis, Graph, Term

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
QUANTIZE_LIMITS = {"int8": 127.0, "e4m3": 448.0, "e5m2": 57344.0, "mxfp4": 6.0, "nvfp4": 6.0}
MODULE_NAMES = ("torch", "triton", "tl", "math", "TensorDescriptor", "device", "programs")
FUNCTIONS = (*ARITY, *REDUCTIONS, *SCANS, *SELECTIONS, *COLLECTIVES, "quantize", *DTYPES)


def elaborate(program: Program, kernel: int | None = None) -> tuple[Graph, list[Diagnostic]]:
    """The graph of the whole program, or of one kernel: what other kernels store is then an input.

    Where diagnostics hold an error the graph may be incomplete and must not be lowered. The graph is the caller's own:
    checking, counting and lowering each take one, so what was made of an algorithm is kept for a while.
    """
    key = (id(program.algorithm), program.schedule.kernels if kernel is not None else (), kernel)
    known = _recent.get(key)
    if known is None or known[0] is not program.algorithm:
        if len(_recent) >= 100:
            _recent.clear()
        known = _recent[key] = (program.algorithm, *_Elaborator(program, kernel).run())
    return known[1].copy(), list(known[2])


# By the algorithm's identity: to hash it would cost as much as to elaborate it. The algorithm is kept, so that no other
# one comes to have its identity.
_recent: dict[tuple[int, tuple[tuple[str, ...], ...], int | None], tuple[Algorithm, Graph, list[Diagnostic]]] = {}


def _needed(algorithm: Algorithm, writes: tuple[str, ...], stored: set[str]) -> set[str]:
    """What a kernel computes: the names that it writes and all they are made of, short of what others store."""
    found: set[str] = set(writes)
    for s in reversed(algorithm.statements):
        if any(t.name in found for t in s.targets):
            found |= {x.id if isinstance(x, Name) else x.tensor for x in walk(s.value) if isinstance(x, Name | Read)}
            found -= stored
    return found


class _Stop(Exception):
    """This expression cannot be typed; its diagnostic is already noted."""


class _Elaborator:
    def __init__(self, program: Program, kernel: int | None) -> None:
        self.algorithm = program.algorithm
        self.graph = Graph(rank=program.algorithm.rank)
        self.diagnostics: list[Diagnostic] = []
        self.stored: set[str] = set()
        self.writes: tuple[str, ...] = tuple(t.name for t in self.algorithm.outputs)
        self.whole: Graph | None = None  # of a kernel: what it is cut from
        if kernel is not None:
            kernels = kernels_of(program)
            self.writes = kernels[kernel]
            self.stored = {n for i, k in enumerate(kernels) if i != kernel for n in k} - set(self.writes)
            self.needed = _needed(self.algorithm, self.writes, self.stored)
            self.whole, wrong = elaborate(program)
            if any(d.severity == "error" for d in wrong):
                self.whole = None  # what it says of stored names may be wrong too
        self.out = {t.name: t for t in self.algorithm.outputs}

    # Declarations -------------------------------------------------------------------------------------------------

    def run(self) -> tuple[Graph, list[Diagnostic]]:
        a, g = self.algorithm, self.graph
        taken: dict[str, str] = {}

        def claim(name: str, what: str, span: Span) -> None:
            self.speakable(name, what, span)
            if name in taken:
                self.error(
                    "name-clash",
                    f"`{name}` is declared twice: as {taken[name]} and as {what}",
                    span,
                    fix="give one of them another name",
                )
            taken.setdefault(name, what)

        for t in a.inputs:
            for axis in t.axes or ():
                g.axes.setdefault(axis, Axis(axis))
        if a.rank:
            g.axes.setdefault(a.rank, Axis(a.rank))
        for d in a.axes:
            if d.fine is not None:
                g.axes[d.name] = Axis(d.name, fine=d.fine, ratio=d.value)
            else:
                g.axes[d.name] = Axis(d.name, free=d.value)
        for d in a.axes:
            if d.fine is not None and d.fine not in g.axes:
                self.unknown("axis", d.fine, tuple(g.axes), d.span)
        for p in a.params:
            g.params[p.name] = p
        for t in a.inputs:
            claim(t.name, "an input", t.span)
        for name in g.axes:
            claim(name, "an axis", next((d.span for d in a.axes if d.name == name), Span()))
        for p in a.params:
            claim(p.name, "a param", p.span)
        self.speakable(a.name, "the kernel's name", a.span)
        for t in a.inputs:
            if len(set(t.axes or ())) != len(t.axes or ()):
                self.error("axis-repeated", f"`{t.name}` names an axis twice", t.span, fix="read by position: t[i (e)]")
            dtype = self.dtype(t.dtype or "f32", t.span)
            self.blocks(t.name, dtype, t.axes or (), t.span)
            g.tensors[t.name] = (t.axes or (), dtype)
            g.shapes[t.name] = g.tensors[t.name]
        g.inputs = tuple(t.name for t in a.inputs)

        for s in a.statements:
            for t in s.targets:
                if t.name in taken:
                    self.error(
                        "assigned-twice",
                        f"`{t.name}` is {taken[t.name]} and cannot be assigned",
                        t.span,
                        fix="every name is assigned once; choose a new name",
                    )
                self.speakable(t.name, "a name", t.span)
                taken[t.name] = "already assigned"
            try:
                if self.whole is None or any(t.name in self.needed for t in s.targets):
                    self.statement(s)
                else:
                    self.elsewhere(s, self.whole)
            except _Stop:
                for t in s.targets:  # later uses of a name that failed are not errors of their own
                    g.names.setdefault(t.name, g.make("unknown", (), t.name, t.axes or ()))
        for t in a.outputs:
            if t.name not in g.names:
                self.error("output-missing", f"output `{t.name}` is never assigned", t.span, fix=f"{t.name} = ...")
        if not a.outputs:
            self.error("no-output", "the kernel declares no output", a.span, fix="out y[...] bf16")
        g.outputs = {n: g.names[n] for n in self.writes if n in g.names}
        return g, self.diagnostics

    def elsewhere(self, s: Statement, whole: Graph) -> None:
        """A statement that this kernel does not compute: what it may read of it is in memory."""
        for t in s.targets:
            if t.name in self.stored:
                self.store(t.name, *whole.shapes[t.name], whole.names[t.name], whole)
                self.graph.lines.setdefault(self.graph.names[t.name], s.span)

    def statement(self, s: Statement) -> None:
        if isinstance(s.value, Call) and s.value.function == "quantize":
            self.quantize(s, s.value)
            return
        if len(s.targets) != 1:
            self.error(
                "two-results", "only quantize(x, dtype) has two results", s.span, legal="q, s = quantize(x, int8)"
            )
            raise _Stop
        target = self.merged(s.targets[0])
        value = s.value
        named = s.targets[0].dtype  # rule 9: a dtype on the sum itself; f32 and bf16 sums run in f32 and round once
        if named == "f16" and isinstance(value, Call) and value.function == "sum" and value.axes:
            term = self.reduction(value, accumulator=named)
        else:
            term = self.expr(value)
        if target.dtype:
            term = self.rounded(target, term, self.dtype(target.dtype, target.span))
        self.bind(target, term, s.span)

    def rounded(self, target: Tensor, term: Term, dtype: str) -> Term:
        """The term in the dtype of the name that it is assigned to."""
        axes = target.axes if target.axes is not None else term.axes
        return self.graph.cast(term, dtype, self.blocks(target.name, dtype, axes, target.span))

    def blocks(self, name: str, dtype: str, axes: tuple[str, ...], span: Span) -> str:
        """The axis along which a block format has its scales: the last one in memory. "" for any other dtype."""
        if dtype not in BLOCK_DTYPES:
            return ""
        if axes:
            return axes[-1]
        self.error(
            "block-dtype",
            f"`{name}` is a scalar, and {dtype} has a scale for {BLOCK_DTYPES[dtype]} elements of an axis",
            span,
            legal="f32 f16 bf16 e4m3 e5m2",
        )
        return ""

    def merged(self, target: Tensor) -> Tensor:
        """An output's axes and dtype may stand at its declaration, at its statement, or both alike."""
        declared = self.out.get(target.name)
        if declared is None:
            return target
        for what, mine, theirs in (("axes", target.axes, declared.axes), ("dtype", target.dtype, declared.dtype)):
            if mine and theirs and (set(mine) != set(theirs) if what == "axes" else mine != theirs):
                self.error(
                    "output-mismatch",
                    f"`{target.name}` has other {what} here than where it is declared",
                    target.span,
                    fix="omit them here",
                )
        # the declaration fixes the memory order
        return Tensor(target.name, declared.axes or target.axes, declared.dtype or target.dtype, target.span)

    def bind(self, target: Tensor, term: Term, span: Span) -> None:
        g = self.graph
        axes = target.axes if target.axes is not None else term.axes
        extra = [x for x in term.axes if x not in axes]
        missing = [x for x in axes if x not in term.axes]
        shape = " ".join(term.axes)
        if extra:
            names = ", ".join(extra)
            self.error(
                "axis-left-over",
                f"the right side of `{target.name}` still has axis {names}, the left side has not",
                target.span,
                legal=f"{target.name}[{shape}]",
                fix=f"reduce over {names}, or add it on the left",
            )
        if missing:
            names = ", ".join(missing)
            unknown = [m for m in missing if m not in g.axes]
            if unknown:
                self.unknown("axis", unknown[0], tuple(g.axes), target.span)
            else:
                self.error(
                    "axis-missing",
                    f"the right side of `{target.name}` has no axis {names}",
                    target.span,
                    legal=f"{target.name}[{shape}]",
                    fix="only operands broadcast; remove it on the left",
                )
        # rule 17: f32 where nothing was declared; what is no float stays what it is
        dtype = target.dtype or (term.dtype if term.dtype in ("bool", "i32") else "f32")
        g.shapes[target.name] = (axes, dtype)
        if target.name in self.stored:
            self.store(target.name, axes, dtype, term, g)
        else:
            if target.name in self.writes:
                g.tensors[target.name] = (axes, dtype)
            g.names[target.name] = term
        g.lines.setdefault(g.names[target.name], span)

    def store(self, name: str, axes: tuple[str, ...], dtype: str, term: Term, of: Graph) -> None:
        """A name that another kernel writes, an input of this one. `term`: its value, in the graph `of`."""
        g = self.graph
        g.shapes[name] = g.tensors[name] = (axes, dtype)
        g.undeclared |= {name} if not term.declared else set()
        g.bottomless |= {name} if bottomless(of, term) else set()
        g.masked |= {name} if bottomless(of, term, inputs=False) else set()
        g.names[name] = g.make("input", (), name, axes, dtype)

    def quantize(self, s: Statement, call: Call) -> None:
        """Rule 12: s = amax / L over the axes or blocks that s lacks; q = x / s, rounded half to even."""
        g = self.graph
        if len(s.targets) != 2 or len(call.args) != 2 or not isinstance(call.args[1], Name):
            self.error(
                "quantize-form",
                "quantize gives two results from a value and a dtype",
                s.span,
                legal="q8[b h m d], qs[b h mb] = quantize(x, int8, limit=127)",
            )
            raise _Stop
        q, scale = (self.merged(t) for t in s.targets)
        dtype = call.args[1].id
        if dtype not in QUANTIZE_LIMITS:
            self.unknown("quantised dtype", dtype, tuple(QUANTIZE_LIMITS), call.args[1].span)
            raise _Stop
        x = self.expr(call.args[0])
        limit = dict(call.keywords).get("limit")
        bound = self.expr(limit) if limit is not None else g.const(QUANTIZE_LIMITS[dtype])
        kept = scale.axes or ()
        axes, within = [], []
        for a in x.axes:
            coarse = next((c for c in kept if g.coarse_over(c, a)), "")
            if a not in kept:
                axes.append(a)
                within.append(coarse)
        amax = g.reduce("max", g.map("abs", x), tuple(axes), tuple(within)) if axes else g.map("abs", x)
        step = g.map("where", g.map("==", amax, g.const(0.0)), g.const(1.0), g.map("/", amax, bound))
        if scale.dtype:
            step = g.cast(step, self.dtype(scale.dtype, scale.span))
        self.bind(scale, step, s.span)
        scaled = g.map("/", x, step)
        self.bind(Tensor(q.name, q.axes, dtype, q.span), self.rounded(q, scaled, dtype), s.span)

    # Expressions --------------------------------------------------------------------------------------------------

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
            except _Stop:
                failed = True
        if failed:
            raise _Stop
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
        if e.id in later:
            self.error("used-before", f"`{e.id}` is used before it is assigned", e.span, fix="move its line up")
        else:
            self.unknown("name", e.id, known, e.span)
        raise _Stop

    def read(self, e: Read) -> Term:
        g = self.graph
        tensor = self.name(Name(e.tensor, e.span))
        if tensor.op in ("index", "extent", "param"):
            self.error("not-a-tensor", f"`{e.tensor}` is no tensor and cannot be read by position", e.span)
            raise _Stop
        axes = g.shapes[e.tensor][0] if e.tensor in g.shapes else tensor.axes
        if len(e.indices) != len(axes):
            self.error(
                "read-rank",
                f"`{e.tensor}` has {len(axes)} axes ({' '.join(axes)}), read with {len(e.indices)}",
                e.span,
                fix=f"{e.tensor}[{' '.join(axes)}] with one index for each",
            )
            raise _Stop
        indices = self.both(*e.indices)
        for i, term in zip(e.indices, indices, strict=True):
            if term.dtype not in ("i32", "int8"):
                self.error(
                    "read-index",
                    "an index must be an integer",
                    i.span,
                    fix="an axis, an integer tensor or integer arithmetic",
                )
                raise _Stop
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
            raise _Stop
        if e.keywords:
            self.error(
                "keyword",
                f"`{f}` takes no keyword",
                e.span,
                fix=f"{f}[n](x) reduces over axis n" if f in REDUCTIONS else "",
            )
            raise _Stop
        if e.axes is not None:
            if f in REDUCTIONS:
                return self.reduction(e)
            if f in SCANS or f in SELECTIONS or f in COLLECTIVES:
                return self.bracketed(e)
            if f in ARITY or f in DTYPES:
                self.error("bracket", f"`{f}` works element by element and takes no axis", e.span, fix=f"{f}(x)")
                raise _Stop
        if f in BLOCK_DTYPES:
            self.error(
                "block-dtype",
                f"`{f}` is no function: its blocks of {BLOCK_DTYPES[f]} lie along the last axis of a name",
                e.span,
                fix=f"a line of its own: xq[m k] {f} = x",
            )
            raise _Stop
        if f in DTYPES:
            self.arity(e, 1)
            return g.cast(self.expr(e.args[0]), f)
        if (f in ("max", "min") and len(e.args) == 1) or (f in REDUCTIONS and f not in ARITY):
            self.error("reduction-axis", f"`{f}` needs the axis that it reduces", e.span, legal=f"{f}[n](x)")
            raise _Stop
        if f not in ARITY:
            if f in FUNCTIONS:
                self.error("reduction-axis", f"`{f}` needs its axes in brackets", e.span, legal=f"{f}[n](x)")
            else:
                self.unknown("function", f, FUNCTIONS, e.span)
            raise _Stop
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
            raise _Stop

    def reduction(self, e: Call, accumulator: str = "") -> Term:
        g, f = self.graph, e.function
        self.arity(e, 1)
        x = self.expr(e.args[0])
        axes, within = [], []
        for a in e.axes or ():
            if a.axis not in g.axes:
                self.unknown("axis", a.axis, tuple(g.axes), a.span)
                raise _Stop
            if a.axis not in x.axes:
                self.error(
                    "axis-absent",
                    f"{f}[{a.axis}]: the operand has no axis `{a.axis}`",
                    a.span,
                    legal="an axis of the operand: " + " ".join(x.axes),
                )
                raise _Stop
            if a.within is not None and not g.coarse_over(a.within, a.axis):
                self.error(
                    "not-a-block",
                    f"`{a.within}` is not coarse over `{a.axis}`",
                    a.span,
                    fix=f"axis {a.within} = {a.axis} // 64",
                )
                raise _Stop
            axes.append(a.axis)
            within.append(a.within or "")
        over, blocks = tuple(axes), tuple(within)
        if f == "argmax" and len(over) != 1:
            self.error("one-axis", "`argmax` takes one axis", e.span, legal="argmax[n](x)")
            raise _Stop
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
            if a.axis not in g.axes:
                self.unknown("axis", a.axis, tuple(g.axes), a.span)
                raise _Stop
        axes = tuple(a.axis for a in e.axes or ())
        if f in SELECTIONS:
            self.arity(e, 2)
            x, k = self.both(*e.args)
            if len(axes) != 1 or axes[0] not in x.axes:
                self.error("axis-absent", f"{f} takes one axis of its operand", e.span, legal=" ".join(x.axes))
                raise _Stop
            if k.axes or k.dtype != "i32":
                self.error(
                    "topk-count", f"{f} takes how many as a scalar integer", e.span, legal=f"{f}[n](x, 5 * N // 100)"
                )
                raise _Stop
            return g.make("select", (x, k), (f, axes[0]), x.axes, "bool")
        self.arity(e, 1)
        x = self.expr(e.args[0])
        if f in SCANS:
            a = (e.axes or ())[0]
            if len(axes) != 1 or a.axis not in x.axes:
                self.error("axis-absent", f"{f} takes one axis of its operand", e.span, legal=" ".join(x.axes))
                raise _Stop
            if a.within and not g.coarse_over(a.within, a.axis):
                self.error(
                    "not-a-block",
                    f"`{a.within}` is not coarse over `{a.axis}`",
                    a.span,
                    fix=f"axis {a.within} = {a.axis} // 64",
                )
                raise _Stop
            if f == "runsum" and a.within:  # the sum up to the end of each block
                x = g.reduce("sum", x, axes, (a.within,))
                return g.make("scan", (x,), (f, a.within, ""), x.axes, x.dtype if x.dtype == "i32" else "f32")
            result = tuple((a.within or a.axis) if x_ == a.axis else x_ for x_ in x.axes)
            return g.make("scan", (x,), (f, a.axis, a.within or ""), result, "i32" if x.dtype in INTEGERS else "f32")
        if not g.rank or axes[:1] != (g.rank,):
            self.error("no-rank", f"{f} needs the rank axis first", e.span, legal=f"rank r, then {f}[r ...](x)")
            raise _Stop
        if g.rank not in x.axes:
            self.error("axis-absent", f"{f}[{g.rank}]: the operand is not sharded on `{g.rank}`", e.span)
            raise _Stop
        other = axes[1] if len(axes) > 1 else ""
        if (f == "all_reduce") == bool(other):
            self.error("collective-form", f"{f} takes {'one axis' if f == 'all_reduce' else 'two axes'}", e.span)
            raise _Stop
        result = {
            "all_reduce": tuple(a for a in x.axes if a != g.rank),
            "reduce_scatter": tuple(g.rank if a == other else a for a in x.axes if a != g.rank),
            "all_to_all": tuple({g.rank: other, other: g.rank}.get(a, a) for a in x.axes),
            "all_gather": tuple(other if a == g.rank else a for a in x.axes),
        }[f]
        return g.make("collective", (x,), (f, g.rank, other), result, x.dtype)

    def speakable(self, name: str, what: str, span: Span) -> None:
        """Whether Python can say the name: it stands as it is in the module that comes out."""
        if keyword.iskeyword(name) or name in MODULE_NAMES:
            means = "is a word of Python" if keyword.iskeyword(name) else "has a meaning in the module that comes out"
            self.error("name-reserved", f"`{name}` {means} and cannot be {what}", span, fix=f"`{name}_`")
        axis = name.lower()
        if name == axis.upper() and axis != name and axis in self.graph.axes:
            message = f"`{name}` is the extent of axis `{axis}` and cannot be {what}"
            self.error("name-clash", message, span, fix="give it another name")

    # Diagnostics --------------------------------------------------------------------------------------------------

    def dtype(self, name: str, span: Span) -> str:
        if name not in DTYPES:
            self.unknown("dtype", name, DTYPES, span)
            return "f32"
        return name

    def unknown(self, what: str, name: str, known: tuple[str, ...], span: Span) -> None:
        near = nearest(name, known)
        self.error(
            "unknown-" + what.split()[-1],
            f"unknown {what} `{name}`",
            span,
            legal=", ".join(dict.fromkeys(known)),
            fix=f"`{near}`" if near else "",
        )

    def error(self, rule: str, message: str, span: Span, legal: str = "", fix: str = "") -> None:
        self.diagnostics.append(Diagnostic(rule, message, span, legal, fix))
