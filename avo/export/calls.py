"""Calls of an emitted function at the price of its launches: what the first call of a kind finds out is kept.

An emitted function looks at its tensors, allocates outputs, makes descriptors and goes through Triton's JIT, all of it
in Python: 30 to 100 us. Everything in that follows from shapes, strides, dtypes, device, alignment and params; only the
addresses and the stream are new. So the first call of a kind runs as it stands and is watched, and those after it
allocate the same outputs and hand the launchers of the compiled kernels the same arguments at their own addresses. What
is not understood (AMD, the interpreter, a Triton that is built otherwise, hooks on launches) runs as it stands always.

A package has a copy of this file; it needs torch and triton alone.
"""

from __future__ import annotations

import copy
import ctypes
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

KINDS, ADDRESSES = 256, 1024  # as many are kept, of each function and of each kind
SIMPLE = (bool, int, float)  # params of these types can tell kinds apart


class Calls:
    """What the calls of one operator have found out. remember = False: every call runs as it stands."""

    def __init__(self, tensors: int) -> None:
        self.count = tensors  # so many arguments are tensors, the first ones
        self.remember = True
        self.plans: dict[Any, Plan | None] = {}  # None: a kind that is not understood

    def again(self, args: Sequence[Any], more: Any = None) -> Any:
        """What the call returns where one of its kind was there before, else None. more: what else makes a kind."""
        addresses: list[int] = []
        plan = self.plans.get(self._kind(args, more, addresses))
        if plan is None or not self.remember or plan.hooked():
            return None
        return plan.run(args, addresses)

    def first(
        self,
        entry: Callable[..., Any],
        args: Sequence[Any],
        inputs: Sequence[Any],
        params: Mapping[str, Any],
        more: Any = None,
    ) -> Any:
        """The emitted function on these inputs; how it did that is kept for calls of the kind.

        inputs: the tensors of `args`, or a contiguous copy where one is needed.
        """
        on_gpu = bool(inputs) and inputs[0].is_cuda
        with torch.cuda.device(inputs[0].device) if on_gpu else nullcontext():  # Triton launches on the current one
            if _on_cuda(inputs):
                _THREAD.enter(inputs[0].get_device())
            kind = self._kind(args, more, [])
            if not self.remember or kind in self.plans or not all(type(v) in SIMPLE for v in params.values()):
                return entry(*inputs, **params)
            found, plan = _watched(entry, inputs, params)
        if plan is not None:
            plan.copied = [place for place, x in enumerate(inputs) if x is not args[place]]
        if len(self.plans) >= KINDS:
            self.plans.clear()
        self.plans[kind] = plan
        return found

    def _kind(self, args: Sequence[Any], more: Any, addresses: list[int]) -> Any:
        """All that what an emitted function does depends on, but for addresses, which are put into the list."""
        kind = [more]
        for x in args[: self.count]:
            address = x.data_ptr()
            addresses.append(address)
            kind += (x.shape, x.stride(), x.dtype, x.device, address & 15)
        for value in args[self.count :]:
            kind.append(repr(value) if type(value) in SIMPLE else None)  # True, 1, 1.0, -0.0 and 0.0 are five kinds
        return tuple(kind)


def quick(entry: Callable[..., Any], tensors: int) -> Callable[..., Any]:
    """The emitted function, which takes so many tensors and then params by name, with what its calls found out."""
    calls = Calls(tensors)

    def call(*inputs: Any, **params: Any) -> Any:
        if torch.compiler.is_compiling():  # torch.compile follows the function down to its kernels
            return entry(*inputs, **params)
        args, names = (*inputs, *params.values()), tuple(params)
        found = calls.again(args, names)
        return calls.first(entry, args, inputs, params, names) if found is None else found

    return call


class Plan:
    """How calls of one kind are made: outputs to allocate, launches, what is returned.

    Tensors are numbered: the inputs, the outputs, then those that the function keeps itself.
    """

    def __init__(
        self, outputs: list[Any], launches: list[Launch], kept: list[Any], returned: list[int], single: bool
    ) -> None:
        from triton import knobs
        from triton.runtime import driver

        self.outputs, self.launches, self.kept = outputs, launches, kept
        self.returned, self.single = returned, single
        self.copied: list[int] = []  # inputs that have to be made contiguous
        self.driver, self.runtime = driver.active, knobs.runtime
        self.device = self.driver.get_current_device()
        self.alignment: list[int] | None = None
        self.known: dict[tuple[int, ...], list[tuple[Callable[..., Any], tuple[Any, ...]]]] = {}
        self.lock = threading.Lock()

    def hooked(self) -> bool:
        """Whether somebody, a profiler say, wants to hear of launches: only Triton's own way tells them."""
        enter, leave = self.runtime.launch_enter_hook, self.runtime.launch_exit_hook
        return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))

    def run(self, args: Sequence[Any], addresses: list[int]) -> Any:
        """The outputs, or None where this call is none of the kind after all."""
        here = self.driver.get_current_device()
        if here == self.device:
            _THREAD.enter(here)
            return self._run(args, addresses)
        self.driver.set_current_device(self.device)
        try:
            _THREAD.enter(self.device)
            return self._run(args, addresses)
        finally:
            self.driver.set_current_device(here)

    def _run(self, args: Sequence[Any], addresses: list[int]) -> Any:
        copies = [args[place].contiguous() for place in self.copied]
        for place, x in zip(self.copied, copies, strict=True):
            addresses[place] = x.data_ptr()
        made = [torch.empty(*shape, **options) for shape, options in self.outputs]
        at = (self.driver.get_current_stream(self.device), *addresses, *[y.data_ptr() for y in made])
        launches = self.known.get(at)
        if launches is None:
            launches = self.at(at)
            if launches is None:
                return None
        try:
            for launch, given in launches:
                launch(*given)
        except TypeError:  # its arguments are others than this Triton's launcher takes
            return None
        return made[self.returned[0]] if self.single else tuple([made[place] for place in self.returned])

    def at(self, at: tuple[int, ...]) -> list[tuple[Callable[..., Any], tuple[Any, ...]]] | None:
        """The launches on a stream with tensors at these addresses; None where one of them is aligned otherwise than
        it was when the kernels were compiled."""
        alignment = [address & 15 for address in at[1:]]
        if self.alignment is None:
            self.alignment = alignment
        if alignment != self.alignment:
            return None
        addresses = [*at[1:], *[x.data_ptr() for x in self.kept]]
        with self.lock:  # a launch collects its arguments in one place
            launches = [one.at(at[0], addresses) for one in self.launches]
        if len(self.known) >= ADDRESSES:
            self.known.clear()
        self.known[at] = launches
        return launches


class Launch:
    """One launch of a compiled kernel. arguments: of each the number of its tensor, or None, and its value: the
    descriptor without its tensor, or what stays as it is."""

    def __init__(self, compiled: Any, grid: tuple[int, ...], arguments: list[tuple[int | None, Any]]) -> None:
        from triton.backends.nvidia.driver import wrap_handle_tensordesc

        self.compiled, self.grid, self.arguments = compiled, (*grid, 1, 1)[:3], arguments
        run = compiled.run
        if run.global_scratch_size or run.profile_scratch_size or getattr(run, "gsan_enabled", False):
            raise ValueError("memory that Triton allocates for each launch")
        # Triton's launcher in Python, which ends in one call: its copy ends in handing over what that call is given
        self.collected: list[tuple[Any, ...]] = []
        self.launcher = copy.copy(run)
        self.launcher.launch = wrap_handle_tensordesc(
            lambda *given: self.collected.append(given),
            dict(compiled.src.signature.items()),
            getattr(compiled.metadata, "tensordesc_meta", None),
        )
        self.launch = run.launch
        if any(place is not None and value is not None for place, value in arguments):
            cells = zip(run.launch.__code__.co_freevars, run.launch.__closure__, strict=True)
            self.launch = dict(cells)["launcher"].cell_contents  # below what makes descriptors anew for each launch

    def at(self, stream: int, addresses: list[int]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        given = []
        for place, value in self.arguments:
            if place is None:
                given.append(value)
            elif value is None:
                given.append(addresses[place])
            else:
                described = copy.copy(value)
                described.base = _Address(addresses[place])
                given.append(described)
        self.collected.clear()
        one = self.compiled
        self.launcher(*self.grid, stream, one.function, one.packed_metadata, None, None, None, *given)
        (found,) = self.collected
        self.collected.clear()
        return self.launch, found


class _Address:
    """What a descriptor asks of its tensor."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


# Contexts -----------------------------------------------------------------------------------------


class _Thread(threading.local):
    """What this thread has asked of CUDA's driver: a descriptor can only be filled where a context is current.

    In a new thread none is. Triton's launcher sees to that, but only after it has filled the descriptors, and nothing
    before it has to: torch's allocator answers from its cache, and device 0 is the current one anyway.
    """

    def __init__(self) -> None:
        self.devices: set[int] = set()

    def enter(self, device: int) -> None:
        """Makes a context current where none is. Legal while a stream is captured, and waits for nothing."""
        if device in self.devices:
            return
        cuda, number, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()  # torch has loaded it
        _succeed(cuda.cuCtxGetCurrent(ctypes.byref(context)))
        if not context.value:  # else it is the device's, or one that the caller has chosen
            _succeed(cuda.cuDeviceGet(ctypes.byref(number), device))
            _succeed(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number))  # which torch and Triton share
            _succeed(cuda.cuCtxSetCurrent(context))
        self.devices.add(device)


_THREAD = _Thread()


def _on_cuda(inputs: Sequence[Any]) -> bool:
    return bool(inputs) and inputs[0].is_cuda and torch.version.hip is None


def _succeed(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA's driver answers {code} where this thread asks for the context of its device")


# Watching -----------------------------------------------------------------------------------------


def _watched(entry: Callable[..., Any], inputs: Sequence[Any], params: Mapping[str, Any]) -> tuple[Any, Plan | None]:
    """What the emitted function returns, and the plan for calls like this one where all that it did is understood."""
    from triton.runtime.jit import JITFunction

    names = [n for n in entry.__code__.co_names if n in entry.__globals__]
    kernels = {n: entry.__globals__[n] for n in names if isinstance(entry.__globals__[n], JITFunction)}
    if not kernels:
        return entry(*inputs, **params), None  # Triton's interpreter
    inputs = [x.view_as(x) for x in inputs]  # who gives one tensor twice now may give two next time: each is its own
    watch = _Watch()
    around = dict(entry.__globals__)
    around |= {n: _Kernel(kernel, watch) for n, kernel in kernels.items()}
    around |= {n: watch.keeping(around[n]) for n in names if hasattr(around[n], "cache_info")}  # tables of tiles
    around["torch"] = watch
    same = types.FunctionType(entry.__code__, around, entry.__name__, entry.__defaults__, entry.__closure__)
    found = same(*inputs, **params)
    try:
        return found, watch.plan(inputs, found)
    except (ImportError, AttributeError, KeyError, TypeError, ValueError):
        return found, None


class _Watch:
    """Stands for torch in an emitted function, and notes what it allocates, keeps and launches."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.outputs: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.kept: list[Any] = []
        self.launched: list[tuple[Any, Any, tuple[Any, ...], tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *shape: Any, **options: Any) -> Any:
        self.outputs.append((shape, options))
        self.made.append(torch.empty(*shape, **options))
        return self.made[-1]

    def keeping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def kept(*args: Any) -> Any:
            found = function(*args)
            if isinstance(found, torch.Tensor):
                self.kept.append(found)
            return found

        return kept

    def plan(self, inputs: Sequence[Any], found: Any) -> Plan | None:
        """Raises where something is not understood; None on another vendor's chip."""
        from triton.runtime import driver

        if driver.active.get_current_target().backend != "cuda":
            return None
        tensors = [*inputs, *self.made, *self.kept]
        launches = []
        for kernel, compiled, grid, args, options in self.launched:
            named = {k: v for k, v in options.items() if k in kernel.signature.parameters}  # not num_warps and the like
            bound = kernel.signature.bind(*args, **named)
            bound.apply_defaults()
            launches.append(Launch(compiled, grid, [_argument(v, tensors) for v in bound.arguments.values()]))
        single = not isinstance(found, tuple)
        returned = [_number(x, self.made) for x in ((found,) if single else found)]
        plan = Plan(self.outputs, launches, self.kept, returned, single)
        stream = plan.driver.get_current_stream(plan.device)
        plan.at((stream, *[x.data_ptr() for x in (*inputs, *self.made)]))
        return plan


class _Kernel:
    """Stands for a kernel that is launched, and notes how."""

    def __init__(self, kernel: Any, watch: _Watch) -> None:
        self.kernel, self.watch = kernel, watch

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def launch(*args: Any, **options: Any) -> Any:
            compiled = self.kernel[grid](*args, **options)
            self.watch.launched.append((self.kernel, compiled, grid, args, options))
            return compiled

        return launch


def _argument(value: Any, tensors: list[Any]) -> tuple[int | None, Any]:
    if isinstance(value, torch.Tensor):
        return _number(value, tensors), None
    if hasattr(value, "block_shape"):
        place = _number(value.base, tensors)
        value = copy.copy(value)
        value.base = None  # a plan keeps no tensor of a call
        return place, value
    if type(value) not in SIMPLE:
        raise ValueError(f"{value!r} is no number, tensor or descriptor")
    return None, value


def _number(tensor: Any, tensors: list[Any]) -> int:
    """Raises ValueError for a tensor that is none of them: nothing tells where its like comes from in another call."""
    for number, x in enumerate(tensors):
        if x is tensor:
            return number
    raise ValueError("a tensor that is neither given nor allocated")
