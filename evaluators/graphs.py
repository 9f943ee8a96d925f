"""Calls laid down in CUDA graphs, so that the host's work for a launch is no part of a short kernel's time.

One regime holds for all arms of a comparison: where one of them is short, all are launched from graphs, each with as
many calls in a graph as suit its own length. Beside an arm of 2 ms a kernel of 50 us, launched by the host, showed the
time of its two launches (642 TFLOP/s from graphs, 364 without).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

GRAPH_CALLS = 20  # in a graph of short calls
LONG_S = 1e-3  # a call from which on a graph holds few: what fills `LONG_FILL_S`, or a segment would be one graph
LONG_FILL_S = 5e-3


class Graphed(Protocol):
    """What `together` asks of an arm: see `evaluators.sustained.Arm`."""

    title: str  # for people
    call_s: float

    def capture(self) -> bool: ...

    def release(self) -> None: ...


def together(arms: Sequence[Graphed], below_s: float) -> tuple[bool, str]:
    """Brings arms into one regime: (whether all are launched from graphs now, what that says of their times or "").

    All are where one of them is shorter than `below_s` and each can be captured, else none. The word is
    `launch_bound`'s, where a short one is left to the host.
    """
    short = [arm for arm in arms if arm.call_s < below_s] if torch.cuda.is_available() else []
    if not short:
        return False, ""
    refused = next((arm for arm in arms if not arm.capture()), None)
    if refused is None:
        return True, ""
    for arm in arms:
        arm.release()
    return False, launch_bound(short, refused)


def launch_bound(short: Sequence[Graphed], refused: Graphed) -> str:
    """What stands beside times that may be those of launches."""
    named = ", ".join(f"{arm.title} ({arm.call_s * 1e6:.3g} us a call)" for arm in short)
    whose = "it" if list(short) == [refused] else refused.title
    return (
        f"launch-bound: {named} is launched by the host, for {whose} cannot be captured in a CUDA graph: "
        "its time may be that of its launches"
    )


def plan(call_s: float, sets: int) -> tuple[int, int]:
    """(calls in a graph, graphs that take turns) for a call of that length on so many sets of inputs.

    The graphs together go round all sets, so that what is cold without graphs is cold with them.
    """
    if call_s < LONG_S:
        return sets * math.ceil(GRAPH_CALLS / sets), 1
    wanted = min(GRAPH_CALLS, math.ceil(LONG_FILL_S / call_s))
    if wanted >= sets:
        return sets * math.ceil(wanted / sets), 1
    calls = max(n for n in range(1, wanted + 1) if sets % n == 0)
    return calls, sets // calls


class Graphs:
    """`call`, laid down `calls` times in each of `count` graphs; they are replayed in turn."""

    def __init__(self, call: Callable[[], None], calls: int, count: int) -> None:
        self.calls, self.count = calls, count
        self._graphs: list[Any] = []
        self._turn = 0
        for _ in range(count):
            graph = torch.cuda.CUDAGraph()
            # One pool: graphs that never run at once may use the same memory for what they make in between.
            with torch.cuda.graph(graph, pool=self._graphs[0].pool() if self._graphs else None):
                for _ in range(calls):
                    call()
            self._graphs.append(graph)

    def replay(self) -> None:
        place = self._turn % self.count
        self._turn += 1
        self._graphs[place].replay()
