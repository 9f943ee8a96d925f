"""The value of a term in the tile: each term once in each region, masks apart, exponentials against their reference."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dsl.algebra import NEUTRAL, bottomless, factors, finite, nonnegative, pull_scale
from dsl.syntax import Span
from dsl.terms import FLOATS, INTEGERS, Term
from dsl.tile import DotAttr, Loop, Op, Value
from dsl.tiling.coordinates import Place, Places
from dsl.tiling.masks import Masks
from dsl.tiling.regions import LOW_FLOATS, NotLowered, Pivot, Scope

LOG2E = 1.4426950408889634
FLOORED = {
    "//": "floor_div",
    "%": "floor_mod",
}  # of floats, or where an operand may be negative: machines round to zero
# What a value goes by where no line of the program names it
UNNAMED = {"exp": "p", "exp2": "p", "abs": "size", "-": "diff", "*": "scaled", "/": "ratio", "+": "added"}
LOWEST = -3.4028234663852886e38  # stands for -inf as a maximum where a mask may hide everything


def _plain(t: Term) -> bool:
    """Whether this quotient or rest is of integers that are not negative (a param as divisor is taken to be so)."""
    a, b = t.args
    return t.dtype in INTEGERS and nonnegative(a) and (nonnegative(b) or b.op == "param")


class Values(Masks):
    """Terms to values: `eval` is the way in."""

    def key(self, t: Term, places: Places) -> tuple[object, ...]:
        return ("term", t, tuple((a, id(p)) for a, p in sorted(places.items()) if a in t.axes))

    def eval(self, t: Term, places: Places | None = None) -> Value:
        places = {a: p for a, p in (places or {}).items() if a in t.axes}
        key = self.key(t, places)
        for scope in reversed(self.scopes):
            if key in scope.memo:
                return scope.memo[key]
        value = self.compute(t, places)
        running = {r for r in (*self.variables, *self.pivots) if r not in self.done}
        if running and any(below in running for below in t.walk()):  # valid in this pass alone
            self.scopes[-1].memo[key] = value
        else:
            self.scopes[min(self.home.get(value, 0), len(self.scopes) - 1)].memo[key] = value
        return value

    def compute(self, t: Term, places: Places) -> Value:
        match t.op:
            case "const":
                return self.const(t.attr)
            case "extent":
                return self.extent_value(t.attr)
            case "ratio":
                return self.emit("ratio", (), t.attr, (), "i32", f"{t.attr}_ratio")
            case "param":
                return self.emit("param", (), t.attr, (), t.dtype, t.attr)
            case "index":
                return self.place(t.attr, places).value
            case "input":
                axes, _ = self.g.tensors[t.attr]
                return self.load(t, tuple(self.place(a, places) for a in axes))
            case "refine":
                coarse, fine = t.attr
                if self.k.riders.get(coarse) == fine and fine not in places and coarse not in places:
                    return self.eval(t.args[0], {a: p for a, p in places.items() if a != fine})
                return self.eval(t.args[0], {**places, coarse: self.coarse(coarse, fine, places)})
            case "read":
                return self.read(t, places)
            case "cast":
                inner = self.eval(t.args[0], places)
                if t.attr == "bool" and inner.dtype != "bool":
                    inner = self.widened(inner) if inner.dtype in LOW_FLOATS else inner
                    zero = self.const(0.0 if inner.dtype in FLOATS else 0)
                    return self.map("!=", inner, zero, name=self.title(t, inner.name))
                return (
                    inner
                    if inner.dtype == t.attr
                    else self.emit("cast", (inner,), t.attr, inner.dims, t.attr, self.title(t, inner.name))
                )
            case "reduce":
                return self.reduction(t, places)
            case "select":
                return self.selected(t, places)
            case "scan":
                pivot = self.running(t)
                if not t.attr[2]:
                    return self.scanned(t, places)
                if pivot is None:
                    scan, fine, block = t.attr
                    needs = "its maximum beside it, its block as the tile, and `rescale always`"
                    whole = "max" if scan == "runmax" else "sum"
                    fix = f"an earlier kernel that stores {whole}[{fine} in {block}](x), then {scan}[{block}] of it"
                    raise NotLowered(f"`{scan}` within blocks needs {needs}", self.g.lines.get(t, Span()), fix)
                return self.map("*", pivot.reference, self.const(1 / LOG2E)) if self.log2 else pivot.reference
            case "map":
                return self.mapped(t, places)
        raise NotLowered(f"`{t.op}` has no lowering yet", self.g.lines.get(t, Span()))

    def scanned(self, t: Term, places: Places) -> Value:
        kind, axis, _ = t.attr
        value = self.eval(t.args[0], places)
        if axis not in value.dims:
            raise NotLowered(f"`{kind}` needs `{axis}` whole", self.g.lines.get(t, Span()), f"tile {axis}=all")
        if value.dtype != t.dtype:
            value = self.emit("cast", (value,), t.dtype, value.dims, t.dtype, value.name)
        return self.emit("scan", (value,), (kind, axis), value.dims, t.dtype, self.title(t, f"{value.name}_{kind}"))

    def read(self, t: Term, places: Places) -> Value:
        source, *indices = t.args
        at = []
        for axis, i in zip(t.attr, indices, strict=True):
            if i.op == "index":
                p = self.place(i.attr, places)
                own = p.axis is not None and not p.checked
                same = p.axis if p.axis == axis else None
                at.append(Place(p.value, same, p.tails, checked=i.attr != axis, counted=own))
            else:
                if i not in self.titles and i.op == "map":
                    self.titles[i] = f"{axis}_index"
                value = self.eval(i, places)
                tails = tuple(a for a in i.axes if self.needs_mask(a))
                at.append(Place(value, None, tails, checked=True))
        if source.op == "input":
            return self.load(source, tuple(at))
        # a computed value under another name of its axis: the same computation, read elsewhere
        if any(p.checked and i.op != "index" for p, i in zip(at, indices, strict=True)):
            name = next((n for n, term in self.g.names.items() if term is source), "")
            raise NotLowered(
                f"reading {f'`{name}`' if name else 'a computed value'} by a computed index needs it stored",
                self.g.lines.get(t, Span()),
                f"`kernels {name or 'NAME'}`, so that an earlier kernel stores it",
            )
        return self.eval(source, dict(zip(t.attr, at, strict=True)))

    def mapped(self, t: Term, places: Places) -> Value:
        if t.attr == "where":
            return self.where(t, places)
        if t.attr == "exp" and t.args[0].op == "map" and t.args[0].attr == "-":
            value = self.exponential(t, places)
            if value is not None:
                return value
        if (
            not t.axes
            and t.dtype == "f32"
            and all(a.op in ("extent", "param", "const", "map", "ratio") for a in t.walk())
        ):
            return self.scalar(t)
        args = tuple(self.eval(a, places) for a in t.args)
        function = t.attr
        if self.share and function in ("exp", "exp2") and args[0].dims:
            exponent = args[0] if function == "exp2" else self.map("*", args[0], self.const(LOG2E))
            return self.power(exponent, self.title(t, "p"), below=False)
        if function in FLOORED and not _plain(t):
            function = FLOORED[function]
        if function == "softdiv":
            function = "/"
            weights = [x for x in t.args[1].walk() if x.op == "map" and x.attr == "exp"]
            if any(bottomless(self.g, x.args[0]) for x in weights):
                empty = self.map("==", args[1], self.const(0.0))  # a mask may empty the slice: 0 / 0 is 0 there
                args = (args[0], self.map("where", empty, self.const(1.0), args[1], name=args[1].name))
        value = self.map(function, *args, name=self.title(t, UNNAMED.get(function, "t")))
        if function == "-" and all(bottomless(self.g, a, inputs=False) for a in t.args):
            hidden = self.map("==", args[0], self.const(-math.inf))  # -inf less -inf is -inf: it stays hidden
            value = self.map("where", hidden, self.const(-math.inf), value, name=value.name)
        return value

    def exponential(self, t: Term, places: Places) -> Value | None:
        """exp(u - x): one multiply-add and one exponential, in base 2 where the schedule says so."""
        u, x = t.args[0].args
        if not places and (ahead := self.running(x)) is not None:
            x = ahead.term
        if not places and x in self.pivots and self.running(u) is self.pivots[x]:
            return self.const(1.0)  # the reference of this very block
        pivot = None if places else self.pivots.get(x) or self.still_maximum(u, x)
        name = self.title(t, "p")
        empty = bottomless(self.g, u) and bottomless(self.g, x)
        if pivot is not None:
            reference = pivot.reference
            if u is pivot.term.args[0]:
                core, factor = pivot.core, pivot.factor
            else:
                core, factor = u, self.g.const(LOG2E) if self.log2 else None
        elif self.log2 or empty:
            core, factor = self.scaled(u, False)
            reference = self.eval(x, places)
            if self.log2:
                reference = self.map("*", reference, self.const(LOG2E))
            if empty:  # the weight of what a mask hid is 0, whatever the reference
                reference = self.map("max", reference, self.const(LOWEST), name=reference.name)
        else:
            return None
        below = pivot is not None and u is pivot.term.args[0]
        value = pivot.scores if pivot is not None and below and pivot.scores is not None else self.eval(core, places)
        if factor is not None:
            value = self.map("*", value, self.scalar(factor))
        return self.power(self.map("-", value, reference), name, below)

    def power(self, x: Value, name: str, below: bool) -> Value:
        """e^x, or 2^x where the base is 2. below: x cannot overflow, as it stands against the maximum of its row."""
        if self.share and x.dims:
            x = self.widened(x) if x.dtype in LOW_FLOATS else x
            return self.emit("exp2", (x,), (self.share, below), x.dims, "f32", name)
        return self.map("exp2" if self.log2 else "exp", x, name=name)

    def selected(self, t: Term, places: Places) -> Value:
        """topk, bottomk: the place of each in the order of all, compared with how many are wanted (rule 14)."""
        kind, axis = t.attr
        x, wanted = t.args
        value = self.eval(x, places)
        if value.dims != (axis,):
            fix = f"leave {axis} whole and give every other axis of its kernel a tile of 1"
            raise NotLowered(f"`{kind}` needs a tile that holds `{axis}` alone", self.g.lines.get(t, Span()), fix)
        value = self.widened(value) if value.dtype in LOW_FLOATS else value
        if kind == "bottomk":
            value = self.map("neg", value)
        if self.needs_mask(axis):
            value = self.masked(value, (self.in_range(axis),), {}, -math.inf, value.name)
        index = self.place(axis, {}).value
        place = self.emit("rank", (value, index), axis, (axis,), "i32", f"{self.title(x, 'x')}_rank")
        return self.map("<", place, self.eval(wanted), name=self.title(t, kind))

    def scaled(self, t: Term, need_positive: bool) -> tuple[Term, Term | None]:
        """`t` as core * factor, ready for an exponential: log2(e) is folded into the factor where the base is 2."""
        core, scale = pull_scale(self.g, t, need_positive)
        if not self.log2:
            return core, scale
        return core, self.g.const(LOG2E) if scale is None else self.g.map("*", self.g.const(LOG2E), scale)

    def still_maximum(self, u: Term, x: Term) -> Pivot | None:
        """x = max(u) over axes held whole, as a reference: its scale stays outside, its operand is guarded once."""
        if x.op != "reduce" or x.attr[0] != "max" or x.args[0] is not u or any(x.attr[2]):
            return None
        if any(a in self.walked for a in x.attr[1]) or u.dtype not in FLOATS:
            return None
        found = next((s.maxima[x] for s in reversed(self.scopes) if x in s.maxima), None)
        if found is None:
            core, factor = self.scaled(u, True)
            self.titles.setdefault(core, self.title(u, "s"))
            scores = self.guarded(self.eval(core), core, x.attr[1], -math.inf)
            top = self.reduced("max", scores, x.attr[1], self.title(u, "s") + "_max")
            if factor is not None:
                top = self.map("*", top, self.scalar(factor), name=top.name)
            if bottomless(self.g, u):  # a row may be masked out whole; after the factor, or it overflows to -inf again
                top = self.map("max", top, self.const(LOWEST), name=top.name)
            found = Pivot(x, core, factor, top, top, scores)
            self.scopes[min(self.home.get(top, 0), len(self.scopes) - 1)].maxima[x] = found
        return found

    def reduction(self, t: Term, places: Places) -> Value:
        if t in self.pivots:
            p = self.pivots[t]
            if self.log2:
                return self.map("*", p.reference, self.const(1 / LOG2E), name=self.title(t, p.variable.name))
            return p.reference
        if t in self.variables:
            return self.variables[t]
        if any(a in self.k.inner and a not in self.starts for a in t.attr[1]):
            return self.walked_inside(t, places)
        product = self.contraction(t, places)
        if product is not None:
            a, b, attr, dims = product
            return self.emit("dot", (a, b), attr, dims, attr.out, self.title(t, "product"))
        return self.partial(t, places)

    def walked_inside(self, t: Term, places: Places) -> Value:
        """A sum over an axis that has a loop of its own, right where the sum is needed."""
        (axis, *more), kind = [a for a in t.attr[1] if a in self.k.inner], t.attr[0]
        step = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "or", "all": "and"}[kind]
        if more:
            raise NotLowered(f"a sum over both `{axis}` and `{more[0]}` has no lowering yet", fix=f"tile {axis}=all")
        dims = self.dims([a for a in t.axes if a not in places])
        name = self.title(t, "acc")
        first = self.emit("full", (), NEUTRAL[kind], dims, t.dtype, name)
        total = Value(name, dims, t.dtype)
        self.home[total] = len(self.scopes) - 1
        self.here().append(Op("set", None, (first,), total))
        start = Value(f"{axis}0", (), "i32")
        loop = Loop(axis, start, self.const(0), self.extent_value(axis), True, [])
        self.scopes.append(Scope(loop.body, axis, True))
        self.starts[axis], self.home[start] = start, len(self.scopes) - 1
        product = self.contraction(t, places)
        if product is None:
            joined = self.emit("map", (total, self.partial(t, places)), step, dims, t.dtype, name)
        else:
            a, b, attr, dims_ = product
            joined = self.emit("dot", (a, b, total), attr, dims_, t.dtype, name)
        self.here().append(Op("set", None, (joined,), total))
        self.scopes.pop()
        del self.starts[axis]
        self.here().append(loop)
        self.forget()
        return total

    def forget(self) -> None:
        """Places inside a region that has closed."""
        self.places = {k: p for k, p in self.places.items() if self.home.get(p.value, 0) < len(self.scopes)}

    def partial(self, t: Term, places: Places | None = None) -> Value:
        kind, axes = t.attr[0], t.attr[1]
        value = self.eval(t.args[0], places)
        neutral = NEUTRAL.get(kind)
        if neutral is None:
            raise NotLowered(f"`{kind}` has no lowering yet", self.g.lines.get(t, Span()))
        value = self.guarded(value, t.args[0], axes, neutral)
        if value.dtype in LOW_FLOATS or (kind == "argmax" and value.dtype in INTEGERS):
            value = self.widened(value)
        elif kind in ("sum", "max", "min", "prod") and value.dtype in INTEGERS and value.dtype != t.dtype:
            value = self.emit("cast", (value,), t.dtype, value.dims, t.dtype, value.name)
        return self.reduced(kind, value, axes, self.title(t, f"{self.title(t.args[0], value.name)}_{kind}"))

    def reduced(self, kind: str, value: Value, axes: Iterable[str], name: str) -> Value:
        for a in axes:
            if a in value.dims:
                rest = tuple(d for d in value.dims if d != a)
                dtype = "i32" if kind == "argmax" else value.dtype
                value = self.emit("reduce", (value,), (kind, (a,)), rest, dtype, name)
        return value

    def is_product(self, t: Term) -> bool:
        return t.attr[0] == "sum" and self.operands(t) is not None

    def operands(self, t: Term) -> tuple[Term, Term, str] | None:
        """The two operands of a matrix product and the axis it sums over, or None where `t` is no such product."""
        if t.op != "reduce" or t.attr[0] != "sum":
            return None
        held = [a for a in t.attr[1] if a in self.k.lengths or a in self.k.whole]
        parts = factors(t.args[0])
        if len(held) != 1 or len(parts) < 2 or any(how != "*" for _, how in parts):
            return None
        (axis,) = held
        ordered = [p for p, _ in sorted(parts, key=lambda x: -len(self.held_dims(x[0])))]
        groups = self.grouped(ordered, axis, apart=True)
        if len(groups) != 2:
            groups = self.grouped(ordered, axis, apart=False)
        if len(groups) != 2:
            return None
        a, b = (self.product_of(g) for g in groups)
        fa, fb = self.held_dims(a) - {axis}, self.held_dims(b) - {axis}
        if axis not in self.held_dims(a) or axis not in self.held_dims(b) or len(fa) != 1 or len(fb) != 1 or fa & fb:
            return None
        (da,), (db,) = fa, fb
        if min(self.length(da), self.length(db), self.length(axis)) < 16:
            return None
        return (a, b, axis) if self.order[da] < self.order[db] else (b, a, axis)

    def grouped(self, parts: list[Term], axis: str, apart: bool) -> list[list[Term]]:
        """The factors of a product by the dims that they bring; `apart`: a declared one is no part of an undeclared."""
        groups: list[list[Term]] = []
        for p in parts:
            free = self.held_dims(p) - {axis}
            home = next((g for g in groups if free <= self.held_dims(g[0])), None)
            split = apart and len(groups) == 1 and free and home and not home[0].declared and p.declared
            if home is not None and home[0] is not p and not split:
                home.append(p)
            else:
                groups.append([p])
        return groups

    def held_dims(self, t: Term) -> frozenset[str]:
        """The dims that the term's value has in the tile: a block axis that rides on a tile is one index."""
        if t not in self.held:
            self.held[t] = frozenset(self.dims_in_tile(t))
        return self.held[t]

    def dims_in_tile(self, t: Term) -> Iterable[str]:
        if t.op == "refine":
            coarse, fine = t.attr
            below = self.held_dims(t.args[0]) - {coarse}
            return below if self.k.riders.get(coarse) == fine else below | set(self.dims((fine,)))
        if t.op == "reduce":
            return self.held_dims(t.args[0]) - set(t.attr[1])
        if t.op in ("map", "cast"):
            return frozenset().union(*(self.held_dims(a) for a in t.args))
        return self.dims(t.axes)

    def product_of(self, group: list[Term]) -> Term:
        result = group[0]
        for t in group[1:]:
            result = self.g.map("*", result, t)
        return result

    def length(self, dim: str) -> int:
        return self.k.lengths.get(dim, 16)

    def contraction(
        self, t: Term, places: Places | None = None
    ) -> tuple[Value, Value, DotAttr, tuple[str, ...]] | None:
        found = self.operands(t)
        if found is None:
            return None
        a, b, axis = found
        if a.declared and b.declared and a.dtype != b.dtype:
            raise NotLowered(
                f"a contraction of {a.dtype} with {b.dtype}",
                self.g.lines.get(t, Span()),
                "cast one to the other's dtype",
            )
        dtype = a.dtype if a.declared else b.dtype if b.declared else "f32"
        values = []
        for term, other in ((a, b), (b, a)):
            value = self.eval(term, places)
            if self.needs_mask(axis):
                zero, others = self.padding(term, axis), self.padding(other, axis)
                some = finite(term) or (zero is not None and math.isfinite(zero))  # times 0 it is 0
                if zero != 0 and (others != 0 or not some):
                    value = self.guarded(value, term, (axis,), 0.0)
            if value.dtype != dtype:
                value = self.emit("cast", (value,), dtype, value.dims, dtype, value.name)
            values.append(value)
        va, vb = values
        (m,) = (d for d in va.dims if d != axis)
        (n,) = (d for d in vb.dims if d != axis)
        self.k.multiplied |= {m, n, axis}
        out = "i32" if dtype == "int8" else t.attr[3] or "f32"
        attr = DotAttr(va.dims != (m, axis), vb.dims != (axis, n), dtype, out)
        return va, vb, attr, (m, n)
