"""The device's part of raw judging, on a simulated device (the CPU, Triton in the interpreter)."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Evaluation, Status, WorkloadResult
from evaluators.inputs import decode, input_shapes
from evaluators.integrity import child_device, corpus, raw_device, rules, timed_calls
from evaluators.integrity.calls import right
from evaluators.integrity.proving import OWN_CLOCK, PROVED
from evaluators.integrity.raw import RawEvaluator
from evaluators.integrity.raw_device import RawDeviceEvaluator
from evaluators.integrity.timed_inputs import POOL, TimedInputs
from evaluators.loading import seed_program
from evaluators.places import cut_axis, placed
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
    monkeypatch.setattr(timed_calls, "MANY", 3)  # the interpreter takes its time
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


BY_TURNS = """
import torch


def run(x):
    y = torch.softmax(x.float(), -1).to(x.dtype)
    %s
    return y
"""


def test_a_kernel_that_is_right_on_normal_inputs_alone_is_seen(judge):
    left_out = "y = torch.where((x.float().abs() > 12).any(-1, True) & (x.shape[1] == 512), 0 * y, y)"
    found = judged(judge, BY_TURNS % left_out)
    assert found.status is Status.INCORRECT and "at a timed size" in found.message, found.message


def test_rows_that_are_left_out_are_met(judge):
    """A tenth of the rows, in one piece."""
    found = judged(judge, BY_TURNS % "y[30:36] = y[30:36] if x.shape != (64, 512) else 0")
    assert found.status in (Status.INCORRECT, Status.GAMING), found.message


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
    monkeypatch.setattr(timed_calls, "MANY", 3)
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


def test_the_places_that_are_judged_alone():
    rows = {"b": 2, "h": 8, "g": 4, "m": 128, "n": 128, "k": 64, "r": 128, "c": 512, "d": 64, "e": 64}
    wanted = {"softmax": "r", "matmul": "m", "cross_entropy": "r", "attention": "m"}
    assert {name: cut_axis(_algorithm(name), rows) for name in wanted} == wanted
    assert cut_axis(_algorithm("attention"), rows | {"m": 1}) == "e"


@pytest.mark.parametrize(("name", "causal"), [("softmax", None), ("attention", True), ("attention", False)])
def test_a_part_of_the_answer_is_the_answers_part(name, causal):
    sizes = {"r": 80, "c": 96} if causal is None else {"b": 2, "h": 4, "g": 2, "m": 80, "n": 90, "d": 16, "e": 16}
    params = {} if causal is None else {"causal": causal}
    job, workload = target(name), Workload(sizes, params)
    program = seed_program(job)
    made = TimedInputs(job, program.algorithm, workload, np.random.default_rng(2))
    made.renew()
    whole, axis = right(program, made.part(np.arange(80)), params), made.axis
    (output,) = program.algorithm.outputs
    places = np.array([2, 33, 34, 61, 79])
    cut = {**made.part(places), f"at_{axis}": places}
    part = right(placed(program, axis, sizes[axis]), cut, params)[output.name]
    wanted = np.take(whole[output.name].oracle, places, output.axes.index(axis))
    assert np.array_equal(part.oracle, wanted) and part.dtype == whole[output.name].dtype


def _algorithm(name):
    return seed_program(target(name)).algorithm


class _Card:
    """A device by the clock of a test: what it does on its current stream and beside it, in seconds."""

    def __init__(self, work=0.0, beside=0.0, elapsed=1.0, waits=False):
        self.now, self.busy, self.other = 0.0, 0.0, 0.0  # the host's clock; when either kind of stream has done
        self.work, self.beside, self.lie, self.waits = work, beside, elapsed, waits

    def install(self, device, monkeypatch):
        device.name, device._flush, device._idle = "cuda", None, 3e-6
        device._event, device._stream, device._whole = (lambda enable_timing: {}), None, self
        device._record = lambda event: event.update(at=max(self.now, self.busy))
        device._query = lambda event: event["at"] <= self.now
        device._sync = lambda: self._until(max(self.busy, self.other))
        device._elapsed = lambda a, b: (b["at"] - a["at"]) * 1e3 * self.lie
        device._release = lambda: None
        monkeypatch.setattr(child_device, "_perf_counter", lambda: self.now)
        return device

    def _until(self, when):
        self.now = max(self.now, when) + 5e-6

    def hold(self, cycles):
        self.busy = self.other = max(self.now, self.busy) + cycles / 2e9

    def gather(self):
        self.now += 3e-5  # to launch
        self.busy = max(self.now, self.busy, self.other) + 3e-6

    def step(self):
        self.now += 1e-4  # to launch
        self.busy, self.other = self.busy + self.work, self.other + self.beside
        if self.waits:
            self._until(self.busy)


@pytest.mark.parametrize(
    ("card", "broken"),
    [
        (_Card(work=5e-5), []),
        (_Card(work=5e-3), []),
        (_Card(work=5e-5, waits=True), []),
        (_Card(work=1e-6, beside=4e-4), ["work after the end"]),
        (_Card(work=3e-5, beside=4e-5), ["work after the end"]),
        (_Card(work=4e-4, elapsed=1e-3), ["two clocks"]),
    ],
    ids=["short", "long", "waits itself", "beside", "a little beside", "events that lie"],
)
def test_what_the_clocks_say(card, broken, monkeypatch):
    device = card.install(child_device.Device(None, None), monkeypatch)
    said = device.clocks(card.step, cold=True)
    facts = {"clocks": [[said["seconds"], said["wall_s"]]] * 3, "tails": [[said["seconds"], said["tail_s"]]] * 3}
    assert [b.rule.name for b in rules.breaches(facts)] == broken, said


@pytest.mark.parametrize(
    ("name", "sizes"), [("matmul", {"m": 96, "n": 4096, "k": 2048}), ("cross_entropy", {"r": 512, "c": 16384})]
)
def test_timed_inputs_are_new_each_time_and_their_parts_are_theirs(name, sizes):
    job = target(name)
    algorithm = _algorithm(name)
    made = TimedInputs(job, algorithm, Workload(sizes), np.random.default_rng(1))
    shapes = input_shapes(algorithm, Workload(sizes))
    device = child_device.Device(None, None)
    pools, blobs = made.pools()
    child_device.pool_call(device, {"pools": pools}, blobs)
    assert sum(map(len, blobs)) <= 2 * 2 * len(shapes) * POOL
    seen, places = [], np.array([5, 6, 17, 90])
    for distribution in ("normal", "normal", "large_logits"):
        forms, values = made.renew(distribution)
        tensors = dict(zip(shapes, device.put(forms, values), strict=True))
        whole = {
            n: t.contiguous().view(-1).view(child_device.torch.uint8).numpy().tobytes() for n, t in tensors.items()
        }
        read = {t.name: decode(whole[t.name], t.dtype or "f32", shapes[t.name]) for t in algorithm.inputs}
        for t in algorithm.inputs:
            cut = made.part(places)[t.name]
            at = t.axes.index(made.axis) if made.axis in t.axes else None
            assert np.array_equal(cut, read[t.name] if at is None else np.take(read[t.name], places, at)), t.name
        seen.append(read)
    assert all(not np.array_equal(seen[0][n], seen[1][n]) for n in shapes)
    first = algorithm.inputs[0].name
    assert np.abs(seen[2][first]).max() > 2 * np.abs(seen[0][first]).max()


def test_no_rule_tells_which_timed_values_are_there_twice():
    """Pieces that are the same so far apart are no more than chance has it."""
    workload = Workload({"r": 2048, "c": 2048})
    made = TimedInputs(target("softmax"), _algorithm("softmax"), workload, np.random.default_rng(3))
    device = child_device.Device(None, None)
    pools, blobs = made.pools()
    child_device.pool_call(device, {"pools": pools}, blobs)
    for _ in range(2):
        (x,) = device.put(*made.renew())
        pieces = x.reshape(-1, 16).view(child_device.torch.int16)
        for apart in (1, 128, 65536, 131071, 131072):
            assert (pieces[apart:] == pieces[:-apart]).all(1).sum() < 4, apart


def test_the_corpus_on_a_device_is_listed():
    items = corpus.read(HERE / "device")
    assert sum(i.kind == "attacks" for i in items) >= 20 and all(i.job.name for i in items)


def test_a_time_that_its_own_process_told_promotes_nothing(monkeypatch):
    row = WorkloadResult(
        workload="r=1", work=1.0, floor_s=0.0, bottleneck="", measured_s=1e-5, detail={"clock": OWN_CLOCK}
    )
    told = Evaluation(status=Status.OK, mode="measured", workloads=(row,), source="")
    monkeypatch.setattr(RawEvaluator, "evaluate", lambda *_: told)
    with RawEvaluator(level="process", accept="process", seed=1) as one:
        found = one.promote("", ANY, hardware("h200"))
    assert found.status is Status.SUSPICIOUS and "its own process alone" in found.message


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("attention", {"b": 1, "h": 2, "g": 2, "m": 64, "n": 64, "d": 32, "e": 32}),
        ("matmul", {"m": 64, "n": 64, "k": 128}),
        ("cross_entropy", {"r": 32, "c": 512}),
        ("swiglu", {"r": 32, "c": 64, "f": 64}),
    ],
)
def test_inputs_read_from_memory_need_no_rounding(name, sizes):
    job = replace(target(name), workloads=(Workload(sizes),))
    program = seed_program(job)
    made = TimedInputs(job, program.algorithm, job.workloads[0], np.random.default_rng(3))
    params = {p.name: p.default for p in program.algorithm.params if p.default is not None}
    params |= {"causal": True} if name == "attention" else {}
    for distribution in made.distributions:
        made.renew(distribution)
        inputs = dict(made.part(np.arange(sizes.get(made.axis or "", 1))))
        rounded, as_read = right(program, inputs, params), right(program, inputs, params, representable=True)
        for output, answer in rounded.items():
            assert np.array_equal(answer.oracle, as_read[output].oracle, equal_nan=True)
            assert np.array_equal(answer.honest, as_read[output].honest, equal_nan=True)


def test_a_step_of_many_launches_is_held_for_as_long_as_they_take():
    """Where a candidate is, the device is held for one time: it could work on the host meanwhile."""
    device = child_device.Device.__new__(child_device.Device)
    holds = []
    device.name, device._flush, device._idle, device._launching = "cuda", None, 0.0, 0.0
    device._event = lambda enable_timing: None
    device._record = lambda event: None
    device._elapsed = lambda begin, end: 1.0
    device._query = lambda event: False
    device._sync = device._release = lambda: None
    device._whole = type("Whole", (), {"hold": lambda _, cycles: holds.append(cycles), "gather": lambda _: None})()
    for patient in (True, True, False):
        device.clocks(lambda: time.sleep(0.002), cold=False, patient=patient)
    assert holds[0] == holds[2] == child_device._HOLD and 6_000_000 <= holds[1] <= child_device._LONG_HOLD
    assert [child_device.held(s) for s in (0.0, 0.0001, 60.0)] == [2_000_000, 2_000_000, 10_000_000]


def test_only_steps_that_are_played_are_waited_for(monkeypatch):
    asked = []
    device = type("Device", (), {"rows": [], "held": {}, "launches": type("L", (), {})(), "holds": "nothing"})()
    device.clocks = lambda step, cold, patient, hold: asked.append((patient, hold)) or {"seconds": 1.0}
    for path in ("kernel.py", ""):
        for hold in (True, False):
            payload = {"params": {}, "calls": 1, "cold": True, "take": [], "hold": hold}
            child_device.time_call(device, None, path, payload)
    assert asked == [(False, True), (False, True), (True, True), (True, False)]


def test_a_step_that_waits_for_the_device_tells_the_hosts_part():
    """It waits for the hold too: the device has been let go before all was launched. Only a process of the judge says
    so; where the candidate is, nothing more is asked than before."""
    device = child_device.Device.__new__(child_device.Device)
    events, passed, holds = [], [], []
    device.name, device._flush, device._idle, device._launching = "cuda", None, 0.0, 0.0
    device._event = lambda enable_timing: events.append(len(events) % 4) or events[-1]
    device._record = lambda event: passed.remove(event) if event in passed else None
    device._elapsed = lambda begin, end: 1.0
    device._query = lambda event: event in passed
    device._sync = device._release = lambda: None
    device._whole = type("Whole", (), {"hold": lambda _, cycles: holds.append(cycles), "gather": lambda _: None})()

    def copies():
        passed.append(1)  # the event that begins the call: its copy has come through

    found = [
        device.clocks(step, cold=False, patient=patient, hold=hold)["host_s"] > 0
        for step, patient, hold in (
            (copies, True, True), (lambda: None, True, True), (copies, False, True), (copies, True, False)
        )
    ]  # fmt: skip
    assert found == [True, False, False, True] and len(holds) == 3


COPIED = """
import torch
import evaluators.integrity.child_device as child

%s

def copied(x):
    y = rows(x.to("cpu", copy=True).to(x.device))
    return y.to("cpu", copy=True).to(x.device)

rows, run = run, copied
"""
FORGED = "real = child.time_call\ndef forged(*a):\n    facts, data = real(*a)\n"
FORGED += "    facts['seconds'] = facts['wall_s'] = 3e-7\n    return facts, data\nchild.time_call = forged\n"


@pytest.mark.slow
@pytest.mark.parametrize("forged", [True, False])
def test_copies_to_the_host_leave_a_forged_clock_to_the_one_outside(judge, monkeypatch, forged):
    """A candidate that makes its steps wait, so that they are not held against what it tells, gains nothing: its time
    is still that of its steps elsewhere, and the parent's clock runs on. The same kernel passes with its true times."""
    monkeypatch.setattr(timed_calls, "MANY", 3)
    monkeypatch.setattr(judge, "_simulate", False)  # the time of played steps is taken
    again = timed_calls.Sized.again

    def waits(*asked):
        row = again(*asked)
        samples = [s | {"event_s": s["event_s"] * (50 + i)} for i, s in enumerate(row["samples"])]
        return row | {"waits": True, "samples": samples}

    monkeypatch.setattr(timed_calls.Sized, "again", waits)
    text = (HERE / "honest" / "triton_rows.py").read_text() + COPIED % (FORGED if forged else "")
    found = judged(judge, text, SOFTMAX)
    facts = found.gate("integrity").evidence
    assert facts["work"] == PROVED and [played for _, played in facts["played"]] == [None] * len(facts["played"])
    assert found.status is (Status.SUSPICIOUS if forged else Status.OK), found.message
    assert facts.get("rule") == ("clock outside" if forged else None)
    for size in found.workloads:
        assert size.detail["clock"] == raw_device._WAITS and size.measured_s == size.detail["interval_s"][0]
        assert size.measured_s > 1e-3 and (size.detail["told_s"] == 3e-7) is forged


class Played(timed_calls.Sized):
    """Calls in a process of the judge whose clocks are written down here: [(held, seconds, host's part)]."""

    def __init__(self, clocks):
        self._clocks, self.asked = list(clocks), []
        self._workload, self._know, self._rows = SIZES[0], [], 16

    _introduce = _put = lambda *_: None

    def _affordable(self):
        return 16, 4

    def _plan(self, rounds, few):
        return [("normal", False, False), *[("normal", True, True)] * rounds]

    def _places(self):
        return np.arange(0)

    def _asked(self, calls, cold, places, ghost=False, hold=True):
        return {}, type("Reply", (), {"blobs": [b"ghost" if ghost else b"right"]})

    def _go(self, calls, cold, judge, hold=True):
        self.asked.append((judge, hold))
        seconds, host = self._clocks.pop(0)
        return {"event_s": seconds, "wall_s": seconds, "tail_s": 0.0, "host_s": host}, []


def test_steps_whose_host_waits_are_played_again_without_a_hold():
    held = [(1e-3, 2e-2), (542e-6, 1e-3), (241e-6, 1e-3), (500e-6, 0.0), (510e-6, 1e-3)]
    size = Played([*held, *((s, 1e-4) for s in (190e-6, 150e-6, 300e-6, 160e-6))])
    row = size.again(None, 4)
    assert row["waits"] and row["ghost"] == "wrong" and not row["wrong"]
    assert [s["event_s"] for s in row["samples"]] == [190e-6, 150e-6, 300e-6, 160e-6]
    assert size.asked == [(False, True), *[(True, True)] * 4, *[(True, False)] * 4]
    assert raw_device._seconds(row) == 150e-6
    # One slow moment of the host is none of the steps: that call does not count, and nothing is played again.
    row = Played([(1e-3, 2e-2), (42e-6, 0.0), (9e-4, 2e-3), (40e-6, 0.0), (43e-6, 0.0)]).again(None, 4)
    assert not row["waits"] and raw_device._seconds(row) == 42e-6 and len(row["samples"]) == 3


def test_times_of_the_host_are_not_compared():
    assert not rules.breaches({"played": [[1e-6, None]]})
    assert rules.breaches({"played": [[193.5e-6, 542.5e-6]]})[0].rule.name == "time of the same steps"
