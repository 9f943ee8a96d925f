"""Where a boolean term holds: unions of affine regions of index space, and how much of the space they cover.

Every region here is an over-approximation: a condition that cannot be described holds everywhere. Work counted over a
region is therefore never less than what the program needs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from dsl.terms import Term

LIMIT = 8  # conjunctions of one region; a union of more is taken for the whole space (inclusion-exclusion is 2^n)


@dataclass(frozen=True)
class Affine:
    """sum(coefficient * axis) + constant >= 0, or > 0 where `strict`. Axes in alphabetical order, none with 0."""

    coefficients: tuple[tuple[str, int], ...]
    constant: int
    strict: bool

    @property
    def axes(self) -> frozenset[str]:
        return frozenset(a for a, _ in self.coefficients)

    def negated(self) -> Affine:
        return Affine(tuple((a, -k) for a, k in self.coefficients), -self.constant, not self.strict)


@dataclass(frozen=True)
class Share:
    """A selection by value (topk) that keeps a known share of its axes' points, but not known ones."""

    term: int
    over: frozenset[str]
    share: float

    @property
    def axes(self) -> frozenset[str]:
        return self.over

    def negated(self) -> Share:
        return Share(self.term, self.over, 1.0 - self.share)


Atom = Affine | Share
Conjunction = frozenset[Atom]
Region = frozenset[Conjunction]

EVERYWHERE: Region = frozenset({frozenset()})
NOWHERE: Region = frozenset()


def union(a: Region, b: Region) -> Region:
    both = a | b
    kept = frozenset(c for c in both if not any(other < c for other in both))
    return kept if len(kept) <= LIMIT else EVERYWHERE


def intersection(a: Region, b: Region) -> Region:
    met = frozenset(x | y for x, y in itertools.product(a, b) if not _contradict(x | y))
    kept = frozenset(c for c in met if not any(other < c for other in met))
    return kept if len(kept) <= LIMIT else (a if len(a) <= len(b) else b)


def _contradict(c: Conjunction) -> bool:
    return any(atom.negated() in c for atom in c)


def projected(region: Region, axes: tuple[str, ...]) -> Region:
    """The region as far as `axes` alone can tell: conditions on other axes are dropped."""
    kept: Region = NOWHERE
    for c in region:
        kept = union(kept, frozenset({frozenset(a for a in c if a.axes <= set(axes))}))
    return kept


class Reader:
    """Reads boolean and integer terms at given extents and params. `ratios`: fine indices per coarse index.

    stored: where boolean tensors in memory are true, as far as that is known.
    """

    def __init__(
        self,
        extents: Mapping[str, int],
        ratios: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        stored: Mapping[str, Region],
    ) -> None:
        self.extents, self.ratios, self.params, self.stored = extents, ratios, params, stored

    def number(self, term: Term) -> float | None:
        """The value of a term that depends on sizes and compile-time params alone, else None."""
        if term.axes:
            return None
        match term.op:
            case "const":
                return float(term.attr)
            case "extent":
                return float(self.extents[term.attr])
            case "ratio":
                return float(self.ratios[term.attr])
            case "param":
                value = self.params.get(term.attr)
                return None if value is None else float(value)
            case "cast":
                return self.number(term.args[0])
            case "map":
                values = [self.number(a) for a in term.args]
                if any(v is None for v in values):
                    return None
                return _apply(term.attr, [v for v in values if v is not None])
        return None

    def affine(self, term: Term) -> tuple[dict[str, int], int] | None:
        """Coefficients and constant of an integer term that is affine in axis indices, else None."""
        value = self.number(term)
        if value is not None:
            return ({}, int(value)) if value == int(value) else None
        if term.op == "index":
            return {term.attr: 1}, 0
        if term.op != "map" or term.attr not in ("+", "-", "*", "neg"):
            return None
        parts = [self.affine(a) for a in term.args]
        if any(p is None for p in parts):
            return None
        (left, c), *rest = [p for p in parts if p is not None]
        if term.attr == "neg":
            return {a: -k for a, k in left.items()}, -c
        right, d = rest[0]
        if term.attr == "*":
            if left and right:
                return None
            scaled, factor, base = (left, d, c) if left else (right, c, d)
            return {a: k * factor for a, k in scaled.items()}, base * factor
        sign = 1 if term.attr == "+" else -1
        return {a: left.get(a, 0) + sign * right.get(a, 0) for a in left | right}, c + sign * d

    def region(self, term: Term, holds: bool = True) -> Region:
        """Where the boolean `term` equals `holds`."""
        if not term.axes:
            value = self.number(term)
            if value is not None:
                return EVERYWHERE if bool(value) == holds else NOWHERE
        if term.op == "refine":
            coarse, _ = term.attr
            inner = self.region(term.args[0], holds)
            moved = frozenset(
                frozenset(
                    Share(a.term, frozenset(term.axes), a.share) if isinstance(a, Share) else a
                    for a in c
                    if isinstance(a, Share) or coarse not in a.axes
                )
                for c in inner
            )
            return moved
        if term.op == "select":
            count, axis = self.number(term.args[1]), term.attr[1]
            if count is None:
                return EVERYWHERE
            share = min(1.0, max(0.0, count / self.extents[axis]))
            atom = Share(id(term), frozenset(term.axes), share)
            return frozenset({frozenset({atom if holds else atom.negated()})})
        if term.op == "input" and holds:
            return self.stored.get(term.attr, EVERYWHERE)
        if term.op != "map":
            return EVERYWHERE
        if term.attr == "not":
            return self.region(term.args[0], not holds)
        if term.attr in ("and", "or"):
            left, right = (self.region(a, holds) for a in term.args)
            return intersection(left, right) if (term.attr == "and") == holds else union(left, right)
        if term.attr in ("==", "!=", "<", "<=", ">", ">="):
            return self._comparison(term, holds)
        return EVERYWHERE

    def _comparison(self, term: Term, holds: bool) -> Region:
        left, right = (self.affine(a) for a in term.args)
        if left is None or right is None:
            return EVERYWHERE
        (a, c), (b, d) = left, right
        difference = tuple(sorted((x, k) for x in a | b if (k := a.get(x, 0) - b.get(x, 0))))
        if not difference:
            value = _apply(term.attr, [float(c), float(d)])
            return EVERYWHERE if bool(value) == holds else NOWHERE
        at_least = Affine(difference, c - d, strict=False)
        above = Affine(difference, c - d, strict=True)
        match term.attr if holds else _OPPOSITE[term.attr]:
            case ">=":
                return frozenset({frozenset({at_least})})
            case ">":
                return frozenset({frozenset({above})})
            case "<":
                return frozenset({frozenset({at_least.negated()})})
            case "<=":
                return frozenset({frozenset({above.negated()})})
            case "==":
                return frozenset({frozenset({at_least, above.negated()})})
        return frozenset({frozenset({above}), frozenset({at_least.negated()})})


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _apply(function: str, values: list[float]) -> float | None:
    x = values[0]
    try:
        match function:
            case "neg":
                return -x
            case "not":
                return float(not x)
            case "rsqrt":
                return x**-0.5
            case "sqrt":
                return x**0.5
        y = values[1]
        match function:
            case "+":
                return x + y
            case "-":
                return x - y
            case "*":
                return x * y
            case "/":
                return x / y
            case "//":
                return x // y
            case "%":
                return x % y
            case "min":
                return min(x, y)
            case "max":
                return max(x, y)
            case "and":
                return float(bool(x) and bool(y))
            case "or":
                return float(bool(x) or bool(y))
            case "==":
                return float(x == y)
            case "!=":
                return float(x != y)
            case "<":
                return float(x < y)
            case "<=":
                return float(x <= y)
            case ">":
                return float(x > y)
            case ">=":
                return float(x >= y)
    except (ZeroDivisionError, IndexError):
        return None
    return None


def share(region: Region, extents: Mapping[str, int], exact: bool = False) -> float:
    """The share of index space that a region covers, 0..1.

    exact: counts index pairs, so `m >= n` on N x N covers (N + 1) / 2N. Otherwise the area between the boundaries, the
    field's convention (a causal mask is one half), for conditions on two axes; conditions on one axis are counted.
    Selections by value are taken to be independent of everything else.
    """
    total = 0.0
    parts = list(region)
    for size in range(1, len(parts) + 1):  # inclusion-exclusion
        for chosen in itertools.combinations(parts, size):
            met = frozenset().union(*chosen)
            if not _contradict(met):
                total += (-1) ** (size + 1) * _conjunction(met, extents, exact)
    return min(1.0, max(0.0, total))


def _conjunction(c: Conjunction, extents: Mapping[str, int], exact: bool) -> float:
    value = math.prod(a.share for a in c if isinstance(a, Share))
    groups: list[tuple[frozenset[str], list[Affine]]] = []
    for atom in (a for a in c if isinstance(a, Affine)):
        joined, axes = [atom], atom.axes
        for group in [g for g in groups if g[0] & axes]:
            groups.remove(group)
            joined += group[1]
            axes |= group[0]
        groups.append((axes, joined))
    for axes, atoms in groups:
        if len(axes) > 2:
            continue  # not described: holds everywhere
        first, second = (*sorted(axes), "")[:2]
        pinned = any(Affine(a.negated().coefficients, a.negated().constant, a.strict) in atoms for a in atoms)
        if exact or not second or pinned:
            value *= _counted(atoms, first, second, extents)
        else:
            value *= _area(atoms, first, second, extents)
    return value


def _counted(atoms: list[Affine], first: str, second: str, extents: Mapping[str, int]) -> float:
    """Index pairs that satisfy every atom, row by row, over all pairs."""
    import numpy as np  # here alone: `avo check` loads this module and counts nothing

    rows = np.arange(extents[first], dtype=np.int64)
    columns = extents[second] if second else 1
    low, high = np.zeros_like(rows), np.full_like(rows, columns - 1)
    for atom in atoms:
        k = dict(atom.coefficients)
        base = k.get(first, 0) * rows + atom.constant - (1 if atom.strict else 0)  # base + b * column >= 0
        b = k.get(second, 0)
        if b > 0:
            low = np.maximum(low, -(base // b))
        elif b < 0:
            high = np.minimum(high, base // -b)
        else:
            high = np.where(base >= 0, high, -1)
    return float(np.maximum(0, high - low + 1).sum()) / (len(rows) * columns)


def _area(atoms: list[Affine], first: str, second: str, extents: Mapping[str, int]) -> float:
    """Area of the rectangle of indices cut by every half-plane, over the area of the rectangle."""
    m, n = float(extents[first]), float(extents[second])
    polygon = [(0.0, 0.0), (m, 0.0), (m, n), (0.0, n)]
    for atom in atoms:
        k = dict(atom.coefficients)
        heights = [k.get(first, 0) * x + k.get(second, 0) * y + atom.constant for x, y in polygon]
        cut: list[tuple[float, float]] = []
        for i, (p, h) in enumerate(zip(polygon, heights, strict=True)):
            q, g = polygon[i - 1], heights[i - 1]
            if (h >= 0) != (g >= 0):
                t = g / (g - h)
                cut.append((q[0] + t * (p[0] - q[0]), q[1] + t * (p[1] - q[1])))
            if h >= 0:
                cut.append(p)
        polygon = cut
        if not polygon:
            return 0.0
    twice = sum(p[0] * q[1] - q[0] * p[1] for p, q in zip(polygon, polygon[1:] + polygon[:1], strict=True))
    return abs(twice) / 2 / (m * n)
