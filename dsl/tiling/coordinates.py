"""Where a tile reads and writes: the coordinate of each axis, coarse at fine ones, masks, descriptors."""

from __future__ import annotations

from dataclasses import dataclass

from dsl.syntax import Number
from dsl.terms import Term
from dsl.tile import Coordinate, LoadAttr, TileKernel, Value
from dsl.tiling.regions import NotLowered, Regions

BYTES = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "int8": 1, "bool": 1}


@dataclass(frozen=True, eq=False)
class Place:
    """Where an axis is read: `value` is the coordinate; `axis` is set while it still is that axis of the tile;
    `tails`: the axes whose tail makes it invalid; `checked`: it may be out of range; `counted`: but not below 0."""

    value: Value
    axis: str | None
    tails: tuple[str, ...]
    checked: bool = False
    counted: bool = False


Places = dict[str, Place]


class Coordinates(Regions):
    """Places of axes, and the loads and stores made of them."""

    def __init__(self, kernel: TileKernel, outputs: dict[str, Term]) -> None:
        super().__init__(kernel, outputs)
        self.places: dict[tuple[object, ...], Place] = {}

    def place(self, axis: str, places: Places) -> Place:
        if axis in places:
            return places[axis]
        if axis in self.k.riders:
            return self.coarse(axis, self.k.riders[axis], places)
        key = ("axis", axis, id(self.starts.get(axis)))
        if key not in self.places:
            if axis in (*self.k.loops, *self.k.inner) and axis not in self.starts:
                raise NotLowered(f"axis `{axis}` is read outside its stream")
            start = self.starts[axis] if axis in self.starts else self.const(0)
            value = start
            if axis in self.k.lengths or axis in self.k.whole:
                value = self.emit("arange", (start,), axis, (axis,), "i32", f"{axis}s")
            elif axis not in self.starts:
                raise NotLowered(f"axis `{axis}` has no place in this kernel's tile")
            self.places[key] = Place(value, axis, (axis,))
        return self.places[key]

    def coarse(self, coarse: str, fine: str, places: Places) -> Place:
        """The place of a coarse axis at its fine one: index // ratio, a scalar where one block holds the whole tile."""
        if self.k.bounded.get(fine) == coarse and fine not in places:
            return self.place(coarse, {})  # the block that the grid is at
        at = self.place(fine, places)
        key = ("coarse", coarse, id(at))
        if key not in self.places:
            axis = self.g.axes[coarse]
            assert axis.fine is not None
            below = at if axis.fine == fine else self.coarse(axis.fine, fine, places)
            value = below.value
            ratio = axis.ratio.value if isinstance(axis.ratio, Number) else None
            length = self.k.lengths.get(fine, 1)
            if (
                below is at
                and at.axis == fine
                and ratio
                and isinstance(ratio, int)
                and ratio % length == 0
                and fine in self.starts
            ):
                value = self.starts[fine]  # the tile lies within one block
            step = self.emit("ratio", (), coarse, (), "i32", f"{coarse}_ratio")
            value = self.map("//", value, step, name=coarse)
            self.places[key] = Place(value, None, at.tails if value.dims else ())
        return self.places[key]

    def needs_mask(self, axis: str) -> bool:
        if axis in self.k.loops:
            return axis in self.k.lengths and next((s.masked for s in self.scopes if s.loop == axis), True)
        if axis in self.k.whole:
            return axis in self.k.padded
        return axis in self.k.lengths

    def in_range(self, axis: str) -> Value:
        at = self.place(axis, {})
        return self.map("<", at.value, self.extent_value(axis), name=f"in_{axis}")

    def load(self, t: Term, at: tuple[Place, ...]) -> Value:
        """One tile of a tensor; dims in memory order. Out of range reads 0."""
        dims = tuple(dict.fromkeys(d for p in at for d in p.value.dims))
        values, attr = self.access(t.attr, t.dtype, at)
        return self.emit("load", values, attr, dims, t.dtype, t.attr)

    def access(self, tensor: str, dtype: str, at: tuple[Place, ...]) -> tuple[tuple[Value, ...], LoadAttr]:
        """Operands and attributes of a load or store: by descriptor, or by pointers with masks for the tails."""
        coordinates = tuple(Coordinate(p.axis if p.value.dims else None, p.checked, p.counted) for p in at)
        if self.by_descriptor(tensor, dtype, at):
            firsts = tuple(self.starts.get(p.axis or "", self.const(0)) if p.value.dims else p.value for p in at)
            return firsts, LoadAttr(tensor, coordinates, (), True)
        tails = tuple(dict.fromkeys(a for p in at for a in p.tails if self.needs_mask(a)))
        vectors = tuple(self.place(a, {}).value for a in tails)
        return (*(p.value for p in at), *vectors), LoadAttr(tensor, coordinates, tails)

    def by_descriptor(self, tensor: str, dtype: str, at: tuple[Place, ...]) -> bool:
        """TMA moves tiles of two or more dims whose last one is contiguous in memory and at least 16 bytes long."""
        if self.k.schedule.load != "tma" or not at or len(at) > 5 or dtype not in BYTES:
            return False
        last = at[-1]
        if any(p.checked or (p.value.dims and p.axis is None) for p in at) or not last.value.dims:
            return False
        held = sum(bool(p.value.dims) for p in at)
        length = self.k.lengths.get(last.value.dims[0], 16)
        return held >= 2 and length * BYTES[dtype] >= 16
