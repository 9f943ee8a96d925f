"""Random inputs: what the judge feeds a candidate, by named distribution, from a seed that stays in the parent.

One bell curve hides too much: a kernel without a running maximum passes on small logits, a quantiser that forgets a
channel passes without outliers. So every check draws from one of several distributions. Values are float64 arrays that
hold exactly what the declared dtype can represent, so the oracle and the kernel see the same numbers; `encode` turns
them into the bytes that cross to a worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from dsl import work
from dsl.assembly import walk
from dsl.elaborate import elaborate
from dsl.rounding import BLOCKS, round_blocks, round_to
from dsl.syntax import Algorithm, Name, Program, Read, Schedule
from dsl.terms import Graph
from evaluators.process import cores
from evaluators.target import Target, TargetError, Workload

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

FLOATS = ("f64", "f32", "f16", "bf16", "e4m3", "e5m2", *BLOCKS)
_STORAGE = {
    "f64": "<f8",
    "f32": "<f4",
    "f16": "<f2",
    "bf16": "<u2",
    "e4m3": "u1",
    "e5m2": "u1",
    "int8": "i1",
    "i32": "<i4",
}
_STORAGE["bool"] = "u1"
_PIECE = 1 << 20  # values that one thread draws or rounds at a time: 8 MB
_LARGE = 1 << 24  # from so many values on they are drawn piece by piece: a public size's weights, no check's


def generator(seed: int, *labels: object) -> np.random.Generator:
    """An independent stream for each list of labels; the same one again for the same seed and labels.

    A candidate cannot guess it without the run's seed, and a resumed run draws the same inputs again.
    """
    text = "\x1f".join(map(str, (seed, *labels)))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little"))


def _in_pieces(work: Callable[[int, slice], None], size: int) -> None:
    """`work` for each piece of so many values, by all cores: NumPy lets go of the interpreter while it computes."""
    places = [slice(begin, min(begin + _PIECE, size)) for begin in range(0, size, _PIECE)]
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(work, range(len(places)), places))


def _bell(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Standard normal values; many of them by a stream for each piece, so that the cores do not change the values."""
    size = int(np.prod(shape))
    if size < _LARGE:
        return rng.standard_normal(shape)
    values = np.empty(size)
    streams = rng.spawn(-(-size // _PIECE))

    def fill(number: int, place: slice) -> None:
        values[place] = streams[number].standard_normal(place.stop - place.start)

    _in_pieces(fill, size)
    return values.reshape(shape)


# Distributions: (shape, dtype, rng) -> values before rounding to the dtype --------------------------


def _normal(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    return _bell(shape, rng)


def _outlier_channels(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """About one channel (index of the last axis) in thirty is ten times larger and far from zero; all have a mean."""
    values = _bell(shape, rng) + 0.5 * rng.standard_normal(shape[-1:])
    if not shape:
        return values
    chosen = rng.choice(shape[-1], size=max(1, shape[-1] // 32), replace=False)
    values[..., chosen] = 10.0 * (values[..., chosen] + rng.choice([-1.0, 1.0], size=chosen.shape))
    return values


def _large_logits(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Each row (last axis) has its own scale, from 1 to 8: products of two such rows reach far beyond exp's range,
    with mild rows beside them, and still fit f16."""
    scale = np.exp2(rng.uniform(0.0, 3.0, size=(*shape[:-1], 1) if shape else ()))
    return _bell(shape, rng) * scale


def _near_constant(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Close to one value of either sign far from zero: scores with a large common offset, sums that do not cancel."""
    return 4.0 * rng.choice([-1.0, 1.0]) + 0.25 * _bell(shape, rng)


_FAR = 120.0  # beyond what an exponential in float32 bears, and its square still fits f16

DISTRIBUTIONS: dict[str, Callable[[tuple[int, ...], str, np.random.Generator], Array]] = {
    "normal": _normal,
    "outlier_channels": _outlier_channels,
    "large_logits": _large_logits,
    "near_constant": _near_constant,
}


def pairings(checks: Sequence[Workload], rng: np.random.Generator) -> list[tuple[Workload, str]]:
    """Each check size with a distribution: all of them by turns, from a random first."""
    names = list(DISTRIBUTIONS)
    first = int(rng.integers(len(names)))
    return [(workload, names[(first + i) % len(names)]) for i, workload in enumerate(checks)]


def draw(shape: tuple[int, ...], dtype: str, distribution: str, rng: np.random.Generator) -> Array:
    """One tensor: float64 for a float dtype (representable values), int64 for an integer one, bool for bool."""
    if dtype in FLOATS:
        return representable(DISTRIBUTIONS[distribution](shape, dtype, rng), dtype)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < (0.95 if distribution == "near_constant" else 0.5))
    bound = 127 if dtype == "int8" else 8
    low = bound - 3 if distribution == "near_constant" else -bound
    return rng.integers(low, bound + 1, size=shape)


def far_out(values: Array, dtype: str, rng: np.random.Generator) -> Array:
    """The values with one place far from all others in half of the rows (last axis), often the last place: who looks at
    a part of a row does not know it. As they are where the dtype is no float."""
    if dtype not in FLOATS or values.size < 2 or not values.ndim:
        return values
    rows = values.reshape(-1, values.shape[-1]).copy()
    chosen = rng.permutation(len(rows))[: max(1, len(rows) // 2)]
    places = np.where(rng.random(len(chosen)) < 0.25, rows.shape[1] - 1, rng.integers(rows.shape[1], size=len(chosen)))
    size = max(_FAR, 4 * float(np.sqrt(np.mean(rows**2))))
    rows[chosen, places] = size * rng.choice([-1.0, 1.0], size=len(chosen))
    return representable(rows.reshape(values.shape), dtype)


def faint(values: Array, dtype: str, rng: np.random.Generator) -> Array:
    """The values with some rows (last axis) tiny, some zero and some of one value: where an epsilon matters, or a
    deviation that is nothing. As they are where the dtype is no float, and where there are no rows."""
    if dtype not in FLOATS or values.ndim < 2 or not values.size:
        return values
    rows = values.reshape(-1, values.shape[-1]).copy()
    kinds = rng.choice(4, size=len(rows), p=(0.5, 0.3, 0.1, 0.1))  # as it is, tiny, zero, constant
    few = min(3, len(rows))
    kinds[rng.permutation(len(rows))[:few]] = rng.permutation((1, 2, 3))[:few]  # each of them, where there is room
    scale = np.exp2(rng.uniform(-14.0, -4.0, size=len(rows)))
    rows *= np.select([kinds == 1, kinds == 2], [scale, 0.0], 1.0)[:, None]
    rows[kinds == 3] = rng.uniform(-1.0, 1.0, size=(int((kinds == 3).sum()), 1))
    return representable(rows.reshape(values.shape), dtype)


def representable(values: Array, dtype: str) -> Array:
    """Rounded to what a tensor of the float dtype can hold, as float64; block formats by their blocks."""
    if dtype in BLOCKS and values.ndim:
        return round_blocks(values, dtype)
    if values.size < _LARGE:
        return round_to(values, dtype)
    flat, rounded = np.ravel(values), np.empty(values.size)

    def fill(_: int, place: slice) -> None:
        rounded[place] = round_to(flat[place], dtype)

    _in_pieces(fill, values.size)
    return rounded.reshape(values.shape)


def draw_index(shape: tuple[int, ...], extent: int, distribution: str, rng: np.random.Generator) -> Array:
    """Positions in [0, extent): spread evenly, all alike (near_constant) or at the two ends (large_logits)."""
    if distribution == "near_constant":
        return np.full(shape, rng.integers(0, extent))
    if distribution == "large_logits":
        return np.where(rng.random(shape) < 0.5, 0, extent - 1)
    return rng.integers(0, extent, size=shape)


# A target's inputs ---------------------------------------------------------------------------------


def draw_inputs(
    target: Target, algorithm: Algorithm, workload: Workload, distribution: str, rng: np.random.Generator
) -> dict[str, Array]:
    """Every input by name, in declaration order; from the target's own `make_inputs` where it has one.

    Raises TargetError where `make_inputs` raises, forgets an input, or gives another shape.
    """
    if target.make_inputs is None:
        return default_inputs(algorithm, workload, distribution, rng)
    try:
        made = target.make_inputs(workload, distribution, rng)
    except Exception as error:
        raise TargetError(f"target {target.name}: make_inputs raised {type(error).__name__}: {error}") from error
    shapes = input_shapes(algorithm, workload)
    if not isinstance(made, Mapping) or set(made) != set(shapes):
        got = ", ".join(made) if isinstance(made, Mapping) else type(made).__name__
        raise TargetError(f"target {target.name}: make_inputs must give exactly {', '.join(shapes)}; got {got}")
    inputs = {}
    for tensor in algorithm.inputs:
        array = np.asarray(made[tensor.name])
        if array.shape != shapes[tensor.name]:
            raise TargetError(
                f"target {target.name}: make_inputs gave {tensor.name} the shape {array.shape}; "
                f"{workload.name} needs {shapes[tensor.name]}"
            )
        dtype = tensor.dtype or "f32"
        inputs[tensor.name] = representable(array.astype(np.float64), dtype) if dtype in FLOATS else array
    return inputs


def default_inputs(
    algorithm: Algorithm, workload: Workload, distribution: str, rng: np.random.Generator
) -> dict[str, Array]:
    """Every input by its declared dtype; an integer input that indexes an axis stays within that axis."""
    shapes = input_shapes(algorithm, workload)
    axes = indexed_axes(algorithm)
    sizes = extents(algorithm, workload)
    inputs = {}
    for tensor in algorithm.inputs:
        dtype, shape = tensor.dtype or "f32", shapes[tensor.name]
        if tensor.name in axes and dtype not in FLOATS:
            inputs[tensor.name] = draw_index(shape, min(sizes[a] for a in axes[tensor.name]), distribution, rng)
        else:
            inputs[tensor.name] = draw(shape, dtype, distribution, rng)
    return inputs


def input_shapes(algorithm: Algorithm, workload: Workload) -> dict[str, tuple[int, ...]]:
    """The shape of every input at these sizes. Raises TargetError for an axis whose extent is unknown."""
    sizes = extents(algorithm, workload)
    return {t.name: tuple(sizes[a] for a in t.axes or ()) for t in algorithm.inputs}


def extents(algorithm: Algorithm, workload: Workload) -> dict[str, int]:
    """The given extents and those that follow from `axis` lines. Raises TargetError for one that does not."""
    defaults = {p.name: p.default for p in algorithm.params if p.default is not None}
    try:
        return work.extents(_graph(algorithm), workload.sizes, {**defaults, **workload.params})[0]
    except ValueError as error:
        raise TargetError(f"workload {workload.name}: {error}") from error


@lru_cache(maxsize=64)
def _graph(algorithm: Algorithm) -> Graph:
    return elaborate(Program(algorithm, Schedule()))[0]


def indexed_axes(algorithm: Algorithm) -> dict[str, set[str]]:
    """Integer input -> the axes that it indexes: in `x[r t]` with `x[r c]`, t indexes c."""
    tensors = {t.name: t.axes for t in (*algorithm.inputs, *algorithm.outputs)}
    tensors.update({t.name: t.axes for s in algorithm.statements for t in s.targets if t.axes is not None})
    integers = {t.name for t in algorithm.inputs if t.dtype in ("i32", "int8")}
    found: dict[str, set[str]] = {}
    for statement in algorithm.statements:
        for expr in walk(statement.value):
            axes = tensors.get(expr.tensor) if isinstance(expr, Read) else None
            if not isinstance(expr, Read) or axes is None:
                continue
            for axis, index in zip(axes, expr.indices, strict=False):
                for part in walk(index):
                    name = part.id if isinstance(part, Name) else part.tensor if isinstance(part, Read) else ""
                    if name in integers:
                        found.setdefault(name, set()).add(axis)
    return found


# Bytes -------------------------------------------------------------------------------------------


def encode(array: Array, dtype: str) -> bytes:
    """Row-major bytes in the dtype. The values must be representable in it, as those of `draw` are."""
    if dtype == "bf16":
        return (np.ascontiguousarray(array, dtype="<f4").view("<u4") >> 16).astype("<u2").tobytes()
    if dtype in ("e4m3", "e5m2"):
        return _codes(np.asarray(array, dtype=np.float64), dtype).tobytes()
    return np.ascontiguousarray(array).astype(_STORAGE[dtype]).tobytes()


def decode(data: bytes, dtype: str, shape: tuple[int, ...]) -> Array:
    """The values behind such bytes: float64, int64 or bool. Raises ValueError where the length does not fit."""
    raw = np.frombuffer(data, dtype=_STORAGE[dtype])
    if raw.size != int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"{len(data)} bytes are no {dtype} array of shape {shape}")
    raw = raw.reshape(shape)
    if dtype == "bf16":
        with np.errstate(invalid="ignore"):  # any NaN may come from a candidate
            return (raw.astype("<u4") << 16).view("<f4").astype(np.float64)
    if dtype in ("e4m3", "e5m2"):
        return _values(dtype)[raw]
    if dtype == "bool":
        return raw != 0
    return raw.astype(np.float64 if dtype in FLOATS else np.int64)


def _values(dtype: str) -> Array:
    """What each of the 256 codes of an 8-bit float stands for (OCP 8-bit floating point: e4m3 has no infinity)."""
    code = np.arange(256)
    bits = 3 if dtype == "e4m3" else 2
    bias = 7 if dtype == "e4m3" else 15
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent, mantissa = (code & 0x7F) >> bits, code & ((1 << bits) - 1)
    normal = np.ldexp(1.0 + mantissa / (1 << bits), exponent - bias)
    values = sign * np.where(exponent > 0, normal, np.ldexp(mantissa / (1 << bits), 1 - bias))
    if dtype == "e4m3":
        values[(code & 0x7F) == 0x7F] = np.nan
    else:
        values[exponent == 31] = np.where(mantissa[exponent == 31] == 0, sign[exponent == 31] * np.inf, np.nan)
    return values


def _codes(array: Array, dtype: str) -> Array:
    values = _values(dtype)[:128]
    finite = np.flatnonzero(np.isfinite(values))
    order = finite[np.argsort(values[finite])]
    position = np.searchsorted(values[order], np.abs(array)).clip(0, len(order) - 1)
    codes = order[position]
    if dtype == "e5m2":
        codes = np.where(np.isinf(array), 0x7C, codes)
    codes = np.where(np.isnan(array), 0x7F, codes)
    return (codes | np.where(np.signbit(array), 0x80, 0)).astype("u1")
