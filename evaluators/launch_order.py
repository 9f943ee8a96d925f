"""Races between the programs of one launch: the interpreter runs them one after another, a device in any order.

So an answer that hangs on their order is right here and nowhere else. `Order` remembers for each element which program
wrote it and which first read it, in epochs (a program between two of its atomics), and raises `MemoryFault` where two
programs meet at an element, one of them writes, and no order follows from atomics: an atomic on an element is ordered
after those on the same element before it, and with them all that their programs did until then (acquire and release;
`relaxed` orders nothing). Volatile reads acquire too, for kernels wait by them.

An atomic that happens to come first orders nothing, though, if the other program would not have waited for it. So
where two programs met in an order that only atomics gave, `rehearse` runs them again from the launch's start: the one
up to the atomic that told of its work, then the other, which in an honest kernel waits, or leaves the rest to others.

Within a program, a block's places are the work of many threads: what one has stored another reads only after they have
met (a barrier, a product, a reduction, an atomic). A plain read of what this program stored at another place of a
block, with no such meeting between, is a race too.

Where both are atomics there is no race, but a ticket that is taken for a program's number is right in one order alone.
So launches of some calls run in another order (`in_turns`), and the numbers that come of it are judged.

No race: programs that write the same value, up to the last bits of a float, for then any order leaves the same. So
overlapping tiles, and a scale that everybody writes, are as they should be.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evaluators.guards import MemoryFault, Region

_PENDING = 1 << 22  # elements read whose places are kept, of one tensor, until it is known whether it is written
_LAST_BITS = {("f", 8): 64, ("f", 4): 64, ("f", 2): 1, ("u", 2): 1}  # of a float; bf16 is held as its bits


_PLACE, _LANE = 21, 26  # bits of a place in a block (of at most 2^20), and of that with the block's size
_CHANCE = random.SystemRandom()
_REHEARSED = 4  # pairs of programs of a launch
_MANY = 4000  # accesses of a program of which none has ended before: with more, it waits
_WAITS = 200  # accesses beyond twice those that a program took before: by then it waits


class _Stop(Exception):
    """A program has come as far as it was to come."""


class Race(MemoryFault):
    """Two programs meet at an element, one of them writes, and nothing orders them."""


@dataclass
class _Marks:
    """Of one tensor's memory, a number for each `unit` bytes. writer: epoch of the last write, negative where it was an
    atomic; reader: epoch of the first plain read, later: of the last one of another program; watcher: of the last
    volatile one; node: the last release; lane: which place of which block of the program stored it, since which
    meeting of its threads. 0 is nothing, None nothing yet."""

    size: int
    unit: int
    writer: NDArray | None = None
    reader: NDArray | None = None
    later: NDArray | None = None
    watcher: NDArray | None = None
    node: NDArray | None = None
    lane: NDArray | None = None
    pending: list[tuple[NDArray, NDArray | None, int, int]] = field(default_factory=list)
    waiting: int = 0

    def of(self, name: str, itemsize: int) -> NDArray:
        """By elements of that many bytes: [elements], or [elements, units]."""
        if itemsize < self.unit:
            for known in ("writer", "reader", "later", "watcher", "node", "lane"):
                if (array := getattr(self, known)) is not None:
                    setattr(self, known, np.repeat(array, self.unit // itemsize))
            self.unit = itemsize
        array = getattr(self, name)
        if array is None:
            array = np.zeros(-(-self.size // self.unit), np.int64 if name == "lane" else np.int32)
            setattr(self, name, array)
        if itemsize == self.unit:
            return array
        units = itemsize // self.unit
        return array[: array.size // units * units].reshape(-1, units)


class Order:
    """What the programs of one launch have done so far, and what each of them knows of the others."""

    def __init__(self) -> None:
        self._meeting = 0  # of the threads of a program, the last of them
        self.begin()

    def begin(self) -> None:
        """A launch."""
        self._marks: dict[Region, _Marks] = {}
        self._programs: list[tuple[int, ...]] = []
        self._program_of = [0]  # of each epoch
        self._first = self._epoch = 0  # of the program that runs
        self._nodes: list[tuple[int, list[int]]] = [(0, [])]  # (epoch that it ends, those that it comes after)
        self._node = 0  # all that the program knows of others
        self._known: dict[int, int] | None = {}  # program -> its last epoch that is known
        self._firsts: list[int] = []  # epochs of programs
        self._accesses: list[int] = []  # of programs
        self._relied: dict[tuple[int, int], int] = {}  # (program, how many atomics before) -> who came after it
        self._last: tuple[int, int] | None = None  # (atomics, accesses) with which the program that runs has to stop
        self._ended: Exception | None = None  # what was raised here last

    def program(self, place: tuple[int, ...]) -> None:
        """The next program of the launch runs from now on."""
        self._programs.append(place)
        self._next_epoch()
        self._first, self._node, self._known = self._epoch, 0, {}
        self._firsts.append(self._epoch)
        self._accesses.append(0)
        self.meet()

    def meet(self) -> None:
        """The threads of the program wait for each other."""
        self._meeting += 1

    def _next_epoch(self) -> None:
        self._epoch += 1
        self._program_of.append(len(self._programs) - 1)

    # What programs do: `index` are the elements' places in the memory of `region`, of those where `mask` is true.

    def read(self, region: Region, index: NDArray, mask: NDArray | None, itemsize: int) -> None:
        self._count()
        marks = self._of(region, itemsize)
        if marks.writer is not None:
            at = index if mask is None else index[mask]
            written = marks.of("writer", itemsize)[at]
            self._insist(written, None, at, itemsize, "reads what program {} has written")
        if marks.lane is not None:
            self._same_thread(marks.of("lane", itemsize), index, mask, itemsize)
        if marks.reader is not None:
            self._note(marks, index, mask, itemsize, self._epoch)
            return
        marks.pending.append((index, mask, itemsize, self._epoch))
        marks.waiting += index.size
        if marks.waiting > _PENDING:
            self._fold(marks)

    def write(self, region: Region, elements: NDArray, index: NDArray, mask: NDArray | None, values: NDArray) -> None:
        """Before it happens."""
        self._count()
        itemsize = elements.itemsize
        marks = self._of(region, itemsize)
        at, new = (index, values) if mask is None else (index[mask], values[mask])
        if len(self._programs) > 1:
            seen = [(marks.of("writer", itemsize)[at], "writes where program {} has written another value")]
            self._fold(marks)
            for kind in ("reader", "later", "watcher"):
                if getattr(marks, kind) is not None:
                    seen.append((marks.of(kind, itemsize)[at], "writes what program {} has read"))
            if any(self._foreign(epochs).any() for epochs, _ in seen):
                same = _alike(elements[at], new)
                for epochs, said in seen:
                    self._insist(epochs, same, at, itemsize, said)
        marks.of("writer", itemsize)[at] = self._epoch
        lanes, mine = marks.of("lane", itemsize), self._lanes(index, mask)
        mine = mine if lanes.ndim == 1 else mine[..., None]
        lanes[at] = mine
        if (several := lanes[at] != mine).any():
            lost = several if lanes.ndim == 1 else several.any(-1)
            last = (lanes[at] if lanes.ndim == 1 else lanes[at][..., 0])[lost] & (1 << _PLACE) - 1
            if not _alike(np.broadcast_to(values, index.shape).reshape(-1)[last], new[lost]).all():
                self._ended = Race(
                    f"a race: several places of a block store different values at one element (element "
                    f"{int(at[lost][0])} of {itemsize} {'byte' if itemsize == 1 else 'bytes'}); on a device any of "
                    "them may be the last"
                )
                raise self._ended
            lanes[at[lost]] = 0  # each of them reads what it has stored itself

    def _lanes(self, index: NDArray, mask: NDArray | None) -> NDArray:
        """A number for each place of a block: the last meeting, the block's size, the place."""
        places = np.arange(index.size, dtype=np.int64).reshape(index.shape)
        code = self._meeting << _LANE | max(0, index.size.bit_length() - 1) << _PLACE
        return places + code if mask is None else places[mask] + code

    def _same_thread(self, lanes: NDArray, index: NDArray, mask: NDArray | None, itemsize: int) -> None:
        at = index if mask is None else index[mask]
        seen, mine = lanes[at], self._lanes(index, mask)
        wrong = (seen >> _LANE == self._meeting) & (seen != (mine if lanes.ndim == 1 else mine[..., None]))
        if wrong.any():
            element = int(at[tuple(np.argwhere(wrong)[0][: at.ndim])])
            self._ended = Race(
                f"a race: it reads what another thread of the same program has stored (element {element} of {itemsize} "
                f"{'byte' if itemsize == 1 else 'bytes'}), and nothing between makes the threads meet; "
                "tl.debug_barrier() does"
            )
            raise self._ended

    def atomic(
        self, region: Region, index: NDArray, mask: NDArray | None, itemsize: int, gets: bool, gives: bool
    ) -> None:
        """An atomic, before it happens. gets: it acquires; gives: it releases."""
        self._count(atomic=True)
        self.meet()
        marks = self._of(region, itemsize)
        at = index if mask is None else index[mask]
        nodes = marks.of("node", itemsize)
        before = [int(n) for n in np.unique(nodes[at]) if n] if gets or gives else []
        if gets or gives:
            self._nodes.append((self._epoch if gives else 0, [self._node, *before]))
            node = len(self._nodes) - 1
            if gets:
                self._node, self._known = node, None
            if gives:
                nodes[at] = node
        plain = np.maximum(marks.of("writer", itemsize)[at], 0)
        self._insist(plain, None, at, itemsize, "changes by an atomic what program {} has written by a plain store")
        self._fold(marks)
        for kind in ("reader", "later"):  # who watches it by volatile reads waits for just that
            if getattr(marks, kind) is not None:
                seen = marks.of(kind, itemsize)[at]
                self._insist(seen, None, at, itemsize, "changes by an atomic what program {} has read plainly")
        marks.of("writer", itemsize)[at] = -self._epoch
        self._next_epoch()

    def acquire(self, region: Region, index: NDArray, mask: NDArray | None, itemsize: int) -> None:
        """A volatile or atomic read."""
        self._count()
        marks = self._of(region, itemsize)
        at = index if mask is None else index[mask]
        if marks.writer is not None:
            plain = np.maximum(marks.of("writer", itemsize)[at], 0)
            self._insist(plain, None, at, itemsize, "reads what program {} has written by a plain store")
        if marks.node is not None:
            before = [int(n) for n in np.unique(marks.of("node", itemsize)[at]) if n]
            self._nodes.append((0, [self._node, *before]))
            self._node, self._known = len(self._nodes) - 1, None
        marks.of("watcher", itemsize)[at] = self._epoch

    def _count(self, atomic: bool = False) -> None:
        self._accesses[-1] += 1
        if self._last is None:
            return
        atomics, accesses = self._last
        if (atomic and self._epoch - self._first >= atomics) or self._accesses[-1] > accesses:
            self._ended = _Stop()
            raise self._ended

    def in_turns(self, places: list[tuple[int, ...]], run: Callable[[tuple[int, ...]], None]) -> int | None:
        """Runs the programs of a launch in this order; which of them waits for one that comes later, or None."""
        most = _MANY
        for number, place in enumerate(places):
            self.program(place)
            self._last = (1 << 60, most)
            try:
                run(place)
            except Exception:
                if isinstance(self._ended, _Stop):
                    self._ended = None
                    return number
                raise
            finally:
                self._last = None
            most = max(most, 2 * self._accesses[-1] + _WAITS)
        return None

    def rehearse(self, run: Callable[[tuple[int, ...]], None], begin: Callable[[], None]) -> None:
        """At a launch's end. run: runs the program of that place; begin: puts memory back to the launch's start. Raises
        Race; memory is then anywhere between."""
        places, accesses, relied = self._programs, self._accesses, sorted(self._relied.items())
        _CHANCE.shuffle(relied)  # which pairs, no text can know
        for (first, atomics), second in relied[:_REHEARSED]:
            begin()
            self.begin()
            no_end = (1 << 60, 1 << 60)
            parts = [(place, no_end) for place in places[:first]]
            parts += [(places[first], (atomics, 1 << 60)), (places[second], (1 << 60, 2 * accesses[second] + _WAITS))]
            for place, self._last in parts:
                self.program(place)
                try:
                    run(place)
                except Exception:
                    if isinstance(self._ended, Race):
                        raise self._ended from None
                    if not isinstance(self._ended, _Stop):  # it fails where others have not come as far
                        break
                    self._ended = None

    # Who knows what

    def _of(self, region: Region, itemsize: int) -> _Marks:
        if region not in self._marks:
            self._marks[region] = _Marks(region[1] - region[0], itemsize)
        return self._marks[region]

    def _note(self, marks: _Marks, index: NDArray, mask: NDArray | None, itemsize: int, epoch: int) -> None:
        at = index if mask is None else index[mask]
        seen = marks.of("reader", itemsize)
        there = seen[at]
        seen[at] = np.where(there == 0, epoch, there)
        if (again := there != 0).any():
            last = marks.of("later", itemsize)
            last[at] = np.where(again, epoch, last[at])

    def _fold(self, marks: _Marks) -> None:
        """Reads become marks: from now on it matters whose they were."""
        for index, mask, itemsize, epoch in marks.pending:
            self._note(marks, index, mask, itemsize, epoch)
        marks.pending, marks.waiting = [], 0

    def _foreign(self, epochs: NDArray) -> NDArray:
        """Which are other programs' than the one that runs."""
        past = np.abs(epochs)
        return (past > 0) & (past < self._first)

    def _insist(self, epochs: NDArray, same: NDArray | None, at: NDArray, itemsize: int, said: str) -> None:
        """Raises Race where an epoch is another program's that this one knows nothing of. same: where it is none."""
        foreign = self._foreign(epochs)
        if same is not None:
            foreign &= ~(same if same.ndim == foreign.ndim else same[..., None])
        if not foreign.any():
            return
        known = self._all_known()
        for epoch in np.unique(np.abs(epochs[foreign])):
            program = self._program_of[int(epoch)]
            self._relied.setdefault((program, int(epoch) - self._firsts[program]), len(self._programs) - 1)
            if known.get(program, 0) < epoch:
                place = np.argwhere(foreign & (np.abs(epochs) == epoch))[0][: at.ndim]
                element = int(at[tuple(place)])
                self._ended = Race(
                    f"a race: it {said.format(self._programs[program])} in the same launch (element {element} of "
                    f"{itemsize} {'byte' if itemsize == 1 else 'bytes'}), and no atomic orders the two; on a device "
                    "they run in any order"
                )
                raise self._ended

    def _all_known(self) -> dict[int, int]:
        if self._known is None:
            self._known, seen, left = {}, {0}, [self._node]
            while left:
                node = left.pop()
                if node in seen:
                    continue
                seen.add(node)
                epoch, before = self._nodes[node]
                program = self._program_of[epoch]
                if epoch:
                    self._known[program] = max(epoch, self._known.get(program, 0))
                left += before
        return self._known


def _alike(old: NDArray, new: NDArray) -> NDArray:
    """Where two values are the same but for the last bits of a float."""
    near = _LAST_BITS.get((old.dtype.kind, old.itemsize))
    if near is None:
        return np.asarray(old == new)
    signed = np.dtype(f"i{old.itemsize}")
    bits = old.astype(old.dtype, order="C").view(signed), new.astype(old.dtype, order="C").view(signed)
    with np.errstate(over="ignore"):
        apart = np.abs(bits[0].astype(np.int64) - bits[1].astype(np.int64))
    return np.asarray((apart <= near) | (old == new))
