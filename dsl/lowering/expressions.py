"""Ops as Triton expressions: broadcasting, elementwise functions, reductions, matrix products."""

from __future__ import annotations

from dsl.lowering.page import Page
from dsl.lowering.text import (
    ADD,
    AND,
    ATOM,
    CALLS,
    COMPARE,
    MULTIPLY,
    OPERATORS,
    OR,
    TERNARY,
    TRITON_TYPES,
    UNARY,
    Text,
    number,
)
from dsl.tile import Op


class Expressions(Page):
    """Everything that computes; `dsl.lowering.memory` adds loads and stores."""

    def expression(self, n: Op) -> Text:
        out = n.out
        assert out is not None
        match n.kind:
            case "const":
                return Text(number(n.attr), ATOM if not number(n.attr).startswith("-") else UNARY, ())
            case "extent":
                return Text(self.extent(n.attr), ATOM, ())
            case "tail":
                return Text(f"TAIL_{n.attr.upper()}", ATOM, ())
            case "block":
                return Text(self.length(n.attr), ATOM, ())
            case "ratio":
                return self.ratio(n.attr)
            case "param":
                compile_time = self.k.graph.params[n.attr].dtype != "f32"
                return Text(n.attr.upper() if compile_time else n.attr, ATOM, ())
            case "full":
                shape = ", ".join(self.length(d) for d in out.dims)
                if not out.dims:
                    return Text(number(n.attr), ATOM, ())
                shape += "," * (len(out.dims) == 1)
                dtype = TRITON_TYPES[out.dtype]
                if n.attr == 0:
                    return Text(f"tl.zeros(({shape}), {dtype})", ATOM, out.dims)
                return Text(f"tl.full(({shape}), {number(n.attr)}, {dtype})", ATOM, out.dims)
            case "start":
                return Text(f"tile_{n.attr} * {self.length(n.attr)}", MULTIPLY, ())
            case "arange":
                start = self.text(n.args[0])
                vector = f"tl.arange(0, {self.length(n.attr)})"
                if start.source == "0":
                    return Text(vector, ATOM, out.dims)
                return Text(f"{start.at(ADD)} + {vector}", ADD, out.dims, start.reads)
            case "map":
                return self.mapped(n)
            case "exp2":
                share, below = n.attr
                x = self.text(n.args[0])
                self.functions.add(f"exp2_one_in_{share}")
                # what the fast units make infinite the polynomial must not wrap around
                most = "128.0, propagate_nan=tl.PropagateNan.ALL"
                source = x.source if below else f"tl.minimum({x.source}, {most})"
                return Text(f"exp2_one_in_{share}({source})", ATOM, out.dims, x.reads)
            case "select":
                flag, *branches = (self.text(x) for x in n.args)
                a, b = (self.broadcast(x, out.dims) for x in branches)
                source = f"{a.at(TERNARY + 1)} if {flag.source} else {b.at(TERNARY)}"
                return Text(source, TERNARY, out.dims, a.reads | b.reads, (flag.source, a.source, b.source))
            case "cast":
                x = self.text(n.args[0])
                if n.attr == "int8" and n.args[0].dtype not in ("i32", "bool"):
                    self.functions.add("to_int8")
                    return Text(f"to_int8({x.source})", ATOM, out.dims, x.reads)
                if n.attr == "i32" and n.args[0].dtype not in ("int8", "bool"):
                    self.functions.add("to_int32")
                    return Text(f"to_int32({x.source})", ATOM, out.dims, x.reads)
                if n.attr == "int8" and n.args[0].dtype == "i32":
                    self.functions.add("narrowed")
                    return Text(f"narrowed({x.source})", ATOM, out.dims, x.reads)
                return Text(f"{x.at(ATOM)}.to({TRITON_TYPES[n.attr]})", ATOM, out.dims, x.reads)
            case "scan":
                (kind, dim), x = n.attr, self.text(n.args[0])
                at = x.dims.index(dim)
                if kind == "runsum":
                    return Text(f"tl.cumsum({x.source}, {at})", ATOM, x.dims, x.reads)
                self.functions.add("larger")
                return Text(f"tl.associative_scan({x.source}, {at}, larger)", ATOM, x.dims, x.reads)
            case "rank":
                x, i = (self.text(a) for a in n.args)
                self.functions.add("rank")
                return Text(f"rank({x.source}, {i.source})", ATOM, out.dims, x.reads | i.reads)
            case "reduce":
                return self.reduced(n)
            case "dot":
                return self.dot(n)
            case "load":
                return self.load(n)
        raise AssertionError(n.kind)

    def broadcast(self, t: Text, dims: tuple[str, ...]) -> Text:
        """The text indexed so that its dims stand where they do in `dims`."""
        if not t.dims or t.dims == dims:
            return t
        kept = tuple(d for d in dims if d in t.dims)
        if kept != t.dims:
            order = ", ".join(str(t.dims.index(d)) for d in kept)
            turned = f"{t.at(ATOM)}.T" if len(kept) == 2 else f"tl.permute({t.source}, ({order}))"
            t = Text(turned, ATOM, kept, t.reads)
            if t.dims == dims:
                return t
        index = ", ".join(":" if d in t.dims else "None" for d in dims)
        return Text(f"{t.at(ATOM)}[{index}]", ATOM, dims, t.reads)

    def mapped(self, n: Op) -> Text:
        out, function = n.out, n.attr
        assert out is not None
        args = [self.broadcast(self.text(a), out.dims) for a in n.args]
        reads = frozenset().union(*(a.reads for a in args)) if args else frozenset()
        if function in OPERATORS:
            level = OPERATORS[function]
            a, b = args
            if level == COMPARE:
                return Text(f"{a.at(ADD)} {function} {b.at(ADD)}", level, out.dims, reads)
            return Text(f"{a.at(level)} {function} {b.at(level + 1)}", level, out.dims, reads)
        if function in ("and", "or"):
            scalar = not out.dims
            word, level = (
                (function, AND if function == "and" else OR)
                if scalar
                else ("&|"[function == "or"], AND if function == "and" else OR)
            )
            # & and | bind tighter than comparisons, so those need parentheses
            return Text(f"{args[0].at(ADD)} {word} {args[1].at(ADD)}", level - 2 if scalar else level, out.dims, reads)
        if function == "not":
            if not out.dims:  # `not` binds looser than `|` and every comparison
                return Text(f"not {args[0].at(ATOM)}", TERNARY, out.dims, reads)
            return Text(f"~{args[0].at(ATOM)}", UNARY, out.dims, reads)
        if function == "neg":
            return Text(f"-{args[0].at(UNARY)}", UNARY, out.dims, reads)
        if function in ("floor_div", "floor_mod") and out.dtype == "f32":
            function += "_f32"
        elif function in ("floor_div", "floor_mod") and args[1].source.isdigit():
            divisor = int(args[1].source)
            if divisor.bit_count() == 1:  # a shift and a mask round down
                bits = f">> {divisor.bit_length() - 1}" if function == "floor_div" else f"& {divisor - 1}"
                return Text(f"({args[0].at(ADD)} {bits})", ATOM, out.dims, reads)
        if function in CALLS:
            return Text(f"{CALLS[function]}({', '.join(a.source for a in args)})", ATOM, out.dims, reads)
        self.functions.add(function)
        return Text(f"{function}({', '.join(a.source for a in args)})", ATOM, out.dims, reads)

    def reduced(self, n: Op) -> Text:
        kind, (dim,) = n.attr
        x = self.text(n.args[0])
        axis = x.dims.index(dim)
        dims = tuple(d for d in x.dims if d != dim)
        name = {"sum": "tl.sum", "max": "tl.max", "min": "tl.min", "argmax": "tl.argmax"}.get(kind)
        if kind == "prod":
            self.functions.add("multiplied")
            return Text(f"tl.reduce({x.source}, {axis}, multiplied)", ATOM, dims, x.reads)
        if name is None:  # any and all over booleans
            inner = {"any": "tl.max", "all": "tl.min"}[kind]
            return Text(f"({inner}({x.at(ATOM)}.to(tl.int32), {axis}) > 0)", ATOM, dims, x.reads)
        return Text(f"{name}({x.source}, {axis})", ATOM, dims, x.reads)

    def dot(self, n: Op) -> Text:
        out, attr = n.out, n.attr
        assert out is not None
        a, b = self.text(n.args[0]), self.text(n.args[1])
        left = f"{a.at(ATOM)}.T" if attr.transpose_a else a.source
        right = f"{b.at(ATOM)}.T" if attr.transpose_b else b.source
        args = [left, right]
        reads = a.reads | b.reads
        if len(n.args) == 3:
            acc = self.text(n.args[2])
            args.append(acc.source)
            reads |= acc.reads
        if attr.dtype == "f32":
            args.append('input_precision="ieee"')
        if attr.out != "f32":  # Triton 3.6 wants it beside an accumulator too
            args.append(f"out_dtype={TRITON_TYPES[attr.out]}")
        return Text(f"tl.dot({', '.join(args)})", ATOM, out.dims, reads)

    def load(self, n: Op) -> Text:
        raise NotImplementedError
