"""What a worker that owns a device does: says what it is, makes inputs, runs candidates, sums up errors, times.

A worker judges nothing: it hands over figures and raw samples. A fault that poisons the device's context ends the
process with its reason as the last line of its log: another worker takes over, with a context of its own. On a machine
without a device the same tasks run on the CPU ("cpu"), for the tests.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from evaluators import amd, device_prepared
from evaluators.compiler import load_source
from evaluators.cpu import TORCH_DTYPES
from evaluators.device_guards import Guards, bytes_of
from evaluators.device_inputs import figures, take
from evaluators.device_prepared import Prepared, ready
from evaluators.graphs import together
from evaluators.sustained import LOAD, METER, Arm, agreed, sync
from evaluators.tolerance import BLOCK, SMALL_ROW
from evaluators.worker import CandidateError

Answer = tuple[dict[str, Any], Sequence[bytes]]
Seconds = dict[str, float]  # by what was done

FAULT_MARK = "avo device fault: "
FAULT_STATUS = 70
_NAMES = {theirs: ours for ours, theirs in TORCH_DTYPES.items()}
# what torch and the drivers say of a context that is beyond repair
_FATAL = (
    "CUDA error",
    "HIP error",
    "illegal memory access",
    "misaligned address",
    "device-side assert",
    "launch failed",
)


# -- life --------------------------------------------------------------------------------------------------------------


def begin() -> None:
    """Brings the device up and proves that it computes, before the worker says that it is ready."""
    if not torch.cuda.is_available():
        if os.environ.get("TRITON_INTERPRET") == "1":  # a simulated device, for tests
            from evaluators.interpreter import install

            install()
            return
        raise RuntimeError("torch sees no device: a driver is missing, or torch was built without CUDA or ROCm")
    x = torch.ones((256, 256), device="cuda", dtype=torch.float32)
    if float((x @ x).sum()) != 256.0**3:
        raise RuntimeError("the device computes wrong sums")
    torch.cuda.synchronize()
    _listen()
    from evaluators.rehearsal import rehearse

    rehearse()


def facts_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """What torch says of the device that this worker has."""
    if not torch.cuda.is_available():
        return {"name": "cpu", "uuid": "cpu", "torch": torch.__version__}, ()
    p = torch.cuda.get_device_properties(0)
    major, minor = torch.cuda.get_device_capability(0)
    found = {
        "name": p.name,
        "uuid": amd.uuid(str(p.uuid)) if torch.version.hip else f"GPU-{getattr(p, 'uuid', '')}",
        "sms": p.multi_processor_count,
        "memory_bytes": p.total_memory,
        "l2_bytes": getattr(p, "L2_cache_size", 0),
        "capability": [major, minor],
        # on NVIDIA torch gives the name of the card there; on AMD cuDNN's version is MIOpen's
        "arch": p.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{major}{minor}",
        "torch": torch.__version__,
        "runtime": torch.version.cuda or torch.version.hip,
        "cudnn": torch.backends.cudnn.version() if torch.version.cuda and torch.backends.cudnn.is_available() else None,
    }
    return found, ()


_compilations = {"hit": 0, "miss": 0}


def _listen() -> None:
    """Counts what Triton had to compile here instead of finding it where the compile workers left it."""
    with contextlib.suppress(ImportError, AttributeError):
        from triton import knobs

        def listener(*rest: Any, **said: Any) -> None:
            _compilations["hit" if said.get("cache_hit", rest[-1] if rest else False) else "miss"] += 1

        knobs.compilation.listener = listener


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Faults of a candidate: its own error, too much memory, or the end of this process."""
    try:
        yield
    except (CandidateError, MemoryError):
        raise
    except torch.OutOfMemoryError:
        _release()
        raise MemoryError from None
    except BaseException as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if any(mark in str(error) for mark in _FATAL):
            print(f"{FAULT_MARK}{first}", file=sys.stderr, flush=True)
            os._exit(FAULT_STATUS)
        raise CandidateError(f"{type(error).__name__}: {first[:400]}") from None


def _working(task: Callable[..., Answer]) -> Callable[..., Answer]:
    """The load rests while the task is at work, and the card is kept busy after it."""

    @functools.wraps(task)
    def work(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
        LOAD.pause()
        try:
            return task(payload, blobs)
        finally:
            LOAD.resume()

    return work


@contextlib.contextmanager
def _part(parts: Seconds, name: str) -> Iterator[None]:
    """Books the seconds that pass."""
    began = time.perf_counter()
    try:
        yield
    finally:
        parts[name] = parts.get(name, 0.0) + time.perf_counter() - began


def forget() -> None:
    """Nothing of what was done so far is known any more."""
    device_prepared.forget()
    _call_s.clear()
    _compilations.update(hit=0, miss=0)


def _release() -> None:
    device_prepared.forget()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@_working
def prepare_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Makes inputs and right answers of jobs; nothing of a candidate runs. What fails here is ours or the target's."""
    parts: Seconds = {}
    with _part(parts, "making inputs and answers"):
        for job in payload["jobs"]:
            ready(job)
        sync()
    return {"parts": dict(parts), "kept": device_prepared.kept()}, ()


# -- running a candidate -----------------------------------------------------------------------------------------------


def _entry(arm: Mapping[str, Any]) -> Callable[..., Any]:
    module = load_source(arm["source"])
    entry = getattr(module, arm["entry"], None)
    if not callable(entry):
        raise CandidateError(f"the source has no function {arm['entry']!r}")
    return entry


@_working
def verify_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Runs a candidate on each job with poisoned, guarded outputs, twice; sums up its errors on each slice."""
    parts: Seconds = {}
    before = dict(_compilations)
    rows = []
    with torch.no_grad():
        for job in payload["jobs"]:
            prepared = ready(job)
            with _guarded():
                rows.append(_verify(_entry(payload["arm"]), prepared, payload.get("repeats", 2), parts))
    return {"rows": rows, "parts": dict(parts), "compilations": _missed(before)}, ()


def _verify(entry: Callable[..., Any], prepared: Prepared, repeats: int, parts: Seconds) -> dict[str, Any]:
    row: dict[str, Any] = {"outputs": [], "mutated": [], "strayed": [], "repeatable": True}
    first: tuple[Any, ...] | None = None
    for turn in range(repeats):
        with _part(parts, "verifying: runs" if turn else "verifying: first runs"), Guards() as guards:
            outputs = _tuple(entry(*prepared.inputs, **prepared.job["params"]))
            sync()
        with _part(parts, "verifying: errors"):
            found = [
                _describe(x, t, prepared.inputs, guards) for x, t in zip(outputs, prepared.job["outputs"], strict=False)
            ]
            row["count"] = len(outputs)
            row["strayed"] = sorted({*row["strayed"], *guards.strayed()})
            if first is None:
                row["outputs"], first = found, outputs
                _measure(row, outputs, prepared)
            elif not all(_same(a, b) for a, b in zip(first, outputs, strict=False)):
                row["repeatable"] = False
                _measure(row, outputs, prepared)  # both runs have to be right
    row["mutated"] = prepared.mutated()
    if row["mutated"]:
        device_prepared.forget()
    return row


def _measure(row: dict[str, Any], outputs: Sequence[Any], prepared: Prepared) -> None:
    """Adds the figures of each slice to what is known of each output."""
    for i, (x, t) in enumerate(zip(outputs, prepared.job["outputs"], strict=False)):
        described = row["outputs"][i]
        if described["dtype"] != t["dtype"] or described["shape"] != t["shape"]:
            continue
        described.setdefault("figures", [])
        described["figures"] += _errors(x, i, prepared)


def _errors(output: torch.Tensor, place: int, prepared: Prepared, pick: int | None = None) -> list[dict[str, Any]]:
    """The figures of each slice, or of the one that `pick` falls on."""
    t, found = prepared.job["outputs"][place], []
    pairs = list(zip(prepared.job["slices"], prepared.right, strict=True))
    for cut, right in pairs if pick is None else [pairs[pick % len(pairs)]]:
        oracle, honest = (x.double() if x.is_floating_point() else x for x in right[place])
        part = take(output, t["axes"], cut)
        found.append({"slice": cut, **figures(part, oracle, honest, BLOCK, SMALL_ROW)})
    return found


def _describe(x: Any, t: Mapping[str, Any], inputs: Sequence[torch.Tensor], guards: Guards) -> dict[str, Any]:
    if type(x) is not torch.Tensor or x.layout != torch.strided:
        raise CandidateError(f"output {t['name']} is a {type(x).__name__}, not a plain tensor")
    if x.device.type != inputs[0].device.type:
        raise CandidateError(f"output {t['name']} is on {x.device}")
    storage = x.untyped_storage().data_ptr()
    alias = [i for i, y in enumerate(inputs) if x.numel() and y.untyped_storage().data_ptr() == storage]
    return {
        "name": t["name"],
        "dtype": _NAMES.get(str(x.dtype).removeprefix("torch."), str(x.dtype)),
        "shape": list(x.shape),
        "contiguous": x.is_contiguous(),
        "alias": alias[0] if alias else None,
        "unwritten": guards.unwritten(x),
    }


def _same(a: Any, b: Any) -> bool:
    if type(a) is not torch.Tensor or type(b) is not torch.Tensor or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(bytes_of(a), bytes_of(b)))


def _tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


# -- timing ------------------------------------------------------------------------------------------------------------

# Where a call seems shorter, all arms are launched from graphs: beside compilers on every core a launch takes the host
# 100 to 200 us, which is all that is seen of a call of 25 us.
CAPTURE_BELOW_S = 1e-3
SCREEN_S = 4e-3  # of timed calls at least, in a screen; a single call where that takes longer


def heat_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Brings the card to its steady state; see `sustained.Load.heat`."""
    found = LOAD.heat(**payload) or {"seconds": 0.0, "steady": True, "tflops": None}
    return {**found, **METER.now(), "parts": {"heating": found["seconds"]}}, ()


@_working
def screen_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Verifies a candidate on the jobs `checks`, then times it once on each of `timed`: all that most of them get.

    Returns verify_task's rows, and for each timed job what race_task does; of the first `few` alone, where each of them
    takes longer than `hopeless` says of its workload.
    """
    parts: Seconds = {}
    before = dict(_compilations)
    rows, timed = [], []
    METER.start()
    with torch.no_grad():
        for job in payload["checks"]:
            prepared = ready(job)
            with _guarded():
                rows.append(_verify(_entry(payload["arm"]), prepared, payload.get("repeats", 2), parts))
        for job in payload["timed"]:
            prepared = ready(job)
            with _guarded():
                arm = _Arm(payload["arm"], prepared)
                timed.append(_screen(arm, prepared, payload["pick"], parts))
            if len(timed) == payload.get("few") and _hopeless(timed, payload):
                break
    return {"rows": rows, "timed": timed, "parts": dict(parts), "compilations": _missed(before)}, ()


def _hopeless(timed: Sequence[Mapping[str, Any]], payload: Mapping[str, Any]) -> bool:
    """Whether all that was timed is slower than what `hopeless` says of it."""
    limits = [payload.get("hopeless", {}).get(job["workload"], math.inf) for job in payload["timed"][: len(timed)]]
    return all(t["samples"][0]["seconds"] > limit for t, limit in zip(timed, limits, strict=True))


def _screen(arm: _Arm, prepared: Prepared, pick: int, parts: Seconds) -> dict[str, Any]:
    """A call to load the code, then as many as SCREEN_S holds: every part of a percent would cost a longer look."""
    with _part(parts, "loading code"):
        arm.call()
        sync()
    with _part(parts, "timing"):
        arm.call_s, wall = agreed(arm.call, 1)
        graphs, bound = together([arm], CAPTURE_BELOW_S)
        if graphs:
            sample = arm.segment(0.0, SCREEN_S)
        elif arm.call_s >= SCREEN_S:
            sample = {"seconds": arm.call_s, "calls": 1, "wall_s": wall, **METER.now()}
        else:
            sample = arm.segment(0.0, SCREEN_S)
    arm.remember()
    with _part(parts, "checking what was timed"):
        found = _recheck(arm, prepared, pick)
    return {"samples": [{"arm": 0, **sample}], "graphs": graphs, "launch_bound": bound, **found}


@_working
def race_task(payload: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Segments of calls back to back, one for each letter of `order` ("ABBA"), on each of `jobs`: A is the first arm.

    payload: arms, jobs, order, untimed_s, timed_s, pick. A segment is seconds a call by the device's own clock, with
    the host's beside it, and the card's state while it ran. The first arm's last output on the first inputs is judged
    again, on the slice that `pick` names.
    """
    parts: Seconds = {}
    before = dict(_compilations)
    found = []
    METER.start()
    with torch.no_grad():
        for job in payload["jobs"]:
            prepared = ready(job)
            with _guarded():
                found.append(_race(payload, prepared, parts))
    return {"timed": found, "parts": dict(parts), "compilations": _missed(before)}, ()


def _race(payload: dict[str, Any], prepared: Prepared, parts: Seconds) -> dict[str, Any]:
    with _part(parts, "loading code"):
        first, *others = payload["arms"]
        arms = [_Arm(first, prepared), *(_Arm(arm, prepared, "the one beside it") for arm in others)]
        for arm in arms:
            arm.settle()
        graphs, bound = together(arms, CAPTURE_BELOW_S)
    samples = []
    with _part(parts, "timing"):
        for letter in payload["order"]:
            place = ord(letter) - ord("A")
            samples.append({"arm": place, **arms[place].segment(payload["untimed_s"], payload["timed_s"])})
    for arm in arms:
        arm.remember()
    with _part(parts, "checking what was timed"):
        found = _recheck(arms[0], prepared, payload.get("pick"))
    return {"samples": samples, "graphs": graphs, "launch_bound": bound, **found}


def _recheck(arm: _Arm, prepared: Prepared, pick: int | None) -> dict[str, Any]:
    """Figures of the last timed output on one slice (all of them without a pick), and inputs that have changed."""
    outputs = arm.last()
    figures_ = [
        {"output": i, **f}
        for i, x in enumerate(outputs[: len(prepared.job["outputs"])])
        for f in _errors(x, i, prepared, pick)
    ]
    return {"figures": figures_, "mutated": prepared.mutated(), "sets": 1 + len(prepared.more)}


def _missed(before: Mapping[str, int]) -> dict[str, int]:
    return {name: _compilations[name] - before[name] for name in _compilations}


class _Arm(Arm):
    """One entry of a candidate on rotating inputs."""

    def __init__(self, arm: Mapping[str, Any], prepared: Prepared, title: str = "this program") -> None:
        entry, params = _entry(arm), prepared.job["params"]
        inputs = [prepared.inputs, *prepared.more]
        name = f"{hashlib.sha256(arm['source'].encode()).hexdigest()} {prepared.job['workload']}"
        super().__init__(name, lambda place: _tuple(entry(*inputs[place], **params)), len(inputs), _call_s.get(name))
        self.title = title

    def remember(self) -> None:
        """So that a second look at it need not find out again how long a call takes."""
        if not self.graphed or self.call_s >= CAPTURE_BELOW_S:
            _call_s[self.name] = self.call_s


_call_s: dict[str, float] = {}  # source and workload -> seconds a call
