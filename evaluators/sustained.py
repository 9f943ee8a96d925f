"""Runs callables against each other in the sustained regime, in this process: what a worker and `avo bench` time with.

The card is kept under load: matrix products before the first segment until speed and clock are steady, and between
measurements for whoever asks (`Load`). Arms take turns in palindromes (ABBA, ABCCBA), each segment untimed and then
timed calls back to back, so that a drift of clocks and heat cancels in every pair. Imports torch; the figures are
`evaluators.timing`'s. Without a device it times on the CPU, for tests.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from dsl.hardware import HARDWARE
from evaluators import amd, nvml
from evaluators.graphs import Graphs, plan, together
from evaluators.timing import CLOCKS_DIFFER, Measurement, Regime, Sample, State, palindrome

GRAPH_BELOW_S = 150e-6  # a call shorter than this is launched from a graph: the host could not keep up
AGAIN = 2  # times that a segment is timed again where its two clocks differ
_WINDOW_S = 0.25
COLD_L2 = 3.0  # sets of inputs that take turns hold so many times the L2, so that none is still in it

Call = Callable[[int], Any]


def measure(
    arms: Mapping[str, Call],
    *,
    sets: int = 1,
    regime: Regime | None = None,
    rounds: int | None = None,
    graphs: bool | None = None,
    heat: bool = True,
) -> Measurement:
    """Seconds a call of each arm and paired ratios, in the sustained regime; what every published figure comes from.

    arms: name -> `call(i)`, which starts one call on set i of the inputs on the current stream and need not wait for
    it; i counts round `sets` (see `rotation`), so that L2 is cold. rounds: palindromes, the regime's 12 if None.
    graphs: whether calls are launched from CUDA graphs; None: where one arm is shorter than 150 us and all can be
    captured, for one regime holds for all arms; where they cannot, the result is `launch_bound`. heat: bring the card
    to its steady state first, which takes seconds.

    Raises what an arm raises; ValueError without arms. Needs sole use of the device: hold `evaluators.device.Lease`.
    """
    if not arms:
        raise ValueError("nothing to measure")
    regime = regime or Regime()
    found = [Arm(name, call, sets) for name, call in arms.items()]
    with torch.no_grad():
        for arm in found:
            arm.settle()
        bound = ""
        if graphs is None:
            graphs, bound = together(found, GRAPH_BELOW_S)
        elif graphs and not all(arm.capture() for arm in found):
            raise ValueError("one of the arms cannot be captured in a CUDA graph")
        heated = LOAD.heat() if heat else None
        before = METER.now()
        samples = []
        for place in _turns(len(found), rounds or regime.rounds):
            segment = found[place].segment(regime.untimed_s, regime.timed_s)
            samples.append(Sample(arm=place, **segment))
        after = METER.now()
    return Measurement(
        names=tuple(arms),
        samples=tuple(samples),
        regime=regime,
        graphs=graphs,
        launch_bound=bound,
        sets=sets,
        before=State(**before),
        after=State(**after),
        heat=heated,
    )


def _turns(arms: int, rounds: int) -> list[int]:
    """Palindromes one after another, with more than two arms each of another order: what ran before an arm is part of
    its time (after one that draws little power it runs a few percent faster), and nobody shall have one neighbour."""
    found = []
    order = list(range(arms))
    rng = random.Random(arms)
    for _ in range(rounds):
        found += [order[place] for place in palindrome(arms)]
        if arms > 2:
            rng.shuffle(order)
    return found


def rotation(input_bytes: int) -> int:
    """How many sets of inputs of that size have to take turns for the L2 of this device to be cold; 2 to 32."""
    cache = cache_bytes() if torch.cuda.is_available() else 0
    return max(2, min(32, math.ceil(COLD_L2 * cache / max(1, input_bytes))))


def cache_bytes() -> int:
    """Of the last cache before memory: the L2, or what AMD has behind it, of which HIP tells but one die's L2."""
    properties = torch.cuda.get_device_properties(0)
    arch = properties.gcnArchName.split(":")[0] if torch.version.hip else None
    behind = [chip.memory_cache_bytes for chip in HARDWARE.values() if chip.arch == arch]
    return max([getattr(properties, "L2_cache_size", 0), *behind])


class Arm:
    """One callable on inputs that take turns."""

    def __init__(self, name: str, call: Call, sets: int = 1, known_s: float | None = None) -> None:
        """known_s: seconds a call, from an earlier look at it."""
        self.name = self.title = name
        self._do = call
        self._sets = max(1, sets)
        self._turn = 0
        self._graphs: Graphs | None = None
        self._known_s = known_s
        self.kept: Any = None  # the result of the last call on the first inputs
        self.call_s = 0.0

    def call(self) -> None:
        place = self._turn % self._sets
        self._turn += 1
        result = self._do(place)
        if place == 0:
            self.kept = result

    def settle(self) -> None:
        """The first calls, which load code; then what one call takes, roughly. Nothing where that is known."""
        if self._known_s is not None:
            self.call_s = self._known_s
            return
        self.call()
        sync()
        seconds = clocked(self.call, 1)[0]
        if seconds < 5e-3:
            seconds = clocked(self.call, max(3, min(50, int(5e-3 / max(seconds, 1e-6)))))[0]
        self.call_s = seconds

    def capture(self) -> bool:
        """Whether its calls could be put into graphs; where not, it is as it was."""
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.call()
            torch.cuda.current_stream().wait_stream(side)
            graphs = self._laid_down()
            if plan(self.call_s, self._sets)[0] > 2 * graphs.calls:  # the host had made it look longer than it is
                graphs = self._laid_down()
        except RuntimeError as error:
            # "operation not permitted when stream is capturing" of HIP; no room for what graphs keep
            if "captur" not in str(error).lower() and not isinstance(error, torch.OutOfMemoryError):
                raise
            self.release()
            return False
        self._graphs = graphs
        return True

    def _laid_down(self) -> Graphs:
        """Graphs of as many calls as suit what one takes, which is then known better."""
        self._turn = 0
        graphs = Graphs(self.call, *plan(self.call_s, self._sets))
        for _ in range(graphs.count):
            graphs.replay()
        sync()
        again = 3 if self.call_s * graphs.calls * graphs.count < 25e-3 else 1  # what is long is known well enough
        self.call_s = clocked(graphs.replay, again * graphs.count)[0] / graphs.calls
        return graphs

    def release(self) -> None:
        """Calls are launched one by one again."""
        self._graphs, self._turn = None, 0

    @property
    def graphed(self) -> bool:
        return self._graphs is not None

    def segment(self, untimed_s: float, timed_s: float) -> dict[str, Any]:
        """One segment: seconds a call by both clocks, the number of timed calls, and the card's state meanwhile."""
        step: Callable[[], Any] = self.call if self._graphs is None else self._graphs.replay
        each = 1 if self._graphs is None else self._graphs.calls
        one = max(self.call_s * each, 1e-7)
        count = max(1, math.ceil(timed_s / one))
        untimed = max(1, math.ceil(untimed_s / one)) if untimed_s > 0 else 0
        began = time.monotonic()
        seconds, wall = agreed(step, count, untimed=untimed)
        self.call_s = seconds / each
        state = METER.between(began, time.monotonic())
        return {"seconds": seconds / each, "calls": count * each, "wall_s": wall / each, **state}

    def last(self) -> Any:
        """The result of the last call on the first inputs."""
        if self._graphs is None and self.kept is None:
            self._turn = 0
            self.call()
        sync()
        return self.kept


def sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def clocked(step: Callable[[], Any], count: int, untimed: int = 0) -> tuple[float, float]:
    """(seconds a step by the device's clock, by the host's) of `count` steps, back to back after `untimed` more.

    Both clocks see all of them, so that nothing waits between; the host's share is that of the steps that count.
    """
    if not torch.cuda.is_available():
        for _ in range(untimed):
            step()
        began = time.perf_counter()
        for _ in range(count):
            step()
        seconds = (time.perf_counter() - began) / count
        return seconds, seconds
    first, start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    host = time.perf_counter()
    first.record()
    for _ in range(untimed):
        step()
    start.record()
    for _ in range(count):
        step()
    stop.record()
    stop.synchronize()
    torch.cuda.synchronize()  # whatever runs on another stream is waited for by the host's clock
    host = time.perf_counter() - host
    seconds = start.elapsed_time(stop) / 1000 / count
    return seconds, seconds * host * 1000 / first.elapsed_time(stop)


def agreed(step: Callable[[], Any], count: int, untimed: int = 0) -> tuple[float, float]:
    """As `clocked`, again where the host's clock saw much more: it may have been kept from looking, on a machine whose
    cores compile. Work that the device's events do not see is there each time."""
    seconds, wall = clocked(step, count, untimed)
    for _ in range(AGAIN):
        if wall <= CLOCKS_DIFFER * seconds:
            break
        seconds, wall = clocked(step, count, untimed)
    return seconds, wall


class Meter:
    """Clock, power and heat of the device, read in the background: a reading may take longer than a segment."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, dict[str, Any]]] = deque(maxlen=256)
        self._started = False
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            if self._started or not torch.cuda.is_available():
                return
            self._started = True
        device: nvml.Nvml | amd.Amd | None
        told = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
        device = amd.by_uuid(amd.uuid(told)) if torch.version.hip else nvml.by_uuid(f"GPU-{told}")
        if device is not None:
            self._readings.append((time.monotonic(), device.reading()))
            threading.Thread(target=self._read, args=(device,), daemon=True).start()

    def _read(self, device: nvml.Nvml | amd.Amd) -> None:
        while True:
            self._readings.append((time.monotonic(), device.reading()))
            time.sleep(0.02)

    def now(self) -> dict[str, Any]:
        """The last reading: sm_mhz, watts, celsius, throttles; None where the driver does not say."""
        self.start()
        return self.between(time.monotonic() - 0.1, time.monotonic())

    def between(self, began: float, ended: float) -> dict[str, Any]:
        """The mean of the readings in that time, or the last before it."""
        every = list(self._readings)
        found = [r for t, r in every if began <= t <= ended] or [r for _, r in every[-1:]]

        def mean(name: str) -> float | None:
            values = [r[name] for r in found if r[name] is not None]
            return sum(values) / len(values) if values else None

        mhz, watts, celsius = mean("sm_mhz"), mean("watts"), mean("celsius")
        return {
            "sm_mhz": None if mhz is None else round(mhz),
            "watts": None if watts is None else round(watts, 1),
            "celsius": None if celsius is None else round(celsius),
            "throttles": sorted({name for r in found for name in r["throttles"]}),
        }


METER = Meter()


@dataclass
class Load:
    """Matrix products that keep the card as busy as candidates do while nothing else runs on it.

    A card that rests for a second runs its next kernel 5-10% faster than one that works on: power is limited over
    time. extent: of the squares; memory is three of them in bf16. idle_s: how long it goes on when nobody measures.
    """

    extent: int = 8192
    idle_s: float = 20.0
    busy_s: float = 0.0  # seconds that it has filled
    _tensors: tuple[torch.Tensor, ...] = ()
    _thread: threading.Thread | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _wanted: bool = False
    _filling: bool = False
    _until: float = 0.0
    _last: float = -math.inf  # when the card last had work, of ours or of somebody else

    def heat(self, least_s: float = 2.0, most_s: float = 15.0, within: float = 0.005) -> dict[str, Any] | None:
        """Works until the speed of a quarter of a second differs from that of the one before by no more than `within`.

        Returns seconds, TFLOP/s at the end, and whether it became steady; None without a device. Nothing is done where
        the card has not rested since it was last steady.
        """
        if not torch.cuda.is_available():
            return None
        self.pause()
        METER.start()
        began = time.monotonic()
        if began - self._last < 0.5:
            return {"seconds": 0.0, "steady": True, "tflops": None}
        a, b, out = self._operands()
        flops, speeds = 2.0 * a.shape[0] ** 3, []
        steady = False
        while not steady and time.monotonic() - began < most_s:
            count, start = 0, time.monotonic()
            while time.monotonic() - start < _WINDOW_S:
                clocked(lambda: torch.mm(a, b, out=out), 20)
                count += 20
            speeds.append(count * flops / (time.monotonic() - start) * 1e-12)
            enough = time.monotonic() - began >= least_s and len(speeds) >= 2
            steady = enough and abs(speeds[-1] / speeds[-2] - 1) <= within
        self.touched()
        return {"seconds": round(time.monotonic() - began, 2), "steady": steady, "tflops": round(speeds[-1], 1)}

    def rehearse(self) -> None:
        """Loads what it needs."""
        if torch.cuda.is_available():
            a, b, out = self._operands()
            torch.mm(a, b, out=out)
            sync()

    def touched(self) -> None:
        """The card has just worked."""
        self._last = time.monotonic()

    def resume(self) -> None:
        """Fills from now on, in the background, until `pause`, or for `idle_s`."""
        if not torch.cuda.is_available():
            return
        with self._changed:
            self.touched()
            self._wanted, self._until = True, time.monotonic() + self.idle_s
            if self._thread is None:
                self._thread = threading.Thread(target=self._fill, name="avo-load", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def pause(self) -> None:
        """Returns when nothing of it is on the device any more: a few milliseconds."""
        with self._changed:
            self._wanted = False
            while self._filling:
                self._changed.wait()

    def _fill(self) -> None:
        with contextlib.suppress(RuntimeError):  # the device is gone or full: no load, and the next task will say it
            while True:
                with self._changed:
                    while not self._wanted or time.monotonic() >= self._until:
                        self._changed.wait()
                    self._filling = True
                began = time.monotonic()
                try:
                    a, b, out = self._operands()
                    for _ in range(2):
                        torch.mm(a, b, out=out)
                    torch.cuda.current_stream().synchronize()
                finally:
                    with self._changed:
                        self._filling = False
                        self.touched()
                        self.busy_s += time.monotonic() - began
                        self._changed.notify_all()

    def _operands(self) -> tuple[torch.Tensor, ...]:
        if not self._tensors:
            n = self.extent
            while n > 1024 and 3 * 2 * n * n > 0.02 * torch.cuda.get_device_properties(0).total_memory:
                n //= 2
            rng = torch.Generator(device="cuda").manual_seed(1)
            made = [torch.randn((n, n), generator=rng, device="cuda").to(torch.bfloat16) for _ in range(2)]
            self._tensors = (*made, torch.empty_like(made[0]))
        return self._tensors


LOAD = Load()
