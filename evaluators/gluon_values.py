"""What an emulated Gluon kernel computes with: values, products under way, buffers, barriers, descriptors.

What is read before it is there raises `Misuse`.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dsl.rounding import round_to

Array = np.ndarray[Any, Any]


class Misuse(Exception):
    """A value is read before it is there, or a buffer before its copy was waited for."""


class Tensor(np.ndarray[Any, Any]):
    """A value that is there."""

    def to(self, dtype: DType, bitcast: bool = False) -> Tensor:
        if bitcast:
            raise NotImplementedError("bitcast")
        return tensor(dtype.rounded(np.asarray(self)))

    @property
    def type(self) -> Any:
        return types.SimpleNamespace(layout=None)


def tensor(x: Any) -> Tensor:
    return np.asarray(x).view(Tensor)


@dataclass(frozen=True)
class DType:
    name: str  # the language's
    kind: Any  # NumPy's, that holds its values

    def rounded(self, x: Array) -> Array:
        if self.name in ("bf16", "f16", "e4m3", "e5m2", "int8"):
            return round_to(x, self.name).astype(self.kind)
        return x.astype(self.kind)


DTYPES = {
    "float32": DType("f32", np.float32), "float16": DType("f16", np.float32), "bfloat16": DType("bf16", np.float32),
    "float8e4nv": DType("e4m3", np.float32), "float8e5": DType("e5m2", np.float32), "int8": DType("int8", np.int32),
    "int32": DType("i32", np.int32), "int64": DType("i64", np.int64), "int1": DType("bool", np.bool_),
}  # fmt: skip


class Scalar(int):
    """An integer that a kernel computes: it stays one through arithmetic."""

    def to(self, dtype: DType) -> Scalar:
        return self


def _staying(name: str) -> Callable[[Scalar, Any], Any]:
    plain = getattr(int, name)

    def operation(self: Scalar, other: Any) -> Any:
        found = plain(self, other)
        return Scalar(found) if found is not NotImplemented else found

    return operation


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod"):
    setattr(Scalar, f"__{_name}__", _staying(f"__{_name}__"))


@dataclass
class Pending:
    """A matrix product under way."""

    a: Any
    b: Any
    acc: Any
    whole: bool = False  # of integers
    value: Array | None = None

    def _early(self, *_: Any) -> Any:
        raise Misuse("a product is read that was not waited for")

    __mul__ = __rmul__ = __add__ = __radd__ = __sub__ = __truediv__ = __getitem__ = _early

    def finish(self) -> None:
        if self.value is None:
            a, b = (np.asarray(x.data if isinstance(x, Shared) else x, dtype=np.float32) for x in (self.a, self.b))
            with np.errstate(all="ignore"):
                self.value = matrix_product(a, b)
                if self.whole:
                    self.value = np.rint(self.value).astype(np.int32)
                if self.acc is not None:
                    acc = self.acc.value if isinstance(self.acc, Pending) else np.asarray(self.acc)
                    if acc is None:
                        raise Misuse("a product goes on with another that did not end")
                    self.value = self.value + acc


def matrix_product(a: Array, b: Array) -> Array:
    left, right = (torch.from_numpy(np.ascontiguousarray(x)) for x in (a, b))
    return (left @ right).numpy()


@dataclass
class Shared:
    """A buffer in shared memory, or a part of it."""

    data: Array

    def index(self, i: Any) -> Shared:
        i = int(i)
        if not 0 <= i < len(self.data):
            return Shared(
                np.full_like(self.data[0], np.nan)
            )  # the address alone is computed, for what a predicate leaves out
        return Shared(self.data[i])

    def reshape(self, shape: Sequence[int]) -> Shared:
        view = self.data.view()
        view.shape = tuple(shape)  # never a copy
        return Shared(view)

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.data.transpose(order))

    def slice(self, start: int, length: int, dim: int = 0) -> Shared:
        return Shared(self.data[(*[slice(None)] * dim, slice(start, start + length))])

    def load(self, layout: Any) -> Tensor:
        return tensor(self.data.copy())

    def store(self, value: Any) -> None:
        if isinstance(value, Pending):
            raise Misuse("a product is stored that was not waited for")
        self.data[...] = np.asarray(value)


@dataclass
class TensorMemory(Shared):
    """A buffer in tensor memory (sm_100), or one of several. `sums`: what the products so far have made of it, which
    shows in `data` when none is under way; `under_way`: how many are."""

    sums: Array = field(default_factory=lambda: np.zeros(0))
    under_way: Array = field(default_factory=lambda: np.zeros(1, np.int64))

    def index(self, i: Any) -> TensorMemory:
        return TensorMemory(self.data[int(i)], self.sums[int(i)], self.under_way[int(i) : int(i) + 1])

    def store(self, value: Any) -> None:
        super().store(value)
        self.sums[...] = self.data


@dataclass
class Barrier:
    """Arrivals and bytes that a phase still misses, and which phase it is."""

    count: int = 0
    missing: int = 0
    bytes: int = 0
    phase: int = 0

    def look(self) -> None:
        if self.missing == 0 and self.bytes == 0:
            self.phase ^= 1
            self.missing = self.count

    def arrive(self, count: int = 1) -> None:
        if self.missing < count:
            raise Misuse("more arrivals at a barrier than it counts")
        self.missing -= count
        self.look()


class Barriers:
    def __init__(self, number: int) -> None:
        self.all = [Barrier() for _ in range(number)]

    def index(self, i: Any) -> Barrier:
        return self.all[int(i) % len(self.all)]


@dataclass
class Pointer:
    flat: Any  # a flat torch tensor
    at: Any = 0

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.flat, self.at + offset)


@dataclass
class Descriptor:
    """A tensor as tiles."""

    x: torch.Tensor
    block: list[int]
    dtype: DType = field(default_factory=lambda: DTYPES["float32"])

    @property
    def layout(self) -> None:
        return None

    @property
    def block_type(self) -> Any:
        size = math.prod(self.block) * self.x.element_size()
        return types.SimpleNamespace(shape=list(self.block), nbytes=size)

    def part(self, at: Sequence[Any]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """(where a tile lies in the tensor, what of the tile does)."""
        inside, held = [], []
        for start, length, extent in zip(map(int, at), self.block, self.x.shape, strict=True):
            lo, hi = max(start, 0), min(start + length, extent)
            inside.append(slice(lo, max(lo, hi)))
            held.append(slice(lo - start, max(lo, hi) - start))
        return tuple(inside), tuple(held)
