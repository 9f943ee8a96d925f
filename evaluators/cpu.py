"""Runs emitted Triton source on the CPU, in the corrected interpreter, between guard zones.

`interpret` is the parent's side; `interpret_task` runs in a worker of kind "interpret", where triton is imported with
TRITON_INTERPRET=1. The worker hands over bytes and facts; whether they are right, the parent decides.
"""

from __future__ import annotations

import linecache
import math
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluators.compiler import load_source
from evaluators.failures import Crash
from evaluators.worker import CandidateError

if TYPE_CHECKING:
    import torch

    from evaluators.pool import WorkerPool

# Names in the language -> names in torch.
TORCH_DTYPES = {
    **{"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "bool": "bool"},
    **{"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "int8": "int8", "i32": "int32", "i64": "int64", "u8": "uint8"},
}
_BYTES = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "bool": 1,
    "e4m3": 1,
    "e5m2": 1,
    "int8": 1,
    "i32": 4,
    "i64": 8,
    "u8": 1,
}


@dataclass(frozen=True)
class Tensor:
    """An input: contiguous little-endian bytes. dtype: a name of the language ("bf16", "e4m3", "int8")."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class Output:
    """What came back: `data` is row-major whatever the strides (in elements) were.

    dtype: the language's name, or torch's where the language has none. unwritten: elements that still hold the poison
    that they were allocated with. alias: the input whose memory this is, if any.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    data: bytes
    unwritten: int = 0
    alias: str | None = None


@dataclass(frozen=True)
class Interpretation:
    """mutated: inputs whose bytes changed. strayed: tensors around which something was written. seconds: of the run."""

    outputs: tuple[Output, ...]
    mutated: tuple[str, ...]
    strayed: tuple[str, ...]
    seconds: float


def interpret(
    pool: WorkerPool,
    source: str,
    entry: str,
    inputs: Sequence[Tensor],
    params: Mapping[str, int | float | bool] | None = None,
    timeout: float = 60.0,
    language: str = "triton",
) -> Interpretation:
    """Runs `entry(*inputs, **params)` of the source in a worker; `language` is "triton" or "gluon".

    Raises TaskError where the source does not load or run (a read or write outside of every tensor among it), Timeout,
    Crash, OutOfMemory, Unavailable.
    """
    payload = {
        "source": source,
        "entry": entry,
        "inputs": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in inputs],
        "params": dict(params or {}),
        "language": language,
    }
    reply = pool.call("interpret", payload, [t.data for t in inputs], timeout)
    try:
        return _read(reply.result, reply.blobs)
    except (KeyError, TypeError, ValueError):  # only a source that meddles with its worker can bring this about
        raise Crash("the interpreting worker answered nonsense", reply.log) from None


def _read(result: dict[str, Any], blobs: Sequence[bytes]) -> Interpretation:
    outputs = []
    for row, data in zip(result["outputs"], blobs, strict=True):
        dtype, shape, strides = str(row["dtype"]), tuple(map(int, row["shape"])), tuple(map(int, row["strides"]))
        if len(shape) != len(strides) or (dtype in _BYTES and len(data) != math.prod(shape) * _BYTES[dtype]):
            raise ValueError(f"{len(data)} bytes for {dtype}{list(shape)}")
        alias = None if row["alias"] is None else str(row["alias"])
        outputs.append(Output(dtype, shape, strides, data, int(row["unwritten"]), alias))
    mutated, strayed = (tuple(map(str, result[name])) for name in ("mutated", "strayed"))
    return Interpretation(tuple(outputs), mutated, strayed, float(result["seconds"]))


# -- the worker's side -------------------------------------------------------------------------------------------------


def interpret_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
    import torch

    from evaluators.gluon_emulator import load as load_roles
    from evaluators.guards import Arena
    from evaluators.interpreter import REGIONS, install

    if payload.get("language") == "gluon":
        module = load_roles(payload["source"])
    else:
        install()
        module = load_source(payload["source"])
    entry = getattr(module, payload["entry"], None)
    if not callable(entry):
        raise CandidateError(f"the source has no function {payload['entry']!r}")
    arena = Arena()
    inputs = [
        arena.place(row["name"], getattr(torch, TORCH_DTYPES[row["dtype"]]), tuple(row["shape"]), data)
        for row, data in zip(payload["inputs"], blobs, strict=True)
    ]
    zones = list(arena.zones)
    REGIONS.clear()
    began = time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"), torch.no_grad(), arena.patched():
        warnings.simplefilter("ignore")
        try:
            result = entry(*inputs, **payload["params"])
        except MemoryError:
            raise
        except BaseException as error:  # SystemExit of a candidate's source too
            if "DefaultCPUAllocator" in str(error):
                raise MemoryError from None
            raise CandidateError(_complaint(error, module.__file__ or "")) from None
    seconds = time.perf_counter() - began
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    rows, data = [], []
    for i, output in enumerate(outputs):
        if type(output) is not torch.Tensor:
            raise CandidateError(f"{payload['entry']} returned {type(output).__name__} as its output {i}, not a tensor")
        row, content = _describe(output, arena, zones)
        rows.append(row)
        data.append(content)
    mutated = [zone.name for zone, before in zip(zones, blobs, strict=True) if zone.contents.tobytes() != before]
    facts = {"outputs": rows, "mutated": mutated, "strayed": arena.strayed(), "seconds": seconds}
    return facts, data


def _describe(output: torch.Tensor, arena: Any, inputs: Sequence[Any]) -> tuple[dict[str, Any], bytes]:
    import torch

    names = {getattr(torch, theirs): ours for ours, theirs in TORCH_DTYPES.items()}
    if output.device.type != "cpu" or output.layout != torch.strided:
        raise CandidateError(f"an output is {output.layout} on {output.device}, not a plain tensor on the CPU")
    content = output.contiguous().reshape(-1).view(torch.uint8).numpy() if output.numel() else np.zeros(0, np.uint8)
    zone = arena.zone_of(output)
    unwritten = 0
    if zone is not None and zone.filled and output.dtype != torch.bool:
        unwritten = int((content.reshape(-1, output.dtype.itemsize) == zone.byte).all(axis=1).sum())
    row = {
        "dtype": names.get(output.dtype, str(output.dtype).removeprefix("torch.")),
        "shape": list(output.shape),
        "strides": list(output.stride()),
        "unwritten": unwritten,
        "alias": zone.name if zone is not None and zone in inputs else None,
    }
    return row, content.tobytes()


def _complaint(error: BaseException, path: str) -> str:
    """The place in the source and what went wrong there, without the interpreter's own frames."""
    from evaluators.guards import MemoryFault
    from evaluators.interpreter import program

    place = ""
    while True:  # the interpreter wraps an error at every call that it passes
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == path:
                code = frame.line or linecache.getline(path, frame.lineno or 0)
                place = f"line {frame.lineno}: {code.strip()}\n"
        if error.__cause__ is None:
            break
        error = error.__cause__
    if isinstance(error, MemoryFault):
        return f"{place}{error} (program {program()})"
    lines = f"{type(error).__name__}: {error}".splitlines()  # the interpreter may print whole tensors
    return place + "\n".join(line[:400] for line in lines[:8])
