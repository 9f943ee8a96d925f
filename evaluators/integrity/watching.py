"""What a candidate has torch and Triton do, as torch's dispatcher and the launches of kernels see it.

Behaviour, not names in the source: a call that is spelled by `getattr`, in a thread, from compiled TorchScript or under
another name arrives at the dispatcher all the same. What goes round it (NumPy, ctypes) is not seen here; for that there
is the replay in which no kernel runs (`Launches.ghost`): an answer that is right then is not the kernels' work.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode

SMALL = 64  # elements; work on less is bookkeeping
BUDGET = 16 * SMALL  # of all such work in one run
MOST = 40  # names that are kept

# Memory, views and layout: what is neither arithmetic nor a decision about values.
_GLUE = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros"),
        *("ones", "ones_like", "new_ones", "full", "full_like", "new_full", "arange", "scalar_tensor", "lift_fresh"),
        *("clone", "copy_", "_to_copy", "to", "contiguous", "detach", "alias", "_unsafe_view", "fill_", "zero_"),
        *("view", "reshape", "_reshape_alias", "expand", "permute", "transpose", "t", "squeeze", "unsqueeze", "slice"),
        *("select", "split", "split_with_sizes", "chunk", "unbind", "narrow", "as_strided", "unfold", "flatten"),
        *("cat", "stack", "repeat", "constant_pad_nd", "_local_scalar_dense", "set_", "resize_", "view_as_real"),
        *("is_pinned", "_pin_memory", "record_stream", "_has_compatible_shallow_copy_type", "item"),
    )
)


# Elementwise, and copies, that torch does not mark as such.
_UNMARKED = frozenset(
    (
        *("floor_divide", "copysign", "hardswish", "_prelu_kernel", "log_sigmoid_forward", "complex", "polar"),
        *("masked_fill", "fill", "zero", "copy", "_to_copy", "clone", "_pin_memory"),
    )
)
# Moves of memory, and pairs of its halves.
_MOVES = frozenset(
    (
        *("narrow_copy", "slice_scatter", "select_scatter", "glu"),
        *("resize_as_", "rand_like", "randn_like", "randint_like"),
    )
)


@functools.cache
def is_glue(operator: Any) -> bool:
    """Of torch's operators: memory, views, casts, and elementwise arithmetic. By what its schema says where that is
    enough: it reads no tensor and no file; it gives back a view; it is the in-place or the many-tensors form of one
    that is glue."""
    space, _, name = operator._schema.name.partition("::")
    if space != "aten":
        return not touches(operator)
    takes = [str(argument.type) for argument in operator._schema.arguments]
    inner = name.startswith("_")  # of torch's own workings: by name alone
    if not inner and not any("Tensor" in kind or "str" in kind or "Storage" in kind for kind in takes):
        return True
    gives = [result.alias_info for result in operator._schema.returns]
    views = torch.Tag.inplace_view in operator.tags or any(a is not None and not a.is_write for a in gives)
    if not inner and views and _tensors(operator) == 1:  # a second one would say by its values where to look
        return True
    return f"aten::{name}" in _GLUE or name in _MOVES or is_elementwise(operator)


@functools.cache
def is_elementwise(operator: Any) -> bool:
    """Whether place i of what it makes follows from place i of what it takes: by torch's own mark, or because it is the
    in-place, the out or the many-tensors form of one that is."""
    if torch.Tag.pointwise in operator.tags:
        return True
    plain = operator._schema.name.removeprefix("aten::").removeprefix("_foreach_")
    return any(n in _UNMARKED or _pointwise(n, operator) for n in (plain, plain.removesuffix("_")) if n)


@functools.cache
def touches(operator: Any) -> bool:
    """Whether it takes or gives a tensor: a mark for the profiler does not."""
    schema = operator._schema
    return any("Tensor" in str(part.type) for part in (*schema.arguments, *schema.returns))


def _pointwise(name: str, like: Any) -> bool:
    """Whether torch says so of a form of it that takes as many tensors: `max` of two is, of one it is a reduction."""
    forms = getattr(torch.ops.aten, name, None)
    if not isinstance(forms, torch._ops.OpOverloadPacket):
        return False
    every = [getattr(forms, form) for form in forms.overloads()]
    return any(torch.Tag.pointwise in f.tags and _tensors(f) == _tensors(like) for f in every)


def _tensors(operator: Any) -> int:
    """How many of what it reads are tensors, or lists of them: what it only writes to is none of them."""
    read = (a for a in operator._schema.arguments if not (a.kwarg_only and a.alias_info and a.alias_info.is_write))
    return sum("Tensor" in str(argument.type) for argument in read)


class Calls:
    """aten operators that are no glue -> how often they were called on more than bookkeeping.

    That is: on more than SMALL elements at once, or, all such calls of a run together, on more than BUDGET."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self.spent = 0

    def small(self, args: Any) -> bool:
        """Whether an operator that is no glue may have read these."""
        read = elements(args)
        self.spent += read
        return read <= SMALL and self.spent <= BUDGET

    def note(self, name: str) -> None:
        if name in self.found or len(self.found) < MOST:
            self.found[name] = self.found.get(name, 0) + 1


class _Mode(TorchDispatchMode):
    def __init__(self, calls: Calls, launches: Launches | None) -> None:
        super().__init__()
        self._calls, self._launches = calls, launches

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, opened = through(self, func, args, kwargs or {})
        if opened or is_glue(func) or within(self._launches):
            return result
        if not self._calls.small((args, tuple((kwargs or {}).values()))):
            self._calls.note(func._schema.name)
        return result


def elements(args: Any) -> int:
    """Of all tensors among them, in lists and tuples too; SMALL + 1 where there is none."""
    flat: list[int] = []

    def gather(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            flat.append(value.numel())
        elif isinstance(value, list | tuple):
            for part in value:
                gather(part)

    gather(args)
    return sum(flat) if flat else SMALL + 1


# Operators that are written in Python (`torch.library.custom_op`, `triton_op`) do nothing themselves: what counts is
# what they ask for, which a dispatch mode does not see, for it is switched off within a call that it handles.
_waiting = threading.local()


def through(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
    """(the operator's result, whether the mode has seen what it asks for itself): so with one of Python's, and with one
    that consists of others, which in inference mode arrives as it is."""
    if is_composite(func):
        with mode:
            return func.decompose(*args, **kwargs), True
    if func.namespace == "aten":
        return func(*args, **kwargs), False
    _waiting.mode, _waiting.opened = mode, False
    try:
        result = func(*args, **kwargs)
        return result, _waiting.opened
    finally:
        _waiting.mode = None


@functools.cache
def is_composite(operator: Any) -> bool:
    """Whether it only asks for other operators."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")


def open_operators() -> None:
    """For the life of the process: Python functions that are registered as operators run under the mode that their
    caller is watched by."""
    register = torch.library.Library.impl

    def impl(library: Any, name: Any, function: Any, *more: Any, **options: Any) -> Any:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            mode = getattr(_waiting, "mode", None)
            if mode is None:
                return function(*args, **kwargs)
            _waiting.mode = None
            try:
                with mode:
                    return function(*args, **kwargs)
            finally:
                _waiting.opened = True

        written = isinstance(function, FunctionType)
        return register(library, name, run if written else function, *more, **options)

    setattr(torch.library.Library, "impl", impl)  # noqa: B010  mypy takes no other


def within(launches: Launches | None) -> bool:
    """Whether it is the interpreter that asks, for a kernel that runs in it. What the kernel's own Python asks for is
    no kernel's work."""
    if launches is None or not launches.inside:
        return False
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.startswith(_INTERPRETER)


_OWN = (__file__, os.path.dirname(torch.__file__))
_INTERPRETER = (os.path.dirname(triton.__file__), os.path.dirname(os.path.dirname(__file__)))


# Ways of a tensor's values to the host, where NumPy or Python would do the work.
_WAYS = ("numpy", "__array__", "tolist", "__dlpack__")


@contextlib.contextmanager
def to_the_host(calls: Calls, launches: Launches | None) -> Iterator[None]:
    """Notes tensors that leave torch for the host, as `host::numpy` and the like."""
    kept = {name: getattr(torch.Tensor, name) for name in _WAYS}

    def noted(name: str) -> Callable[..., Any]:
        def leave(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if tensor.numel() > SMALL and not within(launches):
                calls.note(f"host::{name.strip('_')}")
            return kept[name](tensor, *args, **kwargs)

        return leave

    for name in _WAYS:
        setattr(torch.Tensor, name, noted(name))
    try:
        yield
    finally:
        for name, original in kept.items():
            setattr(torch.Tensor, name, original)


@contextlib.contextmanager
def watched(calls: Calls, launches: Launches | None = None, here: bool = True) -> Iterator[None]:
    """Notes what torch is asked for by threads that are started meanwhile, for as long as they live, and `here`."""
    start = _thread.start_new_thread

    def started(function: Callable[..., Any], args: Any, *more: Any) -> int:
        def run(*a: Any, **k: Any) -> Any:
            with _Mode(calls, launches):
                return function(*a, **k)

        return start(run, args, *more)

    old = threading._start_new_thread  # type: ignore[attr-defined]
    _thread.start_new_thread = started
    threading._start_new_thread = started  # type: ignore[attr-defined]  # it has a name of its own for it
    try:
        if not here:
            yield
            return
        calls.spent = 0
        with _Mode(calls, launches), to_the_host(calls, launches):
            yield
    finally:
        _thread.start_new_thread = start
        threading._start_new_thread = old  # type: ignore[attr-defined]


class Launches:
    """Counts kernel launches; as a ghost it lets none of them run."""

    def __init__(self) -> None:
        self.count = 0
        self.ghost = False
        self.recorder: Any = None  # a `tape.Recorder`, told of each launch
        self.inside = 0  # a kernel runs: in the interpreter that is Python, which reads tensors through NumPy

    def install(self) -> None:
        """For the life of the process."""
        from triton.runtime import interpreter, jit

        compiled = jit.JITFunction.run

        def launch(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("warmup"):
                self.count += 1
                if self.ghost:
                    return None
            with self._told(kernel, args, kwargs):
                return compiled(kernel, *args, **kwargs)

        jit.JITFunction.run = launch
        interpreted = interpreter.InterpretedFunction.run

        def interpret(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            with self._told(kernel, args, kwargs):
                return interpreted(kernel, *args, **kwargs)

        interpreter.InterpretedFunction.run = interpret
        original = interpreter.GridExecutor.__call__

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.ghost:
                return None
            self.inside += 1
            try:
                return original(executor, *args, **kwargs)
            finally:
                self.inside -= 1

        interpreter.GridExecutor.__call__ = call

    def _told(self, kernel: Any, args: Any, kwargs: Any) -> contextlib.AbstractContextManager[Any]:
        if self.recorder is None or kwargs.get("warmup"):
            return contextlib.nullcontext()
        given = {key: value for key, value in kwargs.items() if key not in ("grid", "warmup")}
        self.recorder.launch(kernel, args, given, kwargs.get("grid"))
        paused: contextlib.AbstractContextManager[Any] = self.recorder.paused()
        return paused
