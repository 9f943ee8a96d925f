"""What runs beside a raw candidate, in its own confined process: hands it tensors, hands back bytes and facts.

The candidate shares this process and may change anything in it, so nothing here decides, and nothing here is secret:
there is no reference, no seed, no answer. What counts is the bytes of the outputs, which the parent judges, and what
the parent sees of this process from outside. The facts below catch those who do not go to such lengths.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluators.integrity import sandbox
from evaluators.integrity.compiling import complaint
from evaluators.worker import CandidateError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from evaluators.guards import Zone
    from evaluators.integrity.child_device import Device
    from evaluators.integrity.tape import Recorder
    from evaluators.integrity.watching import Calls, Launches

ENTRY = "run"
_KEPT = 16  # outputs of calls before that are looked at again
_LONGEST = 500_000  # characters of a tape
SETTLE_S = 0.02  # after the return, before the outputs are looked at again


class _State:
    """One candidate's: the process ends with it."""

    run: Any = None
    path: str = ""
    # An input of a name, dtype and shape is always the same tensor at the same address, with other bytes.
    held: dict[tuple[str, str, tuple[int, ...]], tuple[torch.Tensor, Zone]] = {}  # noqa: RUF012
    before: list[tuple[int, torch.Tensor, bytes]] = []  # noqa: RUF012  outputs of the calls before, by place
    last: list[tuple[int, torch.Tensor, bytes]] = []  # noqa: RUF012  those of the last call, in place too
    calls: Calls
    launches: Launches
    recorder: Recorder | None = None  # where the steps of a call are to be told: it has seen the file load
    device: Device | None = None  # where the candidate runs on one


def prepare(launches: bool = True) -> None:
    """Imports all that a run needs. Called once, in the template that candidates' processes are copies of. launches:
    whether there will be any."""
    import torch

    for module in (
        "evaluators.compiler",
        "evaluators.cpu",
        "evaluators.integrity.ahead",
        "evaluators.guards",
        "evaluators.integrity.child_device",
        "evaluators.integrity.tape",
    ):
        __import__(module)
    if os.environ.get("TRITON_INTERPRET") == "1":
        __import__("evaluators.interpreter")
        sys.modules["evaluators.interpreter"].install()
        sys.modules["evaluators.interpreter"].watch_order()
    elif launches:
        _build_once()
    else:
        sys.modules["evaluators.integrity.ahead"].begin()
    from evaluators.integrity.watching import Calls, Launches, open_operators, watched

    _State.calls, _State.launches = Calls(), Launches()
    _State.launches.install()
    open_operators()
    # What is imported on first use, while it can still be read.
    with watched(Calls()):
        torch.softmax(torch.zeros(2, 99, dtype=torch.bfloat16).float(), -1) @ torch.zeros(99, 2)
    np.random.default_rng(0)


def _build_once() -> None:
    """Triton's link to the driver is a C program, compiled on first use: the copies take the template's. It opens no
    device."""
    with contextlib.suppress(Exception):
        from triton.backends.nvidia.driver import CudaUtils

        CudaUtils()


_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "TRITON_INTERPRET", "TRITON_HOME", "TRITON_CACHE_DIR")
# A launcher is a C program, compiled where it is launched, and the driver's library has to be found.
_KEPT_FOR_DEVICES = ("LD_LIBRARY_PATH", "CC", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def confine(level: sandbox.Level, home: Path, device: bool = False) -> None:
    """Confines this process for good, before any candidate is here. device: it gets a context of its own on one."""
    sandbox.isolate(level)
    sandbox.confine(level, home)
    sys.argv = ["candidate"]
    for name in list(os.environ):
        if name not in (*_KEPT_VARIABLES, *(_KEPT_FOR_DEVICES if device else ())):
            del os.environ[name]
    if device:
        from evaluators.integrity.child_device import Device

        _State.device = Device(_State.calls, _State.launches)


def load_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """{source, recorded: whether the steps of a call will be asked for} -> {}. Raises CandidateError where it does not
    load or has no function `run`."""
    from evaluators.compiler import load_source
    from evaluators.integrity.tape import Recorder
    from evaluators.integrity.watching import watched

    seen: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if payload.get("recorded"):
        _State.recorder = _State.launches.recorder = seen = Recorder()
    with watched(_State.calls, here=False), seen:
        module = load_source(payload["source"])
    _State.launches.recorder = None
    run = getattr(module, ENTRY, None)
    if not callable(run):
        raise CandidateError(f"the file has no function {ENTRY!r}; it needs `def {ENTRY}(*inputs, **params)`")
    _State.run, _State.path = run, module.__file__ or ""
    return {}, []


def tape_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """{inputs, params, ghost: no kernel runs} and the inputs' bytes -> {tape} of a call, or {missing: why there is
    none}; see `tape`. What the kernels would have computed is in no step."""
    import torch

    from evaluators.integrity.tape import NotTaped, Recorder

    if _State.device is not None:
        inputs = _State.device.put(payload["inputs"], blobs)
    else:
        inputs = [_place(row, data)[0] for row, data in zip(payload["inputs"], blobs, strict=True)]
    recorder = _State.recorder or Recorder()
    _State.launches.ghost, _State.launches.recorder = bool(payload.get("ghost")), recorder
    try:
        for _ in range(2):  # the first one compiles, tunes, and makes what is kept
            recorder.begin(inputs)
            with warnings.catch_warnings(), np.errstate(all="ignore"), torch.no_grad(), recorder:
                warnings.simplefilter("ignore")
                result = _State.run(*inputs, **payload["params"])
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        tape = recorder.tape(outputs)
        length = len(json.dumps(tape))
        if length > _LONGEST:
            raise NotTaped(f"a tape of {length} characters")
    except NotTaped as no:
        return {"missing": str(no)}, []
    except MemoryError:
        raise
    except BaseException as error:
        raise CandidateError(complaint(error, _State.path)) from None
    finally:
        _State.launches.recorder = None
    return {"tape": tape}, []


def play_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """{tape, library} -> {launches}, or {missing}. From now on calls play it; no candidate was ever loaded here."""
    from evaluators.integrity.tape import NotTaped, Player

    assert not _State.path, "a candidate was loaded here"
    try:
        where = _State.device.name if _State.device is not None else "cpu"
        player = Player(payload["tape"], where, bool(payload["library"]))
    except (NotTaped, CandidateError) as no:
        return {"missing": str(no)[:400]}, []
    _State.run = player.run
    return {"launches": player.launches}, []


def compile_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """{tape, library, inputs: their form} -> {compiled: whether all is there that a tape launches}. Nothing runs."""
    from evaluators.integrity.tape import compiled

    assert not _State.path, "a candidate was loaded here"
    try:
        compiled(payload["tape"], bool(payload["library"]), payload["inputs"])
    except MemoryError:
        raise
    except Exception:  # it will be seen, and said, when it is played
        return {"compiled": False}, []
    return {"compiled": True}, []


def run_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """{inputs: [{name, dtype, shape}], params, inplace: names, ghost, turns} and their bytes -> facts, and the outputs'
    bytes as they were at return.

    ghost: no kernel runs. turns: in which order the programs of a launch run; see `interpreter.take_turns`.
    late: outputs whose bytes changed after the return. reused: outputs of calls before that this
    call changed. calls: what was asked of torch so far that is no glue. launches: of kernels, so far. threads:
    Python's threads that live on. seconds: of the run.
    """
    import torch

    from evaluators.guards import Arena
    from evaluators.integrity.watching import watched
    from evaluators.interpreter import REGIONS, take_turns

    if _State.device is not None:
        from evaluators.integrity.child_device import run_call

        found: tuple[dict[str, Any], Sequence[bytes]] = run_call(_State.device, _State.run, _State.path, payload, blobs)
        return found
    tardy = [kept for kept in _State.before if _bytes(kept[1]) != kept[2]]
    _State.launches.ghost = bool(payload.get("ghost"))
    arena = Arena()
    inputs, zones = [], []
    for row, data in zip(payload["inputs"], blobs, strict=True):
        tensor, zone = _place(row, data)
        inputs.append(tensor)
        zones.append(zone)
    arena.zones += zones
    REGIONS.clear()
    take_turns(int(payload.get("turns", 0)))
    began = time.perf_counter()
    with (
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
        torch.no_grad(),
        arena.patched(),
        watched(_State.calls, _State.launches),
    ):
        warnings.simplefilter("ignore")
        try:
            result = _State.run(*inputs, **payload["params"])
        except MemoryError:
            raise
        except BaseException as error:  # SystemExit of a candidate too
            if "DefaultCPUAllocator" in str(error):
                raise MemoryError from None
            raise CandidateError(complaint(error, _State.path)) from None
    outputs = returned(result)
    odd = [f"output {i} is {_kind(o)}, no plain tensor" for i, o in enumerate(outputs) if not _plain(o)]
    if odd:
        return {"odd": odd}, []
    described = [withheld(o, payload["most"]) or _describe(o, arena, zones) for o in outputs]
    seconds = time.perf_counter() - began
    late = [i for i, (o, (row, data)) in enumerate(zip(outputs, described, strict=True)) if _moved(o, row, data)]
    before = [kept for kept in _State.before if not any(kept is late_one for late_one in tardy)]
    reused = [kept for kept in before if _bytes(kept[1]) != kept[2]]
    before = [kept for kept in before if not any(kept is changed for changed in reused)]
    overwritten = [z.name for z in zones if z.name in payload.get("inplace", ())]
    # What lies in an input's memory is overwritten with the next input.
    fresh = [
        (i, o, data)
        for i, (o, (row, data)) in enumerate(zip(outputs, described, strict=True))
        if row["alias"] not in overwritten and _whole(row)
    ]
    _State.before = [*before, *fresh][-_KEPT:]
    _State.last = [(i, o, d) for i, (o, (row, d)) in enumerate(zip(outputs, described, strict=True)) if _whole(row)]
    facts = {
        "odd": [],
        "outputs": [row for row, _ in described],
        "mutated": [
            z.name
            for z, sent in zip(zones, blobs, strict=True)
            if z.name not in overwritten and z.contents.tobytes() != sent
        ],
        "strayed": arena.strayed(),
        "late": sorted({*late, *(kept[0] for kept in tardy)}),
        "calls": dict(_State.calls.found),
        "launches": _State.launches.count,
        "reused": sorted({kept[0] for kept in reused}),
        "threads": threading.active_count() - 1,
        "seconds": seconds,
    }
    return facts, [data for _, data in described]


def look_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """{} -> {late: outputs of the last call whose bytes have changed since}, after a moment in which a thread, or the
    device, may still write."""
    time.sleep(SETTLE_S)
    if _State.device is not None:
        return _State.device.late(), []
    return {"late": [i for i, output, data in _State.last if _bytes(output) != data]}, []


def pool_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """{pools} and their bytes: values that the inputs of timed calls are made of."""
    from evaluators.integrity.child_device import pool_call

    assert _State.device is not None
    found: tuple[dict[str, Any], Sequence[bytes]] = pool_call(_State.device, payload, blobs)
    return found


def put_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """{inputs} and their bytes or keys, for the timed call that comes next."""
    from evaluators.integrity.child_device import put_call

    assert _State.device is not None
    found: tuple[dict[str, Any], Sequence[bytes]] = put_call(_State.device, payload, blobs)
    return found


def time_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """One timed step on what `put_task` has put there; see `child_device.time_call`."""
    from evaluators.integrity.child_device import time_call

    assert _State.device is not None
    found: tuple[dict[str, Any], Sequence[bytes]] = time_call(_State.device, _State.run, _State.path, payload)
    return found


def _place(row: dict[str, Any], data: bytes) -> tuple[torch.Tensor, Zone]:
    import torch

    from evaluators.cpu import TORCH_DTYPES
    from evaluators.guards import Arena

    key = (row["name"], row["dtype"], tuple(row["shape"]))
    if key not in _State.held:
        arena = Arena()
        tensor = arena.place(row["name"], getattr(torch, TORCH_DTYPES[row["dtype"]]), key[2], data)
        _State.held[key] = tensor, arena.zones[0]
    tensor, zone = _State.held[key]
    zone.contents[:] = np.frombuffer(data, dtype=np.uint8)
    torch.autograd.graph.increment_version(tensor)  # by which whoever keeps what he made of it knows
    return tensor, zone


_OF_TENSORS = (
    *("__torch_function__", "__torch_dispatch__", "__array__", "__array_interface__", "__cuda_array_interface__"),
    *("__dlpack__", "__getattr__", "data_ptr", "dtype", "shape"),
)


def returned(result: Any) -> list[Any]:
    """The outputs. Raises CandidateError where one is an ordinary mistake: neither a tensor of whatever kind nor an
    object that plays one."""
    import torch

    outputs = list(result) if isinstance(result, tuple | list) else [result]
    for i, output in enumerate(outputs):
        kind = type(output)
        plays = kind.__module__ != "numpy" and any(hasattr(kind, name) for name in _OF_TENSORS)
        if inspect.iscoroutine(output):
            output.close()  # it would complain that nobody waited for it
            raise CandidateError(f"{ENTRY} is `async`; it has to be a plain function, which returns the output tensors")
        if not (isinstance(output, torch.Tensor) or plays):
            said = "None" if output is None else f"a value of type {kind.__name__}"
            where = f" as output {i}" if isinstance(result, tuple | list) else ""
            raise CandidateError(f"{ENTRY} returned {said}{where}; it has to return the output tensors"[:400])
    return outputs


def _kind(output: Any) -> str:
    import torch

    if isinstance(output, torch.Tensor):
        where = f"{output.layout} on {output.device}" if type(output) is torch.Tensor else "a subclass"
        return f"{type(output).__name__} ({where})"
    return type(output).__name__


def _plain(output: Any) -> bool:
    import torch

    return type(output) is torch.Tensor and output.device.type == "cpu" and output.layout == torch.strided


def _bytes(output: torch.Tensor) -> bytes:
    import torch

    if not output.numel():
        return b""
    return output.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _describe(output: torch.Tensor, arena: Any, inputs: Sequence[Zone]) -> tuple[dict[str, Any], bytes]:
    import torch

    from evaluators.cpu import TORCH_DTYPES

    names = {getattr(torch, theirs): ours for ours, theirs in TORCH_DTYPES.items()}
    data = _bytes(output)
    zone = arena.zone_of(output)
    unwritten = 0
    if zone is not None and zone.filled and output.dtype != torch.bool and data:
        content = np.frombuffer(data, dtype=np.uint8).reshape(-1, output.dtype.itemsize)
        unwritten = int((content == zone.byte).all(axis=1).sum())
    storage = output.untyped_storage()
    begin, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    alias = next((z.name for z in inputs if begin < _end(z) and _begin(z) < end), None)
    row = {
        "dtype": names.get(output.dtype, str(output.dtype).removeprefix("torch.")),
        "shape": list(output.shape),
        "strides": list(output.stride()),
        "unwritten": unwritten,
        "alias": alias,
    }
    return row, data


def withheld(output: torch.Tensor, most: int) -> tuple[dict[str, Any], bytes] | None:
    """For an output that is larger than any right one: its form without its bytes."""
    if output.numel() * output.element_size() <= most:
        return None
    row = {
        "dtype": str(output.dtype).removeprefix("torch."),
        "shape": list(output.shape),
        "strides": list(output.stride()),
        "unwritten": 0,
        "alias": None,
        "withheld": True,
    }
    return row, b""


def _whole(row: dict[str, Any]) -> bool:
    return "withheld" not in row


def _moved(output: torch.Tensor, row: dict[str, Any], data: bytes) -> bool:
    return _whole(row) and _bytes(output) != data


def _begin(zone: Zone) -> int:
    return int(zone.contents.ctypes.data)


def _end(zone: Zone) -> int:
    return _begin(zone) + zone.end - zone.begin
