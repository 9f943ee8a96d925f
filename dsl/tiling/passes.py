"""The stream cut into passes: what is carried, how it is rescaled, and which blocks a loop visits."""

from __future__ import annotations

import math

from dsl.affine import Atom, Bound, atoms, bound
from dsl.algebra import NEUTRAL, Weight, bottomless, constant, factors
from dsl.syntax import Span
from dsl.terms import Term
from dsl.tile import If, Loop, Node, Op, Value
from dsl.tiling.regions import NotLowered, Pivot, Scope
from dsl.tiling.values import LOWEST, Values


class Passes(Values):
    """Fills `kernel.body`: `build` is the way in."""

    def build(self) -> None:
        for a in self.k.grid:
            self.starts[a] = self.emit("start", (), a, (), "i32", f"{a}0" if a in self.k.lengths else a)
        for a in self.k.bounded:
            if a not in self.k.loops:
                self.starts[a] = self.block_of(a)[0]
        passes = self.passes()
        for p in range(max(passes.values(), default=-1) + 1):
            reductions = [t for t, q in passes.items() if q == p and self.carried(t)]
            stores = [n for n, t in self.outputs.items() if passes.get(t) == p and self.streams(t)]
            if reductions or stores:
                self.run_pass(reductions, stores)
        for n, t in self.outputs.items():
            if not self.streams(t):
                self.store(n, t)

    def streams(self, t: Term) -> bool:
        return any(a in self.walked for a in t.axes)

    def carried(self, t: Term) -> bool:
        """Whether a reduction goes over blocks of the stream; one within a block that is the tile ends in the tile."""
        if t.op != "reduce":
            return False
        pairs = zip(t.attr[1], t.attr[2], strict=True)
        return any(a in self.walked and block not in self.k.riders for a, block in pairs)

    def passes(self) -> dict[Term, int]:
        """The pass that computes each reduction over the stream, and that stores each output with the stream's axis.

        A maximum that cancels is used, while it runs, in its own pass; all else waits for the pass to end (rule 26).
        """
        level: dict[Term, int] = {}
        passes: dict[Term, int] = {}
        for out in self.outputs.values():
            for t in out.walk():
                if t in level:
                    continue
                level[t] = max((level[a] for a in t.args), default=0)
                if self.carried(t):
                    passes[t] = level[t]
                    if t not in self.weights:
                        level[t] += 1
        for out in self.outputs.values():
            if self.streams(out):
                passes[out] = max(level[out], passes.get(out, 0))
        return passes

    def run_pass(self, reductions: list[Term], stores: list[str]) -> None:
        axis = self.k.loops[-1]
        running = [t for t in reductions if t in self.weights]
        sums = [t for t in reductions if t not in self.weights]
        for t in running:
            core, factor = self.scaled(t.args[0], True)
            self.titles.setdefault(core, self.title(t.args[0], "s"))
            first = LOWEST if bottomless(self.g, t.args[0]) else -math.inf  # a running -inf counts as 0 (rule 25)
            variable = self.variable(t, first, self.title(t.args[0], "s") + "_max")
            self.pivots[t] = Pivot(t, core, factor, variable, variable)
        for t in sums:
            self.variables[t] = self.variable(t, NEUTRAL[t.attr[0]], self.sum_title(t, sums))
        outer = [self.open_outer(a) for a in self.k.loops[:-1]]
        for lo, hi, masked, true, note in self.ranges(axis, reductions, stores):
            start = Value(f"{axis}0" if axis in self.k.lengths else axis, (), "i32")
            edge = self.flags(axis, reductions, stores) if note.startswith("the edge") else ()
            loop = Loop(axis, start, lo, hi, masked, [], note, edge)
            self.scopes.append(Scope(loop.body, axis, masked))
            self.starts[axis] = start
            self.home[start] = len(self.scopes) - 1
            skip = self.skipped(reductions)
            self.true = true | {(p, None) for p, _ in skip}
            for _, term in skip:
                visit = If(self.eval(term), [], "other blocks change nothing")
                self.here().append(visit)
                self.scopes[-1].body = visit.body  # all that the block does
            self.pass_body(running, sums, stores)
            self.scopes.pop()
            self.true = set()
            self.scopes[-1].body.append(loop)
            self.forget()
        for loop in reversed(outer):
            self.scopes.pop()
            self.scopes[-1].body.append(loop)
            self.forget()
        for t in running:
            self.pivots[t].reference, self.pivots[t].scores = self.pivots[t].variable, None
        self.done |= set(reductions)

    def open_outer(self, axis: str) -> Loop:
        """A loop around the stream, one index a turn, over the block that a grid axis names."""
        lo, hi = self.block_of(axis)
        loop = Loop(axis, Value(axis, (), "i32"), lo, hi, False, [])
        self.scopes.append(Scope(loop.body, axis, False))
        self.starts[axis] = loop.start
        self.home[loop.start] = len(self.scopes) - 1
        return loop

    def block_of(self, axis: str) -> tuple[Value, Value]:
        """The first and the end index of the block of `axis` that the grid is at."""
        step = self.emit("ratio", (), self.k.bounded[axis], (), "i32", f"{axis}_block")
        first = self.map("*", self.place(self.k.bounded[axis], {}).value, step, name=f"{axis}_begin")
        return first, self.map("min", self.map("+", first, step), self.extent_value(axis), name=f"{axis}_end")

    def variable(self, t: Term, first: float | bool | int, name: str) -> Value:
        dtype = t.dtype
        value = self.emit("full", (), first, self.dims(t.axes), dtype, name)
        variable = Value(name, value.dims, dtype)
        self.home[variable] = len(self.scopes) - 1
        self.here().append(Op("set", None, (value,), variable))
        return variable

    def sum_title(self, t: Term, sums: list[Term]) -> str:
        """`sums`: those of its pass. Where several products are accumulated each goes by the output that it is for."""
        if t in self.titles:
            return self.titles[t]
        parts = [x for x, _ in factors(t.args[0])]
        weighted = any(x.op != "map" or x.attr not in ("exp", "exp2") for x in map(self.stripped, parts))
        pivot = next((p for p, table in self.weights.items() if table.get(t) == Weight(mul=-1)), None)
        if pivot is not None and not weighted:
            return self.title(pivot.args[0], "s") + "_sum"
        if not self.is_product(t) and pivot is None:
            return "total"
        of = self.made_of(t)
        alone = len(of) == 1 and not any(x is not t and self.is_product(x) and self.made_of(x) == of for x in sums)
        several = sum(map(self.is_product, sums)) > 1
        return f"{of[0]}_acc" if several and alone else "acc"

    def made_of(self, t: Term) -> list[str]:
        """The outputs that read this term."""
        return [n for n, x in self.outputs.items() if any(below is t for below in x.walk())]

    def pass_body(self, running: list[Term], sums: list[Term], stores: list[str]) -> None:
        scaled: list[tuple[Pivot, Value, Value]] = []
        for t in running:
            p = self.pivots[t]
            scores = self.guarded(self.eval(p.core), p.core, t.attr[1], -math.inf)
            p.scores = scores
            top = self.reduced("max", scores, t.attr[1], p.variable.name.removesuffix("_max") + "_top")
            if p.factor is not None:
                top = self.map("*", top, self.scalar(p.factor), name=top.name)
            new = self.map("max", p.variable, top, name=p.variable.name + "_new")
            rule, args = self.k.schedule.rescale
            if rule == "lazy":
                slack = float(args[0]) if self.log2 else float(args[0]) * math.log(2)
                late = self.map(">", top, self.map("+", p.variable, self.const(slack)))
                new = self.map("where", late, top, p.variable, name=new.name)
            self.pivots[t].reference = new
            shift = self.map("-", p.variable, new)
            alpha = self.map("exp2" if self.log2 else "exp", shift, name="rescale")
            scaled.append((p, new, alpha))
        # exponentials and their sums first, then the rescaling, then products: nothing wide lives through a branch
        products = [t for t in sums if self.is_product(t)]
        parts = {t: self.partial(t) for t in sums if t not in products}
        for t in products:
            self.rescale(t, scaled)
        for t, part in parts.items():
            self.join(t, part, scaled)
        for t in products:
            self.accumulate(t)
        for p, new, _ in scaled:
            self.here().append(Op("set", None, (new,), p.variable))
        for n in stores:
            self.store(n, self.outputs[n])

    def follows(self, t: Term, pivot: Pivot) -> bool:
        """Whether the carried sum shrinks when this reference rises."""
        return self.weights[pivot.term].get(t) == Weight(mul=-1)

    def rescale(self, t: Term, scaled: list[tuple[Pivot, Value, Value]]) -> None:
        """Brings an accumulator to the new references: always, or only where a row's maximum rose."""
        variable = self.variables[t]
        for p, new, alpha in scaled:
            if not self.follows(t, p):
                continue
            body: list[Node] = []
            lazy = self.k.schedule.rescale[0] == "lazy"
            if lazy:
                self.here().append(If(self.any_greater(new, p.variable), body, "only where a row's maximum rose"))
                self.scopes.append(Scope(body))
            self.here().append(Op("set", None, (self.map("*", variable, alpha),), variable))
            if lazy:
                self.scopes.pop()

    def accumulate(self, t: Term) -> None:
        """One block's matrix product, added to its accumulator."""
        variable, product = self.variables[t], self.contraction(t)
        assert product is not None
        a, b, attr, _ = product
        out = self.emit("dot", (a, b, variable), attr, variable.dims, variable.dtype, variable.name)
        self.here().append(Op("set", None, (out,), variable))

    def join(self, t: Term, part: Value, scaled: list[tuple[Pivot, Value, Value]]) -> None:
        """One block's share of any other carried reduction."""
        variable, kind = self.variables[t], t.attr[0]
        carried = variable
        for p, _, alpha in scaled:
            if self.follows(t, p):
                carried = self.map("*", carried, alpha)
        joined = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "or", "all": "and"}.get(kind)
        if joined is None:
            span = self.g.lines.get(t, Span())
            raise NotLowered(f"`{kind}` over a streamed axis has no lowering", span, "leave the axis whole")
        self.here().append(Op("set", None, (self.map(joined, carried, part, name=variable.name),), variable))

    def any_greater(self, a: Value, b: Value) -> Value:
        rise = self.map("-", a, b)
        for d in rise.dims:
            rise = self.emit("reduce", (rise,), ("max", (d,)), tuple(x for x in rise.dims if x != d), "f32", "rise")
        return self.map(">", rise, self.const(0.0))

    def store(self, name: str, t: Term) -> None:
        axes, dtype = self.g.tensors[name]
        value = self.eval(t)
        if value.dtype != dtype:
            value = self.emit("cast", (value,), dtype, value.dims, dtype, name)
        at = tuple(self.place(a, {}) for a in axes)
        values, attr = self.access(name, dtype, at)
        self.here().append(Op("store", None, (value, *values), attr))

    # Loop ranges ---

    def ranges(
        self, axis: str, reductions: list[Term], stores: list[str]
    ) -> list[tuple[Value, Value, bool, set[tuple[Term, Term | None]], str]]:
        """(lo, hi, masked, what holds there, note) of each loop over `axis`.

        Blocks that an affine mask leaves out for every row of the tile are never visited; with `split masked` the
        blocks that it admits for every row are walked without masks.
        """
        bounds = [] if stores else self.bounds(axis, reductions)
        zero, extent = self.const(0), self.extent_value(axis)
        if axis in self.k.bounded:
            first, end = self.block_of(axis)
            if bounds:
                raise NotLowered("a mask over a stream within blocks has no lowering yet")
            return [(first, end, True, set(), "")]
        length = self.k.lengths.get(axis, 1)
        lo, hi, full_lo, full_hi = zero, extent, zero, extent
        for b, _ in bounds:
            self.note_order(b)
            if b.upper:
                most, least = self.limit(b, True, 1), self.limit(b, False, 1)
                hi = self.flagged(b.flag, self.map("min", hi, most, name=f"{axis}_end"), hi, f"{axis}_end")
                full_hi = self.flagged(b.flag, self.map("min", full_hi, least), full_hi, f"{axis}_full")
            else:
                least, most = self.limit(b, False, 0), self.limit(b, True, 0)
                lo = self.flagged(b.flag, self.map("max", lo, least), lo, f"{axis}_begin")
                full_lo = self.flagged(b.flag, self.map("max", full_lo, most), full_lo, f"{axis}_from")
        blocks = self.emit("block", (), axis, (), "i32", f"BLOCK_{axis.upper()}") if length > 1 else self.const(1)
        if lo is not zero and length > 1:
            lo = self.map("*", self.map("//", lo, blocks), blocks, name=f"{axis}_begin")
        if length == 1:
            return [(lo, hi, bool(bounds), set(), "")]
        if not self.k.schedule.split_masked:
            return [(lo, hi, True, set(), "")]
        true = {(atom.predicate, atom.flag) for _, atom in bounds}
        nonnegative = all(b.rest is None and min(b.coefficients.values(), default=0) >= 0 for b, _ in bounds if b.upper)
        full_hi = self.map(
            "*",
            self.map("//", full_hi if nonnegative else self.map("max", full_hi, zero), blocks),
            blocks,
            name=f"{axis}_full",
        )
        parts = []
        if full_lo is zero:
            parts.append((lo, full_hi, False, true, "blocks that no mask touches"))
            parts.append((full_hi, hi, True, set(), "the edge: masks apply"))
            return parts
        up = self.map("-", self.map("+", full_lo, blocks), self.const(1))
        full_lo = self.map("*", self.map("//", up, blocks), blocks)
        full_lo = self.map("min", full_lo, hi, name=f"{axis}_from")
        full_hi = self.map("max", full_hi, full_lo, name=f"{axis}_full")
        parts.append((lo, full_lo, True, set(), "the first edge: masks apply"))
        parts.append((full_lo, full_hi, False, true, "blocks that no mask touches"))
        parts.append((full_hi, hi, True, set(), "the last edge: masks apply"))
        return parts

    def flags(self, axis: str, reductions: list[Term], stores: list[str]) -> tuple[Value, ...]:
        """What must hold for the edge loop to have anything to do: a mask's flag, or a tail."""
        bounds = [] if stores else self.bounds(axis, reductions)
        if any(b.flag is None for b, _ in bounds):
            return ()
        found = {id(b.flag): self.eval(b.flag) for b, _ in bounds if b.flag is not None}
        return (*found.values(), self.tail(axis))

    def note_order(self, b: Bound) -> None:
        """Where the bound grows with a grid axis the longest loops come last: longest_first walks it backwards."""
        growing = [a for a, c in b.coefficients.items() if a in self.k.grid and (c > 0) == b.upper]
        if growing and b.upper:
            self.k.reversed_axis = growing[0]

    def bounds(self, axis: str, reductions: list[Term]) -> list[tuple[Bound, Atom]]:
        """Affine masks over `axis` whose falsehood leaves every carried value as it is (rule 29)."""
        found: dict[tuple[Term, Term | None], tuple[Bound, Atom]] = {}
        for r in reductions:
            for t in r.walk():
                if t.op != "map" or t.attr != "where":
                    continue
                for atom in atoms(t.args[0]):
                    b = bound(self.g, atom, axis)
                    if b is None or (atom.predicate, b.flag) in found or not self.reachable(b):
                        continue
                    if all(self.unchanged(x, atom.predicate, b.flag, axis) for x in reductions):
                        found[atom.predicate, b.flag] = (b, atom)
        # One that always holds says all that the same one under a flag would say.
        return [f for (predicate, flag), f in found.items() if flag is None or (predicate, None) not in found]

    def skipped(self, reductions: list[Term]) -> list[tuple[Term, Term]]:
        """`skip x`: block masks whose falsehood leaves every carried value as it is, as (predicate, mask)."""
        found: list[tuple[Term, Term]] = []
        axis = self.k.loops[-1]
        for name in self.k.schedule.skip:
            mask = self.g.names.get(name)
            if mask is None or self.dims(self.at_blocks(mask)):
                raise NotLowered(f"`skip {name}` needs a mask with one value a tile", fix="tile the axes by its blocks")
            used = {
                atom.predicate
                for r in reductions
                for t in r.walk()
                if t.op == "map" and t.attr == "where"
                for atom in atoms(t.args[0])
                if self.stripped(atom.predicate) is mask
            }
            if not used or not all(self.unchanged(r, p, None, axis) for r in reductions for p in used):
                raise NotLowered(f"`skip {name}`: a block that it leaves out would change a carried value")
            found += [(p, mask) for p in used]
        return found[:1] + [(p, m) for p, m in found[1:] if m is not found[0][1]]

    def at_blocks(self, mask: Term) -> list[str]:
        return [a for a in mask.axes if a not in self.k.riders]

    @staticmethod
    def stripped(t: Term) -> Term:
        while t.op == "refine":
            t = t.args[0]
        return t

    def reachable(self, b: Bound) -> bool:
        """Whether the bound's axes have a first and a last index in the tile, known outside the loop."""
        return all(a in self.starts or a in self.k.whole for a in b.coefficients)

    def unchanged(self, reduction: Term, predicate: Term, flag: Term | None, axis: str) -> bool:
        """Whether the reduction gets nothing where `predicate` is false and `flag`, if there is one, true."""
        known = constant(
            reduction.args[0],
            lambda t: False if t is predicate else True if flag is not None and t is flag else None,
            axis,
        )
        return known is not None and known == NEUTRAL.get(reduction.attr[0])

    def limit(self, b: Bound, largest: bool, plus: int) -> Value:
        """The bound's limit at the row of the tile that makes it largest (or smallest), plus a constant."""
        total: Value | None = None
        for a, c in b.coefficients.items():
            last = (c > 0) == largest
            edge = self.starts[a] if a in self.starts else self.const(0)
            if last and (a in self.k.lengths or a in self.k.whole):
                # plus 1 for an exclusive end folds into the tile's length
                held = a in self.k.lengths
                step = self.emit("block", (), a, (), "i32", f"BLOCK_{a.upper()}") if held else self.extent_value(a)
                edge = self.map("+", edge, step, name=f"{a}_end")
                edge = edge if plus == 1 and c > 0 and total is None else self.map("-", edge, self.const(1))
                used = plus == 1 and c > 0 and total is None
                plus = 0 if used else plus
            scaled = edge if c == 1 else self.map("*", edge, self.const(c))
            total = scaled if total is None else self.map("+", total, scaled)
        if b.rest is not None:
            if b.rest.op == "map":
                self.titles.setdefault(b.rest, "shift")
            rest = self.eval(b.rest)
            total = rest if total is None else self.map("+", total, rest)
        if plus or total is None:
            total = self.const(plus) if total is None else self.map("+", total, self.const(plus))
        return total

    def flagged(self, flag: Term | None, a: Value, b: Value, name: str) -> Value:
        return a if flag is None else self.emit("select", (self.eval(flag), a, b), None, a.dims, a.dtype, name)
