"""The device's part of raw judging, on a simulated device (the CPU, Triton in the interpreter)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.integrity import raw_device, rules
from evaluators.integrity.raw_device import RawDeviceEvaluator
from evaluators.target import Workload
from evaluators.targets import target

HERE = Path(__file__).parent
SIZES = (Workload({"r": 64, "c": 512}), Workload({"r": 40, "c": 256}))
SOFTMAX = replace(target("softmax"), workloads=SIZES)
ANY = replace(SOFTMAX, torch="any")


@pytest.fixture(scope="module")
def judge():
    with RawDeviceEvaluator(hardware("h200"), simulate=True, rounds=3) as one:
        yield one


def judged(judge, text, job=ANY):
    return judge.evaluate(text, job, hardware("h200"))


@pytest.mark.slow
def test_an_honest_kernel_is_timed_by_three_clocks(judge, monkeypatch):
    monkeypatch.setattr(raw_device, "MANY", 3)  # the interpreter takes its time
    found = judged(judge, (HERE / "honest" / "triton_rows.py").read_text(), SOFTMAX)
    assert found.status is Status.OK, found.message
    assert [g.gate for g in found.gates] == ["parse", "correctness", "timing", "integrity", "floor"]
    assert found.mode == "measured" and [w.workload for w in found.workloads] == [w.name for w in SIZES]
    assert all(w.measured_s > w.floor_s > 0 and w.detail["clock_outside_s"] > 0 for w in found.workloads)
    facts = found.gate("integrity").evidence
    assert len(facts["clocks"]) == 6 and facts["ghost"] == "wrong"
    assert found.environment["regime"]["name"] == "cold calls"


@pytest.mark.parametrize(
    ("attack", "status", "said"),
    [
        ("pointer_memo", Status.GAMING, "state kept"),
        ("deferred_thread", Status.GAMING, "changed after"),
        ("static_output", Status.INCORRECT, "overwritten"),
        ("library_plain", Status.GAMING, "torch does the work"),
        ("input_zeroing", Status.INCORRECT, "written to"),
    ],
)
def test_attacks_on_a_device(judge, attack, status, said):
    job = SOFTMAX if attack.startswith("library") else ANY
    found = judged(judge, (HERE / "attacks" / f"{attack}.py").read_text(), job)
    assert found.status is status and said in found.message, found.message


def test_right_when_checked_and_wrong_when_timed(judge):
    text = (
        "import torch\nCALLS = []\n\n\ndef run(x):\n    y = torch.softmax(x.float(), -1).to(x.dtype)\n"
        "    if x.shape[1] == 512:\n        CALLS.append(1)\n    return y if len(CALLS) < 3 else torch.zeros_like(y)\n"
    )
    found = judged(judge, text)
    assert found.status is Status.GAMING and found.gate("integrity").evidence["rule"] == "timed outputs"
    wrong = (
        "import torch\n\n\ndef run(x):\n    y = torch.softmax(x.float(), -1).to(x.dtype)\n"
        "    return y * 2 if x.shape[1] == 512 else y\n"
    )
    found = judged(judge, wrong)
    assert found.status is Status.INCORRECT and "at a timed size" in found.message


FORGER = """
import torch
import evaluators.integrity.child_device as child

real = child.time_call
def forged(*a):
    facts, data = real(*a)
    facts["seconds"] = facts["wall_s"] = {seconds}
    return facts, data
child.time_call = forged

def run(x):
    for _ in range(20):
        y = torch.softmax(x.double(), -1)
    return y.to(x.dtype)
"""


@pytest.mark.parametrize(("seconds", "rule"), [("3e-7", "clock outside"), ("float('nan')", None)])
def test_forged_times_are_held_against_the_parents_clock(judge, seconds, rule):
    found = judged(judge, FORGER.format(seconds=seconds))
    if rule is None:
        assert found.status is Status.CRASH
    else:
        assert found.status is Status.SUSPICIOUS and found.gate("integrity").evidence["rule"] == rule, found.message


@pytest.mark.slow
def test_a_winner_is_judged_again_on_sizes_that_it_was_not_timed_on(judge, monkeypatch):
    monkeypatch.setattr(raw_device, "MANY", 3)
    text = (HERE / "honest" / "plain_torch.py").read_text()
    job = replace(ANY, workloads=SIZES[:1], hidden=SIZES[1:])
    refused = judge.promote(text, job, hardware("h200"), text)
    assert refused.status is Status.SUSPICIOUS and "--accept-sandbox process" in refused.message
    with RawDeviceEvaluator(hardware("h200"), simulate=True, rounds=2, accept="process") as other:
        found = other.promote(text, job, hardware("h200"), text)
    assert found.status is Status.OK, found.message
    assert [(w.workload, w.detail["hidden"]) for w in found.workloads] == [(SIZES[1].name, True)]


def test_rules_of_the_clocks():
    facts = {"clocks": [[1e-4, 1.2e-4], [1e-4, 9e-4], [1e-4, 9e-4]]}
    assert rules.breaches(facts)[0].rule.name == "two clocks"
    assert not rules.breaches({"clocks": [[1e-5, 6e-5]] * 3, "parent_s": 6e-5, "told_s": 1e-5})
    assert rules.breaches({"parent_s": 1e-3, "told_s": 1e-4})[0].rule.status is Status.SUSPICIOUS


def test_the_rows_that_are_judged_alone():
    assert raw_device._cut_axis(_algorithm("softmax")) == "r"
    assert raw_device._cut_axis(_algorithm("matmul")) == "m"
    assert raw_device._cut_axis(_algorithm("cross_entropy")) == "r"
    assert raw_device._cut_axis(_algorithm("attention")) == "b"


def _algorithm(name):
    from evaluators.loading import seed_program

    return seed_program(target(name)).algorithm
