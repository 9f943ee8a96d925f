"""From the syntax tree to the term DAG: names, axes and dtypes resolved, everything wrong reported at once."""

from __future__ import annotations

import keyword
import re

from dsl.algebra import bottomless
from dsl.assembly import walk
from dsl.diagnostics import Diagnostic
from dsl.expressions import Expressions, Stop
from dsl.schedule import kernels_of
from dsl.syntax import Algorithm, Call, Name, Program, Read, Span, Statement, Tensor
from dsl.terms import BLOCK_DTYPES, Axis, Graph, Term

QUANTIZE_LIMITS = {"int8": 127.0, "e4m3": 448.0, "e5m2": 57344.0, "mxfp4": 6.0, "nvfp4": 6.0}
_DERIVED = re.compile(r"pid\d*|\w+_ptr|BLOCK_\w+")  # names that the module makes of others
MODULE_NAMES = ("torch", "triton", "tl", "math", "TensorDescriptor", "device", "programs", "tuple")


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


class _Elaborator(Expressions):
    def __init__(self, program: Program, kernel: int | None) -> None:
        super().__init__(program.algorithm, Graph(rank=program.algorithm.rank))
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
            except Stop:
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
            raise Stop
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
        if placed := [a for a in target.axes or () if a in self.graph.tensors]:
            self.error(
                "write-by-position",
                f"`{placed[0]}` is a tensor, and the left side names axes: nothing is written by position",
                target.span,
                fix=f"gather what belongs to each place: {target.name}[v d] = sum[t](where({placed[0]} == v, x, 0.0))",
            )
            raise Stop
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
            raise Stop
        q, scale = (self.merged(t) for t in s.targets)
        dtype = call.args[1].id
        if dtype not in QUANTIZE_LIMITS:
            self.unknown("quantised dtype", dtype, tuple(QUANTIZE_LIMITS), call.args[1].span)
            raise Stop
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

    def derived(self, name: str) -> bool:
        """Whether the module that comes out has it, made of another name."""
        return name == f"{self.algorithm.name}_kernel" or _DERIVED.fullmatch(name) is not None

    def speakable(self, name: str, what: str, span: Span) -> None:
        """Whether Python can say the name: it stands as it is in the module that comes out."""
        if keyword.iskeyword(name) or name in MODULE_NAMES or self.derived(name):
            means = "is a word of Python" if keyword.iskeyword(name) else "has a meaning in the module that comes out"
            self.error("name-reserved", f"`{name}` {means} and cannot be {what}", span, fix=f"`{name}_`")
        axis = name.lower()
        if name == axis.upper() and axis != name and axis in self.graph.axes:
            message = f"`{name}` is the extent of axis `{axis}` and cannot be {what}"
            self.error("name-clash", message, span, fix="give it another name")
