"""The text of one role, printed from its nodes: layouts where Gluon wants them, and the ops of `plan`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dsl.lowering.body import Body
from dsl.lowering.gluon.exponent import called
from dsl.lowering.gluon.layouts import Layouts
from dsl.lowering.gluon.rewrite import ONCE
from dsl.lowering.text import ADD, ATOM, LINE, MULTIPLY, TRITON_TYPES, Text, number
from dsl.tile import DotAttr, If, LoadAttr, Node, Op, TileKernel, Value

# Functions that Gluon's language lacks: printed once at the top of the module where they are used.
DEFINITIONS = {
    "to_int8": "    return gl.minimum(gl.maximum(x + 12582912.0 - 12582912.0, -128.0), 127.0).to(gl.int8)",
    "narrowed": "    return gl.minimum(gl.maximum(x, -128), 127).to(gl.int8)",
    "sigmoid": "    return 1.0 / (1.0 + gl.exp(-x))",
    "tanh": "    return 2.0 / (1.0 + gl.exp(-2.0 * x)) - 1.0",
    "relu": "    return gl.maximum(x, 0.0)",
    "silu": "    return x / (1.0 + gl.exp(-x))",
    "gelu": "    return 0.5 * x * (1.0 + gl.erf(x * 0.7071067811865476))",
    "gelu_tanh": "    return x / (1.0 + gl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))",
    "softplus": "    return gl.maximum(x, 0.0) + gl.log(1.0 + gl.exp(-gl.abs(x)))",
}
REDUCTIONS = {
    "parts": """def parts(x):
    \"\"\"Sums of each row's elements, of each thread its own: eight neighbours lie in four threads.\"\"\"
    return gl.sum(x.reshape([x.shape[0], x.shape[1] // 8, 8]), 1)""",
    "rows_of": """def rows_of(x, parts):
    \"\"\"One value a row beside the parts of rows.\"\"\"
    return gl.convert_layout(x, gl.SliceLayout(1, parts.type.layout))[:, None]""",
    "row_max": """def row_max(x, layout: gl.constexpr):
    \"\"\"The maximum of each row, in each thread first.\"\"\"
    of_thread = gl.max(x.reshape([x.shape[0], x.shape[1] // 8, 8]), 1)
    return gl.convert_layout(gl.max(of_thread, 1), layout)""",
}
BITS = {"bf16": 16, "f16": 16, "e4m3": 8, "e5m2": 8}  # of floats that others are rounded to


@dataclass(eq=False)
class For:
    """`for VAR in range(lo, hi)`; left out where none of the compile-time `flags` holds."""

    var: str
    lo: str | Value
    hi: Value
    body: list[Node | For]
    note: str = ""
    flags: tuple[Value, ...] = ()


def every(nodes: Iterable[Node | For]) -> Iterator[Op]:
    """Every op, loops and branches entered."""
    for n in nodes:
        if isinstance(n, Op):
            yield n
        else:
            yield from every(n.body)


class RoleBody(Body):
    """Prints `nodes` (a tile kernel's, and `For`) for one role. `split`: the axis whose rows consumers share out."""

    def __init__(self, kernel: TileKernel, nodes: list[Node | For], split: str, layouts: Layouts) -> None:
        self.split = split
        self.layouts = layouts
        self.used: set[tuple[str, ...]] = set()  # layouts that are read
        super().__init__(replace(kernel, body=nodes))  # type: ignore[arg-type]
        self.rounded = self._only_rounded()
        self.taken |= {"gl", "WG", "ROWS", "block", "turn", "j", "barrier", "fetch", "write", "mbarrier", "tma"}
        self.taken |= {"tiles", "place", "row", "begin", "end"}

    def _count_uses(self) -> dict[Value, int]:
        uses: dict[Value, int] = {}

        def count(nodes: list[Node | For]) -> None:
            for n in nodes:
                if isinstance(n, Op):
                    args: tuple[object, ...] = n.args
                elif isinstance(n, If):
                    args = (n.condition,)
                    count(list(n.body))
                else:
                    args = (n.lo, n.hi, *(n.flags if isinstance(n, For) else n.only_if))
                    count(list(n.body))
                for a in args:
                    if isinstance(a, Value):
                        uses[a] = uses.get(a, 0) + 1

        count(list(self.k.body))
        return uses

    def _only_rounded(self) -> set[Value]:
        """f32 values that only casts to fewer bits read."""
        ops = list(every(self.k.body))
        narrow = {op.args[0] for op in ops if op.kind == "cast" and op.attr in BITS}
        return narrow - {a for op in ops if op.kind != "cast" or op.attr not in BITS for a in op.args}

    def nodes(self, nodes: list[Node]) -> None:
        plain: list[Node] = []
        for n in nodes:
            if isinstance(n, For):
                super().nodes(plain)
                plain = []
                self.walk(n)
            else:
                plain.append(n)
        super().nodes(plain)

    def walk(self, n: For) -> None:
        ends = []
        for v in (n.lo, n.hi):
            if isinstance(v, Value):
                t = self.text(v)
                self.keep(v, t)
                ends.append(t.source)
            else:
                ends.append(v)
        flags = [self.text(f).source for f in n.flags]
        self.settle()
        if flags:
            self.put(f"if {' or '.join(flags)}:")
            self.indent += 1
        self.put(f"for {n.var} in range({ends[0]}, {ends[1]}):", n.note)
        self.nested(n.body)  # type: ignore[arg-type]
        self.indent -= bool(flags)

    def block(self, axis: str) -> str:
        """The length of the whole tile along an axis."""
        return super().length(axis)

    def length(self, dim: str) -> str:
        return "ROWS" if dim == self.split else super().length(dim.removesuffix(ONCE))

    def layout(self, dims: tuple[str, ...]) -> str:
        self.used.add(dims)
        return self.layouts.names[dims]

    def op(self, n: Op, direct: bool = False) -> None:
        match n.kind:
            case "line":
                self.settle()
                self.put(n.attr, n.note)
            case "issue":
                self.issue(n)
            case "settle":
                self.settle_product(n)
            case "above":
                self.settle()
                assert n.out is not None
                self.functions.add("any_above")
                self.assign(n.out, Text(f"any_above({self.text(n.args[0]).source}, WG) != 0", ATOM, ()), n.note)
            case "rose":
                self.settle()
                assert n.out is not None
                self.functions.add("any_rose")
                if len(n.args) > 1:
                    self.functions.add("summed")
                    self.put(f"summed({self.text(n.args[1]).source}, WG)")
                self.assign(n.out, Text(f"any_rose({self.text(n.args[0]).source}, WG) != 0", ATOM, ()), n.note)
            case "more":
                self.settle()
                self.put(f"more = {n.attr.format(self.text(n.args[0]).source)}")
            case "view":
                assert n.out is not None
                self.ready[n.out] = Text(self.view(n), ATOM, n.out.dims)
            case "fetch":
                self.fetch(n)
            case "hold":
                self.settle()
                assert n.out is not None
                view = self.text(n.args[0]).source
                self.assign(n.out, Text(f"{view}.load({self.operand_layout(n)})", ATOM, n.out.dims), n.note)
            case _:
                super().op(n, direct)

    def settle_product(self, n: Op) -> None:
        self.settle()
        name = self.text(n.args[0]).source
        self.put(f"{name} = warpgroup_mma_wait({n.attr[0]}, deps=({name},))", n.note)

    def operand_layout(self, n: Op) -> str:
        dims, dtype = n.attr
        return f"gl.DotOperandLayout(0, {self.layout(dims)}, {32 // BITS.get(dtype, 8)})"

    def issue(self, n: Op) -> None:
        """A matrix product under way: `acc` goes on where there is one."""
        attr: DotAttr = n.attr[0]
        out = n.out
        assert out is not None
        left, right = self.operands(n.args[0], n.args[1], attr)
        self.settle()
        if len(n.args) == 3:
            acc = self.text(n.args[2]).source
            self.names[out] = acc
            self.ready[out] = Text(acc, ATOM, out.dims)
            self.call(f"{acc} = warpgroup_mma", [left, right, acc, "is_async=True"])
            return
        shape = ", ".join(self.length(d) for d in out.dims)
        zero = f"gl.zeros(({shape}), {TRITON_TYPES[out.dtype]}, {self.layout(out.dims)})"
        self.call(f"{self.name(out)} = warpgroup_mma", [left, right, zero, "use_acc=False", "is_async=True"])
        self.ready[out] = Text(self.name(out), ATOM, out.dims)

    def operands(self, a: Value, b: Value, attr: DotAttr) -> tuple[str, str]:
        left, right = (self.text(x).source for x in (a, b))
        left = f"{left}.permute((1, 0))" if attr.transpose_a else left
        return left, f"{right}.permute((1, 0))" if attr.transpose_b else right

    def call(self, function: str, args: list[str]) -> None:
        """A call as a statement, over several lines where it is long."""
        source = f"{function}({', '.join(args)})"
        if len(source) + 4 * self.indent < LINE:
            self.put(source)
            return
        self.put(f"{function}(")
        for a in args:
            self.put(f"    {a},")
        self.put(")")

    def expression(self, n: Op) -> Text:
        out = n.out
        assert out is not None
        match n.kind:
            case "block":
                return Text(self.block(n.attr), ATOM, ())
            case "start":
                return Text(f"tile_{n.attr} * {self.block(n.attr)}", ADD, ())
            case "own":
                return Text(f"{self.text(n.args[0]).source} + WG * ROWS", ADD, ())
            case "from":  # the first index of the block that is so many blocks before the last one
                last = self.text(n.args[0]).source
                return Text(f"{last} - j * {self.block(n.attr)}", ADD, ())
            case "count":  # blocks between two indices
                lo, hi = (self.text(x) for x in n.args)
                span = hi.source if lo.source == "0" else f"{hi.at(ADD)} - {lo.at(ATOM)}"
                return Text(f"gl.maximum(gl.cdiv({span}, {self.block(n.attr)}), 0)", ATOM, ())
            case "total":  # all blocks; at least one is visited, where masks hide all of it
                parts = [self.text(x).source for x in n.args]
                return Text(f"gl.maximum({' + '.join(parts)}, 1)", ATOM, ())
            case "last":  # the first index of the last block
                lo, blocks, some = (self.text(x) for x in n.args)
                back = f"({blocks.source} - 1) * {self.block(n.attr)}"
                if lo.source == "0":
                    return Text(back, ADD, ())
                return Text(f"{back} + ({lo.source} if {some.source} > 0 else 0)", ADD, ())
            case "no_parts":
                rows, columns = (self.length(d) for d in n.attr)
                self.functions.add("parts")
                source = f"parts(gl.zeros(({rows}, {columns}), gl.float32, {self.layout(n.attr)}))"
                return Text(source, ATOM, out.dims)
            case "parts":
                x = self.text(n.args[0])
                self.functions.add("parts")
                return Text(f"parts({x.source})", ATOM, out.dims, x.reads)
            case "more_parts":
                x, factor = (self.text(a) for a in n.args)
                self.functions.add("rows_of")
                source = f"{x.at(ATOM)} * rows_of({factor.source}, {x.source})"
                return Text(source, MULTIPLY, out.dims, x.reads | factor.reads)
            case "join":
                x = self.text(n.args[0])
                return Text(
                    f"gl.convert_layout(gl.sum({x.source}, 1), {self.layout(out.dims)})", ATOM, out.dims, x.reads
                )
            case "row_max":
                x = self.text(n.args[0])
                self.functions.add("row_max")
                return Text(f"row_max({x.source}, {self.layout(out.dims)})", ATOM, out.dims, x.reads)
            case "exp2":
                x, (share, below) = self.text(n.args[0]), n.attr
                if len(out.dims) < 2:
                    return Text(f"gl.exp2({x.source})", ATOM, out.dims, x.reads)
                self.functions.add(called(share, below))
                return Text(f"{called(share, below)}({x.source})", ATOM, out.dims, x.reads)
            case "spread":
                x = self.text(n.args[0])
                return Text(f"gl.convert_layout({x.source}, {self.layout(out.dims)})", ATOM, out.dims, x.reads)
            case "operand":
                x = self.text(n.args[0])
                return Text(f"gl.convert_layout({x.source}, {self.operand_layout(n)})", ATOM, out.dims, x.reads)
            case "full" if out.dims:
                shape = ", ".join(self.length(d) for d in out.dims) + "," * (len(out.dims) == 1)
                dtype = TRITON_TYPES[out.dtype]
                return Text(f"gl.full(({shape}), {number(n.attr)}, {dtype}, {self.layout(out.dims)})", ATOM, out.dims)
            case "arange":
                start = self.text(n.args[0])
                vector = f"gl.arange(0, {self.length(out.dims[0])}, layout={self.layout(out.dims)})"
                if start.source == "0":
                    return Text(vector, ATOM, out.dims)
                return Text(f"{start.at(ADD)} + {vector}", ADD, out.dims, start.reads)
        return super().expression(n)

    def fetch(self, n: Op) -> None:
        """A tile on its way into shared memory."""
        attr, slot, channel, rows = n.attr
        indices = []
        for v, c in zip(n.args, attr.coordinates, strict=True):
            t = self.text(v)
            self.keep(v, t)
            indices.append(f"{t.at(ADD)} + {rows}" if rows and c.axis == self.split else t.source)
        self.settle()
        t = attr.tensor
        self.call(
            "fetch", [f"{t}_desc", f"[{', '.join(indices)}]", f"{channel}_full.index({slot})", f"{t}_s.index({slot})"]
        )

    def view(self, n: Op) -> str:
        """A buffer as a matrix; `attr`: tensor, its slot, and whether only the consumer's rows of it are meant."""
        tensor, slot, part = n.attr
        out = n.out
        assert out is not None
        source = f"{tensor}_s.index({slot})"
        if len(self.k.graph.tensors[tensor][0]) > len(out.dims):
            shape = ", ".join(self.block(d) if part else self.length(d) for d in out.dims)
            source += f".reshape([{shape}])"
        if part:
            source += f".slice(WG * ROWS, ROWS, dim={out.dims.index(self.split)})"
        return source

    def broadcast(self, t: Text, dims: tuple[str, ...]) -> Text:
        if not t.dims or t.dims == dims:
            return t
        axis = dims.index(t.dims[0])
        source = self.converted(t, t.dims, self.layouts.slice(dims, 1 - axis), dims)
        return Text(f"{source}{'[:, None]' if axis == 0 else '[None, :]'}", ATOM, dims, t.reads)

    def converted(self, t: Text, dims: tuple[str, ...], want: str, parent: tuple[str, ...]) -> str:
        """The vector in a layout that is a slice of `parent`'s."""
        if self.layouts.source[dims] == want:
            return t.at(ATOM)
        self.used.add(parent)
        return f"gl.convert_layout({t.source}, {want})"

    def reduced(self, n: Op) -> Text:
        t = super().reduced(n)
        x = n.args[0]
        have = self.layouts.slice(x.dims, x.dims.index(n.attr[1][0])) if t.dims else ""
        if not t.dims or self.layouts.source[t.dims] == have:
            return t
        return Text(f"gl.convert_layout({t.source}, {self.layout(t.dims)})", ATOM, t.dims, t.reads)

    def mapped(self, n: Op) -> Text:
        if n.attr == "/" and n.out in self.rounded and len(n.args[1].dims) == 1:
            # one reciprocal a row; its error is far below that of the rounding that follows
            a, b = (self.text(x) for x in n.args)
            out = n.out
            assert out is not None
            one = Text(f"1.0 / {b.at(MULTIPLY + 1)}", MULTIPLY, b.dims, b.reads)
            over = self.broadcast(one, out.dims)
            left = self.broadcast(a, out.dims)
            return Text(f"{left.at(MULTIPLY)} * {over.at(ATOM)}", MULTIPLY, out.dims, a.reads | b.reads)
        if n.attr == "sigmoid":
            x = self.text(n.args[0])
            self.functions.add("sigmoid")
            return Text(f"sigmoid({x.source})", ATOM, x.dims, x.reads)
        return super().mapped(n)

    def store(self, n: Op) -> None:
        attr: LoadAttr = n.attr
        if not attr.tma:
            super().store(n)
            return
        value, *coordinates = n.args
        tensor = attr.tensor
        dims = tuple(c.axis for c in attr.coordinates if c.axis)
        x = self.stored(tensor, value, dims)
        buffer = f"{tensor}_s.index(WG)"
        view = buffer
        if len(dims) < len(coordinates):
            view = f"{buffer}.reshape([{', '.join(self.length(d) for d in dims)}])"
        indices = self.indices(tuple(coordinates))
        self.settle()
        self.put("tma.store_wait(0)", "the buffer has left")
        self.put("barrier()")
        self.put(f"{view}.store({x.source})")
        self.put("fence_async_shared()")
        self.put("barrier()")
        self.put(f"write({tensor}_desc, [{indices}], {buffer})", n.note)
