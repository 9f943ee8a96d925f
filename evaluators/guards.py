"""Memory that tells on whoever strays: guard zones around tensors, poison where nothing was written, known regions.

`Arena` places inputs and everything that `torch.empty` gives between zones of poison. `Regions` knows the tensors that
a kernel was given, and makes an access outside of all of them an error with a place, as a device's memory checker does.
Needs torch; runs in workers.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from dsl.wording import counted

if TYPE_CHECKING:
    from evaluators.launch_order import Order

ZONE_BYTES = 4096
_ALIGN = 256
_FLOAT_POISON = 0xFF  # a NaN in every float format, the 8-bit ones included
_INT_POISON = 0x80  # a large negative number


class MemoryFault(Exception):
    """An access outside of every tensor that the kernel was given."""


def poison(dtype: torch.dtype) -> int:
    """The byte that fills what must not be read."""
    if dtype == torch.bool:
        return 1  # any other byte would be no bool
    return _FLOAT_POISON if dtype.is_floating_point or dtype.is_complex else _INT_POISON


@dataclass(frozen=True, eq=False)
class Zone:
    """`buffer[begin:end]` is the tensor; all around it is `byte`."""

    name: str
    buffer: NDArray
    begin: int
    end: int
    byte: int
    filled: bool  # it came with poison for contents

    @property
    def contents(self) -> NDArray:
        return self.buffer[self.begin : self.end]

    def intact(self) -> bool:
        return bool((self.buffer[: self.begin] == self.byte).all() and (self.buffer[self.end :] == self.byte).all())


class Arena:
    """The guarded tensors of one run."""

    def __init__(self) -> None:
        self.zones: list[Zone] = []
        self._empty: Callable[..., torch.Tensor] = torch.empty

    def place(self, name: str, dtype: torch.dtype, shape: tuple[int, ...], data: bytes) -> torch.Tensor:
        """A contiguous tensor with these bytes. Raises ValueError where they are not as many as the shape needs."""
        needed = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if len(data) != needed:
            raise ValueError(f"{name}: {len(data)} bytes came for a shape of {needed}")
        zone = self._zone(name, needed, poison(dtype), filled=False)
        zone.contents[:] = np.frombuffer(data, dtype=np.uint8)
        return torch.from_numpy(zone.contents).view(dtype).reshape(shape)

    def guard(self, tensor: torch.Tensor) -> torch.Tensor:
        """A poisoned tensor of the same kind in guarded memory."""
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.numel() == 0:
            return tensor
        reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        name = f"output {sum(zone.filled for zone in self.zones)}"
        zone = self._zone(name, reach * tensor.dtype.itemsize, poison(tensor.dtype), filled=True)
        flat = torch.from_numpy(zone.contents).view(tensor.dtype)
        return flat.as_strided(tensor.shape, tensor.stride()).requires_grad_(tensor.requires_grad)

    def zone_of(self, tensor: torch.Tensor) -> Zone | None:
        pointer = tensor.untyped_storage().data_ptr()
        return next((z for z in self.zones if z.contents.ctypes.data == pointer and z.end > z.begin), None)

    def strayed(self) -> list[str]:
        """The names of tensors around which something was written."""
        return [zone.name for zone in self.zones if not zone.intact()]

    def _zone(self, name: str, size: int, byte: int, filled: bool) -> Zone:
        buffer = np.full(size + 2 * ZONE_BYTES + _ALIGN, byte, dtype=np.uint8)
        begin = ZONE_BYTES + -(buffer.ctypes.data + ZONE_BYTES) % _ALIGN
        zone = Zone(name, buffer, begin, begin + size, byte, filled)
        self.zones.append(zone)
        return zone

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """Has torch's ways to memory that nobody wrote give guarded poison."""
        places: list[tuple[Any, str]] = [(torch, n) for n in ("empty", "empty_like", "empty_strided")]
        places += [(torch.Tensor, n) for n in ("new_empty", "new_empty_strided")]
        kept = [(owner, name, getattr(owner, name)) for owner, name in places]

        def guarded(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
            return lambda *args, **kwargs: self.guard(original(*args, **kwargs))

        for owner, name, original in kept:
            setattr(owner, name, guarded(original))
        try:
            yield
        finally:
            for owner, name, original in kept:
                setattr(owner, name, original)


def _chosen(pointers: NDArray, mask: NDArray | None) -> NDArray | None:
    """The mask in the shape of the pointers, None where it leaves nothing out."""
    if mask is None or mask.all():
        return None
    return mask if mask.shape == pointers.shape else np.broadcast_to(mask, pointers.shape)


Region: TypeAlias = tuple[int, int]  # addresses of its first byte, and of the one after its last
Access: TypeAlias = Literal["plain", "volatile", "part"]  # part: of an atomic, which is told by itself


class Regions:
    """The memory that kernels may touch: the storages of the tensors that they were given."""

    def __init__(self) -> None:
        self._regions: dict[int, tuple[int, int, NDArray]] = {}
        self.order: Order | None = None  # where races between the programs of a launch are watched for

    def clear(self) -> None:
        self._regions.clear()
        if self.order is not None:
            self.order.begin()

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        begin, size = storage.data_ptr(), storage.nbytes()
        if size and self._regions.get(begin, (0, 0))[1] != begin + size:
            contents = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(begin))
            self._regions[begin] = (begin, begin + size, contents)

    def contents(self) -> list[NDArray]:
        """The bytes of all of it, writable."""
        return [contents for _, _, contents in self._regions.values()]

    def box(self, begin: int, end: int) -> tuple[NDArray, Region]:
        """The bytes of [begin, end), writable, and their region. Raises MemoryFault where no one tensor has all."""
        for low, high, contents in self._regions.values():
            if low <= begin and end <= high:
                return contents[begin - low : end - low], (low, high)
        raise MemoryFault(f"{counted(end - begin, 'byte')} reach outside of their tensor")

    def gather(self, pointers: NDArray, mask: NDArray | None, dtype: np.dtype, access: Access = "plain") -> NDArray:
        """Elements at the addresses, 0 where the mask is false. A mask of None is all true."""
        mask = _chosen(pointers, mask)
        found = self._one(pointers, mask, dtype)
        if found is not None:
            elements, index, region = found
            self._read(region, index, mask, dtype, access)
            if mask is None:
                return elements[index]
            return np.where(mask, elements[np.where(mask, index, 0)], dtype.type(0))
        result = np.zeros(pointers.shape, dtype)
        for elements, index, chosen, region in self._several(pointers, mask, dtype, "reads"):
            self._read(region, index, None, dtype, access)
            result[chosen] = elements[index]
        return result

    def scatter(self, pointers: NDArray, mask: NDArray | None, values: NDArray, access: Access = "plain") -> None:
        mask = _chosen(pointers, mask)
        values = values if values.shape == pointers.shape else np.broadcast_to(values, pointers.shape)
        found = self._one(pointers, mask, values.dtype)
        if found is not None:
            elements, index, region = found
            if self.order is not None and region is not None and access == "plain":
                self.order.write(region, elements, index, mask, values)
            if mask is None:
                elements[index] = values
            else:
                elements[index[mask]] = values[mask]
            return
        for elements, index, chosen, region in list(self._several(pointers, mask, values.dtype, "writes")):
            if self.order is not None and access == "plain":
                self.order.write(region, elements, index, None, values[chosen])
            elements[index] = values[chosen]

    def atomic(self, pointers: NDArray, mask: NDArray | None, dtype: np.dtype, gets: bool, gives: bool) -> None:
        """Raises MemoryFault where an active address of an atomic is in no tensor. gets: it acquires; gives: it
        releases."""
        mask = _chosen(pointers, mask)
        found = self._one(pointers, mask, dtype)
        if found is None:
            for _, index, _, region in list(self._several(pointers, mask, dtype, "changes")):
                if self.order is not None:
                    self.order.atomic(region, index, None, dtype.itemsize, gets, gives)
        elif self.order is not None and found[2] is not None:
            self.order.atomic(found[2], found[1], mask, dtype.itemsize, gets, gives)

    def _read(
        self, region: Region | None, index: NDArray, mask: NDArray | None, dtype: np.dtype, access: Access
    ) -> None:
        if self.order is not None and region is not None and access != "part":
            noted = self.order.read if access == "plain" else self.order.acquire
            noted(region, index, mask, dtype.itemsize)

    def _one(
        self, pointers: NDArray, mask: NDArray | None, dtype: np.dtype
    ) -> tuple[NDArray, NDArray, Region | None] | None:
        """(the elements of the one region that all active addresses fall into, their indices, the region), the common
        case."""
        active = pointers if mask is None else pointers[mask]
        if active.size == 0:
            return np.zeros(1, dtype), np.zeros(pointers.shape, np.int64), None
        least, most = int(active.min()), int(active.max()) + dtype.itemsize
        for low, high, contents in self._regions.values():
            if low <= least and most <= high:
                offsets = (pointers - np.uint64(low)).view(np.int64)
                if dtype.itemsize > 1:
                    if ((active - np.uint64(low)) & np.uint64(dtype.itemsize - 1)).any():
                        return None
                    offsets = offsets >> (dtype.itemsize.bit_length() - 1)
                whole = contents[: len(contents) // dtype.itemsize * dtype.itemsize]
                return whole.view(dtype), offsets, (low, high)
        return None

    def _several(
        self, pointers: NDArray, mask: NDArray | None, dtype: np.dtype, verb: str
    ) -> Iterator[tuple[NDArray, NDArray, NDArray, Region]]:
        """As `_one` for each region that some active addresses fall into, with which; or MemoryFault."""
        left = np.ones(pointers.shape, bool) if mask is None else mask.copy()
        size = np.uint64(dtype.itemsize)
        for low, high, contents in list(self._regions.values()):
            inside = left & (pointers >= np.uint64(low)) & (pointers + size <= np.uint64(high))
            if inside.any():
                offsets = (pointers[inside] - np.uint64(low)).astype(np.int64)
                if (offsets % dtype.itemsize).any():
                    raise MemoryFault(f"{verb} {dtype.itemsize} bytes at an address that is no multiple of it")
                whole = contents[: len(contents) // dtype.itemsize * dtype.itemsize]
                yield whole.view(dtype), offsets // dtype.itemsize, inside, (low, high)
                left &= ~inside
        if left.any():
            far = pointers[left].ravel()[0]
            raise MemoryFault(
                f"{verb} {counted(int(left.sum()), 'element')} outside of every tensor{self._nearest(int(far))}"
            )

    def _nearest(self, address: int) -> str:
        gaps = [(max(low - address, address - high), low, high) for low, high, _ in self._regions.values()]
        if not gaps:
            return ""
        _, low, high = min(gaps)
        if address < low:
            return f", the first of them {counted(low - address, 'byte')} before the start of the nearest"
        return f", the first of them at byte {address - low} of one that has {high - low}"
