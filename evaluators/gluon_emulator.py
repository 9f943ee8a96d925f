"""Runs emitted Gluon kernels on the CPU: what is computed, and whether the warps' roles keep out of each other's way.

Gluon has no interpreter. This one knows the part of its language that avo's lowering writes. Each role is a thread, and
one runs at a time, and at every wait, arrival, copy and product another may be next, drawn from a seed. Copies are as
late as they may be: the target of a load is NaN from the moment that it is asked for until it has arrived, a product
reads its operands when it is waited for, a store reads its buffer then. So a missing wait or a buffer handed back too
early gives a wrong value, and a barrier that nobody completes ends in `Stuck`, not in a hang.

It says nothing of layouts, registers, fences or speed.
"""

from __future__ import annotations

import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from dsl.polynomial import shared_exp2
from evaluators.gluon_turns import Stuck, Turns
from evaluators.gluon_values import (
    DTYPES,
    Array,
    Barrier,
    Barriers,
    Descriptor,
    DType,
    Misuse,
    Pending,
    Pointer,
    Scalar,
    Shared,
    Tensor,
    TensorMemory,
    matrix_product,
    tensor,
)

__all__ = ["Misuse", "Stuck", "load"]

_turns = Turns(0)
_state = threading.local()


def _gl() -> types.ModuleType:
    gl = types.ModuleType("triton.experimental.gluon.language")
    where: dict[str, Any] = {**DTYPES, "constexpr": Any, "static_range": range}
    local = _state

    def load(pointer: Pointer, mask: Any = None, other: Any = 0) -> Any:
        at = np.asarray(pointer.at)
        keep = np.ones(at.shape, bool) if mask is None else np.broadcast_to(mask, at.shape)
        if bool((keep & ((at < 0) | (at >= pointer.flat.numel()))).any()):
            raise Misuse("a load outside of its tensor")
        found = pointer.flat[torch.from_numpy(np.where(keep, at, 0).astype(np.int64).reshape(-1))]
        values = found.float().numpy() if found.is_floating_point() else found.numpy()
        return tensor(np.where(keep, values.reshape(at.shape), other)) if at.shape else _scalar(values)

    def store(pointer: Pointer, value: Any, mask: Any = None) -> None:
        at = np.asarray(pointer.at)
        keep = np.ones(at.shape, bool) if mask is None else np.broadcast_to(mask, at.shape)
        values = np.broadcast_to(np.asarray(value), at.shape)[keep]
        where = torch.from_numpy(at[keep].astype(np.int64))
        pointer.flat[where] = torch.from_numpy(np.ascontiguousarray(values)).to(pointer.flat.dtype)

    def warp_specialize(roles: Sequence[Any], warps: Any, registers: Any) -> None:
        pid, programs = local.pid, local.programs

        def started(function: Callable[..., None], args: Sequence[Any]) -> Callable[[], None]:
            def thread() -> None:
                local.pid, local.programs, local.products, local.stores = pid, programs, [], []
                local.queue = deque()
                with np.errstate(all="ignore"):
                    function(*args)
                if local.stores:
                    raise Misuse("a store that nobody waited for")

            return thread

        _turns.run([started(f, a) for f, a in roles])

    def allocate(dtype: DType, shape: Sequence[int], layout: Any) -> Any:
        if dtype.name == "i64":
            return Barriers(shape[0])
        return Shared(np.full(shape, np.nan, np.float32))

    def summed(x: Any, axis: int) -> Tensor:
        return tensor(np.sum(np.asarray(x), axis=axis, dtype=np.asarray(x).dtype))

    where |= {
        "program_id": lambda axis: Scalar(local.pid),
        "num_programs": lambda axis: Scalar(local.programs),
        "cdiv": lambda a, b: Scalar(-(-int(a) // int(b))),
        "minimum": lambda a, b: _alike(np.fmin, a, b),
        "maximum": lambda a, b: _alike(np.fmax, a, b),
        "where": lambda c, a, b: tensor(np.where(c, a, np.float32(b) if isinstance(b, float) else b)),
        "zeros": lambda shape, dtype, layout=None: tensor(np.zeros(shape, dtype.kind)),
        "full": lambda shape, value, dtype, layout=None: tensor(np.full(shape, value, dtype.kind)),
        "arange": lambda lo, hi, layout=None: tensor(np.arange(lo, hi, dtype=np.int32)),
        "convert_layout": lambda x, layout: _there(x),
        "sum": summed,
        "max": lambda x, axis: tensor(np.fmax.reduce(np.asarray(x), axis=axis)),
        "min": lambda x, axis: tensor(np.fmin.reduce(np.asarray(x), axis=axis)),
        "load": load,
        "store": store,
        "warp_specialize": warp_specialize,
        "allocate_shared_memory": allocate,
        "barrier": lambda: None,
        "inline_asm_elementwise": lambda *a, **k: 0,
        "erf": lambda x: tensor(torch.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy()),
        "rsqrt": lambda x: tensor(1 / np.sqrt(x)),
    }
    for name in ("exp", "exp2", "log", "log2", "sqrt", "sin", "cos", "abs", "floor"):
        where[name] = _function(getattr(np, name))
    for name in ("SliceLayout", "NVMMADistributedLayout", "DotOperandLayout", "BlockedLayout"):
        where[name] = lambda *a: None
    where["NVMMASharedLayout"] = types.SimpleNamespace(get_default_for=lambda block, dtype: dtype)
    vars(gl).update(where)
    return gl


def _scalar(values: Array) -> Any:
    value = values.reshape(-1)[0]
    return Scalar(value) if value.dtype.kind in "iu" else value


def _range(*ends: Any) -> list[Scalar]:
    return [Scalar(i) for i in range(*map(int, ends))]


def _function(f: Callable[..., Any]) -> Callable[[Any], Tensor]:
    return lambda x: tensor(f(_there(x)))


def _there(x: Any) -> Any:
    if isinstance(x, Pending):
        raise Misuse("a product is read that was not waited for")
    return x


def _alike(f: Any, a: Any, b: Any) -> Any:
    found = f(a, b)
    return Scalar(found) if np.ndim(found) == 0 and np.asarray(found).dtype.kind in "iu" else tensor(found)


def _fetch(descriptor: Descriptor, at: Sequence[Any], barrier: Barrier, target: Shared) -> None:
    inside, held = descriptor.part(at)
    target.data[...] = np.nan

    def arrive() -> None:
        target.data[...] = 0
        values = descriptor.x[inside]
        target.data[held] = values.float().numpy() if values.is_floating_point() else values.numpy()
        barrier.bytes -= descriptor.block_type.nbytes
        barrier.look()

    _turns.late.append(arrive)
    _turns.pause()


def _write(descriptor: Descriptor, at: Sequence[Any], source: Shared) -> None:
    inside, held = descriptor.part(at)

    def leave() -> None:
        descriptor.x[inside] = torch.from_numpy(np.ascontiguousarray(source.data[held])).to(descriptor.x.dtype)

    _state.stores.append(leave)
    _turns.pause()


def _store_wait(pending: int) -> None:
    while len(_state.stores) > pending:
        _state.stores.pop(0)()


def _expect(barrier: Barrier, size: int, pred: Any = True) -> None:
    if pred:
        barrier.bytes += size
        barrier.arrive()


def _arrive(barrier: Barrier, count: int = 1, pred: Any = True) -> None:
    if pred:
        barrier.arrive(count)
    _turns.pause()


def _wait(barrier: Barrier, phase: Any, pred: Any = True) -> None:
    if pred:
        _turns.pause(lambda: barrier.phase != int(phase))


def _init(barrier: Barrier, count: int) -> None:
    barrier.count = barrier.missing = count


def _mma(a: Any, b: Any, acc: Any, use_acc: bool = True, is_async: bool = False) -> Pending:
    whole = not isinstance(acc, Pending) and np.asarray(acc).dtype.kind == "i"
    whole = whole or (isinstance(acc, Pending) and acc.whole)
    product = Pending(_there(a), b, acc if use_acc else None, whole)
    _state.products.append(product)
    _turns.pause()
    return product


def _mma_wait(pending: int, deps: Sequence[Any]) -> Any:
    while len(_state.products) > pending:
        _state.products.pop(0).finish()
    found = [tensor(d.value) if isinstance(d, Pending) and d.value is not None else d for d in deps]
    return found[0] if len(found) == 1 else tuple(found)


def _allocate(dtype: DType, shape: Sequence[int], layout: Any) -> TensorMemory:
    data, sums = (np.full(shape, np.nan, np.float32) for _ in range(2))
    return TensorMemory(data, sums, np.zeros(shape[0], np.int64))


def _tcgen05_mma(a: Any, b: Any, acc: TensorMemory, use_acc: Any = True, mbarriers: Sequence[Barrier] = ()) -> None:
    """A product that reads its operands and writes its result as late as it may, in the order of those of a role."""
    acc.data[...] = np.nan  # until it is there
    acc.under_way[0] += 1

    def finish() -> None:
        with np.errstate(all="ignore"):
            value = matrix_product(*(np.ascontiguousarray(x.data, dtype=np.float32) for x in (a, b)))
        acc.sums[...] = acc.sums + value if use_acc else value
        acc.under_way[0] -= 1
        if not acc.under_way[0]:
            acc.data[...] = acc.sums
        for barrier in mbarriers:
            barrier.arrive()

    queue = _state.queue
    queue.append(finish)
    _turns.late.append(lambda: queue.popleft()())  # whenever one is there, it is the role's first
    _turns.pause()


def _any_above(parts: Any, group: int) -> int:
    return int(not bool((np.asarray(parts) <= 4096).all()))


def _take_turn(group: int) -> None:
    _turns.pause(lambda: _turns.turns.get(group, 0) > 0)
    _turns.turns[group] -= 1


def _pass_turn(group: int) -> None:
    if _turns.turns.get(group, 0):
        raise Misuse("a turn is given to a group that did not take its last one")
    _turns.turns[group] = 1
    _turns.pause()


def _shared(share: int) -> Callable[[Any], Tensor]:
    return lambda x: tensor(shared_exp2(_there(x), share).astype(np.float32))


def _any_rose(x: Any, group: int) -> int:
    return int(bool((np.asarray(x) > 0).any()))


class _Kernel:
    """What `@gluon.jit` makes of a function."""

    def __init__(self, function: Callable[..., Any], seed: int) -> None:
        self._function, self._seed = function, seed
        self.__name__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            global _turns
            named = {k: v for k, v in kwargs.items() if k not in ("num_warps", "maxnreg")}
            given = [Pointer(a.reshape(-1)) if isinstance(a, torch.Tensor) else a for a in args]
            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # products are small: more threads only wait for each other
            try:
                for pid in range(grid[0]):
                    _turns = Turns(self._seed + pid)
                    _state.pid, _state.programs = pid, grid[0]
                    self._function(*given, **named)
            finally:
                torch.set_num_threads(threads)

        return launch


@contextmanager
def _modules(seed: int) -> Iterator[None]:
    """Gluon's modules, while a source is loaded."""
    gl = _gl()
    hopper = types.ModuleType("triton.experimental.gluon.language.nvidia.hopper")
    nvidia = types.ModuleType("triton.experimental.gluon.nvidia.hopper")
    gluon = types.ModuleType("triton.experimental.gluon")

    def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
        return _Kernel(function, seed) if function is not None else lambda f: _Kernel(f, seed)

    vars(gluon).update(jit=jit, language=gl)
    vars(hopper).update(
        fence_async_shared=lambda: None,
        mbarrier=types.SimpleNamespace(
            init=_init, wait=_wait, expect=_expect, arrive=_arrive, MBarrierLayout=lambda: None
        ),
        tma=types.SimpleNamespace(async_load=_fetch, async_store=_write, store_wait=_store_wait),
        warpgroup_mma=_mma,
        warpgroup_mma_wait=_mma_wait,
    )

    blackwell = types.ModuleType("triton.experimental.gluon.language.nvidia.blackwell")
    vars(blackwell).update(
        TensorMemoryLayout=lambda *a, **k: None, allocate_tensor_memory=_allocate, tcgen05_mma=_tcgen05_mma
    )

    def from_tensor(x: torch.Tensor, block: list[int], layout: Any) -> Descriptor:
        return Descriptor(x, list(block), layout)

    nvidia.TensorDescriptor = types.SimpleNamespace(from_tensor=from_tensor)  # type: ignore[attr-defined]
    parts = {
        "triton.experimental": types.ModuleType("triton.experimental"),
        "triton.experimental.gluon": gluon,
        "triton.experimental.gluon.language": gl,
        "triton.experimental.gluon.language.nvidia": types.ModuleType("nvidia"),
        "triton.experimental.gluon.language.nvidia.hopper": hopper,
        "triton.experimental.gluon.language.nvidia.blackwell": blackwell,
        "triton.experimental.gluon.nvidia": types.ModuleType("nvidia"),
        "triton.experimental.gluon.nvidia.hopper": nvidia,
    }
    before = {name: sys.modules.get(name) for name in parts}
    sys.modules.update(parts)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def load(source: str, seed: int = 0) -> types.ModuleType:
    """The module of an emitted source; its kernels run here, on tensors of the CPU. `seed`: of who goes on when.

    Running one raises Stuck or Misuse where its roles do not fit together.
    """
    module = types.ModuleType("emulated")
    module.__file__ = "<gluon>"
    vars(module)["range"] = _range
    with _modules(seed):
        exec(compile(source, "<gluon>", "exec"), vars(module))
    by_ptx: dict[str, Any] = {"any_above": _any_above, "any_rose": _any_rose}
    by_ptx |= {"summed": lambda parts, group: None, "take_turn": _take_turn, "pass_turn": _pass_turn}
    for share in (2, 4, 8):
        by_ptx |= dict.fromkeys((f"exp2_one_in_{share}", f"exp2_one_in_{share}_bounded"), _shared(share))
    vars(module).update({name: f for name, f in by_ptx.items() if name in vars(module)})
    return module
