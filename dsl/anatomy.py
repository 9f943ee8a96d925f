"""What a schedule can cut: for each kernel its axes by the part they can play, its loads, contractions and masks.

Read off the term DAG, before any schedule is applied; the knobs, the checks and the footprint stand on these facts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dsl.elaborate import elaborate
from dsl.polynomial import exact_outputs
from dsl.schedule import kernels_of
from dsl.syntax import Algorithm, Number, Program, Schedule
from dsl.terms import Graph, Term
from dsl.tiling.roles import along

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Load:
    """A tensor that the kernel reads whole tiles of. `staged`: an operand of a contraction, so it passes through shared
    memory. `plain`: read by its axes, not by position. `moved_by`: the axes that move it, finer ones among them."""

    tensor: str
    axes: tuple[str, ...]
    dtype: str
    staged: bool
    plain: bool
    moved_by: frozenset[str]


@dataclass(frozen=True)
class Contraction:
    """`sum[inner](a * b)`: rows only in a, columns only in b, batch in both. Operand dtypes; "" where undeclared.

    tensors: which stored tensor each operand is; "" where it is computed, or read by position. loaded: whether it
    comes from memory as it is, by position too. chained: whether a product goes into it. last: the axis along which
    each lies, in memory or as it is computed. coarse: (block axis, axis) wherever a computed operand reads an input by
    blocks; ("", "") where by position.
    """

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    inner: tuple[str, ...]
    dtypes: tuple[str, str]
    tensors: tuple[str, str]
    loaded: tuple[bool, bool]
    chained: tuple[bool, bool]
    last: tuple[str, str]
    coarse: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
    after_exp: bool  # an operand comes out of an exponential

    @property
    def axes(self) -> tuple[str, ...]:
        return (*self.batch, *self.rows, *self.columns, *self.inner)

    @property
    def tiled(self) -> tuple[str, ...]:
        return (*self.rows, *self.columns, *self.inner)


@dataclass(frozen=True)
class Anatomy:
    """One kernel of a program, whatever its schedule.

    outputs: the axes of what it writes, in order. held: those of them that a reduction also runs over, so that no grid
    can cut them. ordered: axes that a scan, an argmax or a selection goes along, so that a tile holds all of them.
    inner: reduced axes that a loop of their own can walk, within the one over the stream.
    streamable: reduced axes that a loop can walk (a held one twice: to reduce, then to write). within: axes reduced
    only inside the block of a coarser output axis. axes: all that a schedule may name. blocks: axis -> length of its
    blocks, where a running maximum fixes it (None: not a plain number).
    """

    writes: tuple[str, ...]
    axes: tuple[str, ...]
    outputs: tuple[str, ...]
    held: tuple[str, ...]
    reduced: tuple[str, ...]
    streamable: tuple[str, ...]
    ordered: tuple[str, ...]
    inner: tuple[str, ...]
    within: tuple[str, ...]
    blocks: tuple[tuple[str, int | None], ...]
    loads: tuple[Load, ...]
    stores: tuple[tuple[tuple[str, ...], str], ...]
    contractions: tuple[Contraction, ...]
    products: tuple[Contraction, ...]  # contractions of a tile that lies in one block of every block axis
    pivots: tuple[str, ...]  # axes with a maximum that is only subtracted before an exponential
    exponentials: bool
    exact_outputs: tuple[str, ...]  # those in which a polynomial exponential's error would show
    masked: tuple[tuple[str, str], ...]  # (grid axis, reduced axis) compared with each other
    selectors: tuple[tuple[str, tuple[str, ...]], ...]  # bool name -> axes over which a false leaves all sums alone
    booleans: tuple[str, ...]
    collectives: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]  # axes of every value, for the size of the largest tile
    scans: tuple[tuple[tuple[str, ...], str], ...]  # axes of what a whole axis is scanned in, and that axis
    graph: Graph

    def batch(self) -> frozenset[str]:
        """Axes that every contraction which has them carries through: tiles of one, in a contraction."""
        return frozenset(a for c in self.contractions for a in c.batch)


@lru_cache(maxsize=256)
def _anatomies(program: Program) -> tuple[Anatomy, ...]:
    return tuple(_anatomy(program, k) for k in range(len(kernels_of(program))))


def anatomies(program: Program) -> tuple[Anatomy, ...]:
    """Of every kernel, in the order of `kernels_of`. The algorithm must be free of errors. Cached by algorithm."""
    kernels = program.schedule.kernels
    known = _recent.get((id(program.algorithm), kernels))
    if known is None or known[0] is not program.algorithm:
        found = _anatomies(replace(program, schedule=Schedule(kernels)))
        if len(_recent) > 1000:
            _recent.clear()
        known = _recent[id(program.algorithm), kernels] = (program.algorithm, found)
    return known[1]


# Hashing a whole algorithm costs more than all else that an edit of the schedule asks for: the object itself first.
_recent: dict[tuple[int, tuple[tuple[str, ...], ...]], tuple[Algorithm, tuple[Anatomy, ...]]] = {}


def _anatomy(program: Program, kernel: int) -> Anatomy:
    graph, _ = elaborate(program, kernel)
    writes = kernels_of(program)[kernel]
    terms = _reachable(graph)
    ordered = _unique(a for t in terms if (a := along(t)))
    outputs = _unique(a for w in writes if w in graph.outputs for a in graph.tensors[w][0])
    sums = [t for t in terms if t.op == "reduce"]
    scans = [t for t in terms if t.op in ("scan", "select")]
    over = _unique([*(a for t in sums for a in t.attr[1]), *(t.attr[1] for t in scans)])
    finer = {c: [f for f in (*outputs, *over) if graph.coarse_over(c, f)] for c in (*outputs, *over)}
    reduced = tuple(a for a in over if not finer[a])
    whole = {a for t in sums for a, w in zip(t.attr[1], t.attr[2], strict=True) if not w}
    whole |= {t.attr[1] for t in scans if t.op == "select" or not t.attr[2]}
    held = tuple(a for a in outputs if a in whole)
    blocks = {
        t.attr[1]: _ratio(program, t.attr[2]) for t in scans if t.op == "scan" and t.attr[2] and t.attr[0] == "runmax"
    }
    cut = {a for a in outputs if _ratio(program, a)}  # blocks of a fixed length
    outermost = _outermost(graph, sums, cut)
    contractions = _unique(c for t in sums if (c := contraction(t)) is not None)
    products = _unique(c for t in sums if (c := contraction(t, of_blocks=True)) is not None)
    return Anatomy(
        writes=writes,
        axes=_unique((*outputs, *reduced)),
        outputs=outputs,
        held=held,
        reduced=reduced,
        streamable=tuple(a for a in outermost if a in reduced and (a not in outputs or a in held) and a not in ordered),
        ordered=ordered,
        inner=tuple(a for a in reduced if a in whole and a not in (*outputs, *ordered)),
        within=tuple(a for a in reduced if a not in whole and a not in outputs),
        blocks=tuple(blocks.items()),
        loads=_loads(graph, terms, sums),
        stores=tuple(graph.tensors[w] for w in writes if w in graph.outputs),
        contractions=contractions,
        products=products,
        pivots=_pivots(terms),
        exponentials=any(t.op == "map" and t.attr in ("exp", "exp2") for t in terms),
        exact_outputs=exact_outputs(graph),
        masked=_masked(terms, reduced),
        selectors=_selectors(graph, sums),
        booleans=tuple(n for n, t in graph.names.items() if t.dtype == "bool"),
        collectives=_unique(t.attr[0] for t in terms if t.op == "collective"),
        values=_values(terms, sums),
        scans=_unique((t.axes, t.attr[1]) for t in scans if t.op == "scan" and not t.attr[2]),
        graph=graph,
    )


def _reachable(graph: Graph) -> tuple[Term, ...]:
    return _unique(t for out in graph.outputs.values() for t in out.walk())


def _unique(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(items))


def _ratio(program: Program, coarse: str) -> int | None:
    value = next((a.value for a in program.algorithm.axes if a.name == coarse), None)
    return value.value if isinstance(value, Number) and isinstance(value.value, int) else None


def _outermost(graph: Graph, sums: list[Term], cut: set[str]) -> tuple[str, ...]:
    """Axes of the reductions that no reduction over other axes encloses: one loop over such an axis meets them all.

    cut: block axes of a fixed length that the grid may cut, so that a loop can walk one block.
    """
    inside: set[Term] = set()
    for outer in sums:
        axes = set(outer.attr[1])
        for t in outer.args[0].walk():
            if t.op == "reduce" and not (axes & set(_fine(graph, t.attr[1], axes))):
                inside.add(t)
    over = {a for t in sums for a in t.attr[1]}
    pairs = [pair for t in sums if t not in inside for pair in zip(t.attr[1], t.attr[2], strict=True)]
    return _unique(a for a, block in pairs if not block or block in over or block in cut)


def _fine(graph: Graph, axes: tuple[str, ...], known: set[str]) -> tuple[str, ...]:
    """The axes, and those of `known` that are coarse over one of them or the other way round."""
    related = {k for k in known for a in axes if graph.coarse_over(k, a) or graph.coarse_over(a, k)}
    return (*axes, *related)


def _factors(term: Term) -> list[Term]:
    if term.op == "map" and term.attr == "*":
        return [f for a in term.args for f in _factors(a)]
    return [term]


def _declared(term: Term) -> str:
    """The dtype that a contraction takes this operand in; "" where none was declared."""
    while term.op == "refine":
        term = term.args[0]
    return term.dtype if term.declared else ""


def _stored(term: Term) -> str:
    while term.op in ("refine", "cast"):
        term = term.args[0]
    return term.attr if term.op == "input" else ""


def _loaded(term: Term) -> bool:
    while term.op in ("refine", "cast"):
        term = term.args[0]
    return term.op == "input" or (term.op == "read" and term.args[0].op == "input")


def _own_axes(term: Term) -> tuple[str, ...]:
    """The axes of an operand as it is stored: those of a block, where it is one block's for all its fine positions."""
    fine = set()
    while term.op in ("refine", "cast"):
        fine |= {term.attr[1]} if term.op == "refine" else set()
        term = term.args[0]
    return tuple(a for a in term.axes if a not in fine)


def contraction(t: Term, of_blocks: bool = False) -> Contraction | None:
    """The contraction that this term is: a sum of products of two factors, each with an axis that the other lacks.

    of_blocks: within a tile that lies in one block, so that a factor which is the same for the whole block has no fine
    axis (the weights of a grouped product); `after_exp` is not asked then.
    """
    found = _factored(t, of_blocks)
    if found is None:
        return None
    operands, a, b = found
    left, right = (_own_axes(a), _own_axes(b)) if of_blocks else (a.axes, b.axes)
    after = not of_blocks and any(x.op == "map" and x.attr in ("exp", "exp2") for f in operands for x in f.walk())
    return Contraction(
        batch=tuple(x for x in left if x in right and x not in t.attr[1]),
        rows=tuple(x for x in left if x not in right),
        columns=tuple(x for x in right if x not in left),
        inner=tuple(t.attr[1]),
        dtypes=(_declared(a), _declared(b)),
        tensors=(_stored(a), _stored(b)),
        loaded=(_loaded(a), _loaded(b)),
        chained=(_chained(a), _chained(b)),
        last=(_own_axes(a)[-1], _own_axes(b)[-1]),
        coarse=(_coarse(a), _coarse(b)),
        after_exp=after,
    )


def _factored(t: Term, of_blocks: bool = False) -> tuple[list[Term], Term, Term] | None:
    """All factors of what is summed, and the two that make it a contraction."""
    if t.op != "reduce" or t.attr[0] != "sum":
        return None
    inner = set(t.attr[1])
    operands = [f for f in _factors(t.args[0]) if f.axes]
    full = [f for f in operands if inner <= set(f.axes)]
    for i, a in enumerate(full):
        for b in full[i + 1 :]:
            left, right = (_own_axes(a), _own_axes(b)) if of_blocks else (a.axes, b.axes)
            if set(left) - set(right) and set(right) - set(left):
                return operands, a, b
    return None


def _coarse(term: Term) -> tuple[tuple[str, str], ...]:
    if _loaded(term):
        return ()
    return _unique(("", "") if t.op == "read" else t.attr for t in term.walk() if t.op in ("read", "refine"))


def _chained(term: Term) -> bool:
    return not _loaded(term) and any(_factored(t) is not None for t in term.walk())


def _values(terms: tuple[Term, ...], sums: list[Term]) -> tuple[tuple[str, ...], ...]:
    """Axes of what a tile computes; the products inside a contraction never exist as values."""
    products: set[Term] = set()
    for t in sums:
        if contraction(t) is not None:
            stack = [t.args[0]]
            while stack:
                x = stack.pop()
                if x.op == "map" and x.attr == "*":
                    products.add(x)
                    stack.extend(x.args)
    return _unique(t.axes for t in terms if t.axes and t not in products)


def _loads(graph: Graph, terms: tuple[Term, ...], sums: list[Term]) -> tuple[Load, ...]:
    staged = {name for t in sums if (c := contraction(t)) is not None for name in c.tensors}
    moved: dict[Term, set[str]] = {}
    plain = {a for t in terms if t.op != "read" for a in t.args}
    for t in terms:
        if t.op == "input":
            moved.setdefault(t, set()).update(t.axes)
        elif t.op == "refine":
            base = t
            while base.op in ("refine", "cast"):
                base = base.args[0]
            if base.op == "input":
                moved.setdefault(base, set()).add(t.attr[1])
    return tuple(Load(t.attr, t.axes, t.dtype, t.attr in staged, t in plain, frozenset(m)) for t, m in moved.items())


def _pivots(terms: tuple[Term, ...]) -> tuple[str, ...]:
    """Axes of `max[a](x)` where some `exp(y - max)` subtracts it (rule 23 in full is the lowering's to prove)."""
    found: list[str] = []
    for t in terms:
        if t.op == "map" and t.attr in ("exp", "exp2"):
            for s in t.args[0].walk():
                if s.op == "map" and s.attr == "-":
                    m = s.args[1]
                    while m.op in ("refine", "cast"):
                        m = m.args[0]
                    if m.op == "reduce" and m.attr[0] == "max":
                        found += m.attr[1]
    return _unique(found)


def _masked(terms: tuple[Term, ...], reduced: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(axis, reduced axis) wherever a comparison relates the two positions: some blocks are masked, some not."""
    found = []
    for t in terms:
        if t.op == "map" and t.attr in ("<", "<=", ">", ">="):
            axes = [i.attr for i in t.walk() if i.op == "index"]
            found += [(a, r) for r in axes if r in reduced for a in axes if a not in reduced]
    return _unique(found)


# What a value is where the selector is false, as far as rule 29 needs it.
_ZERO, _LOWEST, _ANY = "zero", "-inf", "any"


def _selectors(graph: Graph, sums: list[Term]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Per bool name, the reduced axes over which skipping a tile of false values changes no reduction (rule 29)."""
    found = []
    for name, selector in graph.names.items():
        if selector.dtype == "bool":
            axes = _unique(a for t in sums for a in t.attr[1])
            good = tuple(a for a in axes if all(_neutral(t, selector) for t in sums if a in t.attr[1]))
            if good:
                found.append((name, good))
    return tuple(found)


def _neutral(reduction: Term, selector: Term) -> bool:
    at = _without(reduction.args[0], selector, {})
    return at == {"sum": _ZERO, "max": _LOWEST}.get(reduction.attr[0])


def _without(t: Term, selector: Term, seen: dict[Term, str]) -> str:
    """The value of t where `selector` is false: zero, -inf, or anything."""
    if t not in seen:
        seen[t] = _ANY  # overwritten below; a DAG has no cycle
        seen[t] = _abstract(t, selector, seen)
    return seen[t]


def _abstract(t: Term, selector: Term, seen: dict[Term, str]) -> str:
    if t.op == "const":
        return _ZERO if t.attr == 0 else _LOWEST if t.attr == -math.inf else _ANY
    if t.op in ("cast", "refine"):
        return _without(t.args[0], selector, seen)
    if t.op != "map":
        return _ANY
    if t.attr == "where":
        condition, yes, no = t.args
        while condition.op == "refine":
            condition = condition.args[0]
        if condition is selector:
            return _without(no, selector, seen)
        values = {_without(yes, selector, seen), _without(no, selector, seen)}
        return values.pop() if len(values) == 1 else _ANY
    args = [_without(a, selector, seen) for a in t.args]
    match t.attr:
        case "*" if _ZERO in args:
            return _ZERO
        case "/" | "softdiv" if args[0] == _ZERO:
            return _ZERO
        case "-" | "+" if args[0] == _LOWEST and args[1] != _LOWEST:
            return _LOWEST
        case "+" if args == [_ZERO, _ZERO]:
            return _ZERO
        case "exp" | "exp2" if args == [_LOWEST]:
            return _ZERO
    return _ANY
