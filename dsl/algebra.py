"""The algebra that lets a schedule change the order of things without changing the value.

Common factors move out of sums, a maximum that cancels may be replaced by a running one (rule 23), and what a false
mask leaves unchanged may be skipped (rule 29). Masks that bound a loop: `dsl.affine`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from dsl.terms import Graph, Term

LOW = ("e4m3", "e5m2", "int8", "i32", "bool", "mxfp4", "nvfp4")


def rebuild(graph: Graph, term: Term, args: tuple[Term, ...]) -> Term:
    """The same node over other operands of the same axes."""
    if all(a is b for a, b in zip(args, term.args, strict=True)):
        return term
    new = graph.make(term.op, args, term.attr, term.axes, term.dtype)
    if term in graph.lines:
        graph.lines.setdefault(new, graph.lines[term])
    return new


def move_factors(graph: Graph, outputs: Iterable[Term]) -> dict[Term, Term]:
    """Every term with the factors and divisors that a sum's axes do not touch moved out of that sum.

    sum[n](e / L * v) becomes sum[n](e * v) / L where L has no n. Sums in a declared dtype stay as they are.
    """
    done: dict[Term, Term] = {}
    for out in outputs:
        for term in out.walk():
            if term in done:
                continue
            new = rebuild(graph, term, tuple(done[a] for a in term.args))
            if new.op == "reduce" and new.attr[0] == "sum" and not new.attr[3]:
                new = _without_common_factors(graph, new)
            done[term] = new
            if term in graph.lines:
                graph.lines.setdefault(new, graph.lines[term])
    return done


def renamed(graph: Graph, term: Term, axes: Mapping[str, str]) -> Term:
    """A computed value with axes under other names, out of range reading 0: `t[m f]` of t[m e] (rule 7)."""
    live = {a: b for a, b in axes.items() if a in term.axes and a != b}
    if not live:
        return term
    if term.op == "input":
        new = tuple(live.get(a, a) for a in term.axes)
        return graph.make("read", (term, *(graph.index(a) for a in new)), term.axes, new, term.dtype)
    if term.op == "index":
        return graph.index(live[term.attr])
    if term.op == "read":
        tensor, *indices = term.args
        new_indices = [renamed(graph, i, live) for i in indices]
        union = tuple(dict.fromkeys(a for i in new_indices for a in i.axes))
        return graph.make("read", (tensor, *new_indices), term.attr, union, term.dtype)
    args = tuple(renamed(graph, a, live) for a in term.args)
    return graph.make(term.op, args, term.attr, tuple(live.get(a, a) for a in term.axes), term.dtype)


def resolve_reads(graph: Graph, outputs: Iterable[Term]) -> dict[Term, Term]:
    """Reads of computed values by plain axes become the values under those names; nothing is stored for them."""
    done: dict[Term, Term] = {}
    for out in outputs:
        for term in out.walk():
            if term in done:
                continue
            new = rebuild(graph, term, tuple(done[a] for a in term.args))
            if new.op == "read" and new.args[0].op != "input" and all(i.op == "index" for i in new.args[1:]):
                new = renamed(graph, new.args[0], {a: i.attr for a, i in zip(new.attr, new.args[1:], strict=True)})
            done[term] = new
    return done


def factors(term: Term) -> list[tuple[Term, str]]:
    """A product as its factors, each with "*", "/" or "softdiv"."""
    if term.op == "map" and term.attr == "*":
        return factors(term.args[0]) + factors(term.args[1])
    if term.op == "map" and term.attr in ("/", "softdiv"):
        return [*factors(term.args[0]), (term.args[1], term.attr)]
    return [(term, "*")]


def _without_common_factors(graph: Graph, term: Term) -> Term:
    kind, axes, within, accumulator = term.attr
    parts = factors(term.args[0])
    blocks = {w for w in within if w}

    def stays(t: Term) -> bool:
        # a factor over the block's axis was refined to the fine axis, so it still names the axis that is reduced
        return any(a in t.axes for a in axes)

    moved = [(t, how) for t, how in parts if not stays(t)]
    kept = [(t, how) for t, how in parts if stays(t)]
    if not moved or not kept or blocks & {a for t, _ in moved for a in t.axes}:
        return term
    inner: Term | None = None
    for t, how in kept:
        if inner is None:
            inner = t if how == "*" else graph.map(how, graph.const(1.0), t)
        else:
            inner = graph.map(how, inner, t)
    assert inner is not None
    result = graph.reduce(kind, inner, axes, within, accumulator)
    for t, how in moved:
        result = graph.map(how, result, t)
    return result


# Pivots ----------------------------------------------------------------------------------------------------------


class Weight(NamedTuple):
    """How a value follows its pivot x when x moves by d: by `add`*d, or by the factor exp(`mul`*d)."""

    add: int = 0
    mul: int = 0


def weights(pivot: Term, outputs: Iterable[Term]) -> dict[Term, Weight | None]:
    """The weight of every term in `pivot`; None where the value depends on it in another way (rule 23)."""
    found: dict[Term, Weight | None] = {}
    for out in outputs:
        for term in out.walk():
            if term not in found:
                found[term] = Weight(add=1) if term is pivot else _weight(term, [found[a] for a in term.args])
    return found


def _weight(term: Term, args: list[Weight | None]) -> Weight | None:
    if any(a is None for a in args):
        return None
    known = [a for a in args if a is not None]
    if all(a == Weight() for a in known):
        return Weight()
    if term.op in ("refine", "reduce", "cast"):
        (a,) = known
        if term.op == "cast" and term.dtype in LOW:
            return None
        if term.op == "reduce" and (term.attr[0] != "sum" or a.add or term.attr[3] in LOW):
            return None
        return a
    if term.op != "map":
        return None
    match term.attr:
        case "+" | "-":
            a, b = known
            if not a.mul and not b.mul:
                return Weight(add=a.add + (b.add if term.attr == "+" else -b.add))
            return a if a == b else None
        case "neg":
            return Weight(add=-known[0].add, mul=known[0].mul)
        case "*":
            a, b = known
            return None if a.add or b.add else Weight(mul=a.mul + b.mul)
        case "/" | "softdiv":
            a, b = known
            return None if a.add or b.add else Weight(mul=a.mul - b.mul)
        case "exp":
            return None if known[0].mul else Weight(mul=known[0].add)
        case "log":
            return None if known[0].add else Weight(add=known[0].mul)
        case "where":
            condition, a, b = known
            if condition != Weight():
                return None
            _, ta, tb = term.args
            # 0 follows any factor, -inf any shift
            if tb.op == "const" and ((tb.attr == 0 and not a.add) or (tb.attr == -math.inf and not a.mul)):
                return a
            if ta.op == "const" and ((ta.attr == 0 and not b.add) or (ta.attr == -math.inf and not b.mul)):
                return b
            return a if a == b else None
    return None


def pivots(
    outputs: Iterable[Term], axes: Iterable[str], blocks: Iterable[str] = ()
) -> dict[Term, dict[Term, Weight | None]]:
    """The maxima over `axes` that cancel in every output: each may be replaced by a running reference.

    blocks: block axes that one program has one index of, so that a maximum within them is one over all it walks.
    """
    inside = set(blocks)
    outs, walked = list(outputs), set(axes)
    found: dict[Term, dict[Term, Weight | None]] = {}
    for out in outs:
        for term in out.walk():
            if term in found or term.op != "reduce":
                continue
            kind, over, within, _ = term.attr
            if kind != "max" or not walked & set(over) or any(w and w not in inside for w in within):
                continue
            table = weights(term, outs)
            carried = [w for t, w in table.items() if t.op == "reduce" and walked & set(t.attr[1]) and t is not term]
            if all(table[o] == Weight() for o in outs) and all(w in (Weight(), Weight(mul=-1)) for w in carried):
                found[term] = table
    return found


# Constants in places -----------------------------------------------------------------------------------------------


def constant(term: Term, known: Callable[[Term], float | bool | None], axis: str = "") -> float | bool | None:
    """The value of `term` at those positions of `axis` where `known` fixes some of its leaves, or None.

    A reduction over `axis` itself is not at such a position. 0 times anything finite is 0 (rule 15).
    """
    memo: dict[Term, float | bool | None] = {}
    for t in term.walk():
        memo[t] = known(t)
        if memo[t] is None and not (t.op == "reduce" and axis in t.attr[1]):
            memo[t] = _fold(t, [memo[a] for a in t.args])
    return memo[term]


def _fold(t: Term, args: list[float | bool | None]) -> float | bool | None:
    if t.op == "const":
        return t.attr
    if t.op in ("cast", "refine"):
        return args[0]
    if t.op == "reduce":
        kind = t.attr[0]
        return args[0] if kind in ("max", "min", "any", "all") or (kind == "sum" and args[0] == 0) else None
    if t.op != "map":
        return None
    match t.attr, args:
        case "*", [a, b]:
            if (a == 0 or b == 0) and all(v is not None or finite(x) for v, x in zip((a, b), t.args, strict=True)):
                return 0.0
        case "/" | "softdiv", [a, b]:
            if a == 0 and b is None and t.attr == "softdiv":
                return 0.0
        case "-" | "+", [a, b]:
            if a == -math.inf and b is None:
                return -math.inf
        case "where", [c, a, b]:
            if c is not None:
                return a if c else b
            if a is not None and a == b:
                return a
            return None
        case "and", [a, b] if a is False or b is False:
            return False
        case "or", [a, b] if a is True or b is True:
            return True
        case "and" | "or", [bool(a), bool(b)]:
            return a and b if t.attr == "and" else a or b
        case "not", [a] if a is not None:
            return not a
    if any(a is None for a in args):
        return None
    try:
        match t.attr, args:
            case "exp", [a]:
                return 0.0 if a == -math.inf else math.exp(a)  # type: ignore[arg-type]
            case "+", [a, b]:
                return a + b  # type: ignore[operator]
            case "-", [a, b]:
                return a - b  # type: ignore[operator]
            case "*", [a, b]:
                return a * b  # type: ignore[operator]
            case "neg", [a]:
                return -a  # type: ignore[operator]
            case (("abs" | "relu" | "silu" | "gelu" | "gelu_tanh" | "sin" | "tanh" | "erf" | "sqrt" | "floor"), [a]):
                return 0.0 if a == 0 else None
    except (OverflowError, ValueError):
        return None
    return None


def finite(term: Term) -> bool:
    """Whether the value is finite wherever its inputs are: no exponential, division or logarithm of values inside, no
    infinite constant. Sums and products of finite numbers count as finite."""
    for t in term.walk():
        if t.op == "map" and t.axes and t.attr in ("exp", "exp2", "log", "log2", "/", "softdiv", "rsqrt"):
            return False
        if t.op == "const" and isinstance(t.attr, float) and not math.isfinite(t.attr):
            return False
    return True


def bottomless(graph: Graph, term: Term, inputs: bool = True) -> bool:
    """Whether the value may be -inf: a mask put it there, or an input does (an additive mask; not where `inputs` are
    taken as finite); products of finite numbers are finite."""
    match term.op:
        case "const":
            return term.attr == -math.inf
        case "input":
            may = inputs and (term.attr in graph.bottomless or term.attr in graph.inputs)
            return (may or term.attr in graph.masked) and term.dtype in ("f32", "f16", "bf16")
        case "refine" | "cast":
            return term.dtype in ("f32", "f16", "bf16") and bottomless(graph, term.args[0], inputs)
        case "read":
            return bottomless(graph, term.args[0], inputs)
        case "map" if term.attr in ("log", "log2"):
            return inputs or bottomless(graph, term.args[0], inputs)
        case "map" if term.attr in ("+", "-", "*", "/", "softdiv", "where", "neg", "max", "min"):
            return any(bottomless(graph, a, inputs) for a in term.args)
        case "reduce" if term.attr[0] in ("sum", "max", "min"):
            summed = term.args[0].op == "map" and term.args[0].attr == "*" and term.attr[0] == "sum"
            return not summed and bottomless(graph, term.args[0], inputs)
        case "scan":
            return bottomless(graph, term.args[0], inputs)
    return False


NEUTRAL: dict[str, float | bool | int] = {
    "sum": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0, "any": False, "all": True, "argmax": -math.inf,
}  # fmt: skip


# Scales ------------------------------------------------------------------------------------------------------------


def positive(term: Term) -> bool:
    """Whether a scalar is known to be positive: built from positive constants, extents and functions that stay so."""
    if term.op == "const":
        return term.attr > 0
    if term.op in ("extent", "ratio"):
        return True
    if term.op == "map" and term.attr in ("rsqrt", "sqrt", "exp", "exp2", "sigmoid"):
        return term.attr in ("exp", "exp2", "sigmoid") or positive(term.args[0])
    return term.op == "map" and term.attr in ("*", "/", "+") and all(positive(a) for a in term.args)


def nonnegative(term: Term) -> bool:
    """Whether an integer is known not to be negative: what positions, lengths and booleans make."""
    if term.op == "const":
        return term.attr >= 0
    if term.op in ("index", "extent", "ratio") or term.dtype == "bool":
        return True
    if term.op in ("cast", "refine"):
        return nonnegative(term.args[0])
    if term.op == "reduce":
        return term.attr[0] == "argmax" or nonnegative(term.args[0])
    if term.op != "map":
        return False
    known = [nonnegative(a) for a in term.args]
    match term.attr:
        case "+" | "*" | "//" | "min":
            return all(known)
        case "where":
            return all(known[1:])
        case "max":
            return any(known)
        case "%":
            return known[1]
    return term.attr in ("abs", "relu")


def pull_scale(graph: Graph, term: Term, need_positive: bool) -> tuple[Term, Term | None]:
    """`term` as core * scale, with a scalar scale; through a mask that puts -inf (only if the scale is positive)."""
    if term.op == "map" and term.attr == "*":
        for a, b in (term.args, term.args[::-1]):
            if not b.axes and a.axes and (not need_positive or positive(b)):
                core, scale = pull_scale(graph, a, need_positive)
                return core, b if scale is None else graph.map("*", scale, b)
    if term.op == "map" and term.attr == "where":
        condition, a, b = term.args
        if b.op == "const" and b.attr == -math.inf:
            core, scale = pull_scale(graph, a, True)
            if scale is not None:
                return graph.map("where", condition, core, b), scale
    return term, None
