"""The body of one Triton kernel, printed from its tile program.

Values that are read once are written into the expression that reads them; the rest get names. Nothing is decided here:
what stands in the tile program is what is printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsl.printer import print_expr
from dsl.tile import If, LoadAttr, Loop, Node, Op, TileKernel, Value

TRITON_TYPES = {
    "f32": "tl.float32", "f16": "tl.float16", "bf16": "tl.bfloat16", "e4m3": "tl.float8e4nv", "e5m2": "tl.float8e5",
    "int8": "tl.int8", "i32": "tl.int32", "bool": "tl.int1",
}  # fmt: skip

# Precedence of Python's operators, so that only the parentheses that are needed are printed.
TERNARY, OR, AND, COMPARE, ADD, MULTIPLY, UNARY, ATOM = 1, 4, 6, 3, 8, 9, 10, 12
OPERATORS = {
    "+": ADD, "-": ADD, "*": MULTIPLY, "/": MULTIPLY, "//": MULTIPLY, "%": MULTIPLY,
    "<": COMPARE, "<=": COMPARE, ">": COMPARE, ">=": COMPARE, "==": COMPARE, "!=": COMPARE,
}  # fmt: skip
CALLS = {
    "max": "tl.maximum", "min": "tl.minimum", "exp": "tl.exp", "exp2": "tl.exp2", "log": "tl.log", "log2": "tl.log2",
    "sqrt": "tl.sqrt", "rsqrt": "tl.rsqrt", "sigmoid": "tl.sigmoid", "erf": "tl.erf", "sin": "tl.sin", "cos": "tl.cos",
    "abs": "tl.abs", "floor": "tl.floor", "where": "tl.where",
}  # fmt: skip

# Functions that Triton lacks: printed once at the top of the module where they are used.
DEFINITIONS = {
    "tanh": "    return 2.0 * tl.sigmoid(2.0 * x) - 1.0",
    "relu": "    return tl.maximum(x, 0.0)",
    "silu": "    return x * tl.sigmoid(x)",
    "gelu": "    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))",
    "gelu_tanh": "    return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))",
    "softplus": "    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))",
}
LINE = 110


@dataclass(frozen=True)
class Text:
    """An expression: its source, its precedence, its dims, the variables that it reads, and, of a compile-time choice,
    (flag, yes, no)."""

    source: str
    level: int
    dims: tuple[str, ...]
    reads: frozenset[Value] = frozenset()
    branches: tuple[str, str, str] | None = None

    def at(self, level: int) -> str:
        return self.source if self.level >= level else f"({self.source})"


@dataclass
class _Region:
    """What was known just before a loop or branch, and the line and indentation of its header."""

    line: int
    indent: int
    ready: dict[Value, Text]
    taken: set[str]
    bases: dict[tuple[object, ...], str]


class Body:
    """Prints `kernel.body`. `lines` holds the result, without the kernel's indentation."""

    def __init__(self, kernel: TileKernel) -> None:
        self.k = kernel
        self.lines: list[str] = []
        self.functions: set[str] = set()
        self.extents: set[str] = set()
        self.indent = 0
        self.names: dict[Value, str] = {}
        self.taken: set[str] = {"tl", "pid"}
        self.uses = self._count_uses()
        self.ready: dict[Value, Text] = {}  # values as the text that stands for them
        self.waiting: dict[Value, Text] = {}  # read once and not yet printed
        self.bases: dict[tuple[object, ...], str] = {}
        self.regions: list[_Region] = []  # the loops and branches around the current line
        for v in kernel.hosts.values():
            self.ready[v] = Text(self.name(v), ATOM, ())

    # Names ------------------------------------------------------------------------------------------------------------

    def name(self, v: Value) -> str:
        if v not in self.names:
            base = name = v.name if v.name.isidentifier() else "t"
            i = 2
            while name in self.taken or (base in ("t", "tl") and name == "tl"):
                name, i = f"{base}{i}", i + 1
            self.taken.add(name)
            self.names[v] = name
        return self.names[v]

    def length(self, dim: str) -> str:
        """The block length of a dim, as it is named in the kernel's signature."""
        if dim in self.k.lengths or dim in self.k.padded:
            return f"BLOCK_{dim.upper()}"
        self.extents.add(dim)
        return dim.upper()

    def extent(self, axis: str) -> str:
        self.extents.add(axis)
        return axis.upper()

    def ratio(self, coarse: str) -> Text:
        expr = self.k.graph.axes[coarse].ratio
        assert expr is not None
        source = print_expr(expr)
        for axis in self.k.graph.axes:
            if axis.upper() in source:
                self.extents.add(axis)
        return Text(source, ATOM if source.isalnum() else MULTIPLY, ())

    def _count_uses(self) -> dict[Value, int]:
        uses: dict[Value, int] = {}
        for n in _nodes(self.k.body):
            args = n.args if isinstance(n, Op) else (n.condition,) if isinstance(n, If) else (n.lo, n.hi, *n.only_if)
            for a in args:
                uses[a] = uses.get(a, 0) + 1
            if isinstance(n, Op) and n.kind == "load":
                for a, c in zip(n.args, n.attr.coordinates, strict=False):
                    uses[a] += c.checked  # its range check reads it again
        return uses

    # Lines ------------------------------------------------------------------------------------------------------------

    def put(self, line: str, note: str = "") -> None:
        self.lines.append("    " * self.indent + line + (f"  # {note}" if note else ""))

    def run(self) -> Body:
        self.nodes(self.k.body)
        return self

    def nodes(self, nodes: list[Node]) -> None:
        for i, n in enumerate(nodes):
            if isinstance(n, Op):
                after = nodes[i + 1] if i + 1 < len(nodes) else None
                self.op(n, direct=isinstance(after, Op) and after.kind == "set" and after.args[0] is n.out)
            elif isinstance(n, If):
                condition = self.text(n.condition)
                self.settle()
                self.put(f"if {condition.source}:", n.note)
                self.nested(n.body)
            else:
                self.loop(n)

    def nested(self, nodes: list[Node]) -> None:
        self.indent += 1
        region = _Region(len(self.lines) - 1, self.indent - 1, dict(self.ready), set(self.taken), dict(self.bases))
        self.regions.append(region)
        self.nodes(nodes)
        self.settle()
        # names from inside a region mean nothing after it; variables keep theirs
        self.regions.pop()
        self.ready, self.bases, self.taken = region.ready, region.bases, region.taken
        self.indent -= 1

    def loop(self, n: Loop) -> None:
        lo, hi = self.text(n.lo), self.text(n.hi)
        self.keep(n.lo, lo)
        self.keep(n.hi, hi)
        flags = [self.text(f).source for f in n.only_if]
        self.settle()
        if flags:
            self.put(f"if {' or '.join(flags)}:")
            self.indent += 1
        start = self.name(n.start)
        step = self.length(n.axis) if n.axis in self.k.lengths else ""
        args = [lo.source, hi.source, step] if step else [lo.source, hi.source]
        self.put(f"for {start} in tl.range({', '.join(args)}):", n.note)
        self.nested(n.body)
        self.taken.discard(start)
        self.indent -= bool(flags)

    def settle(self, changed: Value | None = None) -> None:
        """Prints what waits to be read: all of it, or what reads the variable that is about to change."""
        for v, t in list(self.waiting.items()):
            if changed is None or changed in t.reads:
                del self.waiting[v]
                self.assign(v, t)

    def assign(self, v: Value, t: Text, note: str = "") -> None:
        name = self.name(v)
        if t.branches and len(t.source) > LINE - 4 * self.indent - len(name):
            flag, yes, no = t.branches
            self.put(f"if {flag}:", note)
            self.put(f"    {name} = {yes}")
            self.put("else:")
            self.put(f"    {name} = {no}")
        else:
            self.put(f"{name} = {t.source}", note)
        self.ready[v] = Text(name, ATOM, t.dims)

    def text(self, v: Value) -> Text:
        if v in self.waiting:
            return self.waiting.pop(v)
        if v in self.ready:
            return self.ready[v]
        return Text(self.name(v), ATOM, v.dims, frozenset({v}))  # a variable

    def op(self, n: Op, direct: bool = False) -> None:
        """`direct`: the value goes straight into a variable, so it needs no name of its own."""
        match n.kind:
            case "set":
                t = self.text(n.args[0])
                self.settle(n.attr)
                if t.source != self.name(n.attr):
                    self.put(f"{self.name(n.attr)} = {t.source}", n.note)
                return
            case "store":
                self.store(n)
                return
        assert n.out is not None
        if n.kind == "start" and n.attr not in self.k.lengths:
            self.ready[n.out] = Text(self.name(n.out), ATOM, ())  # the decoded program id is the index itself
            return
        t = self.expression(n)
        trivial = n.kind in ("const", "extent", "block", "tail", "param", "ratio", "full")
        once = self.uses.get(n.out, 0) <= 1 and (
            direct or (len(t.source) < LINE - 30 and n.kind not in ("load", "dot", "start"))
        )
        if trivial:
            self.ready[n.out] = t
        elif once:
            self.waiting[n.out] = t
        else:
            self.assign(n.out, t, n.note)

    # Expressions --------------------------------------------------------------------------------------------------------

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
            case "select":
                flag, a, b = (self.text(x) for x in n.args)
                source = f"{a.at(TERNARY + 1)} if {flag.source} else {b.at(TERNARY)}"
                return Text(source, TERNARY, out.dims, a.reads | b.reads, (flag.source, a.source, b.source))
            case "cast":
                x = self.text(n.args[0])
                return Text(f"{x.at(ATOM)}.to({TRITON_TYPES[n.attr]})", ATOM, out.dims, x.reads)
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
        if tuple(d for d in dims if d in t.dims) != t.dims:
            t = Text(f"{t.at(ATOM)}.T", ATOM, t.dims[::-1], t.reads)
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
            return Text(f"not {args[0].at(ATOM)}" if not out.dims else f"~{args[0].at(ATOM)}", UNARY, out.dims, reads)
        if function == "neg":
            return Text(f"-{args[0].at(UNARY)}", UNARY, out.dims, reads)
        if function == "softdiv":
            a, b = args
            if b.level < ATOM:
                b = Text(f"({b.source})", ATOM, b.dims, b.reads)
            return Text(f"{a.at(MULTIPLY)} / tl.where({b.source} == 0.0, 1.0, {b.source})", MULTIPLY, out.dims, reads)
        if function in CALLS:
            return Text(f"{CALLS[function]}({', '.join(a.source for a in args)})", ATOM, out.dims, reads)
        self.functions.add(function)
        return Text(f"{function}({', '.join(a.source for a in args)})", ATOM, out.dims, reads)

    def reduced(self, n: Op) -> Text:
        kind, (dim,) = n.attr
        x = self.text(n.args[0])
        axis = x.dims.index(dim)
        dims = tuple(d for d in x.dims if d != dim)
        name = {"sum": "tl.sum", "max": "tl.max", "min": "tl.min"}.get(kind)
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
        if attr.out not in ("f32",) and len(n.args) == 2:
            args.append(f"out_dtype={TRITON_TYPES[attr.out]}")
        return Text(f"tl.dot({', '.join(args)})", ATOM, out.dims, reads)

    # Memory -------------------------------------------------------------------------------------------------------------

    def load(self, n: Op) -> Text:
        attr: LoadAttr = n.attr
        out = n.out
        assert out is not None
        if attr.tma:
            source = f"{attr.tensor}_desc.load([{self.indices(n.args)}])"
            if len(out.dims) < len(n.args):
                source = f"{source}.reshape({', '.join(self.length(d) for d in out.dims)})"
            return Text(source, ATOM, out.dims)
        address = self.address(attr, n.args, out.dims)
        mask = self.mask(attr, n.args, out.dims)
        zero = "0.0" if out.dtype in ("f32", "f16", "bf16", "e4m3", "e5m2") else "0"
        guard = f", mask={mask}, other={zero}" if mask else ""
        return Text(f"tl.load({address}{guard})", ATOM, out.dims)

    def store(self, n: Op) -> None:
        attr: LoadAttr = n.attr
        value, *coordinates = n.args
        if attr.tma:
            dims = tuple(c.axis for c in attr.coordinates if c.axis)
            x = self.stored(attr.tensor, value, dims)
            source = x.source
            if len(dims) < len(coordinates):
                shape = ", ".join(self.length(c.axis) if c.axis else "1" for c in attr.coordinates)
                source = f"{x.at(ATOM)}.reshape({shape})"
            self.put(f"{attr.tensor}_desc.store([{self.indices(tuple(coordinates))}], {source})", n.note)
            return
        dims = tuple(dict.fromkeys(d for v in coordinates for d in v.dims))
        address = self.address(attr, tuple(coordinates), dims)
        mask = self.mask(attr, tuple(coordinates), dims)
        x = self.stored(attr.tensor, value, dims)
        self.put(f"tl.store({address}, {x.source}{f', mask={mask}' if mask else ''})", n.note)

    def stored(self, tensor: str, value: Value, dims: tuple[str, ...]) -> Text:
        """What is stored; a long expression gets the tensor's name first."""
        x = self.text(value)
        if len(x.source) > 40:
            self.names.setdefault(value, tensor if tensor not in self.taken else self.name(value))
            self.taken.add(tensor)
            self.assign(value, x)
            x = self.ready[value]
        return self.broadcast(x, dims)

    def indices(self, coordinates: tuple[Value, ...]) -> str:
        """The first index of each dimension, for a descriptor."""
        texts = []
        for v in coordinates:
            texts.append(self.text(v))
            self.keep(v, texts[-1])
        return ", ".join(t.source for t in texts)

    def strides(self, tensor: str) -> list[str]:
        axes = self.k.graph.tensors[tensor][0]
        return [" * ".join(self.extent(a) for a in axes[i + 1 :]) for i in range(len(axes))]

    def address(self, attr: LoadAttr, coordinates: tuple[Value, ...], dims: tuple[str, ...]) -> str:
        strides = self.strides(attr.tensor)
        parts = [self.base(attr.tensor, coordinates, strides)]
        for v, stride in zip(coordinates, strides, strict=False):
            if v.dims:
                at = self.broadcast(self.text(v), dims)
                factor = f" * ({stride})" if " " in stride else f" * {stride}" if stride else ""
                parts.append(f"{at.at(MULTIPLY if factor else ADD)}{factor}")
        return " + ".join(parts)

    def base(self, tensor: str, coordinates: tuple[Value, ...], strides: list[str]) -> str:
        """The address of the scalar coordinates, in 64 bits; printed once and named."""
        axes = self.k.graph.tensors[tensor][0]
        scalars = [(v, a, s) for v, a, s in zip(coordinates, axes, strides, strict=False) if not v.dims]
        if not scalars:
            return f"{tensor}_ptr"
        key = (tensor, *(v for v, _, _ in scalars))
        if key in self.bases:
            return self.bases[key]
        terms: list[tuple[str, str]] = []  # (index, stride), neighbours joined by Horner's rule
        previous = -2
        for i, (v, axis) in enumerate(zip(coordinates, axes, strict=False)):
            if v.dims:
                continue
            index = self.text(v)
            self.keep(v, index)
            if terms and previous == i - 1:
                index = Text(
                    f"{Text(terms[-1][0], ADD, ()).at(MULTIPLY) if '+' in terms[-1][0] else terms[-1][0]} * {self.extent(axis)} + {index.at(MULTIPLY)}",
                    ADD,
                    (),
                )
                terms[-1] = (index.source, strides[i])
            else:
                terms.append((index.at(ADD), strides[i]))
            previous = i
        offsets = []
        for index, stride in terms:
            if not stride and len(terms) == 1 and index.isdigit():
                offsets.append(index)
                continue
            wide = f"({index}).to(tl.int64)" if not index.isidentifier() else f"{index}.to(tl.int64)"
            offsets.append(wide + (f" * ({stride})" if " " in stride else f" * {stride}" if stride else ""))
        source = f"{tensor}_ptr + {' + '.join(offsets)}"
        base = f"{tensor}_at"
        i = 2
        while base in self.taken:
            base, i = f"{tensor}_at{i}", i + 1
        # in the outermost region that knows its indices: a loop does not compute it again
        outer = next((r for r in self.regions if all(v in r.ready for v, _, _ in scalars)), None)
        self.taken.add(base)
        self.bases[key] = base
        if outer is None:
            self.put(f"{base} = {source}")
            return base
        self.lines.insert(outer.line, "    " * outer.indent + f"{base} = {source}")
        for r in self.regions[self.regions.index(outer) :]:
            r.line += 1
            r.taken.add(base)
            r.bases[key] = base
        return base

    def keep(self, v: Value, t: Text) -> None:
        """A text that will be read again."""
        if v not in self.ready:
            self.ready[v] = t

    def mask(self, attr: LoadAttr, coordinates: tuple[Value, ...], dims: tuple[str, ...]) -> str:
        parts: list[str] = []

        def within(t: Text, limit: str) -> str:
            return self.broadcast(Text(f"({t.source} < {limit})", ATOM, t.dims), dims).source

        axes = self.k.graph.tensors[attr.tensor][0]
        for axis, at in zip(attr.mask, coordinates[len(axes) :], strict=True):
            parts.append(within(self.text(at), self.extent(axis)))
        for v, c, axis in zip(coordinates, attr.coordinates, axes, strict=False):
            if c.checked:
                at = self.text(v)
                self.keep(v, at)
                inside = f"(({at.source} >= 0) & ({at.source} < {self.extent(axis)}))"
                parts.append(self.broadcast(Text(inside, ATOM, at.dims), dims).source)
        parts = list(dict.fromkeys(parts))
        if len(parts) == 1 and parts[0].startswith("(") and parts[0].endswith(")") and parts[0].count("(") == 1:
            return parts[0][1:-1]
        return " & ".join(parts)


def number(value: float | bool) -> str:
    if isinstance(value, float) and math.isinf(value):
        return 'float("-inf")' if value < 0 else 'float("inf")'
    return repr(value)


def _nodes(nodes: list[Node]) -> list[Node]:
    found: list[Node] = []
    for n in nodes:
        found.append(n)
        if not isinstance(n, Op):
            found += _nodes(n.body)
    return found
