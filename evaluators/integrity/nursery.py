"""A process that has imported everything and runs nothing: raw candidates get a copy of it each, made in milliseconds.

Importing torch takes seconds; a fork of a process that has done so takes hundredths of one. The template runs no
candidate, so every copy starts from the same clean state. It has one thread, touches no device, and holds no secret:
what the copies share is what any Python with torch has in memory.

One request at a time on its channel: `{"fork": HOME}` with two descriptors (the copy's own channel, and where it
prints), `{"status": PID}`, `{"reap": PID}`. A copy that has ended keeps its number until the parent has it reaped.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

from evaluators import wire

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PASSES = 200  # over strays, which may be starting others meanwhile: a second


def rear(sock: socket.socket, kind: str, tasks: dict[str, tuple[str, str]]) -> int:
    """The template's life: forks a copy when asked, until the parent has gone."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("the template has threads, which a fork would not have")
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, what all copies share
    _adopt()
    copies: set[int] = set()
    wire.send(sock, wire.Frame("", {"ready": kind}))
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 1 << 12, 2)
        if not data:
            for pid in copies:
                os.kill(pid, signal.SIGKILL)
            _end_strays(set())
            return 0
        request = json.loads(data)
        if "fork" in request:
            pid = os.fork()
            if pid == 0:
                _grow(sock, fds, kind, Path(request["fork"]), tasks)
            copies.add(pid)
            for fd in fds:
                os.close(fd)
            answer: Any = pid
        elif "status" in request:
            end = os.waitid(os.P_PID, request["status"], os.WEXITED | os.WNOHANG | os.WNOWAIT)
            answer = None if end is None else [end.si_code, end.si_status]
        else:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(request["reap"], 0)
            copies.discard(request["reap"])
            _end_strays(copies)
            answer = 0
        sock.sendall(json.dumps(answer).encode())


def _adopt() -> None:
    """Processes whose parents have gone come to this one instead of to init: they are counted and ended with it."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_strays(copies: set[int]) -> None:
    """Ends what copies have left behind."""
    for _ in range(_PASSES):
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            strays = [int(pid) for pid in children.read().split() if int(pid) not in copies]
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def _grow(control: socket.socket, fds: list[int], kind: str, home: Path, tasks: dict[str, tuple[str, str]]) -> NoReturn:
    """In the copy: gives up all that was the template's, confines itself, serves."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _adopt()  # first of all its own; what a candidate does about that, the template makes good at its end
        os.setsid()
        control.close()
        channel = _keep_only(fds)
        _own_folder(home)
        _own_chance()
        from evaluators.integrity import child, sandbox
        from evaluators.worker import serve

        _, name, *more = kind.split("-")
        child.confine(next(level for level in sandbox.LEVELS if name == level), home, device=more == ["device"])
        status = serve(socket.socket(fileno=channel), kind, tasks, {})
    except BaseException as error:
        with contextlib.suppress(Exception):
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _keep_only(fds: list[int]) -> int:
    """Closes every descriptor but the channel and what is printed to; returns the channel."""
    channel, log = fds
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != channel:
            with contextlib.suppress(OSError):
                os.close(int(name))
    return channel


def _own_folder(home: Path) -> None:
    os.chdir(home)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_HOME"):
        os.environ[name] = str(home)
    os.environ["TRITON_CACHE_DIR"] = str(home / "triton")
    tempfile.tempdir = None  # it is looked up once and kept


def _own_chance() -> None:
    """Generators that no other copy has."""
    import numpy as np
    import torch

    random.seed()
    np.random.seed()  # the old generator, which candidates may use
    torch.seed()
    torch.set_num_threads(1)  # torch makes its pool anew after a fork: here, before two threads ask for it at once
    torch.set_num_threads = lambda nthreads: None  # a pool that idles would look like work that outlives its call
