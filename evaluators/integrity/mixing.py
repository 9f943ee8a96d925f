"""How many places of a tensor glue brings together in one: elementwise calls on shifted views add up to any kernel.

Elementwise arithmetic is glue, and so are views. But halves of a tensor that are added until one element is left are a
sum over all of it, and rows that are taken one by one and multiplied in are a product. So each tensor has a number: of
how many places of a tensor it was made from one of its elements may depend, by glue. Casts, scalings and a few shifted
views leave it small; what kernels write is as its kernel's inputs were, for a kernel that copies adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

MOST = 64


@dataclass
class _Memory:
    """A storage: the number of its elements, and the storages that they were made from."""

    places: int = 1
    roots: frozenset[int] = frozenset()


class Mixing:
    """Is told of each step of a run in turn. Raises RuntimeError where glue brings more than MOST places together."""

    def __init__(self) -> None:
        self._known: dict[int, _Memory] = {}
        self._alive: list[Any] = []  # a storage that lives keeps its address

    def begin(self) -> None:
        self._known, self._alive = {}, []

    def launched(self, given: Sequence[Any]) -> None:
        """A kernel's arguments: each may be what it writes, from all of them."""
        tensors = list(_tensors(given))
        memories = [self._of(t) for t in tensors]
        places = max((m.places for m in memories), default=1)
        roots = frozenset[int]().union(*(m.roots for m in memories))
        for memory in memories:
            memory.places, memory.roots = places, memory.roots | roots

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
        made += written
        if not made:
            return  # a view
        places, roots = self._together(takes)
        if places > MOST:
            raise RuntimeError(f"glue ({schema.name}) brings {places} places of a tensor together, a kernel's work")
        for t in made:
            memory = self._of(t)
            memory.places, memory.roots = max(memory.places, places), memory.roots | roots

    def _together(self, takes: Sequence[torch.Tensor]) -> tuple[int, frozenset[int]]:
        """Of one element of what is made of these, element by element."""
        seen: dict[tuple[Any, ...], tuple[int, frozenset[int]]] = {}
        for t in takes:
            memory = self._of(t)
            seen[_place(t)] = memory.places, memory.roots
        groups: list[tuple[int, frozenset[int]]] = []
        for places, roots in seen.values():  # what has no root in common does not add up
            met = [g for g in groups if g[1] & roots]
            groups = [g for g in groups if not g[1] & roots]
            groups.append((places + sum(g[0] for g in met), roots.union(*(g[1] for g in met))))
        every = frozenset[int]().union(*(g[1] for g in groups))
        return max((g[0] for g in groups), default=1), every

    def _of(self, tensor: torch.Tensor) -> _Memory:
        address = _address(tensor)
        if address not in self._known:
            self._alive.append(tensor.untyped_storage())
            self._known[address] = _Memory(roots=frozenset({address}))
        return self._known[address]


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
