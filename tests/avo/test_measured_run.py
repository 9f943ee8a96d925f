"""Whole measured runs, with the real loop, archive and judge, on devices and compilers that only take time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from archive import open_archive
from avo import evolve, resume
from avo.agents import Brief, Proposal
from avo.events import Event, Promoted, Verdict
from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.loading import complete
from evaluators.measured import MeasuredEvaluator
from evaluators.simulated import SimulatedPool, SimulatedSlot
from evaluators.target import Workload
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
WARPS = (1, 2, 8, 16)


class Warps:
    """Proposes each number of warps once."""

    name = "warps"

    def propose(self, brief: Brief) -> Proposal | None:
        if brief.k > len(WARPS):
            return None
        return Proposal(SOFTMAX.seed.replace("warps 4", f"warps {WARPS[brief.k - 1]}"))


def speed(source: str, job: Any) -> float:
    """The more warps the faster; a whole card may be slower."""
    return next(1e-3 * (1 - 0.02 * n) for n in (16, 8, 4, 2, 1) if f"num_warps={n}," in source)


def judge(*slots: SimulatedSlot) -> MeasuredEvaluator:
    return MeasuredEvaluator(H200, slots=slots, pool=SimulatedPool(4, 0.0), compilers=4, simulate=True)  # type: ignore[arg-type]


def slots(count: int) -> list[SimulatedSlot]:
    return [SimulatedSlot(i, 0.01, 0.01, speed=speed, noise=0.001) for i in range(count)]


def test_a_run_on_two_devices_ends_with_a_promotion_and_goes_on_from_its_incumbent(tmp_path: Path) -> None:
    seen: list[Event] = []
    where = tmp_path / "avo.db"
    devices = slots(2)
    with evolve(
        SOFTMAX, H200, steps=4, jobs=3, agent=Warps(), evaluator=judge(*devices), archive=where, observer=seen.append
    ) as run:
        best, found = run.best, run.evaluation
        assert best is not None and found is not None and "warps 16" in best.text
        assert [c.status for c in run.candidates] == [Status.OK] * 5
        again = run.archive.promotions(run.id)[best.digest]
    assert again.status is Status.OK and again.environment["regime"]["name"] == "sustained"
    assert all(d.asked for d in devices)
    verdicts = [e.candidate for e in seen if isinstance(e, Verdict)]
    assert all(v.evaluation.mode == "measured" and v.evaluation.environment["noise_floor"] for v in verdicts)
    (promoted,) = [e for e in seen if isinstance(e, Promoted)]
    assert promoted.candidate.digest == best.digest

    (card,) = slots(1)
    with open_archive(where) as store, store.claim(1) as writer:  # a proposal that a killed session left unjudged
        text = SOFTMAX.seed.replace("tile r=1", "tile r=2")
        writer.add_candidate(5, "f" * 16, text, agent="warps", parents=[0])
    with resume(1, archive=where, steps=5, target=SOFTMAX, agent=Warps(), evaluator=judge(card), hardware=H200) as run:
        last = run.archive.evaluation(run.candidates[5])
    assert last is not None
    assert last.gate("timing").evidence["versus"] == best.digest  # type: ignore[union-attr]


def test_a_winner_that_fails_where_nobody_sees_is_passed_over(tmp_path: Path) -> None:
    from evaluators.failures import Crash

    def trouble(source: str, task: str) -> Exception | None:
        # Right in the race, wrong when it is judged again: the second time that it is verified.
        return Crash("illegal address") if task == "verify" and "num_warps=16," in source else None

    device = SimulatedSlot(0, speed=speed, noise=0.001, trouble=trouble)
    with evolve(
        SOFTMAX, H200, steps=4, jobs=1, agent=Warps(), evaluator=judge(device), archive=tmp_path / "a.db"
    ) as run:
        best = run.best
        assert best is not None and "warps 8" in best.text
        wrong = next(c for c in run.candidates if "warps 16" in c.text)
        assert wrong.status is Status.CRASH and wrong.failed_gate == "timing"
