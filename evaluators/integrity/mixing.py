"""How many places of a tensor glue brings together in one: elementwise calls on shifted views add up to any kernel.

Elementwise arithmetic is glue, and so are views. But halves of a tensor that are added until one element is left are a
sum over all of it, and rows that are taken one by one and multiplied in are a product. So beside each memory lies a
shadow: for each of its cells some bits of BITS, one for each place of an input that came into it. What is made of two
elements has the bits of both, whatever views, dtypes and shapes they were reached by: the shadow goes the same way.
More than MOST bits are more than MOST places; never fewer, for two places may share a bit, and what is read twice
counts once. What kernels write has new bits, as many as the fullest cell that the launch was given: a kernel that
copies does not start the count anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from evaluators.integrity.watching import is_elementwise

MOST = 64
VOLUME = 32  # times the inputs and outputs: elements that glue may compute in all
BITS = 128  # in two words; about 90 places at random fill MOST of them
_OVERWRITE = ("copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_")
_MOVES = ("cat", "stack", "repeat", "constant_pad_nd", "slice_scatter", "select_scatter", "narrow_copy", "glu")
_SHAPES = ("set_", "resize_", "resize_as_")  # where a tensor lies, not what it holds
_COPIES = ("clone", "copy_", "_to_copy", "_foreach_copy_")

_Shadow = torch.Tensor  # int64 [2, ...]


@dataclass
class _Memory:
    """A storage. unit: bytes of a cell. each: bits of every cell, drawn when they are asked for, without `cells`; BITS
    where nobody has written to it: what lies there may come from anywhere."""

    storage: Any  # one that lives keeps its address
    unit: int
    each: int = 0
    cells: _Shadow | None = None
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = -(-self.storage.nbytes() // self.unit)

    def grow(self, device: torch.device) -> None:
        """What has been added to the storage is not written."""
        length = -(-self.storage.nbytes() // self.unit)
        if length > self.length:
            cells = self.shadow(self.unit, device)
            self.cells = torch.nn.functional.pad(cells, (0, length - cells.shape[1]), value=-1)
            self.length = length

    def shadow(self, unit: int, device: torch.device) -> _Shadow:
        """int64 [2, cells], in cells of at most `unit` bytes."""
        if self.cells is None:
            self.cells = _alone(self.length, self.each, device)
        if unit < self.unit:
            self.cells = self.cells.repeat_interleave(self.unit // unit, 1)
            self.unit, self.length = unit, self.cells.shape[1]
        return self.cells


class Mixing:
    """Is told of each step of a run in turn. Raises RuntimeError where glue brings more than MOST places together."""

    def __init__(self) -> None:
        self._known: dict[int, _Memory] = {}
        self._volume = 0

    def began(self, inputs: Sequence[torch.Tensor]) -> None:
        for x in inputs:
            self.given(x)

    def ended(self, given: Sequence[torch.Tensor], returned: Sequence[torch.Tensor]) -> None:
        """Raises RuntimeError where glue has computed far more than there is to read and to write: of a product the
        multiplications, say, whose results a kernel then adds."""
        most = VOLUME * sum(t.numel() for t in (*given, *returned))
        if self._volume > most:
            raise RuntimeError(f"glue computes {self._volume} elements, {most} are {VOLUME} times what goes in and out")

    def given(self, tensor: torch.Tensor) -> None:
        """An input, or memory from before: each of its places is one."""
        self._known.setdefault(_address(tensor), _Memory(tensor.untyped_storage(), tensor.element_size(), 1))

    def launched(self, given: Sequence[Any]) -> None:
        """A kernel's arguments: each may be what it writes, from all of them."""
        tensors = list(_tensors(given))
        with _disable_current_modes():
            most = max((self._fullest(t) for t in tensors), default=0)
        units: dict[int, int] = {}
        for t in tensors:
            units[_address(t)] = min(t.element_size(), units.get(_address(t), 16))
        for t in tensors:
            self._known[_address(t)] = _Memory(t.untyped_storage(), units[_address(t)], most)

    def done(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """One of torch's operators, after it was called."""
        with _disable_current_modes():
            self._done(operator, args, kwargs, result)

    def _done(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        schema = operator._schema
        name = schema.name.removeprefix("aten::")
        if name in _SHAPES or torch.Tag.inplace_view in operator.tags:
            return
        takes = list(_tensors([args, list(kwargs.values())]))
        made = [t for t in _tensors([result]) if not any(_address(t) == _address(other) for other in takes)]
        names = [argument.name for argument in schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        marked = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        written = [t for a in marked for t in _tensors([given.get(a.name)])]
        for t in written:
            if _folded(t):
                raise RuntimeError(f"glue ({schema.name}) writes to one place more than once, a kernel's work")
            if any(_address(t) == _address(o) and _place(t) != _place(o) and _overlap(t, o) for o in takes):
                raise RuntimeError(
                    f"glue ({schema.name}) reads what it writes: one place after another, a kernel's work"
                )
        # What is lost is not read: what lay where it writes, and what new tensors are only shaped like.
        lost = {a.name for a in marked if a.kwarg_only or name in _OVERWRITE}
        if name.endswith("_like") or name.startswith("new_"):
            lost.add("self")
        read = {n: v for n, v in given.items() if n not in lost}
        for k, t in enumerate([*made, *written]):
            if not t.numel():
                continue
            shadow = self._of_what(operator, name, read, t, k)
            if read and name not in _COPIES and name not in _MOVES:
                self._volume += t.numel()
            if shadow is not None and _most(shadow) > MOST:
                said = f"glue ({schema.name}) brings more than {MOST} places of a tensor together, a kernel's work"
                raise RuntimeError(f"{said}, or reads what nobody has written")
            self._write(t, shadow, k < len(made))
            if name.startswith(("empty", "new_empty")):
                self._known[_address(t)].each = BITS

    def _of_what(self, operator: Any, name: str, read: Mapping[str, Any], to: torch.Tensor, k: int) -> _Shadow | None:
        """The shadow of the k-th tensor that an operator makes or writes to; None where no place came into it."""
        if name in _MOVES:
            return self._moved(name, read, to)
        if name.startswith("_foreach_"):
            read = {n: v[k : k + 1] if isinstance(v, list | tuple) else v for n, v in read.items()}
        sources = list(_tensors(list(read.values())))
        shadows = [(t, s) for t in sources if (s := self._read(t)) is not None]
        if not shadows:
            return None
        try:
            alike = is_elementwise(operator) and torch.broadcast_shapes(*(t.shape for t in sources)) == to.shape
        except RuntimeError:
            alike = False
        found = torch.zeros((2, *to.shape), dtype=torch.int64, device=to.device)
        for t, shadow in shadows:
            if alike:
                found |= shadow.reshape(2, *[1] * (to.dim() - t.dim()), *t.shape).to(to.device)
            else:  # whatever it does, it has seen no more than this
                found |= _all(shadow).reshape(2, *[1] * to.dim()).to(to.device)
        return found

    def _moved(self, name: str, read: Mapping[str, Any], to: torch.Tensor) -> _Shadow | None:
        """Of an operator that places elements and computes nothing: it does the same to their shadows."""
        if all(self._read(t) is None for t in _tensors(list(read.values()))):
            return None

        def plane(value: Any, k: int) -> Any:
            if isinstance(value, torch.Tensor):
                shadow = self._read(value)
                return shadow[k] if shadow is not None else torch.zeros_like(value, dtype=torch.int64)
            return [plane(v, k) for v in value] if isinstance(value, list | tuple) else value

        found = []
        for k in range(2):
            given = {n: plane(value, k) for n, value in read.items() if n != "value"}
            if name == "glu":
                one, other = given["self"].chunk(2, given.get("dim", -1))
                found.append(one | other)
            else:
                found.append(getattr(torch.ops.aten, name)(**given))
        return torch.stack(found).to(to.device).reshape(2, *to.shape)

    def _read(self, tensor: torch.Tensor) -> _Shadow | None:
        """int64 [2, *shape]; None where no place came into its memory."""
        memory = self._known.get(_address(tensor))
        if memory is not None:
            memory.grow(tensor.device)
        if memory is None or (memory.cells is None and not memory.each):
            return None
        first, *more = _cells(tensor, memory)
        for cell in more:
            first = first | cell
        return first

    def _write(self, tensor: torch.Tensor, shadow: _Shadow | None, new: bool) -> None:
        address, size = _address(tensor), tensor.element_size()
        if new:
            self._known[address] = _Memory(tensor.untyped_storage(), size)
        memory = self._known.setdefault(address, _Memory(tensor.untyped_storage(), size))
        memory.grow(tensor.device)
        whole = tensor.is_contiguous() and tensor.numel() * size == memory.storage.nbytes()
        if whole or (memory.cells is None and not memory.each and shadow is None):
            cells = None if shadow is None else shadow.reshape(2, -1).clone()
            self._known[address] = _Memory(memory.storage, size, 0, cells)
            return
        for cell in _cells(tensor, memory):
            cell.zero_() if shadow is None else cell.copy_(shadow)

    def _fullest(self, tensor: torch.Tensor) -> int:
        memory = self._known.get(_address(tensor))
        if memory is None or memory.cells is None:
            return memory.each % BITS if memory is not None else 0
        return _most(torch.where((memory.cells == -1).all(0), 0, memory.cells))


def _cells(tensor: torch.Tensor, memory: _Memory) -> list[_Shadow]:
    """Views of the shadow, each [2, *shape]: the first cell of each element, the second, ..."""
    size = tensor.element_size()
    cells = memory.shadow(size, tensor.device)
    k, length = size // memory.unit, cells.shape[1]
    steps = [length, *(k * step for step in tensor.stride())]
    first, spare = k * tensor.storage_offset(), k * -(-length // k) - length
    if spare:  # bytes behind the last element
        memory.cells = cells = torch.nn.functional.pad(cells, (0, spare))
        steps[0] = cells.shape[1]
    return [cells.as_strided((2, *tensor.shape), steps, first + j) for j in range(k)]


def _alone(length: int, each: int, device: torch.device) -> _Shadow:
    """So many bits in every cell, drawn anew: int64 [2, length]."""
    found = torch.full((2, length), -1 if each == BITS else 0, dtype=torch.int64, device=device)
    if each in (0, BITS):
        return found
    begin = torch.randint(0, BITS, (length,), device=device)
    step = 2 * torch.randint(0, BITS // 2, (length,), device=device) + 1  # odd: it comes round after BITS
    one = torch.ones((), dtype=torch.int64, device=device)
    for j in range(each):
        place = (begin + j * step) % BITS
        bit = one << (place % 64)
        found[0] |= bit * (place < 64)
        found[1] |= bit * (place >= 64)
    return found


def _most(shadow: _Shadow) -> int:
    """Bits of its fullest cell."""
    if not shadow.numel():
        return 0
    x = shadow
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        x = (x & mask) + ((x >> shift) & mask)
    for shift in (8, 16, 32):
        x = x + (x >> shift)
    return int((x & 0x7F).sum(0).max())


def _all(shadow: _Shadow) -> _Shadow:
    """What all cells have together: int64 [2]."""
    flat = shadow.reshape(2, -1)
    while (length := flat.shape[1]) > 1:
        half = -(-length // 2)
        flat = flat[:, :half] | torch.nn.functional.pad(flat[:, half:], (0, 2 * half - length))
    return flat[:, 0]


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


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
        elif isinstance(base := getattr(value, "base", None), torch.Tensor):  # a descriptor
            yield base
