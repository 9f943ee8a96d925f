"""Axes without names: what each dimension of a traced tensor runs along, made one where an operator says so.

In expressions an axis is the name `~3`, its extent `~3!`; `dsl` never sees these, for names are given at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dsl.syntax import Binary, Expr, Name, Number


@dataclass
class _Axis:
    """size: in the example. extent: of a free axis; None where an input fixes it. hints: (weight, name)."""

    size: int
    extent: Expr | None
    hints: list[tuple[int, str]] = field(default_factory=list)


class Axes:
    """Union-find over the dimensions of all values. `together`: axes that one value has, which never become one."""

    def __init__(self) -> None:
        self._axes: list[_Axis] = []
        self._parent: list[int] = []
        self.together: list[tuple[int, ...]] = []
        self.coarse: dict[int, tuple[int, Expr]] = {}  # axis -> (the finer axis, how many of it)
        self.fixed: dict[int, Expr] = {}  # axis of an input -> the extent that the function needs it to have

    def new(self, size: int, extent: Expr | None = None, hint: str = "", weight: int = 0) -> int:
        self._axes.append(_Axis(size, extent))
        self._parent.append(len(self._axes) - 1)
        axis = len(self._axes) - 1
        self.hint(axis, hint, weight)
        return axis

    def find(self, axis: int) -> int:
        while self._parent[axis] != axis:
            axis = self._parent[axis]
        return axis

    def same(self, a: int, b: int) -> bool:
        return self.find(a) == self.find(b)

    def size(self, axis: int) -> int:
        return self._axes[self.find(axis)].size

    def free(self, axis: int) -> Expr | None:
        """The extent of an axis that no input fixes."""
        return self._axes[self.find(axis)].extent

    def hint(self, axis: int, name: str, weight: int) -> None:
        """A name that would suit; the heaviest wins."""
        if name:
            self._axes[self.find(axis)].hints.append((weight, name))

    def hints(self, axis: int) -> list[str]:
        return [n for _, n in sorted(self._axes[self.find(axis)].hints, key=lambda h: -h[0])]

    def held(self, axes: Iterable[int | None]) -> None:
        """One value has all of these."""
        self.together.append(tuple(a for a in axes if a is not None))

    def unify(self, a: int, b: int) -> bool:
        """Make two axes one. False where they differ in length, or where some value has both."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        if self.size(a) != self.size(b) or self._both(a, b) or self._related(a, b):
            return False
        if self._axes[a].extent is not None and self._better(b, a):
            a, b = b, a
        lost = self._axes[b].extent
        if self._axes[a].extent is None and lost is not None and b not in self.mentioned(lost):
            self.fixed.setdefault(a, lost)
        self._parent[b] = a
        self._axes[a].hints += self._axes[b].hints
        if b in self.coarse:
            self.coarse.setdefault(a, self.coarse.pop(b))
        self._merge_blocks(a)
        return True

    def _merge_blocks(self, fine: int) -> None:
        """The heads of keys and those of values are one axis: both are as many, over the same heads."""
        blocks = [c for c, (f, _) in self.coarse.items() if self.same(f, fine)]
        for i, c in enumerate(blocks):
            for other in blocks[i + 1 :]:
                if other in self.coarse and c in self.coarse and self.size(c) == self.size(other):
                    self.unify(c, other)

    def _both(self, a: int, b: int) -> bool:
        for group in self.together:
            roots = {self.find(x) for x in group}
            if a in roots and b in roots:
                return True
        return False

    def _related(self, a: int, b: int) -> bool:
        """Blocks of an axis are another axis, and two axes with different blocks are two."""
        if a in self.coarse and b in self.coarse:
            return not self.same(self.coarse[a][0], self.coarse[b][0])
        return any(c in self.coarse and self.same(self.coarse[c][0], f) for c, f in ((a, b), (b, a)))

    def _better(self, b: int, a: int) -> bool:
        """Whether b's extent says more: fixed by an input, or not in terms of itself."""
        extent, mine = self._axes[b].extent, self._axes[a].extent
        return extent is None or (mine is not None and b in self.mentioned(mine))

    def mentioned(self, e: Expr) -> set[int]:
        """The axes whose extents an expression has."""
        if isinstance(e, Name) and is_extent(e.id):
            return {self.find(number_of(e.id))}
        if isinstance(e, Binary):
            return self.mentioned(e.left) | self.mentioned(e.right)
        return set()

    def link(self, coarse: int, fine: int) -> bool:
        """Declare `coarse = fine // (FINE // COARSE)`. False where no input fixes it, or it lies over another axis."""
        coarse, fine = self.find(coarse), self.find(fine)
        if coarse in self.coarse:
            return self.same(self.coarse[coarse][0], fine)
        if coarse == fine or self.size(fine) % self.size(coarse) or self.free(coarse) is not None:
            return False
        self.coarse[coarse] = (fine, Binary("//", extent(fine), extent(coarse)))
        self.hint(coarse, "g", 4)
        self._merge_blocks(fine)
        return True

    def finer(self, axis: int) -> int | None:
        """The axis that this one is coarse over."""
        over = self.coarse.get(self.find(axis))
        return self.find(over[0]) if over else None

    def absorbed(self, axes: Sequence[int]) -> list[int]:
        """What remains of the axes of an operator's operands: a coarse one that meets its fine one goes."""
        roots = list(dict.fromkeys(self.find(a) for a in axes))
        return [a for a in roots if self.finer(a) not in roots]


def index(axis: int) -> Name:
    """The axis as an index value."""
    return Name(f"~{axis}")


def extent(axis: int) -> Name:
    return Name(f"~{axis}!")


def is_axis(name: str) -> bool:
    return name.startswith("~") and not name.endswith("!")


def is_extent(name: str) -> bool:
    return name.startswith("~") and name.endswith("!")


def number_of(name: str) -> int:
    return int(name.strip("~!"))


def plus(a: Expr, b: Expr) -> Expr:
    """a + b, with whole numbers added here and what cancels left out."""
    if isinstance(a, Number) and isinstance(b, Number):
        return Number(a.value + b.value)
    if a == Number(0):
        return b
    if b == Number(0):
        return a
    if isinstance(b, Number) and b.value < 0:
        return Binary("-", a, Number(-b.value))
    if isinstance(b, Binary) and b.op == "-" and b.right == a:
        return b.left
    if isinstance(a, Binary) and a.op == "-" and a.right == b:
        return a.left
    return Binary("+", a, b)


def minus(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Number) and isinstance(b, Number):
        return Number(a.value - b.value)
    if b == Number(0):
        return a
    if a == b:
        return Number(0)
    if isinstance(a, Binary) and a.op == "+" and b in (a.left, a.right):
        return a.left if b == a.right else a.right
    if isinstance(b, Number) and b.value < 0:
        return Binary("+", a, Number(-b.value))
    return Binary("-", a, b)


def times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Number) and isinstance(b, Number):
        return Number(a.value * b.value)
    if a == Number(1):
        return b
    if b == Number(1):
        return a
    return Binary("*", a, b)


def over(a: Expr, b: Expr) -> Expr:
    """a // b."""
    if isinstance(a, Number) and isinstance(b, Number):
        return Number(int(a.value // b.value))
    return a if b == Number(1) else Binary("//", a, b)
