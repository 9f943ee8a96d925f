"""Loads and stores as Triton source: descriptors, or a 64-bit base with offsets and masks."""

from __future__ import annotations

from dsl.lowering.expressions import Expressions
from dsl.lowering.text import ADD, ATOM, MULTIPLY, Text
from dsl.tile import LoadAttr, Op, TileKernel, Value


class Memory(Expressions):
    """Everything that touches memory. `flat`: tensors that are addressed from their first element, in 32 bits."""

    def __init__(self, kernel: TileKernel) -> None:
        super().__init__(kernel)
        self.flat: dict[str, None] = {}

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
        if len(strides) > 1 and coordinates[0].dims:
            self.flat[attr.tensor] = None
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
        terms: list[tuple[str, str]] = []  # (index, stride); neighbouring dimensions joined by Horner's rule
        previous = -2
        for i, (v, axis) in enumerate(zip(coordinates, axes, strict=False)):
            if v.dims:
                continue
            index = self.text(v)
            self.keep(v, index)
            if terms and previous == i - 1:
                before = terms.pop()[0]
                if not strides[i] and not before.isdigit():  # one element of all: its place may need 64 bits
                    before = _wide(before)
                before = f"({before})" if "+" in before and not before.endswith(_WIDE) else before
                terms.append((f"{before} * {self.extent(axis)} + {index.at(MULTIPLY)}", strides[i]))
            else:
                terms.append((index.at(ADD), strides[i]))
            previous = i
        offsets = [_offset(index, stride) for index, stride in terms]
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

    def mask(self, attr: LoadAttr, coordinates: tuple[Value, ...], dims: tuple[str, ...]) -> str:
        parts: list[str] = []

        def within(t: Text, limit: str) -> str:
            return self.broadcast(Text(f"({t.source} < {limit})", ATOM, t.dims), dims).source

        axes = self.k.graph.tensors[attr.tensor][0]
        for axis, at in zip(attr.mask, coordinates[len(axes) :], strict=True):
            parts.append(within(self.text(at), self.extent(axis)))
        for v, c, axis in zip(coordinates, attr.coordinates, axes, strict=False):
            if c.checked:
                index = self.text(v)
                self.keep(v, index)
                below = f"{index.source} < {self.extent(axis)}"
                inside = below if c.counted else f"({index.source} >= 0) & ({below})"
                parts.append(self.broadcast(Text(f"({inside})", ATOM, index.dims), dims).source)
        parts = list(dict.fromkeys(parts))
        if len(parts) == 1 and parts[0].startswith("(") and parts[0].endswith(")") and parts[0].count("(") == 1:
            return parts[0][1:-1]
        return " & ".join(parts)


_WIDE = ".to(tl.int64)"


def _wide(index: str) -> str:
    return f"{index}{_WIDE}" if index.isidentifier() else f"({index}){_WIDE}"


def _offset(index: str, stride: str) -> str:
    """One scalar index times its stride, in 64 bits."""
    if not stride and (index.isdigit() or _WIDE in index):
        return index
    return _wide(index) + (f" * ({stride})" if " " in stride else f" * {stride}" if stride else "")
