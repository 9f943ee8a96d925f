"""Masks and padding: what holds all over a loop vanishes, tails are guarded only where the padding would count."""

from __future__ import annotations

from collections.abc import Iterable

from dsl.affine import atoms
from dsl.algebra import constant
from dsl.terms import Term
from dsl.tile import TileKernel, Value
from dsl.tiling.coordinates import Coordinates, Places
from dsl.tiling.regions import Pivot


class Masks(Coordinates):
    """Masked values, and what is known about the padding of any term."""

    def __init__(self, kernel: TileKernel, outputs: dict[str, Term]) -> None:
        super().__init__(kernel, outputs)
        # masked value -> (unmasked, masks, masks under a compile-time flag, what stands elsewhere)
        self.masks: dict[Value, tuple[Value, tuple[Value, ...], dict[Value, tuple[Value, ...]], float]] = {}
        self.true: set[tuple[Term, Term | None]] = set()  # predicates, under their flags, all over the current loop

    def eval(self, t: Term, places: Places | None = None) -> Value:
        raise NotImplementedError

    def where(self, t: Term, places: Places) -> Value:
        """A mask. Conjuncts that hold all over the loop vanish; those under a compile-time flag become its branch."""
        condition, a, b = t.args
        always: list[Value] = []
        flagged: dict[Value, tuple[Value, ...]] = {}
        for atom in atoms(condition):
            if (atom.predicate, None) in self.true or (atom.predicate, atom.flag) in self.true:
                continue
            value = self.eval(atom.predicate, places)
            if atom.flag is None:
                always.append(value)
            else:
                flag = self.eval(atom.flag)
                flagged[flag] = (*flagged.get(flag, ()), value)
        if t in self.titles:  # masked or not it goes by one name
            self.titles.setdefault(a, self.titles[t])
        value = self.eval(a, places)
        if not always and not flagged:
            return value
        if b.op == "const":
            return self.masked(value, tuple(always), flagged, b.attr, self.title(t, "t"))
        other = self.eval(b, places)
        if flagged:
            mask = self.eval(condition, places)
            return self.map("where", mask, value, other, name=self.title(t, "t"))
        mask = always[0]
        for m in always[1:]:
            mask = self.map("and", mask, m)
        return self.map("where", mask, value, other, name=self.title(t, "t"))

    def masked(
        self, value: Value, always: tuple[Value, ...], flagged: dict[Value, tuple[Value, ...]], other: float, name: str
    ) -> Value:
        def under(masks: tuple[Value, ...], x: Value) -> Value:
            if not masks:
                return x
            mask = masks[0]
            for m in masks[1:]:
                mask = self.map("and", mask, m)
            return self.map("where", mask, x, self.const(other), name=name)

        result = under(always, value)
        for flag, extra in flagged.items():
            yes = under(extra, result)
            if result.dtype != yes.dtype:  # a choice has one dtype, or bf16 stays bf16 in the arithmetic behind it
                result = self.emit("cast", (result,), yes.dtype, result.dims, yes.dtype, name)
            result = self.emit("select", (flag, yes, result), None, yes.dims, yes.dtype, name)
        self.masks[result] = (value, always, flagged, other)
        return result

    def guarded(
        self, value: Value, term: Term, axes: Iterable[str], neutral: float | bool | int, places: Places | None = None
    ) -> Value:
        """The value with the neutral element in the padding of `axes`, where it is not neutral there already."""
        tails: dict[Value, tuple[Value, ...]] = {}
        always: list[Value] = []
        for a in axes:
            if self.needs_mask(a) and a in value.dims:
                pad = self.padding(term, a)
                if pad is None or pad != neutral:
                    if a in self.k.loops:  # the launcher knows whether there is a tail at all
                        tails[self.tail(a)] = (self.in_range(a),)
                    else:
                        always.append(self.in_range(a))
        if not tails and not always:
            return value
        if value in self.masks and self.masks[value][3] == neutral:
            inner, before, flagged, _ = self.masks[value]
            return self.masked(inner, (*before, *always), {**flagged, **tails}, neutral, value.name)
        return self.masked(value, tuple(always), tails, neutral, value.name)

    def padding(self, term: Term, axis: str) -> float | bool | None:
        """The term's value past the end of `axis`, where loads read 0."""

        def known(t: Term) -> float | None:
            if t.op == "map" and t.attr == "exp" and t.args[0].op == "map" and t.args[0].attr == "-":
                u, x = t.args[0].args
                if x in self.pivots and self.running(u) is self.pivots[x]:
                    return 1.0
                ahead = self.running(x)
                x = x if ahead is None else ahead.term
                running = (x in self.pivots and x not in self.done) or any(x in s.maxima for s in self.scopes)
                if running and u is x.args[0] and axis in x.attr[1]:
                    return 0.0  # its operand was guarded for the running maximum
            loaded = t.op == "input" or (t.op == "read" and t.args[0].op == "input")
            return 0.0 if loaded and axis in t.axes else None

        return constant(term, known, axis)

    def running(self, t: Term) -> Pivot | None:
        """runmax over blocks that are the tiles of the stream: what the running reference is, if it never lags."""
        while t.op == "refine" and self.k.riders.get(t.attr[0]) == t.attr[1]:
            t = t.args[0]
        if t.op != "scan" or t.attr[2] not in self.k.riders:
            return None
        found = next((p for p in self.pivots.values() if p.term.args[0] is t.args[0] and p.term not in self.done), None)
        return found if found is not None and self.k.schedule.rescale[0] == "always" else None
