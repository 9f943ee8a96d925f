"""The page that a kernel is printed on: lines, names, and values that wait to be written into what reads them."""

from __future__ import annotations

import keyword
from dataclasses import dataclass

from dsl.lowering.text import ATOM, LINE, MULTIPLY, Text
from dsl.printer import print_expr
from dsl.tile import If, Node, Op, TileKernel, Value


@dataclass
class Region:
    """What was known just before a loop or branch, and the line and indentation of its header."""

    line: int
    indent: int
    ready: dict[Value, Text]
    taken: set[str]
    bases: dict[tuple[object, ...], str]


class Page:
    """`lines` holds what is printed so far, without the kernel's own indentation."""

    def __init__(self, kernel: TileKernel) -> None:
        self.k = kernel
        self.lines: list[str] = []
        self.functions: set[str] = set()
        self.extents: set[str] = set()
        self.indent = 0
        self.names: dict[Value, str] = {}
        self.taken: set[str] = {"tl", "pid", *keyword.kwlist, *kernel.graph.params}  # the positions of `i` are `is`
        self.readers: dict[Value, Op] = {}  # an op that reads it, of many the last
        self.placed: set[Value] = set()  # indices into memory
        self.uses = self._count_uses()
        self.fixed: set[Value] = set()  # numbers, extents and what is made of them alone
        self.ready: dict[Value, Text] = {}  # values as the text that stands for them
        self.waiting: dict[Value, Text] = {}  # read once and not yet printed
        self.bases: dict[tuple[object, ...], str] = {}
        self.regions: list[Region] = []  # the loops and branches around the current line
        for v in kernel.hosts.values():
            self.ready[v] = Text(self.name(v), ATOM, ())

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
                if isinstance(n, Op):
                    self.readers[a] = n
            if isinstance(n, Op) and n.kind in ("load", "store"):
                self.placed.update(n.args)
            if isinstance(n, Op) and n.kind == "load":
                for a, c in zip(n.args, n.attr.coordinates, strict=False):
                    uses[a] += c.checked  # its range check reads it again
        return uses

    def put(self, line: str, note: str = "") -> None:
        self.lines.append("    " * self.indent + line + (f"  # {note}" if note else ""))

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

    def keep(self, v: Value, t: Text) -> None:
        """A text that will be read again."""
        if v not in self.ready:
            self.ready[v] = t


def _nodes(nodes: list[Node]) -> list[Node]:
    found: list[Node] = []
    for n in nodes:
        found.append(n)
        if not isinstance(n, Op):
            found += _nodes(n.body)
    return found
