"""Which parts of a big output can be judged alone: the oracle of a whole 32,768-token attention fits no memory.

A leading axis of the outputs that the algorithm neither reduces nor reads as a position can be cut: the reference of a
cut input is the cut of the reference. A coarse axis that an input fixes (`axis g = h // (H // G)`) is cut together with
its fine axis, a whole group at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from dsl.assembly import walk
from dsl.syntax import Algorithm, Call, Name, Number, Read

Slice = dict[str, list[int]]  # axis -> [begin, end); an axis that is not there is whole

WHOLE_ELEMENTS = 1 << 26  # where all axes together span no more than this, nothing is cut
MOST = 8  # if there are no more slices than this, all are judged


def free_axes(algorithm: Algorithm) -> list[str]:
    """The axes that can be cut, those with a coarse partner left to `_groups`."""
    leading = [set((t.axes or ())[:-2]) for t in algorithm.outputs]
    candidates = set.intersection(*leading) if leading else set()
    taken: set[str] = set()
    for statement in algorithm.statements:
        for expr in walk(statement.value):
            if isinstance(expr, Call):
                taken |= {a.axis for a in expr.axes or ()} | {a.within for a in expr.axes or () if a.within}
            if isinstance(expr, Name):
                taken.add(expr.id)  # a position, or a tensor: no harm
                taken.add(expr.id.lower())  # an extent: a cut would change it
            if isinstance(expr, Read):
                taken |= {p.id for i in expr.indices for p in walk(i) if isinstance(p, Name)}
    first = algorithm.outputs[0].axes or () if algorithm.outputs else ()
    return [a for a in first if a in candidates - taken]


def slices(
    algorithm: Algorithm, sizes: Mapping[str, int], rng: np.random.Generator, some: int = 2
) -> tuple[list[Slice], int]:
    """(those to judge, how many there are): all of them where they are few, else `some` at random."""
    if math.prod(sizes.values()) <= WHOLE_ELEMENTS:
        return [{}], 1
    cuts = list(_cuts(algorithm, sizes))
    total = math.prod(n for _, n in cuts)
    if total <= 1:
        return [{}], 1
    chosen: set[int] | range = range(total) if total <= MOST else set()
    if isinstance(chosen, set):
        chosen = {int(i) for i in rng.choice(total, size=min(some, total), replace=False)}
    every = []
    for number in sorted(chosen):
        cut: Slice = {}
        for widths, count in cuts:
            number, place = divmod(number, count)
            cut.update({axis: [place * width, (place + 1) * width] for axis, width in widths.items()})
        every.append(cut)
    return every, total


def _cuts(algorithm: Algorithm, sizes: Mapping[str, int]) -> Iterator[tuple[dict[str, int], int]]:
    """(widths by axis, how many such cuts): axes of one entry are cut together."""
    free = free_axes(algorithm)
    declared = {t for tensor in (*algorithm.inputs, *algorithm.outputs) for t in tensor.axes or ()}
    partners: dict[str, str] = {}
    for line in algorithm.axes:
        if line.fine is None:
            continue
        if isinstance(line.value, Number) or line.name not in declared:
            free = [a for a in free if a not in (line.fine, line.name)]
        elif line.fine in free:
            partners[line.fine] = line.name
    for axis in itertools.filterfalse(partners.__contains__, free):
        if axis not in partners.values():
            yield {axis: 1}, sizes[axis]
    for fine, coarse in partners.items():
        if sizes[fine] % sizes[coarse] == 0:
            yield {fine: sizes[fine] // sizes[coarse], coarse: 1}, sizes[coarse]
