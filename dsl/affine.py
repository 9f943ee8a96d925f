"""Masks as affine comparisons of axis indices: their conjuncts, and what each says of an axis.

A bound cuts a loop short; that a block which it leaves out changes nothing is proven in `dsl.algebra`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dsl.terms import Graph, Term


class Atom(NamedTuple):
    """One conjunct of a mask: `predicate`, where the compile-time `flag` is true (always, if there is none)."""

    flag: Term | None
    predicate: Term


def atoms(condition: Term) -> list[Atom]:
    """A mask as a conjunction. `not causal or m >= n` is the predicate `m >= n` under the flag `causal`."""
    if condition.op == "map" and condition.attr == "and":
        return atoms(condition.args[0]) + atoms(condition.args[1])
    if condition.op == "map" and condition.attr == "or":
        for a, b in (condition.args, condition.args[::-1]):
            if a.op == "map" and a.attr == "not" and a.args[0].op == "param":
                return [Atom(a.args[0], b)]
    return [Atom(None, condition)]


@dataclass(frozen=True)
class Affine:
    """sum of coefficient * axis index, plus a scalar term (None: 0)."""

    coefficients: dict[str, int]
    rest: Term | None


def affine(graph: Graph, term: Term) -> Affine | None:
    """An integer term as an affine form in axis indices, or None."""
    if not term.axes:
        return Affine({}, term)
    if term.op == "index":
        return Affine({term.attr: 1}, None)
    if term.op != "map":
        return None
    if term.attr == "neg":
        inner = affine(graph, term.args[0])
        return None if inner is None else _scaled(graph, inner, -1)
    if term.attr in ("+", "-"):
        a, b = (affine(graph, x) for x in term.args)
        if a is None or b is None:
            return None
        return _added(graph, a, b if term.attr == "+" else _scaled(graph, b, -1))
    if term.attr == "*":
        for k, x in (term.args, term.args[::-1]):
            if k.op == "const" and isinstance(k.attr, int):
                inner = affine(graph, x)
                return None if inner is None else _scaled(graph, inner, k.attr)
    return None


def _scaled(graph: Graph, a: Affine, k: int) -> Affine:
    rest = a.rest
    if rest is not None:
        rest = (
            graph.const(rest.attr * k)
            if rest.op == "const"
            else graph.map("*", rest, graph.const(k))
            if k != -1
            else graph.map("neg", rest)
        )
    return Affine({x: c * k for x, c in a.coefficients.items()}, rest)


def _added(graph: Graph, a: Affine, b: Affine) -> Affine:
    coefficients = dict(a.coefficients)
    for x, c in b.coefficients.items():
        coefficients[x] = coefficients.get(x, 0) + c
    rest = a.rest if b.rest is None else b.rest if a.rest is None else add(graph, a.rest, b.rest)
    return Affine({x: c for x, c in coefficients.items() if c}, rest)


def add(graph: Graph, a: Term, b: Term) -> Term:
    """a + b for integer scalars, constants folded and zeros dropped."""
    if a.op == b.op == "const":
        return graph.const(a.attr + b.attr)
    if a.op == "const" and a.attr == 0:
        return b
    if b.op == "const" and b.attr == 0:
        return a
    if b.op == "map" and b.attr == "neg":
        return graph.map("-", a, b.args[0])
    if b.op == "const" and b.attr < 0:
        return graph.map("-", a, graph.const(-b.attr))
    return graph.map("+", a, b)


@dataclass(frozen=True)
class Bound:
    """`axis <= limit` (upper) or `axis >= limit`, where `flag` is true; limit = sum of coefficient * axis + rest."""

    upper: bool
    flag: Term | None
    coefficients: dict[str, int]
    rest: Term | None


def bound(graph: Graph, atom: Atom, axis: str) -> Bound | None:
    """What an affine comparison says about `axis`, or None where it says nothing simple."""
    p = atom.predicate
    if p.op != "map" or p.attr not in ("<", "<=", ">", ">="):
        return None
    left, right = (affine(graph, x) for x in p.args)
    if left is None or right is None:
        return None
    if p.attr in ("<", "<="):
        left, right = right, left
    difference = _added(graph, left, _scaled(graph, right, -1))  # difference >= 0, or > 0
    if p.attr in ("<", ">"):
        difference = _added(graph, difference, Affine({}, graph.const(-1)))
    c = difference.coefficients.get(axis, 0)
    if c not in (1, -1):
        return None
    others = Affine({x: k for x, k in difference.coefficients.items() if x != axis}, difference.rest)
    limit = _scaled(graph, others, -1) if c == 1 else others
    return Bound(c == -1, atom.flag, limit.coefficients, limit.rest)
