"""The term DAG: what a program computes, typed and hash-consed, without any schedule (level 1 of the way down).

Equal terms are one object, so identity is equality. Compound functions (softmax, mean, quantize) are expanded here;
a value's axes and dtype are facts of its term.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dsl.syntax import Expr, Param, Span

FLOATS = ("f32", "f16", "bf16", "e4m3", "e5m2", "f64")
INTEGERS = ("i32", "int8", "bool")
BLOCK_DTYPES = {"mxfp4": 32, "nvfp4": 16}  # elements of a scale, along the last axis of the name that declares it
DTYPES = ("f32", "f16", "bf16", "e4m3", "e5m2", "int8", "i32", "bool", "mxfp4", "nvfp4")

# op             args                       attr
# input          -                          tensor name (an input, or what an earlier kernel stored)
# const          -                          a number or a bool
# extent         -                          axis: its length
# ratio          -                          coarse axis: how many fine indices share one coarse index
# param          -                          name
# index          -                          axis: its i32 position
# map            operands                   function
# cast           x                          dtype: rounds half to even, the narrow saturate; "mxfp4[k]": k has blocks
# reduce         x                          (kind, axes, within, accumulator dtype or ""); "" in within: whole
# scan           x                          (kind, axis, block axis or "")
# select         x, k                       (topk | bottomk, axis)
# refine         x                          (coarse, fine): x's coarse axis read at fine // ratio
# read           tensor, index...           - : by position, out of range reads 0
# collective     x                          (kind, rank axis, other axis or "")


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """One node. `axes` in the order of first mention; `dtype` of the value (f32 where nothing was declared).

    `declared` says that the dtype was named, so that a contraction takes the value as it is (rule 11).
    """

    op: str
    args: tuple[Term, ...]
    attr: Any
    axes: tuple[str, ...]
    dtype: str
    declared: bool = False

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args))
        attr = "" if self.attr is None else f"[{self.attr}]"
        return f"{self.op}{attr}({inner})" if self.args else f"{self.op}{attr}"

    def walk(self) -> Iterator[Term]:
        """Every term below and including this one, once, operands first."""
        seen: set[Term] = set()
        done: set[Term] = set()
        stack = [self]
        while stack:
            term = stack[-1]
            if term not in seen and term.args:
                seen.add(term)
                stack.extend(term.args[::-1])
                continue
            stack.pop()
            if term not in done:
                done.add(term)
                yield term


@dataclass(frozen=True)
class Axis:
    """`fine` and `ratio`: coarse over another axis (`g = h // ratio`). `free`: extent from an expression."""

    name: str
    fine: str | None = None
    ratio: Expr | None = None
    free: Expr | None = None

    @property
    def extent(self) -> str:
        return self.name.upper()


@dataclass
class Graph:
    """A kernel's algorithm as terms. `tensors`: axes and dtype of everything stored in memory that it reads or writes.

    `names`: the term of each statement's left side; `shapes`: the axes of each name as its line orders them, and the
    dtype that it is stored in; `lines`: where each term was first written. Of what is stored,
    `bottomless` may hold -inf, in `masked` a mask puts it there, and the lines of `undeclared` name no dtype, so that
    storing them changes nothing.
    """

    axes: dict[str, Axis] = field(default_factory=dict)
    params: dict[str, Param] = field(default_factory=dict)
    tensors: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: dict[str, Term] = field(default_factory=dict)
    names: dict[str, Term] = field(default_factory=dict)
    shapes: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    lines: dict[Term, Span] = field(default_factory=dict)
    rank: str | None = None
    bottomless: set[str] = field(default_factory=set)
    masked: set[str] = field(default_factory=set)
    undeclared: set[str] = field(default_factory=set)
    _interned: dict[tuple[Any, ...], Term] = field(default_factory=dict, repr=False)

    def make(
        self, op: str, args: tuple[Term, ...] = (), attr: Any = None, axes: tuple[str, ...] = (), dtype: str = "f32"
    ) -> Term:
        """The one term with these parts. `declared` follows from the op."""
        # 1, 1.0 and True are equal in Python and must not become one constant
        key = (op, tuple(map(id, args)), attr, type(attr).__name__)
        term = self._interned.get(key)
        if term is None:
            declared = op in ("input", "cast", "read") and attr not in self.undeclared
            declared = declared or (op == "reduce" and bool(attr[3]))
            if op == "refine":
                declared = args[0].declared
            term = Term(op, args, attr, axes, dtype, declared)
            self._interned[key] = term
        return term

    def copy(self) -> Graph:
        """The same terms in a graph that may grow on its own."""
        return replace(
            self,
            axes=dict(self.axes),
            params=dict(self.params),
            tensors=dict(self.tensors),
            outputs=dict(self.outputs),
            names=dict(self.names),
            shapes=dict(self.shapes),
            lines=dict(self.lines),
            bottomless=set(self.bottomless),
            masked=set(self.masked),
            undeclared=set(self.undeclared),
            _interned=dict(self._interned),
        )

    # Small constructors, used by elaboration and by the rewrites of the lowering.

    def const(self, value: int | float | bool) -> Term:
        dtype = "bool" if isinstance(value, bool) else "i32" if isinstance(value, int) else "f32"
        return self.make("const", (), value, (), dtype)

    def extent(self, axis: str) -> Term:
        return self.make("extent", (), axis, (), "i32")

    def index(self, axis: str) -> Term:
        return self.make("index", (), axis, (axis,), "i32")

    def coarse_over(self, coarse: str, fine: str) -> bool:
        """Whether `coarse` is `fine // r`, directly or through a chain."""
        axis = self.axes.get(coarse)
        while axis is not None and axis.fine is not None:
            if axis.fine == fine:
                return True
            axis = self.axes.get(axis.fine)
        return False

    def align(self, *terms: Term) -> tuple[tuple[Term, ...], tuple[str, ...]]:
        """Rule 3: where operands carry both a coarse and its fine axis, the coarse one is read at the fine one."""
        union = list(dict.fromkeys(a for t in terms for a in t.axes))
        fine_of: dict[str, str] = {}
        for c in union:
            if c not in self.axes or self.axes[c].fine is None:
                continue
            # the finest axis present, so that chains end where the operator's result does
            for f in union:
                if self.coarse_over(c, f) and (c not in fine_of or self.coarse_over(fine_of[c], f)):
                    fine_of[c] = f
        if not fine_of:
            return terms, tuple(union)
        aligned = tuple(self.refine(t, fine_of) for t in terms)
        axes = tuple(a for a in union if a not in fine_of)
        return aligned, axes

    def refine(self, term: Term, fine_of: dict[str, str]) -> Term:
        for c, f in fine_of.items():
            if c in term.axes:
                rest = tuple(dict.fromkeys(f if a == c else a for a in term.axes))
                term = self.make("refine", (term,), (c, f), rest, term.dtype)
        return term

    def map(self, function: str, *args: Term) -> Term:
        aligned, axes = self.align(*args)
        return self.make("map", aligned, function, axes, result_dtype(function, tuple(a.dtype for a in aligned)))

    def cast(self, term: Term, dtype: str, along: str = "") -> Term:
        """`along`: the axis of the blocks, of a dtype that has them."""
        if term.op in ("input", "cast") and term.dtype == dtype:
            return term
        return self.make("cast", (term,), f"{dtype}[{along}]" if along else dtype, term.axes, dtype)

    def reduce(
        self, kind: str, term: Term, axes: tuple[str, ...], within: tuple[str, ...] = (), accumulator: str = ""
    ) -> Term:
        within = within or ("",) * len(axes)
        rest = [w if (w := dict(zip(axes, within, strict=True)).get(a, a)) else "" for a in term.axes]
        if kind in ("any", "all"):
            dtype = "bool"
        elif kind == "argmax":
            dtype = "i32"
        else:
            dtype = accumulator or ("i32" if term.dtype in ("i32", "int8", "bool") else "f32")
        if kind in ("max", "min") and term.dtype in FLOATS:
            dtype = "f32"
        remaining = tuple(dict.fromkeys(a for a in rest if a))
        return self.make("reduce", (term,), (kind, axes, within, accumulator), remaining, dtype)


COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
INTEGER_OPS = ("+", "-", "*", "//", "%", "neg", "min", "max", "clamp", "abs", "relu")


def result_dtype(function: str, dtypes: tuple[str, ...]) -> str:
    """bool for comparisons and logic; i32 where every operand is an integer and the function keeps them; else f32."""
    if function in COMPARISONS or function in ("and", "or", "not"):
        return "bool"
    if function == "where":
        dtypes = dtypes[1:]
        if all(d == "bool" for d in dtypes):
            return "bool"
        return "i32" if all(d in ("i32", "int8") for d in dtypes) else "f32"
    if function in INTEGER_OPS and all(d in ("i32", "int8", "bool") for d in dtypes):
        return "i32"
    return "f32"
