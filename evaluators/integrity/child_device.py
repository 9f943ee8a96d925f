"""What runs beside a raw candidate on a device: the same contract as `child`, with inputs in the device's memory.

Inputs of a name and shape are always the same tensor at the same address, with new bytes before every call, the timed
ones too. Three clocks see a timed call: the device's events around `run`, the host's with a device-wide wait at its
end, and how long the device works on after the event that ends the call. While the host launches, a kernel that takes
every place on the device holds it, so that work on another stream cannot be done meanwhile. What the clocks say is
handed over raw; the parent has one of its own and judges the bytes. The timers are taken before the candidate is
loaded, which stops those who replace them by name and no others.

Without a device (tests) the same runs on the CPU, where there is one clock.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from evaluators.cpu import TORCH_DTYPES
from evaluators.guards import poison
from evaluators.integrity.child import returned, withheld
from evaluators.integrity.compiling import complaint
from evaluators.integrity.scattering import FIRST, PIECE, SECOND, SHIFTS, STEP
from evaluators.integrity.watching import Calls, Launches, watched
from evaluators.worker import CandidateError

_ZONE = 4096
_KEPT = 8
_GATHER = 20_000_000  # cycles, about ten milliseconds, after which no more is waited for
_HOLD = 2_000_000  # cycles, about a millisecond: the host launches meanwhile
_LONG_HOLD, _CYCLES_PER_S = 10_000_000, 2e9  # for steps of many launches, where no candidate is
_PERSISTING = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
_AT_ONCE = 1 << 20  # pieces of an input that are made at once
_FLUSH = 2  # times the L2: what is written and read between two timed calls

_perf_counter = time.perf_counter

# Two kernels, in PTX, which the driver turns into code in a few milliseconds. avo_hold waits for so many cycles.
# avo_gather ends when all of its blocks are on the device at once, or after so many cycles: as they take every place
# there is, nothing else can be on it then.
_KERNELS = """.version 6.3
.target sm_70
.address_size 64
.visible .entry avo_hold(.param .u32 cycles)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %d<5>;
    ld.param.u32 %r1, [cycles];
    cvt.u64.u32 %d1, %r1;
    mov.u64 %d2, %clock64;
HOLD:
    mov.u64 %d3, %clock64;
    sub.u64 %d4, %d3, %d2;
    setp.lt.u64 %p1, %d4, %d1;
    @%p1 bra HOLD;
    ret;
}
.visible .entry avo_gather(.param .u64 counter, .param .u32 wanted, .param .u32 cycles)
{
    .reg .pred %p<4>;
    .reg .b32 %r<7>;
    .reg .b64 %d<7>;
    ld.param.u64 %d1, [counter];
    ld.param.u32 %r1, [wanted];
    ld.param.u32 %r6, [cycles];
    cvt.u64.u32 %d3, %r6;
    cvta.to.global.u64 %d2, %d1;
    mov.u32 %r2, %tid.x;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra DONE;
    mov.u64 %d4, %clock64;
    atom.global.add.u32 %r3, [%d2], 1;
WAIT:
    ld.volatile.global.u32 %r4, [%d2];
    sub.u32 %r5, %r4, %r1;
    setp.ge.s32 %p2, %r5, 0;
    @%p2 bra DONE;
    mov.u64 %d5, %clock64;
    sub.u64 %d6, %d5, %d4;
    setp.lt.u64 %p3, %d6, %d3;
    @%p3 bra WAIT;
DONE:
    bar.sync 0;
    ret;
}
"""


class _Whole:
    """Kernels that take every place on the device. Raises whatever where they cannot be loaded."""

    def __init__(self) -> None:
        self._kernels = _loaded()
        of = torch.cuda.get_device_properties(0)
        half = of.max_threads_per_multi_processor // 2  # no block may have more than 1024, and two fill a processor
        self._blocks, self._block = 2 * of.multi_processor_count, (half, 1, 1)
        self._counter = torch.zeros(1, dtype=torch.int32, device="cuda")
        self._wanted = 0
        self.hold(1000)
        self.gather()
        torch.cuda.synchronize()

    def hold(self, cycles: int) -> None:
        """Nothing else runs for so long."""
        self._kernels["avo_hold"](grid=(self._blocks, 1, 1), block=self._block, args=[cycles])

    def gather(self) -> None:
        """Ends when nothing else runs."""
        self._wanted = (self._wanted + self._blocks) % 2**31
        if self._wanted < self._blocks:  # it has wrapped
            self._wanted = self._blocks
            self._counter.zero_()
        args = [self._counter, self._wanted, _GATHER]
        self._kernels["avo_gather"](grid=(self._blocks, 1, 1), block=self._block, args=args)


class _Part:
    """What is left where those cannot be had: one thread waits, beside which others run."""

    def __init__(self) -> None:
        self._sleep = torch.cuda._sleep

    def hold(self, cycles: int) -> None:
        self._sleep(cycles)

    def gather(self) -> None:
        pass


def _loaded() -> Any:
    """The kernels: by the driver's compiler, which some installations lack, or by Triton's assembler."""
    from torch.cuda._utils import _cuda_load_module

    names = ["avo_hold", "avo_gather"]
    try:
        return _cuda_load_module(_KERNELS, names)
    except Exception:
        import triton

        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
        major, minor = torch.cuda.get_device_capability(0)
        source, code = Path("avo_hold.ptx").absolute(), Path("avo_hold.cubin").absolute()
        source.write_text(_KERNELS)
        subprocess.run([tool, f"-arch=sm_{major}{minor}", source, "-o", code], check=True, capture_output=True)
        return _cuda_load_module(code.read_bytes(), names)


def _releaser() -> Callable[[], None]:
    """What makes lines that were set aside in the L2 ordinary again, and lets none be set aside; nothing where the
    driver cannot."""
    with contextlib.suppress(Exception):
        import torch.cuda._utils as driver

        library = (getattr(driver, "_get_gpu_runtime_library", None) or driver._get_cuda_library)()  # its name changed
        limit, reset = library.cuCtxSetLimit, library.cuCtxResetPersistingL2Cache
        none = ctypes.c_size_t(0)

        def release() -> None:
            limit(_PERSISTING, none)
            reset()

        release()
        return release
    return lambda: None


class Device:
    """The candidate's device, its inputs, and the outputs of calls before."""

    def __init__(self, calls: Calls, launches: Launches) -> None:
        self.name = "cuda" if torch.cuda.is_available() else "cpu"
        self.calls, self.launches = calls, launches
        self.held: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # whole buffer with its zones, the input in it
        self.sent: dict[str, torch.Tensor] = {}  # the bytes that an input was given
        self.pools: dict[tuple[str, str, str], torch.Tensor] = {}  # by name, dtype, distribution
        self.before: list[tuple[int, torch.Tensor, bytes]] = []
        self.last: list[tuple[int, torch.Tensor, bytes]] = []
        self._flush: torch.Tensor | None = None
        self.holds = "nothing"
        self._launching = 0.0  # seconds of the host's part of the last step
        self._idle = 0.0  # what `gather` takes on a device that has nothing to do
        self._empty = torch.empty
        if self.name == "cuda":
            self._event, self._sync = torch.cuda.Event, torch.cuda.synchronize
            self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time
            self._stream, self._query = torch.cuda.current_stream, torch.cuda.Event.query
            torch.zeros(1, device="cuda").add_(1)  # a context of its own, before anything is timed
            self._sync()
            try:
                self._whole: _Whole | _Part = _Whole()
                self.holds = "whole device"
            except Exception as error:
                self._whole = _Part()
                self.holds = f"one thread ({type(error).__name__}: {error})"[:200]
            self._release = _releaser()
            size = _FLUSH * getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
            self._flush = torch.zeros(size // 4, device="cuda")
            self._idle = min(self.clocks(lambda: None, cold=False)["tail_s"] for _ in range(5))

    # -- inputs --------------------------------------------------------------------------------------------------------

    def put(self, rows: Sequence[dict[str, Any]], blobs: Sequence[bytes]) -> list[torch.Tensor]:
        """New bytes in the same memory: those that were sent, or of a pool, as the key of the call has them."""
        found = []
        for row, data in zip(rows, blobs, strict=True):
            dtype = getattr(torch, TORCH_DTYPES[row["dtype"]])
            key = f"{row['name']} {row['dtype']} {row['shape']}"
            size = math.prod(row["shape"]) * dtype.itemsize
            if key not in self.held:
                whole = torch.full((2 * _ZONE + size,), poison(dtype), dtype=torch.uint8, device=self.name)
                self.held[key] = whole, whole[_ZONE : _ZONE + size].view(dtype).reshape(row["shape"])
            whole, tensor = self.held[key]
            if "key" in row:
                fill(tensor.view(-1), self.pools[row["name"], row["dtype"], row["distribution"]], int(row["key"]))
            else:
                fresh = torch.frombuffer(bytearray(data or b"0"), dtype=torch.uint8)[: len(data)]
                whole[_ZONE : _ZONE + size].copy_(fresh)
                self.sent[row["name"]] = fresh
            found.append(tensor)
        self.rows = list(rows)
        return found

    def _zones(self, row: dict[str, Any]) -> tuple[torch.Tensor, int]:
        whole, tensor = self.held[f"{row['name']} {row['dtype']} {row['shape']}"]
        return whole, tensor.numel() * tensor.element_size()

    def mutated(self, but: Sequence[str]) -> list[str]:
        found = []
        for row in self.rows:
            whole, size = self._zones(row)
            if row["name"] not in but and not torch.equal(whole[_ZONE : _ZONE + size].cpu(), self.sent[row["name"]]):
                found.append(row["name"])
        return found

    def strayed(self) -> list[str]:
        found = []
        for row in self.rows:
            whole, size = self._zones(row)
            byte = poison(getattr(torch, TORCH_DTYPES[row["dtype"]]))
            if bool((whole[:_ZONE] != byte).any()) or bool((whole[_ZONE + size :] != byte).any()):
                found.append(row["name"])
        return found

    def late(self) -> dict[str, Any]:
        """As `child.look_task`, after its moment."""
        self.wait()
        return {"late": [i for i, output, data in self.last if _bytes(output) != data]}

    # -- waiting -------------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """For the whole device, on whichever stream."""
        if self.name == "cuda":
            self._sync()

    def wait_here(self) -> None:
        """For the current stream alone: what an honest caller waits for."""
        if self.name == "cuda":
            self._stream().synchronize()

    def clocks(self, step: Callable[[], Any], cold: bool, patient: bool = False, hold: bool = True) -> dict[str, float]:
        """Seconds of one step: by the device's events; those and what the host waits for beyond them; from the event
        that ends it until nothing runs on the device; and of the host's part, where the device waited for it.

        The device is held while the host launches, so that the events see the device's work and not the host's.
        cold: the L2 is flushed before. patient: it is held as long as the step before took to launch; for steps that
        are played, since a candidate would have that time on the host for nothing. A step that waits for the device (a
        copy to or from the host) waits for the hold too, and its launches come after it: only then is the host's part
        told, and such a step is better timed without a hold.
        """
        if self.name != "cuda":
            began = _perf_counter()
            step()
            seconds = _perf_counter() - began
            return {"seconds": seconds, "wall_s": seconds, "tail_s": 0.0, "host_s": 0.0}
        first, start, stop, rest = (self._event(enable_timing=True) for _ in range(4))
        self._release()
        self.wait()
        began = _perf_counter()
        self._record(first)
        if cold and self._flush is not None:
            self._flush.add_(1)
        if hold:
            self._whole.hold(held(self._launching) if patient else _HOLD)
        self._record(start)
        launching = _perf_counter()
        step()
        ended = _perf_counter()
        self._launching = ended - launching
        waited = patient and self._query(start)  # nothing held the device any more before all was launched
        self._record(stop)
        self._whole.gather()
        # Where the device had nothing left to do by then, it waited for the host and not for other work.
        idle = max(self._idle, _perf_counter() - ended) if self._query(stop) else self._idle
        self._record(rest)
        self.wait()
        host = _perf_counter() - began
        seconds, whole, tail = (self._elapsed(a, b) / 1000 for a, b in ((start, stop), (first, rest), (stop, rest)))
        found = {"seconds": seconds, "wall_s": seconds + max(0.0, host - whole), "tail_s": max(0.0, tail - idle)}
        return found | {"host_s": self._launching if waited else 0.0}


def held(launching: float) -> int:
    """Cycles, for a step whose launches take the host so many seconds."""
    return max(_HOLD, int(min(_LONG_HOLD, 1.5 * launching * _CYCLES_PER_S)))


def fill(flat: torch.Tensor, pool: torch.Tensor, key: int) -> None:
    """With the pieces of a pool that `scattering.scattered` says."""
    pieces, count = pool.unfold(0, PIECE, 1), pool.numel() - PIECE + 1
    for begin in range(0, -(-flat.numel() // PIECE), _AT_ONCE):
        end = min(begin + _AT_ONCE, -(-flat.numel() // PIECE))
        z = torch.arange(begin + 1, end + 1, device=flat.device)
        z = z * _signed(STEP) + _signed(key)
        z = (z ^ _moved_right(z, SHIFTS[0])) * _signed(FIRST)
        z = (z ^ _moved_right(z, SHIFTS[1])) * _signed(SECOND)
        place = _moved_right(z, SHIFTS[2]) % count
        there = flat[begin * PIECE : end * PIECE]
        there.copy_(pieces[place].reshape(-1)[: there.numel()])


def _moved_right(z: torch.Tensor, by: int) -> torch.Tensor:
    """Without the sign, which torch would draw in."""
    return (z >> by) & (2 ** (64 - by) - 1)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def pool_call(device: Device, payload: dict[str, Any], blobs: Sequence[bytes]) -> Any:
    """Values that timed inputs will be made of."""
    for row, data in zip(payload["pools"], blobs, strict=True):
        dtype = getattr(torch, TORCH_DTYPES[row["dtype"]])
        values = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device.name).view(dtype)
        device.pools[row["name"], row["dtype"], row["distribution"]] = values
    return {}, []


def run_call(device: Device, run: Any, path: str, payload: dict[str, Any], blobs: Sequence[bytes]) -> Any:
    """As `child.run_task`, on the device."""
    tardy = [k for k in device.before if _bytes(k[1]) != k[2]]
    inputs = device.put(payload["inputs"], blobs)
    device.launches.ghost = bool(payload.get("ghost"))
    device.wait()
    began = _perf_counter()
    outputs = returned(_called(device, run, path, inputs, payload["params"], poisoned=True))
    odd = [f"output {i} is {type(o).__name__}, no plain tensor" for i, o in enumerate(outputs) if not _plain(device, o)]
    if odd:
        return {"odd": odd}, []
    device.wait_here()
    described = [
        withheld(o, payload["most"]) or _describe(device, o, inputs) for o in outputs
    ]  # by a copy on the current stream
    seconds = _perf_counter() - began
    device.wait()
    late = [i for i, (o, (row, data)) in enumerate(zip(outputs, described, strict=True)) if _moved(o, row, data)]
    before = [k for k in device.before if not any(k is t for t in tardy)]
    reused = [k for k in before if _bytes(k[1]) != k[2]]
    every = enumerate(zip(outputs, described, strict=True))
    device.last = [(i, o, data) for i, (o, (row, data)) in every if "withheld" not in row]
    in_place = list(payload.get("inplace", ()))
    kept = [(i, o, d) for i, (o, (row, d)) in enumerate(zip(outputs, described, strict=True)) if _kept(row)]
    device.before = [*(k for k in before if not any(k is r for r in reused)), *kept][-_KEPT:]
    facts = {
        "odd": [],
        "outputs": [row for row, _ in described],
        "mutated": device.mutated(in_place),
        "strayed": device.strayed(),
        "late": sorted({*late, *(k[0] for k in tardy)}),
        "reused": sorted({k[0] for k in reused}),
        "calls": dict(device.calls.found),
        "launches": device.launches.count,
        "threads": threading.active_count() - 1,
        "seconds": seconds,
    }
    return facts, [data for _, data in described]


def put_call(device: Device, payload: dict[str, Any], blobs: Sequence[bytes]) -> Any:
    """Inputs for the timed call to come."""
    device.put(payload["inputs"], blobs)
    device.before.clear()
    device.last.clear()
    device.wait()
    return {}, []


def time_call(device: Device, run: Any, path: str, payload: dict[str, Any]) -> Any:
    """{params, calls, cold, ghost, hold, take: [axis, places] of each output, or all} -> the clocks a call, and the
    bytes of that part. Where the candidate is, the device is always held.

    The bytes are copied on the current stream right after the clocks have stopped: what is not done by then is missed.
    """
    inputs = [device.held[f"{r['name']} {r['dtype']} {r['shape']}"][1] for r in device.rows]
    device.launches.ghost = bool(payload.get("ghost"))
    outputs: list[Any] = []

    def step() -> None:
        for _ in range(payload["calls"]):
            outputs[:] = _called(device, run, path, inputs, payload["params"], poisoned=False)

    clocks = device.clocks(step, payload["cold"], patient=not path, hold=bool(path) or payload.get("hold", True))
    rows, data = [], []
    for o, take in zip(outputs, payload["take"], strict=False):
        if not _plain(device, o):
            return {"odd": [f"a timed output is {type(o).__name__}, no plain tensor"]}, []
        part = _cut(o, *take) if take else o
        rows.append({"dtype": _name(o), "shape": list(o.shape), "strides": list(o.stride())})
        data.append(_bytes(part))
    facts = {
        "odd": [],
        **{name: seconds / payload["calls"] for name, seconds in clocks.items()},
        "holds": device.holds,
        "outputs": rows,
        "count": len(outputs),
        "threads": threading.active_count() - 1,
    }
    return facts, data


def _cut(output: torch.Tensor, axis: int, places: list[int]) -> torch.Tensor:
    """What there is of it; whether the output has its shape, the parent sees."""
    if axis >= output.dim() or output.shape[axis] <= max(places, default=0):
        return output[:0]
    return output.index_select(axis, torch.tensor(places, device=output.device))


def _called(
    device: Device, run: Any, path: str, inputs: list[torch.Tensor], params: dict[str, Any], poisoned: bool
) -> list[Any]:
    empty = torch.empty
    if poisoned:
        torch.empty = _filled(device._empty)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            if poisoned:  # watching costs time, so timed calls are made without
                with watched(device.calls, device.launches):
                    result = run(*inputs, **params)
            else:
                result = run(*inputs, **params)
    except MemoryError:
        raise
    except torch.OutOfMemoryError:
        raise MemoryError from None
    except BaseException as error:
        if "CUDA error" in str(error):
            os._exit(70)  # the context is beyond repair, and so is this candidate
        raise CandidateError(complaint(error, path)) from None
    finally:
        torch.empty = empty
    return list(result) if isinstance(result, tuple | list) else [result]


def _filled(empty: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def make(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = empty(*args, **kwargs)
        if made.layout == torch.strided and made.numel() and made.is_contiguous():
            made.view(-1).view(torch.uint8).fill_(poison(made.dtype))
        return made

    return make


def _kept(row: dict[str, Any]) -> bool:
    return row["alias"] is None and "withheld" not in row


def _moved(output: torch.Tensor, row: dict[str, Any], data: bytes) -> bool:
    return "withheld" not in row and _bytes(output) != data


def _plain(device: Device, output: Any) -> bool:
    return type(output) is torch.Tensor and output.device.type == device.name and output.layout == torch.strided


def _bytes(output: torch.Tensor) -> bytes:
    if not output.numel():
        return b""
    return output.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()


def _name(output: torch.Tensor) -> str:
    names = {getattr(torch, theirs): ours for ours, theirs in TORCH_DTYPES.items()}
    return names.get(output.dtype, str(output.dtype).removeprefix("torch."))


def _describe(device: Device, output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> tuple[dict[str, Any], bytes]:
    storage = output.untyped_storage().data_ptr()
    owners = [r["name"] for r, x in zip(device.rows, inputs, strict=True) if x.untyped_storage().data_ptr() == storage]
    row = {
        "dtype": _name(output),
        "shape": list(output.shape),
        "strides": list(output.stride()),
        "unwritten": 0,
        "alias": owners[0] if owners else None,
    }
    return row, _bytes(output)
