"""Raw Python candidates: what each kind of trouble is called, and what the command line makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.inputs import DISTRIBUTIONS, faint
from evaluators.integrity import raw, rules
from evaluators.integrity.calls import _Call
from evaluators.integrity.plan import _bounded, _long_sizes, _other_size
from evaluators.integrity.raw import RawEvaluator
from evaluators.integrity.tripwires import tripwires
from evaluators.loading import complete, seed_program
from evaluators.target import TargetError
from evaluators.targets import target

GOOD = "import torch\n\n\ndef run(x):\n    return torch.softmax(x.float(), -1).to(x.dtype)\n"


@pytest.fixture(scope="module")
def judge():
    with RawEvaluator() as one:
        yield one


ANY = replace(target("softmax"), torch="any")


def judged(judge, text, job=ANY):
    return judge.evaluate(text, job, hardware("cpu"))


def test_an_honest_kernel_leaves_evidence_and_the_same_again(judge):
    first = judged(judge, GOOD)
    with RawEvaluator(seed=first.environment["seed"]) as same:
        again = judged(same, GOOD)
    assert first.status is Status.OK and first.mode == "none" and first.source == GOOD
    assert [g.gate for g in first.gates] == ["parse", "correctness", "integrity"]
    cases = first.gate("correctness").evidence["cases"]
    assert len(cases) > 2 * len(target("softmax").checks)
    assert [g.evidence for g in first.gates] == [g.evidence for g in again.gates]


def test_nobody_knows_the_inputs_beforehand():
    seeds = set()
    for _ in range(2):
        with RawEvaluator() as one:
            seeds.add(one.evaluate("def run(x:", target("softmax"), hardware("cpu")).environment["seed"])
    assert len(seeds) == 2


def test_what_does_not_start_is_told_by_name(judge):
    assert judged(judge, "def run(x:\n").status is Status.PARSE_ERROR
    none = judged(judge, "def kernel(x):\n    return x\n")
    assert none.status is Status.COMPILE_ERROR and "def run" in none.message


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("return x.clone()", Status.INCORRECT, "relative L2"),
        ("raise RuntimeError('no such size')", Status.INCORRECT, "no such size"),
        pytest.param("return torch.softmax(x.float(), -1)", Status.INCORRECT, "dtype f32", marks=pytest.mark.slow),
        pytest.param("x.copy_(torch.softmax(x.float(), -1)); return x", Status.INCORRECT, "written to"),
        pytest.param(
            "return torch.softmax(x.float(), -1).bfloat16().tolist()",
            Status.INCORRECT,
            "returned a value of type list",
            marks=pytest.mark.slow,
        ),
        pytest.param("torch.softmax(x.float(), -1)", Status.INCORRECT, "returned None; it has to"),
        pytest.param("return {'y': x}", Status.INCORRECT, "type dict", marks=pytest.mark.slow),
        pytest.param("yield x", Status.INCORRECT, "type generator", marks=pytest.mark.slow),
        pytest.param(
            "return torch.sparse_coo_tensor(size=x.shape)", Status.GAMING, "disguised", marks=pytest.mark.slow
        ),
        (
            "raise RuntimeError('an illegal access\\nsome advice\\nmore advice')",
            Status.INCORRECT,
            'RuntimeError: "an illegal access"',
        ),
        pytest.param(
            "import asyncio; asyncio.new_event_loop()", Status.INCORRECT, "(the sandbox: no sockets, so no asy"
        ),
        ("async def go(): pass\n    return go()", Status.INCORRECT, "run is 'async'; it has to be a plain function"),
        ("return type('ignore the above', (), {})()", Status.INCORRECT, '"run returned a value of type ignore the ab'),
        pytest.param("__import__('os')._exit(0)", Status.CRASH, "died", marks=pytest.mark.slow),
        pytest.param("return torch.empty(1 << 40)", Status.OUT_OF_MEMORY, "memory", marks=pytest.mark.slow),
    ],
)
def test_trouble_in_a_run(judge, body, status, said):
    found = judged(judge, f"import torch\n\n\ndef run(x):\n    {body}\n")
    assert found.status is status and said in found.message


@pytest.mark.slow
def test_a_hang_costs_the_candidate_alone():
    with RawEvaluator(run_timeout=2.0) as quick:
        found = judged(quick, "def run(x):\n    while True:\n        pass\n")
        assert found.status is Status.TIMEOUT and "one that waits for another never ends" in found.message
        assert judged(quick, GOOD).status is Status.OK


def test_an_output_in_an_input_is_what_the_target_lists_and_nothing_else(judge):
    in_place = replace(ANY, inplace={"y": "x"})
    works = "import torch\n\n\ndef run(x):\n    x.copy_(torch.softmax(x.float(), -1))\n    return x\n"
    assert judged(judge, works, in_place).status is Status.OK
    assert "written to" in judged(judge, works).message
    found = judged(judge, GOOD, in_place)
    assert found.status is Status.INCORRECT and "new tensor" in found.message


def test_what_a_target_may_not_say_about_memory():
    for wrong in ({"y": "z"}, {"z": "x"}):
        with pytest.raises(TargetError, match="wants an output"):
            complete(replace(ANY, inplace=wrong))
    with pytest.raises(TargetError, match="cannot share"):
        complete(replace(target("cross_entropy"), inplace={"loss": "x"}))
    with pytest.raises(TargetError, match="torch is 'some'"):
        complete(replace(ANY, torch="some"))


def test_by_default_kernels_have_to_do_the_work(judge):
    found = judged(judge, GOOD, target("softmax"))
    assert found.status is Status.GAMING and "aten::_softmax" in found.message
    gate = found.gate("integrity")
    assert gate.evidence["rule"] == "library calls" and gate.evidence["rules"] == rules.applied()


POOL = """
import threading
import time

import numpy as np
import torch

THREADS = []


def body():
    while True:
        BODY


def run(x):
    if not THREADS:
        THREADS.extend(threading.Thread(target=body, daemon=True) for _ in range(6))
        for thread in THREADS:
            thread.start()
    return torch.softmax(x.float(), -1).to(x.dtype)
"""


@pytest.mark.parametrize(("does", "status"), [("time.sleep(0.5)", Status.OK), ("np.ones(1 << 16).sum()", None)])
def test_threads_that_wait_are_no_work_and_those_that_compute_are(judge, does, status):
    found = judged(judge, POOL.replace("BODY", does))
    assert found.status is (status or Status.SUSPICIOUS), found.message
    if status is None:
        assert "threads compute after the last call" in found.message


def test_a_rule_that_is_new_judges_what_was_recorded(judge, monkeypatch):
    allowed = judged(judge, GOOD)
    facts = allowed.gate("integrity").evidence
    assert rules.rejudged(allowed) == rules.Rejudged()
    strict = rules.Rule("no torch at all", 1, Status.SUSPICIOUS, ("aten",), lambda f: "torch" if f["aten"] else None)
    unknown = rules.Rule("heat", 1, Status.GAMING, ("watts",), lambda f: "hot")
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, strict, unknown))
    again = rules.rejudged(allowed)
    assert again.missing == ("heat",)
    assert again.verdict.status is Status.SUSPICIOUS and again.verdict.failed_gate == "integrity"
    assert again.verdict.gate("integrity").evidence["rules"]["no torch at all"] == 1
    # A rule about times asks nothing of a verdict without any.
    timed = rules.Rule("pace", 1, Status.SUSPICIOUS, ("paces",), lambda f: "slow", timed=True)
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, timed))
    assert rules.rejudged(allowed).missing == ("heat",)
    monkeypatch.setattr(rules, "RULES", rules.RULES[:-3])
    assert rules.rejudged(again.verdict).verdict.status is Status.OK
    assert facts["aten"]


def test_the_tripwires_are_hints():
    import ast

    seen = tripwires(ast.parse("import ctypes\ndef run(x):\n    return getattr(x, 'a' + 'b')()\n"))
    assert seen == ["line 1: imports ctypes", "line 3: calls getattr"]


def test_the_command_judges_a_python_file(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text((Path(__file__).parent / "honest" / "triton_rows.py").read_text())
    run = [sys.executable, "-m", "avo", "eval", str(file), "--target", "softmax", "--hw", "b200"]
    done = subprocess.run([*run, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "ok" and told["environment"]["sandbox"]["level"] in ("full", "namespaces", "process")
    wrong = subprocess.run([*run, "--accept-sandbox", "fulll"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "did you mean 'full'" in wrong.stderr


FORGER = """
import os, sys, torch
from evaluators import wire

def run(x):
    frame = sys._getframe()
    while "request" not in frame.f_locals or "sock" not in frame.f_locals:
        frame = frame.f_back
    sock, nonce = frame.f_locals["sock"], frame.f_locals["request"].nonce
    facts = dict(odd=[], mutated=[], strayed=[], late=[], reused=[], calls={}, launches=0, threads=0, seconds=0.0)
    row = dict(dtype="bf16", shape=list(x.shape), strides=list(x.stride()), unwritten=0, alias=None)
    wire.send(sock, wire.Frame(nonce, {body}, {blobs}))
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "blobs", "status"),
    [
        ('{"error": "fault", "message": "not my fault"}', "()", Status.CRASH),
        ('{"error": "memory"}', "()", Status.OUT_OF_MEMORY),
        ('{"result": {**facts, "outputs": [row]}}', "(b'abc',)", Status.CRASH),
        ('{"result": {**facts, "outputs": [{**row, "unwritten": 1e999}]}}', "(bytes(2 * x.numel()),)", Status.CRASH),
        ('{"result": {**facts, "outputs": {"a": 1}}}', "(b'',)", Status.CRASH),
        ('{"result": {**facts, "outputs": [row], "mutated": 3}}', "(bytes(2 * x.numel()),)", Status.CRASH),
        ('{"result": {**facts, "outputs": [row], "calls": [1, 2]}}', "(bytes(2 * x.numel()),)", Status.CRASH),
        ('{"result": {"odd": "z" * 100000}}', "()", Status.GAMING),
        ('{"result": {"odd": "z" * 10000000}}', "()", Status.CRASH),
    ],
)
def test_a_made_up_reply_is_never_a_verdict_and_never_an_exception(judge, body, blobs, status):
    found = judged(judge, FORGER.replace("{body}", body).replace("{blobs}", blobs))
    assert found.status is status and len(found.message) < 1000


FLOODS = {
    "more than was asked": "sock.sendall(struct.pack('>4sIQ', b'AVO1', 10, 1 << 31) + bytes(10))\n    time.sleep(5)",
    "deeply nested": "sock.sendall(framed(b'[' * 400_000 + b']' * 400_000))",
    "numbers of many digits": "sock.sendall(framed(b'9' * 5000))",
}


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in FLOODS.items()])
def test_a_reply_costs_the_judge_no_memory_and_no_exception(judge, body):
    text = (
        "import os, struct, sys, time\n\n\ndef run(x):\n    frame = sys._getframe()\n"
        "    while 'request' not in frame.f_locals or 'sock' not in frame.f_locals:\n        frame = frame.f_back\n"
        "    sock, nonce = frame.f_locals['sock'], frame.f_locals['request'].nonce.encode()\n\n"
        "    def framed(value):\n"
        '        head = b\'{"nonce":"\' + nonce + b\'","body":{"result":\' + value + b\'},"blobs":[]}\'\n'
        "        return struct.pack('>4sIQ', b'AVO1', len(head), 0) + head\n\n"
        f"    {body}\n    os._exit(0)\n"
    )
    found = judged(judge, text)
    assert found.status is Status.CRASH and "nonsense" in found.message, found.message


def test_an_output_that_is_far_too_large_is_told_by_its_form(judge):
    found = judged(judge, "import torch\n\n\ndef run(x):\n    return torch.zeros(1 << 26, dtype=x.dtype)\n")
    assert found.status is Status.INCORRECT and "declared" in found.message


@pytest.mark.slow
def test_an_audit_of_a_candidate_has_a_finding_for_every_layer():
    attack = Path(__file__).parent / "attacks" / "pointer_memo.py"
    run = [sys.executable, "-m", "avo", "audit", str(attack), "--target", "softmax"]
    done = subprocess.run([*run, "--json"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    told = {f["layer"]: f["verdict"] for f in json.loads(done.stdout)["layers"]}
    assert told["source"] == "ok" and told["behaviour"] == "FAIL" and set(told) >= {"names", "sandbox", "numbers"}
    assert "state kept" in subprocess.run(run, capture_output=True, text=True).stdout


FORGED = """
import evaluators.integrity.child as child

real = child.run_task

def forged(payload, blobs):
    facts, data = real(payload, blobs)
    {change}
    return facts, data

child.run_task = forged

def run(x):
    return x
"""


@pytest.mark.parametrize(
    "change",
    [
        'facts["outputs"][0] |= {"shape": [1] * 5000, "strides": [1] * 5000, "dtype": "bf16x"}',
        'facts["outputs"][0] |= {"shape": [10**4000] * 9, "strides": [1] * 9, "dtype": "bf16x"}',
        'facts["launches"] = 10**4000',
        'facts["outputs"][0]["unwritten"] = -(10**4000)',
    ],
)
def test_what_no_tensor_has_is_nonsense_and_does_not_stand_in_the_verdict(judge, change):
    found = judged(judge, FORGED.format(change=change))
    assert found.status is Status.CRASH and "nonsense" in found.message
    assert len(found.model_dump_json()) < 20_000


def test_half_a_surrogate_pair_in_what_a_candidate_says_can_be_printed_and_stored(judge):
    found = judged(judge, "def run(x):\n    raise ValueError('\\ud800 no')\n")
    assert found.status is Status.INCORRECT and 'ValueError: "? no"' in found.message
    found.model_dump_json()


@pytest.mark.parametrize("body", ['{"result": 5}', '{"error": "ours"}', '{"error": 7, "message": {}}', "{}"])
def test_no_candidate_can_call_itself_unavailable(judge, body):
    forged = (
        "import sys\n\nwire = sys.modules['evaluators.wire']\nreal = wire.encode\n\n\n"
        f"def encode(frame):\n    return real(wire.Frame(frame.nonce, {body}))\n\n\nwire.encode = encode\n\n\n"
    )
    found = judged(judge, forged + GOOD)
    assert found.status is Status.CRASH, found.message


def test_a_verdict_tells_no_seed_of_another(judge):
    first, second = (judged(judge, "def run(x):\n    return x\n").environment["seed"] for _ in range(2))
    assert first != second


def test_no_more_is_read_than_was_asked_for(judge):
    flood = (
        "import sys\n\nwire = sys.modules['evaluators.wire']\nreal = wire.encode\n\n\ndef encode(frame):\n"
        "    return real(wire.Frame(frame.nonce, {'result': {}}, (bytes(8 << 20),)))\n\n\nwire.encode = encode\n"
    )
    found = judged(judge, flood + GOOD)
    assert found.status is Status.CRASH and "over the limit of 0" in found.message, found.message


def test_who_stops_itself_is_stopped_at_its_limit():
    text = "import os, signal\n\n\ndef run(x):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return x\n"
    with RawEvaluator(level="process", run_timeout=1.0) as one:
        began = time.monotonic()
        found = one.evaluate(text, target("softmax"), hardware("cpu"))
        assert found.status is Status.TIMEOUT and time.monotonic() - began < 60


UNSTABLE = """
import torch


def run(x):
    e = torch.exp(x.float() - (0 if x.shape[1] == 4096 else x.float().amax(-1, keepdim=True)))
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)
"""


PEEKING = """
import torch


def run(x):
    x = x.float()
    mild = x[:, :16].amax(-1, keepdim=True) < 5
    e = torch.exp(x - torch.where(mild, 0.0, x.amax(-1, keepdim=True)))
    return (e / e.sum(-1, keepdim=True)).bfloat16()
"""


def test_who_looks_at_the_beginning_of_a_row_does_not_know_its_end():
    with RawEvaluator(accept="process") as one:
        found = one.promote(PEEKING, replace(target("softmax"), torch="any"), hardware("cpu"))
    assert found.status is Status.INCORRECT, found.message


def test_every_check_meets_every_distribution_before_a_promotion(judge):
    assert judged(judge, UNSTABLE).status is Status.INCORRECT
    with RawEvaluator(accept="process") as one:
        found = one.promote(GOOD, replace(target("softmax"), torch="any"), hardware("cpu"))
    cases = found.gate("correctness").evidence["cases"]
    checks = {w.name for w in target("softmax").checks}
    assert {(c["workload"], c["distribution"]) for c in cases} >= {(w, d) for w in checks for d in DISTRIBUTIONS}


def test_a_folder_of_three_thousand_levels_ends_no_judge(judge):
    deep = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nos.chdir(os.environ['HOME'])\n"
    assert judged(judge, deep + GOOD).status is Status.OK
    assert judged(judge, GOOD).status is Status.OK


@pytest.mark.parametrize(
    ("name", "stay", "vary"), [("attention", "dehg", "mn"), ("matmul", "", "mnk"), ("softmax", "", "c")]
)
def test_sizes_that_nobody_has_named_keep_what_kernels_are_written_for(name, stay, vary):
    """A head dimension is a power of two, and the same twice."""
    job = complete(target(name))
    case = SimpleNamespace(target=job, program=seed_program(job))
    found = [(w, _other_size(case, w, np.random.default_rng(i))) for w in job.checks for i in range(4)]
    for axis in stay:
        assert all(other.sizes[axis] == w.sizes[axis] for w, other in found)
    for axis in vary:
        assert any(other.sizes[axis] != w.sizes[axis] for w, other in found)


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("name", ["attention", "cross_entropy", "matmul", "matmul_fp8", "softmax"])
def test_one_axis_is_long_and_the_others_as_short_as_any_check_has_them(name, thorough):
    job = complete(target(name))
    case = SimpleNamespace(target=job, program=seed_program(job), thorough=thorough)
    found = [_long_sizes(case, np.random.default_rng(i)) for i in range(6)]
    known = {axis: [w.sizes[axis] for w in job.checks] for axis in job.checks[0].sizes}
    longest = {axis: max(w.sizes[axis] for w in (*job.workloads, *job.hidden)) for axis in known}
    far: dict[str, int] = {}
    for workload in (w for ws in found for w in ws):
        over = [a for a, n in workload.sizes.items() if n > max(known[a])]
        if thorough and len(over) != 1:  # the last: all of them at once
            assert any(workload is ws[-1] for ws in found)
            assert all(workload.sizes[a] >= max(known[a]) for a in ("rc" if "r" in known else "mnk") if a in known)
            continue
        (axis,) = over
        far[axis] = max(far.get(axis, 0), workload.sizes[axis])
        assert workload.sizes[axis] <= longest[axis]
        assert all(n in known[a] for a, n in workload.sizes.items() if a != axis)
    varied = {"attention": "mn", "cross_entropy": "rc", "softmax": "rc"}.get(name, "mnk")
    assert set(varied) <= set(far) if thorough else all(len(ws) == 1 for ws in found)
    if thorough and name != "attention":  # whose right answer takes too long there
        assert all(far[a] > 0.6 * min(longest[a], 200 * max(known[a])) for a in varied)
    if name == "matmul_fp8" and "k" in far:
        assert all(w.sizes["k"] % 16 == 0 for ws in found for w in ws)


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_faint_rows_are_tiny_zero_and_of_one_value(rows):
    rng = np.random.default_rng(rows)
    found = faint(rng.standard_normal((rows, 64)), "bf16", rng)
    size, spread = np.abs(found).max(axis=1), np.ptp(found, axis=1)
    kinds = [size == 0, (spread == 0) & (size > 0), (size < 0.5) & (spread > 0)]
    assert sum(bool(k.any()) for k in kinds) >= min(rows, 3)
    assert (faint(np.ones(5), "bf16", rng) == 1).all() and (faint(np.ones((2, 5)), "i32", rng) == 1).all()


def test_inputs_whose_right_answer_is_not_finite_are_not_asked_about():
    job = complete(target("matmul_f16"))
    case = SimpleNamespace(target=job, program=seed_program(job))
    large = {"a": np.full((4, 8), 128.0), "b": np.full((8, 4), 63.0)}
    sizes = replace(job.checks[0], sizes={"m": 4, "n": 4, "k": 8})
    assert not _bounded(case, _Call(sizes, "normal", large, {}))  # 64512 of at most 65504
    assert _bounded(case, _Call(sizes, "normal", {**large, "b": large["b"] / 2}, {}))


def test_a_call_at_a_long_size_that_takes_too_long_is_left_to_a_person(judge, monkeypatch):
    slow = "import time\n\n" + GOOD.replace("    return", "    time.sleep(60 * (x.shape[0] > 200))\n    return")
    whole = raw._plan

    def few(case):
        whole(case)
        case.calls = [case.calls[0], next(c for c in case.calls if c.long and c.workload.sizes["r"] > 200)]

    monkeypatch.setattr(raw, "_plan", few)
    with RawEvaluator(accept="process", run_timeout=1, pool=judge._pool) as one:
        found = one.promote(slow, replace(target("softmax"), torch="any"), hardware("cpu"))
    assert found.status is Status.SUSPICIOUS, found.message
    assert "takes too long without a device at r=" in found.message


@pytest.mark.parametrize(
    "asks",
    ["torch.cuda.get_device_properties(0)", "triton.runtime.driver.active.get_current_device()"],
)
@pytest.mark.parametrize("at_load", [True, False])
def test_who_asks_for_the_device_is_told_that_it_is_not_here(judge, asks, at_load):
    if pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is a device")
    lines = ["import torch", "import triton", "", *([asks] if at_load else []), "def run(x):", f"    {asks}"]
    found = judge.evaluate("\n".join([*lines, "    return x", ""]), target("softmax"), hardware("cpu"))
    assert found.status is Status.NOT_LOWERED and "without its device" in found.message, found.message
