"""What runs beside a raw candidate on a device: the same contract as `child`, with inputs in the device's memory.

Inputs of a name and shape are always the same tensor at the same address, with new bytes before every call, the timed
ones too. Two clocks see a timed call: the device's events around `run`, and the host's with a device-wide wait at its
end. What they say is handed over raw; the parent has a clock of its own and judges the bytes. The timers are taken
before the candidate is loaded, which stops those who replace them by name and no others.

Without a device (tests) the same runs on the CPU, where there is one clock.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from evaluators.cpu import TORCH_DTYPES, _complaint
from evaluators.guards import poison
from evaluators.integrity.child import withheld
from evaluators.integrity.watching import Calls, Launches, watched
from evaluators.worker import CandidateError

_ZONE = 4096
_SETTLE_S = 0.02
_KEPT = 8
_SPIN = 2_000_000  # cycles, about a millisecond: the host launches meanwhile
_FLUSH = 2  # times the L2: what is written and read between two timed calls

_perf_counter, _sleep = time.perf_counter, time.sleep


class Device:
    """The candidate's device, its inputs, and the outputs of calls before."""

    def __init__(self, calls: Calls, launches: Launches) -> None:
        self.name = "cuda" if torch.cuda.is_available() else "cpu"
        self.calls, self.launches = calls, launches
        self.held: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # whole buffer with its zones, the input in it
        self.sent: dict[str, torch.Tensor] = {}  # the bytes that an input was given
        self.before: list[tuple[int, torch.Tensor, bytes]] = []
        self._flush: torch.Tensor | None = None
        self._empty = torch.empty
        if self.name == "cuda":
            self._event, self._sync = torch.cuda.Event, torch.cuda.synchronize
            self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time
            self._stream, self._spin = torch.cuda.current_stream, torch.cuda._sleep
            torch.zeros(1, device="cuda").add_(1)  # a context of its own, before anything is timed
            self._sync()
            size = _FLUSH * getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
            self._flush = torch.zeros(size // 4, device="cuda")

    # -- inputs --------------------------------------------------------------------------------------------------------

    def put(self, rows: Sequence[dict[str, Any]], blobs: Sequence[bytes]) -> list[torch.Tensor]:
        """New bytes in the same memory."""
        found = []
        for row, data in zip(rows, blobs, strict=True):
            dtype = getattr(torch, TORCH_DTYPES[row["dtype"]])
            key = f"{row['name']} {row['dtype']} {row['shape']}"
            fresh = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            if key not in self.held:
                size = len(data)
                whole = torch.full((2 * _ZONE + size,), poison(dtype), dtype=torch.uint8, device=self.name)
                self.held[key] = whole, whole[_ZONE : _ZONE + size].view(dtype).reshape(row["shape"])
            whole, tensor = self.held[key]
            whole[_ZONE : _ZONE + len(data)].copy_(fresh)
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

    # -- waiting -------------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """For the whole device, on whichever stream."""
        if self.name == "cuda":
            self._sync()

    def wait_here(self) -> None:
        """For the current stream alone: what an honest caller waits for."""
        if self.name == "cuda":
            self._stream().synchronize()

    def clocks(self, step: Callable[[], Any], cold: bool) -> tuple[Any, float, float]:
        """(result, seconds by the device's events, those and what the host waits for beyond them) of one step.

        The device is kept busy while the host launches, so that the events see the device's work and not the host's.
        cold: the L2 is flushed before.
        """
        if self.name != "cuda":
            began = _perf_counter()
            result = step()
            seconds = _perf_counter() - began
            return result, seconds, seconds
        first, start, stop = (self._event(enable_timing=True) for _ in range(3))
        self.wait()
        began = _perf_counter()
        self._record(first)
        if cold and self._flush is not None:
            self._flush.add_(1)
        self._spin(_SPIN)
        self._record(start)
        result = step()
        self._record(stop)
        self.wait()
        host = _perf_counter() - began
        seconds, whole = self._elapsed(start, stop) / 1000, self._elapsed(first, stop) / 1000
        return result, seconds, seconds + max(0.0, host - whole)


def run_call(device: Device, run: Any, path: str, payload: dict[str, Any], blobs: Sequence[bytes]) -> Any:
    """As `child.run_task`, on the device."""
    tardy = [k for k in device.before if _bytes(k[1]) != k[2]]
    inputs = device.put(payload["inputs"], blobs)
    device.launches.ghost = bool(payload.get("ghost"))
    device.wait()
    began = _perf_counter()
    outputs = _called(device, run, path, inputs, payload["params"], poisoned=True)
    odd = [f"output {i} is {type(o).__name__}, no plain tensor" for i, o in enumerate(outputs) if not _plain(device, o)]
    if odd:
        return {"odd": odd}, []
    device.wait_here()
    described = [
        withheld(o, payload["most"]) or _describe(device, o, inputs) for o in outputs
    ]  # by a copy on the current stream
    seconds = _perf_counter() - began
    device.wait()
    _sleep(_SETTLE_S)
    late = [i for i, (o, (row, data)) in enumerate(zip(outputs, described, strict=True)) if _moved(o, row, data)]
    before = [k for k in device.before if not any(k is t for t in tardy)]
    reused = [k for k in before if _bytes(k[1]) != k[2]]
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
    device.wait()
    return {}, []


def time_call(device: Device, run: Any, path: str, payload: dict[str, Any]) -> Any:
    """{params, calls, cold, take: [begin, end) rows of each output} -> both clocks a call, and those rows' bytes.

    The bytes are copied on the current stream right after the clocks have stopped: what is not done by then is missed.
    """
    inputs = [device.held[f"{r['name']} {r['dtype']} {r['shape']}"][1] for r in device.rows]
    device.launches.ghost = False
    outputs: list[Any] = []

    def step() -> None:
        for _ in range(payload["calls"]):
            outputs[:] = _called(device, run, path, inputs, payload["params"], poisoned=False)

    _, seconds, wall = device.clocks(step, payload["cold"])
    rows, data = [], []
    for o, (begin, end) in zip(outputs, payload["take"], strict=False):
        if not _plain(device, o):
            return {"odd": [f"a timed output is {type(o).__name__}, no plain tensor"]}, []
        part = o[begin:end]
        rows.append({"dtype": _name(o), "shape": list(o.shape), "strides": list(o.stride())})
        data.append(_bytes(part))
    facts = {
        "odd": [],
        "seconds": seconds / payload["calls"],
        "wall_s": wall / payload["calls"],
        "outputs": rows,
        "count": len(outputs),
        "threads": threading.active_count() - 1,
    }
    return facts, data


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
        raise CandidateError(_complaint(error, path)) from None
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
