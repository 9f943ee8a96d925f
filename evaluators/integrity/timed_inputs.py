"""Inputs of timed calls: new ones before every call, without drawing and sending them anew each time.

A public size has hundreds of megabytes; to draw, round and send them takes longer than all that is measured. So values
are drawn once, at most `POOL` of a tensor, and sent to the process once. With a call comes a key: each piece of `PIECE`
values (no more than memory is read by) lies where a hash of the key and its number says in what was drawn. So no rule
tells which values are there twice but one that knows the key of this call, and keys are drawn when they are used. The
parent computes those that it needs to know. Small tensors, and integers that the target makes itself (labels, tables:
their rows may mean something), are made here and sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsl.syntax import Algorithm
from evaluators.inputs import (
    _STORAGE,
    DISTRIBUTIONS,
    FLOATS,
    Array,
    decode,
    draw_inputs,
    encode,
    extents,
    far_out,
    input_shapes,
)
from evaluators.integrity.scattering import PIECE, scattered
from evaluators.loading import fits
from evaluators.places import cut_axis, free_axes
from evaluators.target import Target, TargetError, Workload

POOL = 1 << 21  # values of a tensor that are drawn
OTHERS = 1 << 18  # and of each distribution but the normal one
FAR_OUT = "far out"  # normal values, a few of which are not
_ROW = 512  # values, in half of which one is far out
_SMALL = 1 << 15  # values: a tensor that is sent whole


@dataclass
class _Tensor:
    """drawn: by distribution, flat, in the dtype's storage; rows: into how many it is cut, by distribution, where
    values keep their rows. Of the call to come: key, or whole, what is sent."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    drawn: dict[str, Array]
    rows: dict[str, int]
    key: int = 0
    whole: Array | None = None
    distribution: str = "normal"

    def renew(self, distribution: str, rng: np.random.Generator) -> None:
        drawn, size = self.drawn[distribution], math.prod(self.shape)
        self.distribution, self.whole = distribution, None
        if self.rows:
            rows, wanted = self.rows[distribution], self.shape[0] if self.shape else 1
            order = rng.permutation(rows) if wanted == rows else rng.integers(rows, size=wanted)
            self.whole = np.resize(drawn.reshape(rows, -1)[order], size)
        elif size <= _SMALL or drawn.size <= 2 * PIECE:
            self.whole = drawn[rng.integers(drawn.size, size=size)]
        else:
            self.key = int(rng.integers(2**63))

    def part(self, axis: str | None, places: Array) -> Array:
        """The values of the call to come, of these places of the axis where the tensor has it."""
        shape = tuple(len(places) if a == axis else n for a, n in zip(self.axes, self.shape, strict=True))
        if self.whole is not None:
            whole = self.whole.reshape(self.shape)
            flat = np.take(whole, places, self.axes.index(axis)) if axis in self.axes else whole
        elif axis not in self.axes:
            at = scattered(self.key, np.arange(-(-math.prod(shape) // PIECE)), self.drawn[self.distribution].size)
            pieces = np.lib.stride_tricks.sliding_window_view(self.drawn[self.distribution], PIECE)
            flat = pieces[at].reshape(-1)[: math.prod(shape)]
        else:
            index = np.zeros(1, dtype=np.int64)
            for a, n in zip(self.axes, self.shape, strict=True):
                index = (index[:, None] * n + (places if a == axis else np.arange(n))).reshape(-1)
            drawn = self.drawn[self.distribution]
            flat = drawn[scattered(self.key, index // PIECE, drawn.size) + index % PIECE]
        return decode(np.ascontiguousarray(flat).tobytes(), self.dtype, shape)


class TimedInputs:
    """axis: the one of which `part` takes places. Raises TargetError where the target's own `make_inputs` fails."""

    def __init__(self, target: Target, algorithm: Algorithm, workload: Workload, rng: np.random.Generator) -> None:
        self._rng = rng
        self.axis = cut_axis(algorithm, extents(algorithm, workload))
        shapes = input_shapes(algorithm, workload)
        drawn: dict[str, dict[str, Array]] = {}
        rows: dict[str, dict[str, int]] = {t.name: {} for t in algorithm.inputs}
        for distribution in DISTRIBUTIONS:
            most = POOL if distribution == "normal" else OTHERS
            made = draw_inputs(target, algorithm, _shortened(target, algorithm, workload, most), distribution, rng)
            for t in algorithm.inputs:
                dtype, part = t.dtype or "f32", made[t.name]
                values = np.frombuffer(encode(part, dtype), dtype=_STORAGE[dtype])
                kept = dtype not in FLOATS and target.make_inputs is not None
                if kept:
                    rows[t.name][distribution] = (part.shape or (1,))[0]
                drawn.setdefault(t.name, {})[distribution] = values if kept else values[:most]
                if distribution == "normal":
                    far = values if kept else _far_out(part, dtype, rng)
                    drawn[t.name][FAR_OUT] = far
                    rows[t.name] |= {FAR_OUT: rows[t.name]["normal"]} if kept else {}
        self._tensors = [
            _Tensor(t.name, t.dtype or "f32", shapes[t.name], tuple(t.axes or ()), drawn[t.name], rows[t.name])
            for t in algorithm.inputs
        ]

    @property
    def distributions(self) -> list[str]:
        """What `renew` knows."""
        return [*DISTRIBUTIONS, FAR_OUT]

    @property
    def whole(self) -> int:
        """Values that have to be known for any place of the axis."""
        return sum(math.prod(t.shape) for t in self._tensors if self.axis not in t.axes)

    def pools(self) -> tuple[list[dict[str, Any]], list[bytes]]:
        """(name, dtype and distribution of each, its values): what calls with a key are made of."""
        rows, blobs = [], []
        for t in self._tensors:
            for distribution, values in t.drawn.items():
                if not t.rows and math.prod(t.shape) > _SMALL:
                    rows.append({"name": t.name, "dtype": t.dtype, "distribution": distribution})
                    blobs.append(values.tobytes())
        return rows, blobs

    def renew(self, distribution: str = "normal") -> tuple[list[dict[str, Any]], list[bytes]]:
        """(form of each input, with its key and distribution where it is made of a pool; else its values)."""
        forms, blobs = [], []
        for t in self._tensors:
            t.renew(distribution, self._rng)
            form: dict[str, Any] = {"name": t.name, "dtype": t.dtype, "shape": list(t.shape)}
            forms.append(form if t.whole is not None else {**form, "key": t.key, "distribution": distribution})
            blobs.append(b"" if t.whole is None else t.whole.tobytes())
        return forms, blobs

    def part(self, places: Array) -> Mapping[str, Array]:
        """Every input of the call to come, of these places of the axis."""
        return {t.name: t.part(self.axis, places) for t in self._tensors}


def _far_out(values: Array, dtype: str, rng: np.random.Generator) -> Array:
    """Some of them, about one in a thousand far out, in the dtype's storage."""
    few = np.resize(values.reshape(-1)[:OTHERS], max(1, min(OTHERS, values.size) // _ROW) * _ROW)
    return np.frombuffer(encode(far_out(few.reshape(-1, _ROW), dtype, rng), dtype), dtype=_STORAGE[dtype])


def _shortened(target: Target, algorithm: Algorithm, workload: Workload, most: int) -> Workload:
    """The size with axes that only lengthen its outputs halved, until no input has more values than that."""
    free = free_axes(algorithm)
    while True:
        sizes = extents(algorithm, workload)
        large = [t for t in algorithm.inputs if math.prod(sizes[a] for a in t.axes or ()) > most]
        mine = {a for t in large for a in t.axes or () if a in free and workload.sizes.get(a, 1) % 2 == 0}
        if not mine:
            return workload
        longest = max(sorted(mine), key=lambda a: workload.sizes[a])
        shorter = Workload({**workload.sizes, longest: workload.sizes[longest] // 2}, workload.params)
        try:
            fits(target, algorithm, shorter)
        except TargetError:
            return workload
        workload = shorter
