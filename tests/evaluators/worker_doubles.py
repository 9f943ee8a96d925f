"""Tasks that misbehave, for the tests of the pool: a worker loads this file by path and adds `TASKS` to its own."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

from evaluators.worker import CandidateError


def echo(payload, blobs):
    print("echo says", payload.get("word", ""))
    return {"payload": payload, "pid": os.getpid()}, list(blobs)


def sleep(payload, blobs):
    if "file" in payload:
        with open(payload["file"], "a") as file:
            file.write(f"{os.getpid()}\n")
    time.sleep(payload["seconds"])
    return {}, []


def burn(payload, blobs):
    """Computes for so many seconds of processor time."""
    end = time.process_time() + payload["seconds"]
    while time.process_time() < end:
        pass
    return {}, []


def children(payload, blobs):
    """Lets one child after another compute."""
    code = "import time\nwhile time.process_time() < 0.2: pass"
    for _ in range(round(payload["seconds"] / 0.2)):
        subprocess.run([sys.executable, "-c", code], check=True)
    return {}, []


def halt(payload, blobs):
    os.kill(os.getpid(), signal.SIGSTOP)
    return {}, []


def brood(payload, blobs):
    """Starts a child in the group and one in a session of its own, writes their numbers down, hangs."""
    code = [sys.executable, "-c", "import time; time.sleep(600)"]
    children = [subprocess.Popen(code), subprocess.Popen(code, start_new_session=True)]
    with open(payload["file"], "w") as file:
        file.write(" ".join(str(child.pid) for child in children))
    time.sleep(600)


def crash(payload, blobs):
    ctypes.string_at(0)


def leave(payload, blobs):
    os._exit(7)


def system_exit(payload, blobs):
    sys.exit("goodbye")


def eat_memory(payload, blobs):
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 12)) * (payload["step"] >> 12))


def no_memory(payload, blobs):
    raise MemoryError


def refuse(payload, blobs):
    raise CandidateError("the tile is too large")


def bug(payload, blobs):
    return {}["missing"]


def environment(payload, blobs):
    return {"environment": dict(os.environ), "cwd": os.getcwd(), "modules": sorted(sys.modules)}, []


def interrupt(payload, blobs):
    os.kill(os.getpid(), 2)
    return {"alive": True}, []


def unjson(payload, blobs):
    return {"value": object()}, []


def chatter(payload, blobs):
    for _ in range(payload["lines"]):
        print("x" * 999)
    return {}, []


def forge(payload, blobs):
    """Answers by itself, under a nonce that it cannot know."""
    import socket

    from evaluators import wire

    for fd in range(3, 64):
        try:
            found = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        if found.family == socket.AF_UNIX:
            wire.send(found, wire.Frame("0" * 32, {"result": {"speed": "of light"}}))
    time.sleep(5)


def babble(payload, blobs):
    import socket

    for fd in range(3, 64):
        try:
            socket.socket(fileno=os.dup(fd)).sendall(b"PASS speedup=1000\n")
        except OSError:
            continue
    time.sleep(5)


_ALL = (echo, sleep, burn, children, halt, brood, crash, leave, system_exit, eat_memory, no_memory, refuse, bug)
_MORE = (environment, interrupt, unjson, chatter, forge, babble)
TASKS = {task.__name__: task for task in (*_ALL, *_MORE)}
