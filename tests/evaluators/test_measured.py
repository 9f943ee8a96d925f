"""The judge that measures, on devices that only take time: queue, race, incumbent, promotion, several devices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from avo.report.promotion import headline
from dsl.hardware import hardware
from evaluators.evaluation import Evaluation, Status, score
from evaluators.failures import Crash, TaskError, Timeout, Unavailable
from evaluators.loading import complete
from evaluators.measured import MeasuredEvaluator
from evaluators.simulated import SimulatedPool, SimulatedSlot
from evaluators.slots import SHORTLY, Queue, Slot
from evaluators.target import Target, Workload
from evaluators.targets import target

H200 = hardware("h200")
SOFTMAX = complete(
    replace(
        target("softmax"),
        workloads=(Workload({"r": 16384, "c": 2048}), Workload({"r": 8192, "c": 8192})),
        checks=(Workload({"r": 5, "c": 40}),),
        hidden=(Workload({"r": 1000, "c": 3000}),),
    )
)
# Programs whose emitted sources differ; `speeds` below names them by that difference.
SEED = SOFTMAX.seed
TWO, FOUR, EIGHT = (SEED.replace("warps 4", f"warps {n}") for n in (2, 4, 8))


@contextmanager
def judging(*slots: SimulatedSlot, **more: Any) -> Iterator[MeasuredEvaluator]:
    kept = slots or (SimulatedSlot(speed=speeds()),)
    with MeasuredEvaluator(H200, slots=kept, pool=SimulatedPool(8, 0.0), compilers=4, simulate=True, **more) as judge:  # type: ignore[arg-type]
        yield judge


def speeds(**seconds: float) -> Callable[[str, Any], float]:
    """By warps: `w2=1.1e-3`. One millisecond else."""

    def speed(source: str, job: Any) -> float:
        for name, value in seconds.items():
            if f"num_warps={name[1:]}" in source:
                return value
        return 1e-3

    return speed


def verdict(found: Evaluation) -> tuple[str, int]:
    timing = found.gate("timing")
    assert timing is not None, found.message
    return timing.evidence["verdict"], timing.evidence["pairs"]


def test_the_sources_of_the_programs_differ_as_the_tests_think() -> None:
    from dsl.lowering import lower
    from dsl.parser import parse

    assert FOUR == SEED
    for text, warps in ((TWO, 2), (EIGHT, 8)):
        assert f"num_warps={warps}" in lower(parse(text), H200).source


def test_the_first_sets_the_noise_floor_and_the_others_race_it() -> None:
    slot = SimulatedSlot(speed=speeds(w2=1.5e-3, w8=0.97e-3), noise=0.002)
    with judging(slot) as judge:
        first = judge.evaluate(SEED, SOFTMAX, H200)
        assert first.status is Status.OK and verdict(first)[0] == "first"
        assert judge.noise is not None and 0 < judge.noise.deviation < 0.01
        assert all(len(w.detail["samples"]) == 6 for w in first.workloads)
        slower = judge.evaluate(TWO, SOFTMAX, H200)
        assert verdict(slower) == ("slower", 0)  # one look was enough
        better = judge.evaluate(EIGHT, SOFTMAX, H200)
        assert verdict(better)[0] == "better" and 4 <= verdict(better)[1] <= 6
        for row in better.workloads:
            assert row.measured_s == pytest.approx(0.97e-3, rel=0.01)
            low, high = row.detail["interval_s"]
            assert low < row.measured_s < high and row.detail["regime"] == "racing"
        same = judge.evaluate(SEED + "\n", SOFTMAX, H200)
        assert verdict(same)[0] == "slower"  # than the new incumbent
    tasks = [task for task, _ in slot.asked]
    assert tasks[:4] == ["screen", "race", "race", "screen"]
    assert "verify" in tasks  # the better one was verified where nobody sees


def test_equal_programs_are_within_noise_after_all_blocks_but_no_more() -> None:
    with judging(SimulatedSlot(speed=speeds(), noise=0.002)) as judge:
        judge.evaluate(SEED, SOFTMAX, H200)
        found, blocks = verdict(judge.evaluate(EIGHT, SOFTMAX, H200))
        assert found in ("within noise", "slower", "better") and blocks <= judge.rules.most


def test_one_that_is_much_better_is_timed_by_itself_too() -> None:
    """Beside a program that draws less power it would run at a clock that it cannot keep."""
    slot = SimulatedSlot(speed=speeds(w2=0.5e-3, w8=0.96e-3), noise=0.001)
    with judging(slot) as judge:
        judge.evaluate(SEED, SOFTMAX, H200)
        little = judge.evaluate(EIGHT, SOFTMAX, H200)
        much = judge.evaluate(TWO, SOFTMAX, H200)
    assert verdict(little)[0] == verdict(much)[0] == "better"
    assert all("alone" not in w.detail for w in little.workloads)
    for row in much.workloads:
        assert len(row.detail["alone"]) == 5
        assert row.measured_s == pytest.approx(sorted(s["seconds"] for s in row.detail["alone"])[2], rel=1e-5)


def test_a_race_ends_when_another_has_become_the_incumbent_that_this_one_cannot_reach() -> None:
    """On a second device one that takes half the time wins, while this one is in its first pair."""
    races: list[str] = []

    def meanwhile(source: str, task: str) -> None:
        if task == "race" and "num_warps=8" in source:
            races.append(source)
            before = judge._champions["softmax"]
            if before.name != "another":
                looks = {device: {n: s / 2 for n, s in look.items()} for device, look in before.looks.items()}
                judge._champions["softmax"] = replace(before, name="another", looks=looks)

    with judging(SimulatedSlot(speed=speeds(w8=0.97e-3), trouble=meanwhile, noise=0.002)) as judge:
        judge.evaluate(SEED, SOFTMAX, H200)
        found = judge.evaluate(EIGHT, SOFTMAX, H200)
    assert verdict(found) == ("slower", 2) and len(races) == 1  # it had won against the one that it began with
    assert found.workloads[0].measured_s == pytest.approx(0.97e-3, rel=0.02)


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Crash("an illegal memory access was encountered"), Status.CRASH),
        (Timeout("screen took more than 4 s"), Status.TIMEOUT),
        (TaskError("RuntimeError: no"), Status.INCORRECT),
        (Unavailable("no device worker could be started"), Status.UNAVAILABLE),
    ],
)
def test_what_goes_wrong_on_the_device_costs_that_candidate_alone(failure: Exception, status: Status) -> None:
    def trouble(source: str, task: str) -> Exception | None:
        return failure if "num_warps=8" in source else None

    with judging(SimulatedSlot(speed=speeds(), trouble=trouble)) as judge:
        assert judge.evaluate(SEED, SOFTMAX, H200).status is Status.OK
        bad = judge.evaluate(EIGHT, SOFTMAX, H200)
        assert bad.status is status and (status is Status.UNAVAILABLE or bad.failed_gate == "correctness")
        assert judge.evaluate(TWO, SOFTMAX, H200).status is Status.OK


def test_the_hopeless_are_not_timed_everywhere() -> None:
    slot = SimulatedSlot(speed=speeds(w2=5e-3))
    with judging(slot) as judge:
        judge.evaluate(SEED, SOFTMAX, H200)
        found = judge.evaluate(TWO, SOFTMAX, H200)
        assert found.status is Status.OK and verdict(found) == ("slower", 0)
        assert [w.measured_s is not None for w in found.workloads].count(True) == 1
        assert score(found).measured is None  # no figure is made up for the others
        assert "1 of 2 sizes" in found.gate("timing").evidence["timed"]  # type: ignore[union-attr]


def test_what_is_wrong_on_hidden_sizes_never_becomes_the_incumbent() -> None:
    def trouble(source: str, task: str) -> Exception | None:
        return TaskError("wrong") if "num_warps=8" in source and task == "verify" else None

    with judging(SimulatedSlot(speed=speeds(w8=0.5e-3), trouble=trouble)) as judge:
        judge.evaluate(SEED, SOFTMAX, H200)
        found = judge.evaluate(EIGHT, SOFTMAX, H200)
        assert found.status is Status.INCORRECT and score(found).measured == 0
        assert "not shown" in found.message and "c=3000" not in str(found.model_dump())
        assert verdict(judge.evaluate(TWO, SOFTMAX, H200))[0] != "slower"  # the seed is still the incumbent


# Sessions and winners ---------------------------------------------------------------------------


def test_a_run_that_goes_on_has_its_incumbent_again_and_its_seconds() -> None:
    with judging(SimulatedSlot(speed=speeds(w8=0.8e-3), noise=0.001)) as judge:
        judge.evaluate(SEED, SOFTMAX, H200)
        best = judge.evaluate(EIGHT, SOFTMAX, H200)
    # Next day the card is 10% slower as a whole.
    slot = SimulatedSlot(speed=speeds(w2=0.836e-3, w4=1.1e-3, w8=0.88e-3), noise=0.001)
    with judging(slot) as judge:
        judge.adopt(EIGHT, SOFTMAX, best)
        found = judge.evaluate(TWO, SOFTMAX, H200)  # 5% faster than the incumbent
        assert verdict(found)[0] == "better"
        for row in found.workloads:
            assert row.measured_s == pytest.approx(0.95 * 0.8e-3, rel=0.01)  # in the first session's seconds
        assert verdict(judge.evaluate(SEED, SOFTMAX, H200)) == ("slower", 0)
        assert judge.noise is not None


def test_a_winner_is_measured_again_beside_the_seed() -> None:
    with judging(SimulatedSlot(speed=speeds(w8=0.8e-3), noise=0.001)) as judge:
        judge.evaluate(SEED, SOFTMAX, H200)
        found = judge.promote(EIGHT, SOFTMAX, H200, SEED)
    assert found.status is Status.OK and found.mode == "measured"
    assert [w.detail["hidden"] for w in found.workloads] == [False, False, True]
    public = found.workloads[0].detail
    assert public["regime"] == "sustained" and public["rounds"] == 12
    assert len(public["versus"]["samples"]) == 48
    assert public["versus"]["ratio"] == pytest.approx(0.8, rel=0.01)
    assert public["versus"]["states"][0]["sm_mhz"] == 1500
    evidence = found.gate("timing").evidence  # type: ignore[union-attr]
    assert evidence["verdict"] == "better" and evidence["low"] < 0.8 * 1.01 and evidence["high"] > 0.8 * 0.99


def test_a_promotion_says_where_its_times_may_be_those_of_launches() -> None:
    slot = SimulatedSlot(speed=speeds(w8=0.8e-3), noise=0.001)
    with judging(slot) as judge:
        assert judge.evaluate(SEED, SOFTMAX, H200).workloads[0].detail["graphs"]
        assert "launch-bound" not in headline(judge.promote(EIGHT, SOFTMAX, H200, SEED))
        slot.bound = "launch-bound: this program (9 us a call) is launched by the host"
        found = judge.promote(EIGHT, SOFTMAX, H200, SEED)
        looked = judge.evaluate(TWO, SOFTMAX, H200)
    assert {w.detail["launch_bound"] for w in [*found.workloads, *looked.workloads]} == {slot.bound}
    assert not found.workloads[0].detail["graphs"]
    said = headline(found)
    assert said.startswith("promoted") and said.count(slot.bound) == 1 and found.workloads[0].workload in said


def test_a_winner_that_was_lucky_or_is_wrong_elsewhere_is_none() -> None:
    with judging(SimulatedSlot(speed=speeds(w8=1.02e-3), noise=0.001)) as judge:
        lucky = judge.promote(EIGHT, SOFTMAX, H200, SEED)
        assert lucky.status is Status.SUSPICIOUS and "lucky" in lucky.message
        assert judge.promote(SEED, SOFTMAX, H200, SEED).status is Status.OK

    def trouble(source: str, task: str) -> Exception | None:
        return Crash("illegal address") if task == "verify" else None

    with judging(SimulatedSlot(speed=speeds(), trouble=trouble)) as judge:
        assert judge.promote(EIGHT, SOFTMAX, H200, SEED).status is Status.CRASH


# Devices ----------------------------------------------------------------------------------------


def test_who_came_first_gets_the_next_free_device() -> None:
    slots = [object()]
    queue = Queue(slots)  # type: ignore[arg-type]
    order: list[int] = []
    tickets = [queue.ticket() for _ in range(6)]

    def wait(ticket: int) -> None:
        with queue.device(ticket):
            order.append(ticket)

    with queue.device(tickets[0]):
        threads = [threading.Thread(target=wait, args=(t,)) for t in reversed(tickets[1:])]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 20
        while len(queue._waiting) < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == sorted(tickets[1:])


@pytest.mark.parametrize("count", [1, 3])
def test_every_device_works_and_none_on_two_candidates_at_once(count: int) -> None:
    slots = [SimulatedSlot(i, look_s=0.02, block_s=0.04, speed=speeds()) for i in range(count)]
    texts = [
        SEED.replace("tile r=1", f"tile r={r}").replace("warps 4", f"warps {w}") for r in (1, 2, 4) for w in (2, 4, 8)
    ]
    found: dict[str, Evaluation] = {}
    with judging(*slots, jobs=9) as judge:
        judge.evaluate(SEED, SOFTMAX, H200)

        def evaluate(text: str) -> None:
            found[text] = judge.evaluate(text, SOFTMAX, H200)

        threads = [threading.Thread(target=evaluate, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 0 < judge.busy_share <= 1
        assert judge.parts_s["screen"] > 0
    assert len(found) == 9 and all(e.status is Status.OK for e in found.values()), [e.message for e in found.values()]
    assert all(len(slot.asked) > 0 for slot in slots)
    assert len({e.environment["device"]["uuid"] for e in found.values()}) == count


class FakeLeasePool:
    """Stands for a slot's workers."""

    def __init__(self, answers: Callable[[str], Any]) -> None:
        self._answers = answers
        self.calls: list[tuple[str, float]] = []
        self.heats: list[dict[str, Any]] = []

    def call(self, task: str, payload: dict[str, Any], timeout: float, kind: str) -> Any:
        from evaluators.pool import Reply

        self.calls.append((task, timeout))
        if task == "heat":
            self.heats.append(payload)
        found = self._answers(task)
        if isinstance(found, Exception):
            raise found
        return Reply(found, (), 0.0)

    def close(self) -> None:
        pass


def test_a_slot_heats_prepares_and_heats_shortly_after_a_fault(tmp_path: Any) -> None:
    slot = Slot(SimulatedSlot().facts, tmp_path, simulate=True)
    trouble: list[Exception] = []

    def answers(task: str) -> Any:
        if task == "verify" and trouble:
            return trouble.pop()
        return {"parts": {task: 0.5}, "compilations": {"hit": 1, "miss": 2 if task == "verify" else 0}}

    slot._pool = pool = FakeLeasePool(answers)  # type: ignore[assignment]
    slot.run("verify", {}, [], 4.0)
    assert [task for task, _ in pool.calls] == ["device_facts", "heat", "prepare", "verify"]
    assert slot.misses == 2 and slot.parts["verify"] == 0.5
    slot.run("verify", {}, [], 4.0)
    assert [task for task, _ in pool.calls[4:]] == ["prepare", "verify"]
    assert pool.calls[-1][1] == 4.0 + 8.0  # two kernels more had to be compiled there the last time
    trouble.append(Crash("died", "something\navo device fault: CUDA error: illegal memory access\n"))
    with pytest.raises(Crash, match="illegal memory access"):
        slot.run("verify", {}, [], 4.0)
    assert slot.faults == 1
    slot.run("verify", {}, [], 4.0)
    assert [task for task, _ in pool.calls[-3:]] == ["heat", "prepare", "verify"]
    assert pool.calls[-1][1] == 4.0
    assert pool.heats == [{}, SHORTLY]


def test_a_target_that_hides_nothing_still_races() -> None:
    open_: Target = replace(SOFTMAX, hidden=())
    with judging(SimulatedSlot(speed=speeds(w8=0.5e-3))) as judge:
        judge.evaluate(SEED, open_, H200)
        assert verdict(judge.evaluate(EIGHT, open_, H200))[0] == "better"
