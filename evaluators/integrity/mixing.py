"""How many places of a tensor glue brings together in one: elementwise calls on shifted views add up to any kernel.

Elementwise arithmetic is glue, and so are views. But halves of a tensor that are added until one element is left are a
sum over all of it, and rows that are taken one by one and multiplied in are a product. So of each tensor it is kept
from which places one of its elements was made by glue: a place is a tensor and the views through which it was reached,
so that what is read twice in the same way counts once. Casts, scalings and a few shifted views leave few; what kernels
write is as its kernel's inputs were, for a kernel that copies adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from evaluators.integrity.watching import _pointwise

MOST = 64
_COPIES = ("copy_", "_to_copy", "clone")
_OVERWRITE = ("copy_", "fill_", "zero_")

_Places = frozenset[int]


@dataclass
class _Memory:
    """A storage: the view that it was first seen by, and the places from which one of its elements was made."""

    own: tuple[Any, ...]
    places: _Places


class Mixing:
    """Is told of each step of a run in turn. Raises RuntimeError where glue brings more than MOST places together."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._known: dict[int, _Memory] = {}
        self._alive: list[Any] = []  # a storage that lives keeps its address
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._said: list[tuple[Any, ...]] = []
        self._turn = 0

    def launched(self, given: Sequence[Any]) -> None:
        """A kernel's arguments: each may be what it writes, from all of them."""
        memories = {_address(t): self._of(t) for t in _tensors(given)}
        most = max((m.places for m in memories.values()), key=len, default=_Places())
        self._turn += 1
        for address, memory in memories.items():
            memory.places = self._through(most, "kernel", self._turn, address)

    def done(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """One of torch's operators, after it was called."""
        schema = operator._schema
        takes = list(_tensors([args, list(kwargs.values())]))
        made = [t for t in _tensors([result]) if not any(_address(t) == _address(other) for other in takes)]
        names = [argument.name for argument in schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        names_written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        written = [t for name in names_written for t in _tensors([given.get(name)])]
        for t in written:
            if _folded(t):
                raise RuntimeError(f"glue ({schema.name}) writes to one place more than once, a kernel's work")
            if any(_address(t) == _address(o) and _place(t) != _place(o) and _overlap(t, o) for o in takes):
                raise RuntimeError(
                    f"glue ({schema.name}) reads what it writes: one place after another, a kernel's work"
                )
        if not made and not written:
            return  # a view
        name = schema.name.removeprefix("aten::")
        lost = written if name in _OVERWRITE else []  # what lay there is not read
        lost = takes if name.endswith("_like") or name.startswith("new_") else lost  # nor any value
        places = _Places().union(*(self._read(t) for t in takes if not any(t is other for other in lost)))
        if len(places) > MOST:
            said = f"glue ({schema.name}) brings {len(places)} places of a tensor together"
            raise RuntimeError(f"{said}, a kernel's work")
        alike = _elementwise(operator)
        self._turn += 1
        for k, t in enumerate([*made, *written]):
            there = places if alike else self._through(places, "call", self._turn, k)
            if k < len(made):
                self._known.pop(_address(t), None)
                self._of(t).places = there
                continue
            memory = self._of(t)
            there = there if _place(t) == memory.own else self._through(there, "to", *_place(t))
            memory.places = max(there, memory.places, key=len)

    def _read(self, tensor: torch.Tensor) -> _Places:
        """From which places one of its elements was made, by way of this view."""
        memory, view = self._of(tensor), _place(tensor)
        if view == memory.own:
            return memory.places
        back = ("to", *view)  # what was written through this view comes back as it was
        found = []
        for place in memory.places:
            inner, *way = self._said[place]
            found.append(inner if tuple(way) == back else self._number(place, "from", *view))
        return _Places(found)

    def _through(self, places: _Places, *way: Any) -> _Places:
        return _Places(self._number(place, *way) for place in places)

    def _number(self, *said: Any) -> int:
        if said not in self._numbers:
            self._numbers[said] = len(self._said)
            self._said.append(said)
        return self._numbers[said]

    def _of(self, tensor: torch.Tensor) -> _Memory:
        address = _address(tensor)
        if address not in self._known:
            self._alive.append(tensor.untyped_storage())
            self._known[address] = _Memory(_place(tensor), _Places([self._number(-1, "root", address)]))
        return self._known[address]


def _elementwise(operator: Any) -> bool:
    """Whether place i of what it makes follows from place i of what it takes."""
    name = operator._schema.name.removeprefix("aten::").removeprefix("_foreach_")
    plain = name.removesuffix("_")
    return torch.Tag.pointwise in operator.tags or name in _COPIES or _pointwise(plain, operator)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return _address(tensor), tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())


def _folded(tensor: torch.Tensor) -> bool:
    """Whether places of a view may be the same memory. Torch itself sees those that are expanded."""
    reach = 0
    for step, n in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if n > 1:
            if step <= reach:
                return True
            reach += (n - 1) * step
    return False


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two views of a storage have an element in common."""
    if one.dtype != other.dtype:
        return True
    size = one.untyped_storage().nbytes() // one.element_size()
    marked = torch.zeros(size, dtype=torch.bool, device=one.device)
    marked.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(marked.as_strided(other.shape, other.stride(), other.storage_offset()).any())


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
