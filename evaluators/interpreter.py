"""Triton's CPU interpreter with its arithmetic made right: bf16, the 8-bit floats, casts, dots, bounds.

As shipped (3.6 to 3.9) the interpreter holds bf16 as its bits, so that arithmetic and dots on it are garbage, truncates
on the way to bf16, and loses carries on the way to 8-bit floats. Here narrow floats are held as float32 (`narrow`) and
rounded once after each operation, as a chip's instruction does. Dots multiply exactly and add in float32 (integers
exactly); an f32 dot in "tf32" loses the low 13 bits of its operands, as the tensor cores do. Accesses outside of every
tensor raise `MemoryFault`. A patch for several versions of a library is no beauty: `install` is idempotent, and the
tests prove each correction against torch.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import random
import sys
from types import FunctionType
from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter as base

from evaluators import folding, libdevice, tuning
from evaluators.guards import Access, MemoryFault, Region, Regions
from evaluators.narrow import FORMATS, from_bits, round_to, round_toward_zero, to_bits

Handle = base.TensorHandle
REGIONS = Regions()

_NUMPY = {
    **{"int1": np.bool_, "fp16": np.float16, "fp32": np.float32, "fp64": np.float64},
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_HELD = {name: np.dtype(kind) for name, kind in _NUMPY.items()} | dict.fromkeys(FORMATS, np.dtype(np.float32))
_STORED = {name: np.dtype(kind) for name, kind in _NUMPY.items()} | {name: f[2] for name, f in FORMATS.items()}
_ADDRESS = np.dtype(np.uint64)


def _held(ty: Any) -> np.dtype:
    """The dtype of the arrays that stand for a Triton type; pointers are addresses."""
    return _HELD.get(ty.scalar.name, _ADDRESS)


def _fitted(data: NDArray, ty: Any) -> Any:
    """A handle of this scalar type: rounded where it is narrow, cut where NumPy has widened; comparisons stay bool."""
    name = ty.name
    if data.dtype != np.bool_:
        if name in FORMATS:
            data = round_to(data, name)
        elif data.dtype.itemsize > _HELD.get(name, _ADDRESS).itemsize:
            data = data.astype(_HELD[name])
    return Handle(data, ty)


def _bits(handle: Any) -> NDArray:
    name = handle.dtype.scalar.name
    return to_bits(handle.data, name) if name in FORMATS else handle.data


def _mask(mask: Any) -> NDArray | None:
    if mask is None:
        return None
    return mask.data if isinstance(mask.data, np.ndarray) else np.asarray(mask)  # 3.6 passes bare arrays


class Corrections:
    """Methods that take the place of `InterpreterBuilder`'s of the same name."""

    # Which arguments follow the mask (cache hints) differs between versions; none of them means anything here.

    def create_load(self: Any, ptr: Any, *hints: Any) -> Any:
        return self.create_masked_load(ptr, None, None, *hints)

    def create_store(self: Any, ptr: Any, value: Any, *hints: Any) -> Any:
        return self.create_masked_store(ptr, value, None)

    def create_masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *hints: Any, **named: Any) -> Any:
        ty = ptrs.get_element_ty()
        chosen = _mask(mask)
        volatile: Access = "volatile" if named.get("is_volatile") or (hints and hints[-1] is True) else "plain"
        data = REGIONS.gather(ptrs.data, chosen, _STORED.get(ty.name, _ADDRESS), volatile)
        if ty.name in FORMATS:
            data = from_bits(data, ty.name)
        if other is not None and chosen is not None:
            data = np.where(chosen, data, other.data)
        return Handle(data, ty)

    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *hints: Any, **named: Any) -> None:
        stored = _STORED.get(ptrs.get_element_ty().name, _ADDRESS)
        REGIONS.scatter(ptrs.data, _mask(mask), _bits(value).astype(stored, copy=False))

    def create_atomic_load(self: Any, ptr: Any, mask: Any, sem: Any, scope: Any) -> Any:
        return self.create_masked_load(ptr, mask, None, None, True)

    def create_atomic_store(self: Any, ptr: Any, value: Any, mask: Any, sem: Any, scope: Any) -> None:
        stored, chosen = _STORED.get(ptr.get_element_ty().name, _ADDRESS), _mask(mask)
        REGIONS.atomic(ptr.data, chosen, stored, *_order(sem))
        REGIONS.scatter(ptr.data, chosen, _bits(value).astype(stored, copy=False), "part")

    def set_grid_idx(self: Any, x: int, y: int, z: int) -> None:
        _base_set_grid_idx(self, x, y, z)
        if REGIONS.order is not None:
            if (x, y, z) == (0, 0, 0):
                _Launch.begins(sys._getframe(1).f_locals)
            if not _Launch.over:
                REGIONS.order.program((x, y, z))

    def create_make_tensor_descriptor(self: Any, base_: Any, shape: Any, strides: Any, block: Any, *rest: Any) -> Any:
        padding = rest[1] if len(rest) > 1 else "zero"
        desc = base.TensorDescHandle(base_, shape, strides, block, padding)
        desc.validate()
        sizes = [int(s.data.item()) for s in shape]
        steps = [int(s.data.item()) for s in strides]
        stored = _STORED[base_.get_element_ty().name]
        begin = int(base_.data.item())
        reach = 1 + sum((n - 1) * s for n, s in zip(sizes, steps, strict=True))
        if min(steps) < 0:  # chips take none, and between its ends such a box would reach anywhere
            raise MemoryFault(f"a descriptor of shape {sizes} has the strides {steps}; none may be negative")
        if min(sizes) > 0:
            try:
                memory, desc.region = REGIONS.box(begin, begin + reach * stored.itemsize)
                memory = desc.memory = memory.view(stored)
            except MemoryFault:
                raise MemoryFault(
                    f"a descriptor of shape {sizes} and strides {steps} reaches outside its tensor"
                ) from None
            whole = np.lib.stride_tricks.as_strided(memory, sizes, [s * stored.itemsize for s in steps])
        else:
            whole = np.zeros(sizes, stored)
        desc.whole = whole
        return desc

    def create_descriptor_load(self: Any, desc: Any, indices: Any, *hints: Any) -> Any:
        ty = desc.base.get_element_ty()
        inner, outer = _window(desc, indices)
        held = _held(ty)
        fill = np.nan if desc.padding == base._ir.PADDING_OPTION.PAD_NAN else 0
        data = desc.whole[outer]
        if REGIONS.order is not None and data.size:
            REGIONS.order.read(*_window_places(desc, outer), None, desc.whole.itemsize)
        if ty.name in FORMATS:
            data = from_bits(data, ty.name)
        if list(data.shape) != list(desc.block_shape):
            block = np.full(desc.block_shape, fill, dtype=held)
            block[inner] = data
            data = block
        elif ty.name not in FORMATS:
            data = data.copy()  # a view would change under a later store
        if getattr(desc, "round_f32_to_tf32", False) and ty == tl.float32:
            data = base._round_f32_to_tf32(data)
        return Handle(data, ty)

    def create_descriptor_store(self: Any, desc: Any, value: Any, indices: Any) -> None:
        inner, outer = _window(desc, indices)
        bits = _bits(value).reshape(desc.block_shape)[inner].astype(desc.whole.dtype, copy=False)
        if REGIONS.order is not None and bits.size:
            region, places = _window_places(desc, outer)
            REGIONS.order.write(region, desc.memory, places, None, bits)
        desc.whole[outer] = bits

    # -- casts -----------------------------------------------------------------------------------------------------

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        ty = dst_type.scalar
        if ty.name in FORMATS:
            return Handle(round_to(src.data, ty.name), ty)
        return Handle(src.data.astype(_held(ty)), ty)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        ty = dst_type.scalar
        if rounding_mode != base._ir.ROUNDING_MODE.RTZ:
            return self.cast_impl(src, dst_type)
        if ty.name in FORMATS:
            return Handle(round_toward_zero(src.data.astype(np.float32), ty.name), ty)
        near = src.data.astype(_held(ty))
        away = np.abs(near.astype(src.data.dtype)) > np.abs(src.data)
        return Handle(np.where(away, np.nextafter(near, near.dtype.type(0)), near), ty)

    def create_bitcast(self: Any, src: Any, dst_type: Any) -> Any:
        ty = dst_type.scalar
        data = _bits(src).view(_STORED.get(ty.name, _ADDRESS))
        return Handle(from_bits(data, ty.name) if ty.name in FORMATS else data, ty)

    def get_bf16(self: Any, value: Any) -> Any:
        return Handle(round_to(np.array([value], dtype=np.float32), "bf16"), tl.bfloat16)

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        left, right = lhs.data, rhs.data
        if left.dtype == np.bool_ and right.dtype == np.bool_:  # int1 wraps around; NumPy's bool saturates
            return Handle((op(left.astype(np.int8), right.astype(np.int8)) & 1).astype(np.bool_), lhs.dtype.scalar)
        return _fitted(op(left, right), lhs.dtype.scalar)

    def unary_op(self: Any, arg: Any, op: Any) -> Any:
        return _fitted(op(arg.data), arg.dtype.scalar)

    def ternary_op(self: Any, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        data = op(lhs.data, rhs.data, other.data)
        held = _held(other.dtype)
        return Handle(data if data.dtype == held else data.astype(held), other.dtype.scalar)

    def create_minnumf(self: Any, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self: Any, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, np.fmax)

    def create_clampf(self: Any, arg: Any, lo: Any, hi: Any, propagate_nans: Any) -> Any:
        if propagate_nans == base._ir.PROPAGATE_NAN.NONE:
            return self.binary_op(self.binary_op(arg, lo, np.fmax), hi, np.fmin)
        return self.ternary_op(arg, lo, hi, np.clip)

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        exact = x.data.astype(np.float64) * y.data + z.data  # the product of two float32 is exact
        return _fitted(exact.astype(z.data.dtype), z.dtype.scalar)

    def create_fabs(self: Any, arg: Any) -> Any:
        return Handle(np.abs(arg.data), arg.dtype.scalar)

    def create_erf(self: Any, arg: Any) -> Any:
        return _fitted(torch.erf(torch.from_numpy(np.asarray(arg.data, order="C"))).numpy(), arg.dtype.scalar)

    def create_extern_elementwise(self: Any, lib: str, path: str, symbol: str, args: Any, ty: Any, pure: bool) -> Any:
        return Handle(libdevice.apply(symbol, [a.data for a in args], _held(ty)), ty.scalar)

    # -- matrix products -------------------------------------------------------------------------------------------

    def create_barrier(self: Any, *_: Any) -> None:
        _meet()

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        _meet()
        held = d.data.dtype
        if held.kind in "iu":  # float64 is exact far beyond what 8-bit operands can reach, and has a BLAS
            product = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64))
            return Handle(product.astype(np.int64).astype(held) + d.data, d.dtype.scalar)
        wide = np.float64 if held == np.float64 else np.float32
        left, right = a.data.astype(wide, copy=False), b.data.astype(wide, copy=False)
        if a.dtype.scalar == tl.float32 and input_precision == base._ir.INPUT_PRECISION.TF32:
            left, right = _tf32(left), _tf32(right)
        total = np.matmul(left, right) + d.data
        return _fitted(total.astype(held, copy=False), d.dtype.scalar)

    def create_dot_scaled(
        self: Any,
        lhs: Any,
        lhs_scale: Any,
        lhs_format: Any,
        rhs: Any,
        rhs_scale: Any,
        rhs_format: Any,
        fast_math: bool,
        lhs_k_pack: bool,
        rhs_k_pack: bool,
        acc: Any,
    ) -> Any:
        _meet()
        left = _scaled(lhs, lhs_scale, lhs_format, packed=-1 if lhs_k_pack else -2, k=-1)
        right = _scaled(rhs, rhs_scale, rhs_format, packed=-2 if rhs_k_pack else -1, k=-2)
        return Handle(np.matmul(left, right) + acc.data, tl.float32)

    # -- shapes and atomics ----------------------------------------------------------------------------------------

    def create_splat(self: Any, ret_ty: Any, arg: Any) -> Any:
        return Handle(np.broadcast_to(arg.data.reshape(-1)[0], ret_ty.shape), arg.dtype.scalar)

    def create_atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        name = val.dtype.scalar.name
        if name in FORMATS:
            raise NotImplementedError(f"no atomic compare-and-swap on {name}")
        REGIONS.atomic(ptr.data, None, _STORED.get(name, _ADDRESS), *_order(sem))
        return _base_atomic_cas(self, *(_whole(h, ptr) for h in (ptr, cmp, val)), sem, scope)

    def create_atomic_rmw(self: Any, rmw_op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        name = val.dtype.scalar.name
        stored = _STORED.get(name, _ADDRESS)
        chosen = np.broadcast_to(mask.data, ptr.data.shape)
        REGIONS.atomic(ptr.data, chosen, stored, *_order(sem))
        if name not in FORMATS:
            where, given, which = (_whole(h, ptr) for h in (ptr, val, mask))
            if rmw_op == base._ir.ATOMIC_OP.XCHG and given.data.dtype.kind == "f":  # the C++ exchanges integers alone
                bits = Handle(given.data.view(np.dtype(f"i{given.data.itemsize}")), given.dtype)
                old = _base_atomic_rmw(self, rmw_op, where, bits, which, sem, scope)
                return Handle(old.data.view(given.data.dtype), val.dtype.scalar)
            return _base_atomic_rmw(self, rmw_op, where, given, which, sem, scope)
        kinds = base._ir.ATOMIC_OP
        ops: dict[Any, Any] = {
            kinds.FADD: np.add,
            kinds.MAX: np.fmax,
            kinds.MIN: np.fmin,
            kinds.XCHG: lambda old, new: new,
        }
        if rmw_op not in ops:
            raise NotImplementedError(f"no atomic {rmw_op} on {name}")
        before = np.zeros(ptr.data.shape, np.float32)
        values = np.broadcast_to(val.data, ptr.data.shape)
        for index in zip(*np.nonzero(chosen), strict=True):  # one by one, for two may have the same address
            at = ptr.data[index].reshape(1)
            old = from_bits(REGIONS.gather(at, None, stored, "part"), name)
            before[index] = old[0]
            REGIONS.scatter(at, None, to_bits(round_to(ops[rmw_op](old, values[index]), name), name), "part")
        return Handle(before, val.dtype.scalar)


def _whole(handle: Any, like: Any) -> Any:
    """The same values with memory of their own: the C++ behind atomics does not look at strides."""
    return Handle(np.array(np.broadcast_to(handle.data, like.data.shape), order="C"), handle.dtype)


def _window(desc: Any, indices: Any) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """(part of the block, part of the tensor) that a descriptor's access at these indices has in common."""
    inner, outer = [], []
    for index, size, block in zip(indices, desc.whole.shape, desc.block_shape, strict=True):
        start = int(index.data.item())
        first, last = min(max(0, -start), block), max(0, min(block, size - start))
        last = max(first, last)
        inner.append(slice(first, last))
        outer.append(slice(start + first, start + last) if last > first else slice(0, 0))
    return tuple(inner), tuple(outer)


def _window_places(desc: Any, outer: tuple[slice, ...]) -> tuple[Region, NDArray]:
    """(the memory that a descriptor's access touches, the elements' places in it)."""
    size = desc.whole.itemsize
    places = np.int64(desc.memory.ctypes.data - desc.region[0]) // size
    for axis, (part, stride) in enumerate(zip(outer, desc.whole.strides, strict=True)):
        along = np.arange(part.start, part.stop) * (stride // size)
        places = places + along.reshape(-1, *[1] * (desc.whole.ndim - axis - 1))
    return desc.region, np.asarray(places)


def _order(sem: Any) -> tuple[bool, bool]:
    """(whether an atomic acquires, whether it releases)."""
    kinds = base._ir.MEM_SEMANTIC
    return sem in (kinds.ACQUIRE, kinds.ACQUIRE_RELEASE), sem in (kinds.RELEASE, kinds.ACQUIRE_RELEASE)


def _tf32(values: NDArray) -> NDArray:
    return (np.asarray(values, order="C").view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def _scaled(value: Any, scale: Any, form: Any, packed: int, k: int) -> NDArray:
    """An operand of a block-scaled dot in float32. e2m1: two a byte along `packed`, low half first; k: its sum axis."""
    data = value.data
    if form == base._ir.ScaleDotElemTypeTY.E2M1:
        last = np.moveaxis(data.view(np.uint8), packed, -1)
        both = np.stack([_E2M1[last & 15], _E2M1[last >> 4]], axis=-1)
        data = np.moveaxis(both.reshape(*last.shape[:-1], -1), -1, packed)
    data = data.astype(np.float32, copy=False)
    if scale is None:
        return data
    factor = scale.data
    if scale.dtype.scalar.is_int():  # e8m0: a power of two, 255 is NaN
        exponent = factor.view(np.uint8)
        factor = np.where(exponent == 255, np.nan, np.exp2(exponent.astype(np.float64) - 127)).astype(np.float32)
    wide = np.repeat(factor, data.shape[k] // factor.shape[-1], axis=-1)
    return data * (wide if k == -1 else np.swapaxes(wide, -1, -2))


# -- putting it in place -----------------------------------------------------------------------------------------------

_base_atomic_cas = base.InterpreterBuilder.create_atomic_cas
_base_atomic_rmw = base.InterpreterBuilder.create_atomic_rmw
_base_set_grid_idx = base.InterpreterBuilder.set_grid_idx
_base_restore = base.GridExecutor._restore_args_dev
_base_args = base.GridExecutor._init_args_hst


def _arguments(self: Any, args: Any, kwargs: Any) -> Any:
    found = _base_args(self, args, kwargs)
    REGIONS.clear()  # what a launch before was given may be free by now, and somebody else's

    def register(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            REGIONS.add(value)
        elif isinstance(value, tuple):
            for part in value:
                register(part)
        elif isinstance(value, base.TensorDescriptor):
            register(value.base)

    register(tuple(base._unwrap_tensor(v) for v in (*found[0], *found[1].values())))
    return found


def _remember(cls: Any, key: Any, given: tuple[str, ...]) -> None:
    """Has a class's `__init__` run once for each key and be copied afterwards, but for the attributes in `given`.

    Types and tensors are made anew at every operation, from the same few shapes, and cost more than the arithmetic.
    """
    original = cls.__init__
    made: dict[Any, dict[str, Any]] = {}

    def init(self: Any, first: Any, second: Any) -> None:
        known = made.get(label := key(first, second))
        if known is None:
            original(self, first, second)
            made[label] = {k: v for k, v in vars(self).items() if k not in given}
        else:
            self.__dict__.update(known)
            for name in given:
                self.__dict__[name] = first

    cls.__init__ = init


def _shape_key(element: Any, shape: Any) -> Any:
    return element.name, tuple([s.value if type(s) is tl.constexpr else s for s in shape])


class _Nothing:
    def restore(self) -> None:
        """The language stays patched: this process compiles nothing."""


def _range(plain: Any) -> Any:
    """`tl.range` whose numbers are i32 tensors, as compiled code has them; the interpreter gives bare ints."""

    def walk(*bounds: Any, **hints: Any) -> Any:
        for i in plain(*bounds, **hints):
            yield tl.core.tensor(Handle(np.array([i], dtype=np.int32), tl.int32), tl.int32)

    return walk


class _Launch:
    """The launch that runs: what is needed to run programs of it once more."""

    call: tuple[Any, dict[str, Any]] | None = None
    start: list[NDArray]
    turns = 0  # in which order programs run: 0 by their numbers, 1 backwards, more: drawn from it
    over = False  # they have run, in another order than the loop's

    @classmethod
    def begins(cls, frame: dict[str, Any]) -> None:
        """frame: the names in the interpreter's loop over the grid."""
        cls.call, cls.over = None, False
        if "self" in frame and "args" in frame and _may_have_atomics(frame["self"].fn.__code__.co_filename):
            cls.call = frame["self"].fn, frame["args"]
            cls.start = [contents.copy() for contents in REGIONS.contents()]
            if cls.turns and cls.in_turns(frame.get("grid", ())):
                cls.over = True
                frame["self"].fn = _nothing  # the executor is this launch's own

    @classmethod
    def in_turns(cls, grid: tuple[int, ...]) -> bool:
        """Runs the programs in another order. Whether that ended: one that waits for others may have to wait for ever,
        and then memory is as it was. Which order it is follows from `turns` and the grid alone."""
        assert cls.call is not None and REGIONS.order is not None
        (function, args), builder = cls.call, base.interpreter_builder
        places = list(itertools.product(*map(range, grid)))
        if not 1 < len(places) <= _MOST_PROGRAMS:
            return False
        places.reverse()
        if cls.turns > 1:
            random.Random(f"{cls.turns} {grid}").shuffle(places)

        def run(place: tuple[int, ...]) -> None:
            _base_set_grid_idx(builder, *place)
            function(**args)

        for _ in range(_TRIES):
            waits = REGIONS.order.in_turns(places, run)
            if waits is None:
                return True
            cls.put(cls.start)
            REGIONS.order.begin()
            places.append(places.pop(waits))  # whoever waits comes last
        _base_set_grid_idx(builder, 0, 0, 0)
        return False

    @staticmethod
    def put(kept: list[NDArray]) -> None:
        for contents, bytes_ in zip(REGIONS.contents(), kept, strict=True):
            contents[:] = bytes_

    @classmethod
    def ends(cls) -> None:
        """Raises Race."""
        if cls.call is None or REGIONS.order is None:
            return
        (function, args), builder, cls.call = cls.call, base.interpreter_builder, None
        end = [contents.copy() for contents in REGIONS.contents()]

        def run(place: tuple[int, ...]) -> None:
            _base_set_grid_idx(builder, *place)
            function(**args)

        try:
            REGIONS.order.rehearse(run, lambda: cls.put(cls.start))
        finally:
            cls.put(end)
            cls.start = []


_MOST_PROGRAMS = 1 << 16
_TRIES = 4


def _nothing(**_: Any) -> None:
    """A program that has run."""


@functools.cache
def _may_have_atomics(file: str) -> bool:
    lines = linecache.getlines(file)
    return not lines or any("atomic" in line for line in lines)


def _restored(self: Any, *args: Any) -> Any:
    _Launch.ends()
    return _base_restore(self, *args)


_installed = False


def _with_what_is_closed_over(run: Any) -> Any:
    """Triton's compiler knows the names that a kernel of a factory closes over; its interpreter runs the rewritten
    kernel among the globals alone."""

    def compile_and_exec(rewriter: Any, tree: Any) -> Any:
        fn = rewriter.fn
        closed = inspect.getclosurevars(fn).nonlocals
        if not closed:
            return run(rewriter, tree)
        rewriter.fn = FunctionType(fn.__code__, {**fn.__globals__, **closed}, fn.__name__, None, fn.__closure__)
        try:
            return run(rewriter, tree)
        finally:
            rewriter.fn = fn

    return compile_and_exec


def install() -> None:
    """Puts the corrections in place, for the life of the process."""
    global _installed
    if _installed:
        return
    for name, method in vars(Corrections).items():
        if not name.startswith("__"):
            setattr(base.InterpreterBuilder, name, method)
    base._get_np_dtype = _held
    base._validate_np_data_size = lambda data, ty: True  # a narrow float is wider here than its type
    base.ReduceScanOpInterface.to_tensor = folding.to_tensor
    base.ReduceScanOpInterface.apply = _met(base.ReduceScanOpInterface.apply)
    base.ReduceOps.generic_reduce = folding.generic_reduce
    base.ReduceOps.sum, base.ScanOps.cumsum = folding.summed, folding.summed_up
    base.ScanOps.generic_scan = folding.generic_scan
    base.GridExecutor._init_args_hst = _arguments
    base.GridExecutor._restore_args_dev = _restored
    # The language is patched once instead of at every call of every function, which took most of the time.
    names = {"tl": tl, "core": tl.core}
    base._patch_lang(type("Module", (), {"__globals__": names}))
    base._patch_lang = lambda fn: _Nothing()
    tl.range = _range(tl.range)
    _remember(tl.core.tensor, lambda handle, ty: ty.name, given=("handle",))
    _remember(tl.core.block_type, _shape_key, given=())
    # Indices of these sizes do not overflow; watching for it doubles the work on them.
    base.interpreter_builder.options = base.InterpreterOptions(sanitize_overflow=False)
    # NumPy 2.4 makes no int of an array with one axis, so `range` with a tensor for a bound failed in 3.6.
    tl.tensor.__index__ = lambda self: int(self.handle.data.reshape(-1)[0])
    base.FunctionRewriter._compile_and_exec = _with_what_is_closed_over(base.FunctionRewriter._compile_and_exec)
    tuning.install()
    libdevice.install(base.interpreter_semantic)
    _installed = True


def watch_order() -> None:
    """From now on a race between the programs of a launch is a MemoryFault, for the life of the process. Programs of
    the language have none: each writes its own tile."""
    from evaluators.launch_order import Order

    REGIONS.order = Order()


def _meet() -> None:
    """The threads of the program that runs wait for each other."""
    if REGIONS.order is not None:
        REGIONS.order.meet()


def _met(apply: Any) -> Any:
    def run(operation: Any, given: Any) -> Any:
        _meet()
        return apply(operation, given)

    return run


def take_turns(turns: int) -> None:
    """From now on the programs of a launch that may have atomics run by their numbers (0), backwards (1), or in an
    order drawn from a larger number; where one waits for another, in the order in which that ends."""
    _Launch.turns = turns


def program() -> str:
    """Which program of the grid is running, for messages."""
    return str(getattr(base.interpreter_builder, "grid_idx", None))
