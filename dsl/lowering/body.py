"""The body of one Triton kernel, printed from its tile program.

Values that are read once are written into the expression that reads them; the rest get names. Nothing is decided here:
what stands in the tile program is what is printed.
"""

from __future__ import annotations

from dsl.lowering.memory import Memory
from dsl.lowering.page import Region
from dsl.lowering.text import ATOM, LINE, Text
from dsl.tile import If, Loop, Node, Op, Value


class Body(Memory):
    """Prints `kernel.body` onto the page: `run` is the way in."""

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
        region = Region(len(self.lines) - 1, self.indent - 1, dict(self.ready), set(self.taken), dict(self.bases))
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

    def cast_at_once(self, loaded: Value) -> bool:
        """Whether a value is only ever read in another dtype, and that under a name: one line does both."""
        reader = self.readers.get(loaded)
        return reader is not None and reader.kind == "cast" and self.uses.get(reader.out, 0) > 1  # type: ignore[arg-type]

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
        if n.kind in ("const", "extent") or (n.kind == "map" and not n.out.dims and self.fixed.issuperset(n.args)):
            trivial = trivial or (n.out.dtype == "i32" and n.out not in self.placed)
            self.fixed.add(n.out)
        once = self.uses.get(n.out, 0) <= 1 and (
            direct
            or (len(t.source) < LINE - 30 and n.kind not in ("load", "dot", "start"))
            or (n.kind == "load" and self.cast_at_once(n.out))
        )
        if trivial:
            self.ready[n.out] = t
        elif once:
            self.waiting[n.out] = t
        else:
            self.assign(n.out, t, n.note)
