"""Who is launched from CUDA graphs, on a device that only takes time: one regime for all arms of a comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from evaluators import device_tasks, sustained
from evaluators.graphs import GRAPH_CALLS, plan
from evaluators.sustained import Arm, measure
from evaluators.timing import Measurement, Regime

SHORT = Regime(name="test", untimed_s=1e-3, timed_s=10e-3, rounds=2)
LAUNCH_S = 60e-6  # of the host, for one kernel
REPLAY_S = 10e-6


class Card:
    """A device and a host with a clock of theirs: a launch takes the host its time, a graph's replay hardly any."""

    def __init__(self) -> None:
        self.now = 100.0
        self.laid: list[float] | None = None  # seconds of the calls of the graph that is being captured
        self.graphs: list[list[float]] = []
        self.places: list[int] = []  # the sets of inputs that ran

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter

    def kernels(self, *seconds: float, refuses: str = "") -> Callable[[int], int]:
        """A call that launches kernels of these lengths; `refuses`: what is said where it is captured."""

        def call(place: int) -> int:
            if self.laid is not None:
                if refuses:
                    raise RuntimeError(refuses)
                self.laid.append(sum(seconds))
            else:
                self.places.append(place)
                self.now += max(LAUNCH_S * len(seconds), sum(seconds))
            return place

        return call

    @contextlib.contextmanager
    def capture(self, graph: Any, pool: Any = None) -> Iterator[None]:
        self.laid = graph.calls
        self.graphs.append(graph.calls)
        try:
            yield
        finally:
            self.laid = None


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    found = Card()

    class Graph:
        def __init__(self) -> None:
            self.calls: list[float] = []

        def pool(self) -> int:
            return 1

        def replay(self) -> None:
            found.now += max(REPLAY_S, sum(self.calls))

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            self.at = 0.0

        def record(self) -> None:
            self.at = found.now

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, other: Event) -> float:
            return 1e3 * (other.at - self.at)

    class Stream:
        def wait_stream(self, other: Any) -> None:
            pass

    for name, value in {
        "is_available": lambda: True,
        "synchronize": lambda: None,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda side: contextlib.nullcontext(),
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": found.capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(sustained, "time", found)
    monkeypatch.setattr(sustained.METER, "_started", True)
    return found


def test_a_short_arm_beside_a_long_one_is_launched_from_graphs_and_so_is_the_long_one(card: Card) -> None:
    """512 x 512 x 65536 in two kernels beside the seed's 2.3 ms: the host needs 120 us for what takes 53."""
    arms = {"best": card.kernels(50e-6, 3.5e-6), "seed": card.kernels(2.3e-3)}
    found = measure(arms, sets=2, regime=SHORT, heat=False)
    assert found.graphs and not found.launch_bound
    assert found.seconds("best") == pytest.approx(53.5e-6, rel=1e-6)
    assert found.seconds("seed") == pytest.approx(2.3e-3, rel=1e-6)
    assert found.ratio("best", over="seed").value == pytest.approx(53.5e-6 / 2.3e-3, rel=1e-6)
    lengths = {len(calls) for calls in card.graphs if calls[0] > 1e-3}
    assert lengths == {4}, "a graph of a long arm holds few calls, all sets among them"
    assert {s.calls for s in found.of("seed")} == {8}
    assert Measurement.model_validate_json(found.model_dump_json()) == found


def test_long_arms_are_launched_one_by_one(card: Card) -> None:
    found = measure({"a": card.kernels(2e-3), "b": card.kernels(3e-3)}, sets=2, regime=SHORT, heat=False)
    assert not found.graphs and not found.launch_bound and not card.graphs


@pytest.mark.parametrize(
    "said",
    ["CUDA error: operation not permitted when stream is capturing", "CUDA out of memory. Tried to allocate 9 GiB"],
)
def test_where_one_cannot_be_captured_none_is_and_the_result_says_which_is_launch_bound(
    card: Card, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "memory" in said:
        monkeypatch.setattr(torch, "OutOfMemoryError", RuntimeError)
    arms = {"best": card.kernels(50e-6, 3.5e-6), "seed": card.kernels(2.3e-3, refuses=said)}
    found = measure(arms, sets=2, regime=SHORT, heat=False)
    assert not found.graphs and found.seconds("best") == pytest.approx(120e-6)
    assert found.launch_bound.startswith("launch-bound: best (") and "seed cannot be captured" in found.launch_bound
    assert "us a call" in found.launch_bound
    alone = measure({"one": card.kernels(5e-6, refuses=said)}, regime=SHORT, heat=False)
    assert "one (60 us a call)" in alone.launch_bound and "for it cannot be captured" in alone.launch_bound


def test_another_error_while_it_is_captured_is_the_arms_own(card: Card) -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"):
        measure({"a": card.kernels(5e-6, refuses="CUDA error: an illegal memory access")}, regime=SHORT, heat=False)


def test_a_call_that_the_host_made_look_long_gets_as_many_in_a_graph_as_it_is_short(card: Card) -> None:
    """Thirty kernels: 1.8 ms when launched one by one, 0.3 ms on the device."""
    arm = Arm("one", card.kernels(*[10e-6] * 30), sets=2)
    arm.settle()
    assert arm.call_s == pytest.approx(1.8e-3)
    assert arm.capture() and arm.call_s == pytest.approx(0.3e-3)
    assert [len(calls) for calls in card.graphs] == [4, GRAPH_CALLS]


@pytest.mark.parametrize("sets", [1, 2, 3, 7, 32])
@pytest.mark.parametrize("call_s", [2e-6, 150e-6, 0.99e-3, 1e-3, 2.3e-3, 7e-3, 0.2])
def test_graphs_go_round_all_sets_of_inputs(call_s: float, sets: int) -> None:
    calls, count = plan(call_s, sets)
    assert (calls * count) % sets == 0 and (count == 1 or calls * count == sets)
    assert calls >= GRAPH_CALLS or call_s >= 1e-3
    assert call_s < 1e-3 or calls == 1 or calls * call_s <= 10e-3, "a segment is more than one graph"


def test_graphs_of_one_arm_take_turns(card: Card) -> None:
    arm = Arm("one", card.kernels(7e-3), sets=3)
    arm.settle()
    assert arm.capture()
    assert [len(calls) for calls in card.graphs] == [1, 1, 1]
    sample = arm.segment(0.0, 20e-3)
    assert sample["calls"] == 3 and sample["seconds"] == pytest.approx(7e-3)
    assert arm.last() == 0, "the result on the first inputs is there to be judged again"


@pytest.mark.parametrize(("refuses", "graphs"), [("", True), ("not permitted when stream is capturing", False)])
def test_a_race_has_the_regime_of_the_look_before_it(
    card: Card, refuses: str, graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first look gave, from graphs, is what promotion beside the slow seed gives."""

    class Simulated(Arm):
        def __init__(self, arm: Any, prepared: Any, title: str = "this program") -> None:
            super().__init__(title, arm, 2)

        def remember(self) -> None:
            pass

    monkeypatch.setattr(device_tasks, "_Arm", Simulated)
    monkeypatch.setattr(device_tasks, "_recheck", lambda *rest: {})
    best, seed = card.kernels(50e-6, 3.5e-6), card.kernels(2.3e-3, refuses=refuses)
    look = device_tasks._screen(Simulated(best, None), None, 0, {})  # type: ignore[arg-type]
    assert look["graphs"] and look["samples"][0]["seconds"] == pytest.approx(53.5e-6)
    payload = {"arms": [best, seed], "order": "ABBA", "untimed_s": 1e-3, "timed_s": 10e-3}
    race = device_tasks._race(payload, None, {})  # type: ignore[arg-type]
    assert race["graphs"] is graphs
    if graphs:
        assert race["samples"][0]["seconds"] == pytest.approx(look["samples"][0]["seconds"])
        assert not race["launch_bound"]
    else:
        assert race["samples"][0]["seconds"] == pytest.approx(120e-6)
        assert "this program" in race["launch_bound"] and "the one beside it cannot" in race["launch_bound"]
