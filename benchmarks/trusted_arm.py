"""What judging a kernel would cost if it were trusted: the floor below what the judge of raw Python adds.

A process that has imported everything and has its context on the device loads the file, makes one call of every check
of the target (as programs in the language are judged), judges the numbers by the same oracle and tolerances, and times
the same size with the same number of calls behind the same flush, its inputs drawn and its rows judged the same way.
There is no sandbox, no second process, no frame, no bytes through a socket, nothing watched, no call more.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import runpy
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluators.cpu import TORCH_DTYPES
from evaluators.inputs import decode, draw_inputs, encode, generator, pairings
from evaluators.integrity.calls import right
from evaluators.integrity.timed_calls import ROWS, WARM
from evaluators.integrity.timed_inputs import TimedInputs
from evaluators.loading import complete, seed_program
from evaluators.oracle import Answer
from evaluators.places import placed
from evaluators.target import Target
from evaluators.tolerance import verdict

SECONDS = 90  # for one kernel


class Trusted:
    """A fork of this process that makes its context on the device at once, and judges when it is asked.

    To be started while nobody is timed, so that it is ready by then; nothing of that is counted.
    """

    def __init__(self, path: Path, target: Target, rounds: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        (self._said, write), (begin, self._begin) = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(write)
            os.close(begin)
            return
        for name in os.listdir("/proc/self/fd"):  # the parent's channels, whose ends others wait for
            if int(name) > 2 and int(name) not in (write, begin):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS + 600)  # whatever becomes of the parent
        try:
            os.environ["TRITON_CACHE_DIR"] = self._folder.name
            flush = _ready()
            if not os.read(begin, 1):
                os._exit(0)
            signal.alarm(SECONDS)
            found = _judged(path, complete(target), rounds, flush)
        except BaseException as error:
            found = {"seconds": None, "us": None, "wrong": f"{type(error).__name__}: {error}"[:200]}
        os.write(write, json.dumps(found).encode()[: 1 << 15])
        os._exit(0)

    def judged(self) -> dict[str, Any]:
        """{seconds, us, wrong} of the first public size."""
        with contextlib.suppress(OSError):
            os.write(self._begin, b"!")
        found = self._ended()
        return json.loads(found) if found else {"seconds": None, "us": None, "wrong": "it died"}

    def close(self) -> None:
        """Ends it where it was never asked."""
        if self._pid:
            self._ended()

    def _ended(self) -> str:
        os.close(self._begin)
        os.waitpid(self._pid, 0)
        self._pid = 0
        found = os.read(self._said, 1 << 16).decode()  # what is said is short, and somebody else may hold the pipe
        os.close(self._said)
        self._folder.cleanup()
        return found


def _ready() -> Any:
    """What flushes the cache; a context on the device is there now."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    flush = torch.zeros(32 << 20 if device == "cuda" else 1, device=device)
    if device == "cuda":
        torch.cuda.synchronize()
    return flush


def _judged(path: Path, job: Target, rounds: int, flush: Any) -> dict[str, Any]:
    import torch

    device = flush.device.type
    began = time.perf_counter()
    program = seed_program(job)
    algorithm, (workload, *_) = program.algorithm, job.workloads
    defaults = {p.name: p.default for p in algorithm.params if p.default is not None}
    run = runpy.run_path(str(path))["run"]
    rng = generator(1, "trusted", job.name)
    wrong: list[str] = []
    for check, distribution in pairings(job.checks, rng):
        drawn = draw_inputs(job, algorithm, check, distribution, rng)
        dtypes = [t.dtype or "f32" for t in algorithm.inputs]
        forms = [{"dtype": d, "shape": drawn[t.name].shape} for d, t in zip(dtypes, algorithm.inputs, strict=True)]
        values = [encode(drawn[t.name], d) for d, t in zip(dtypes, algorithm.inputs, strict=True)]
        params = {**defaults, **check.params}
        wrong += _wrong(run(*_there(forms, values, device), **params), right(program, drawn, params))
    made = TimedInputs(job, algorithm, workload, rng)
    params, axis, times = {**defaults, **workload.params}, made.axis, []
    longest = workload.sizes[axis] if axis else 0
    names, values = made.pools()
    pools = {(n["name"], n["distribution"]): _flat(n, v, device) for n, v in zip(names, values, strict=True)}
    for turn in range(rounds + WARM):
        tensors = _there(*made.renew(), device, pools)
        places = np.sort(rng.choice(longest, size=min(ROWS, longest), replace=False)) if axis else np.arange(0)
        seconds, result = _clocked(lambda: run(*tensors, **params), flush)  # noqa: B023  at once
        times += [seconds] if turn >= WARM else []
        cut = dict(made.part(places))
        if axis:
            cut[f"at_{axis}"] = places
        wanted = right(placed(program, axis, longest) if axis else program, cut, params, representable=True)
        outputs = result if isinstance(result, tuple | list) else [result]
        parts = outputs
        if axis:
            at = torch.from_numpy(places).to(device)
            ranks = [(t.axes or ()).index(axis) for t in algorithm.outputs]
            parts = [o.index_select(rank, at) for o, rank in zip(outputs, ranks, strict=True)]
        wrong += _wrong(parts, wanted)
    seconds = round(time.perf_counter() - began, 2)
    return {"seconds": seconds, "us": round(1e6 * statistics.median(times), 2), "wrong": wrong[:3]}


def _flat(form: dict[str, Any], data: bytes, device: str) -> Any:
    import torch

    values = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
    return values.view(getattr(torch, TORCH_DTYPES[form["dtype"]]))


def _there(forms: Sequence[dict[str, Any]], values: Sequence[bytes], device: str, pools: Any = None) -> list[Any]:
    import torch

    from evaluators.integrity.child_device import fill

    tensors = []
    for form, data in zip(forms, values, strict=True):
        if "key" in form:
            dtype = getattr(torch, TORCH_DTYPES[form["dtype"]])
            flat = torch.empty(math.prod(form["shape"]), dtype=dtype, device=device)
            fill(flat, pools[form["name"], form["distribution"]], form["key"])
        else:
            flat = _flat(form, data, device)
        tensors.append(flat.reshape(tuple(form["shape"])))
    return tensors


def _wrong(result: Any, wanted: Mapping[str, Answer]) -> list[str]:
    import torch

    reasons: list[str] = []
    for output, answer in zip(result if isinstance(result, tuple | list) else [result], wanted.values(), strict=True):
        data = output.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
        got = decode(data, answer.dtype, answer.oracle.shape)
        reasons += verdict(got, answer.oracle, answer.honest, answer.dtype).reasons
    return reasons


def _clocked(step: Callable[[], Any], flush: Any) -> tuple[float, Any]:
    """(seconds, result) of one call behind a flushed L2."""
    import torch

    if flush.device.type == "cpu":
        began = time.perf_counter()
        result = step()
        return time.perf_counter() - began, result
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush.add_(1)
    torch.cuda._sleep(2_000_000)
    start.record()
    result = step()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / 1000, result
