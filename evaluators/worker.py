"""What runs inside a worker process: `python -m evaluators.worker KIND FD PARENT [FILE]`.

Reads requests from the socket FD, runs the task that each names, answers. FILE is a Python file whose `TASKS` join the
table: the doubles of the tests, say. A worker never judges: it hands over bytes and facts, the parent decides.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from evaluators import wire

Answer = tuple[dict[str, Any], Sequence[bytes]]
Task = Callable[[dict[str, Any], Sequence[bytes]], Answer]

# task -> (kind of worker, module, function). "plain" workers import neither torch nor triton.
TASKS: dict[str, tuple[str, str, str]] = {
    "compile": ("compile", "evaluators.compiler", "compile_task"),
    "fill": ("compile", "evaluators.compiler", "fill_task"),
    "interpret": ("interpret", "evaluators.cpu", "interpret_task"),
    "raw_load": ("raw", "evaluators.integrity.child", "load_task"),
    "raw_run": ("raw", "evaluators.integrity.child", "run_task"),
    "raw_look": ("raw", "evaluators.integrity.child", "look_task"),
    "raw_tape": ("raw", "evaluators.integrity.child", "tape_task"),
    "raw_play": ("raw", "evaluators.integrity.child", "play_task"),
    "raw_compile": ("raw", "evaluators.integrity.child", "compile_task"),
    "raw_ahead": ("raw", "evaluators.integrity.ahead", "ahead_task"),
    "raw_pool": ("raw", "evaluators.integrity.child", "pool_task"),
    "raw_put": ("raw", "evaluators.integrity.child", "put_task"),
    "raw_time": ("raw", "evaluators.integrity.child", "time_task"),
    "device_facts": ("device", "evaluators.device_tasks", "facts_task"),
    "prepare": ("device", "evaluators.device_tasks", "prepare_task"),
    "verify": ("device", "evaluators.device_tasks", "verify_task"),
    "ceilings": ("device", "evaluators.benchmark_tasks", "ceilings_task"),
    "compare": ("device", "evaluators.benchmark_tasks", "compare_task"),
    "screen": ("device", "evaluators.device_tasks", "screen_task"),
    "race": ("device", "evaluators.device_tasks", "race_task"),
    "heat": ("device", "evaluators.device_tasks", "heat_task"),
}
# "raw-LEVEL": a template that raw candidates are forked from (`evaluators.integrity.nursery`), each confined to that
# level of `evaluators.integrity.sandbox`; "raw-LEVEL-device": with a context of its own on a device; "raw-LEVEL-chip":
# where what a candidate launches is compiled for a chip that is not there (`evaluators.integrity.ahead`).
_LEVELS = ("raw-full", "raw-namespaces", "raw-process")
KINDS = ("plain", "compile", "interpret", "device", *_LEVELS, "raw-process-device", *(f"{k}-chip" for k in _LEVELS))

NICE = 10  # of compile workers: one a core, they give way to the run itself and to the device's worker
_PR_SET_PDEATHSIG = 1


class CandidateError(Exception):
    """Raised by a task for what is wrong with the candidate; its text reaches people and agents as it stands.

    Any other exception of a task is a bug of ours and never counts against the candidate.
    """


def main(arguments: Sequence[str]) -> int:
    kind, fd, parent, *extra = arguments
    sock = socket.socket(fileno=int(fd))
    os.set_inheritable(sock.fileno(), False)
    _settle(int(parent))
    if kind == "compile":
        os.nice(NICE)
    tasks = {name: where[1:] for name, where in TASKS.items() if where[0] == kind.partition("-")[0]}
    added: dict[str, Task] = runpy.run_path(extra[0])["TASKS"] if extra else {}
    _preload(kind)
    if kind.startswith("raw-"):
        return int(importlib.import_module("evaluators.integrity.nursery").rear(sock, kind, tasks))
    return serve(sock, kind, tasks, added)


def serve(sock: socket.socket, kind: str, tasks: dict[str, tuple[str, str]], added: dict[str, Task]) -> int:
    """Greets, then answers requests until the parent has gone."""
    decoder = wire.Decoder()
    wire.send(sock, wire.Frame("", {"ready": kind}))
    while True:
        try:
            request = wire.receive(sock, decoder)
        except wire.WireError:
            return 0  # the parent has gone; anything else on this channel is not for us to repair
        reply = _run(request, tasks, added)
        with contextlib.suppress(Exception):  # so that what was printed is there before the answer is
            sys.stdout.flush()
            sys.stderr.flush()
        try:
            wire.send(sock, reply)
        except wire.Closed:
            return 0
        except wire.WireError as error:
            wire.send(sock, wire.Frame(request.nonce, {"error": "fault", "message": f"the answer: {error}"}))


def _settle(parent: int) -> None:
    """Die with the parent, leave Ctrl-C to it, and be what the kernel kills first when memory runs out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    if os.getppid() != parent:  # it died before we asked
        os._exit(0)
    import resource  # the parent imports this module too, and Windows has no such thing

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _preload(kind: str) -> None:
    """The imports that take seconds, paid before the first call."""
    if kind == "plain":
        return
    kind, whole = kind.partition("-")[0], kind
    import torch

    torch.set_num_threads(1)
    importlib.import_module("triton.language")
    for owner, module, _ in TASKS.values():
        if owner == kind:
            importlib.import_module(module)
    if kind == "raw":
        importlib.import_module("evaluators.integrity.child").prepare(launches=not whole.endswith("-chip"))
    if kind == "device":
        importlib.import_module("evaluators.device_tasks").begin()


def _run(request: wire.Frame, tasks: dict[str, tuple[str, str]], added: dict[str, Task]) -> wire.Frame:
    name = request.body.get("task")
    try:
        if name in added:
            task = added[name]
        elif name in tasks:
            module, function = tasks[name]
            task = getattr(importlib.import_module(module), function)
        else:
            raise LookupError(f"this kind of worker has no task {name!r}; it has {sorted({*tasks, *added})}")
        result, blobs = task(request.body["payload"], request.blobs)
    except CandidateError as error:
        return wire.Frame(request.nonce, {"error": "candidate", "message": str(error)})
    except MemoryError:
        return wire.Frame(request.nonce, {"error": "memory", "message": f"{name} ran out of memory"})
    except BaseException as error:  # SystemExit of a candidate's source too: the worker lives on
        where = "".join(traceback.format_exception(error)[-3:])
        return wire.Frame(request.nonce, {"error": "fault", "message": f"{name} failed: {error!r}\n{where}"})
    return wire.Frame(request.nonce, {"result": result}, tuple(blobs))


if __name__ == "__main__":
    # `-m` has made this module `__main__`; tasks raise the CandidateError of the importable one.
    sys.exit(importlib.import_module("evaluators.worker").main(sys.argv[1:]))
