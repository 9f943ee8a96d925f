"""Reductions and scans of Triton's interpreter: with a function of one's own over whole slices, and rounded.

The interpreter calls such a function element by element, which takes seconds for one tile. Here it is called once for
each place along the axis, from the left, on everything else at once. Needs torch and triton; runs in workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter as base

from evaluators.narrow import FORMATS, round_to

_base_to_tensor, _base_sum, _base_cumsum = base.ReduceScanOpInterface.to_tensor, base.ReduceOps.sum, base.ScanOps.cumsum


def to_tensor(self: Any, ret: Any, dtype: Any) -> Any:
    made = _base_to_tensor(self, ret, dtype)
    if dtype.scalar.name in FORMATS:
        made.handle.data = round_to(made.handle.data, dtype.scalar.name)
    return made


def _slices(tensors: Any, axis: int) -> list[tuple[Any, ...]]:
    """For each place along the axis, the tensors' slices there."""
    moved = [np.moveaxis(t.handle.data, axis, 0) for t in tensors]

    def wrap(data: NDArray, scalar: Any) -> Any:
        ty = tl.block_type(scalar, list(data.shape)) if data.shape else scalar
        return tl.core.tensor(base.TensorHandle(data if data.shape else data.reshape(1), scalar), ty)

    types = [t.dtype for t in tensors]
    return [tuple(wrap(m[i], ty) for m, ty in zip(moved, types, strict=True)) for i in range(moved[0].shape[0])]


def _fold(self: Any, acc: tuple[Any, ...], more: tuple[Any, ...]) -> tuple[Any, ...]:
    result = self.combine_fn.fn(*acc, *more)
    return result if isinstance(result, tuple) else (result,)


def generic_reduce(self: Any, inputs: Any) -> list[Any]:
    flat = self.axis is None
    shape = inputs[0].handle.data.shape
    if flat:
        inputs = tuple(self.to_tensor(t.handle.data.reshape(-1), t.dtype) for t in inputs)
    axis = 0 if flat else self.axis
    first, *rest = _slices(inputs, axis)
    for more in rest:
        first = _fold(self, first, more)
    results = []
    for made, given in zip(first, inputs, strict=True):
        data = made.handle.data
        if flat:
            data = data.reshape([1] * len(shape)) if self.keep_dims else data.reshape(-1)[0]
        else:
            data = data.reshape([n for i, n in enumerate(shape) if i != axis % len(shape)])
            data = np.expand_dims(data, axis) if self.keep_dims else data
        results.append(self.to_tensor(data if data.shape else data[()], given.dtype))
    return results


def _narrow(tensor: Any) -> Callable[[NDArray], NDArray] | None:
    """How its values are rounded after each addition; None where the dtype is no narrow float."""
    name = tensor.dtype.scalar.name
    if name == "fp16":
        return lambda values: values.astype(np.float16)
    return (lambda values: round_to(values, name)) if name in FORMATS else None


def summed(self: Any, tensor: Any) -> Any:
    """A sum in its tensor's own dtype: on a device each addition rounds to it. Here in halves, the most exact order."""
    rounded = _narrow(tensor)
    if rounded is None:
        return _base_sum(self, tensor)
    shape = tensor.handle.data.shape
    flat = self.axis is None
    data = tensor.handle.data.reshape(-1) if flat else np.moveaxis(tensor.handle.data, self.axis, 0)
    while len(data) > 1:
        half = -(-len(data) // 2)
        first, second = data[:half], data[half:]
        added = rounded(first[: len(second)].astype(np.float32) + second.astype(np.float32))
        data = np.concatenate([added, first[len(second) :]])
    found = data[0]
    if self.keep_dims:
        found = np.reshape(found, [1] * len(shape)) if flat else np.expand_dims(found, self.axis)
    return self.to_tensor(found, tensor.dtype)


def summed_up(self: Any, tensor: Any) -> list[Any]:
    """A running sum, each step rounded."""
    rounded = _narrow(tensor)
    if rounded is None:
        kept: list[Any] = _base_cumsum(self, tensor)
        return kept
    data = np.moveaxis(tensor.handle.data, self.axis, 0)
    rows = [data[0]]
    for row in data[1:]:
        rows.append(rounded(rows[-1].astype(np.float32) + row.astype(np.float32)))
    return [self.to_tensor(np.moveaxis(np.stack(rows), 0, self.axis), tensor.dtype)]


def generic_scan(self: Any, inputs: Any) -> list[Any]:
    first, *rest = _slices(inputs, self.axis)
    rows = [first]
    for more in rest:
        rows.append(first := _fold(self, first, more))
    shape = np.moveaxis(inputs[0].handle.data, self.axis, 0).shape[1:]
    return [
        self.to_tensor(
            np.moveaxis(np.stack([row[i].handle.data.reshape(shape) for row in rows]), 0, self.axis), t.dtype
        )
        for i, t in enumerate(inputs)
    ]
