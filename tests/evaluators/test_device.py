"""Devices without one: matching and leases, slices, right answers and errors on the CPU, races on a simulated card."""

from __future__ import annotations

import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dsl.hardware import hardware
from dsl.parser import parse
from evaluators import device_tasks, errors, tolerance
from evaluators.device import DeviceFacts, Lease, NoDevice, automatic, chip_of, held, matching, visible
from evaluators.device_inputs import answers, draw, figures
from evaluators.device_jobs import job, wrong_with
from evaluators.failures import Unavailable
from evaluators.inputs import DISTRIBUTIONS, extents, generator
from evaluators.oracle import named_inside
from evaluators.slices import slices
from evaluators.target import Target, Workload
from evaluators.targets import BUILTIN, target
from evaluators.targets.attention import reference as attention
from evaluators.worker import CandidateError

H200, B200 = hardware("h200"), hardware("b200")
CARD = DeviceFacts(index=0, name="NVIDIA H200", uuid="GPU-aaaa-1", memory_bytes=141 << 30)
OTHER = CARD.model_copy(update={"index": 1, "uuid": "GPU-bbbb-2"})


# Devices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", None),  # other peaks than the SXM form that avo knows
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("AMD Instinct MI300X gfx942", "mi300x"),
        ("NVIDIA T4", None),
    ],
)
def test_which_chip_a_device_is(name: str, chip: str | None) -> None:
    found = chip_of(CARD.model_copy(update={"name": name}))
    assert (found.name if found else None) == chip


def test_another_chip_is_an_error_that_says_how_to_go_on() -> None:
    assert matching([CARD, OTHER], H200) == [CARD, OTHER]
    with pytest.raises(NoDevice, match=r"NVIDIA H200, not b200.*--hw h200.*--evaluator predicted"):
        matching([CARD], B200)
    with pytest.raises(NoDevice, match="nothing can be measured"):
        matching([], B200)
    with pytest.raises(NoDevice, match="MIG"):
        matching([CARD.model_copy(update={"mig": True})], H200)


def test_the_chip_that_is_here() -> None:
    assert automatic([CARD]).name == "h200"
    with pytest.raises(NoDevice, match="no device was found"):
        automatic([])
    with pytest.raises(NoDevice, match="NVIDIA T4"):
        automatic([CARD.model_copy(update={"name": "NVIDIA T4"})])


def test_a_mask_leaves_devices_in_its_own_order() -> None:
    both = [CARD, OTHER]
    assert visible(both, None) == both
    assert visible(both, "1,0") == [OTHER, CARD]
    assert visible(both, "GPU-bbbb") == [OTHER]
    assert visible(both, "") == visible(both, "-1") == []
    assert visible(both, "0,7,1") == [CARD]  # as CUDA reads it: nothing counts after a number that is none


def test_what_makes_a_card_slower_is_said() -> None:
    assert CARD.warnings() == []
    busy = CARD.model_copy(update={"processes": (41,), "power_limit_w": 350.0, "power_default_w": 700.0})
    said = " ".join(busy.model_copy(update={"throttles": ("thermal (hardware)", "power cap")}).warnings())
    assert "41" in said and "350 W" in said and "thermal" in said and "now: power cap" not in said


def _hold(folder: Path, ready: Any, done: Any) -> None:
    lease = Lease("GPU-x", folder)
    lease.take()
    ready.set()
    done.wait(60)


def test_a_lease_is_for_one_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, done))
    holder.start()
    assert ready.wait(60)
    mine = Lease("GPU-x", tmp_path)
    with pytest.raises(Unavailable, match=str(holder.pid)):
        mine.take()
    Lease("GPU-y", tmp_path).take()  # another device
    done.set()
    holder.join()
    mine.take(wait_s=20.0)
    mine.release()


def test_a_script_waits_in_line_for_every_device_that_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cards = [CARD.model_copy(update={"uuid": f"GPU-{name}"}) for name in "ab"]
    monkeypatch.setattr("evaluators.device.local_devices", lambda: cards)
    other = Lease("GPU-b")
    other.take()
    with pytest.raises(Unavailable, match="in use by another run"), held(wait_s=0.1):
        pass
    Lease("GPU-a").take()  # what was taken before is given back
    threading.Timer(0.5, other.release).start()
    with held(wait_s=20.0), pytest.raises(Unavailable):
        Lease("GPU-b").take()
    Lease("GPU-b").take()


# Slices and right answers -----------------------------------------------------------------------


def test_attention_is_cut_by_batch_and_by_group() -> None:
    job_ = target("attention")
    algorithm = parse(job_.seed).algorithm
    sizes = extents(algorithm, job_.hidden[0])  # 2 batches, 32 heads over 8
    found, total = slices(algorithm, sizes, np.random.default_rng(0))
    assert total == 2 * 8 and len(found) == 2
    for cut in found:
        assert set(cut) == {"b", "h", "g"}
        assert cut["h"] == [4 * cut["g"][0], 4 * cut["g"][1]] and cut["b"][1] - cut["b"][0] == 1


def test_small_and_flat_outputs_are_whole() -> None:
    for name, workload in (("attention", target("attention").tiny[0]), ("gemm", target("gemm").workloads[0])):
        algorithm = parse(target(name).seed).algorithm
        assert slices(algorithm, extents(algorithm, workload), np.random.default_rng(0)) == ([{}], 1)


def prepared(job_: Target, workload: Workload, distribution: str = "normal", seed: int = 7, **more: Any) -> dict:
    return job(job_, parse(job_.seed), workload, distribution, seed, generator(0, "slices"), **more)


def test_a_slice_of_the_answer_is_the_answer_of_a_slice() -> None:
    job_ = target("attention")
    asked = prepared(job_, job_.checks[0])
    tensors = [
        draw(tuple(t["shape"]), t["dtype"], "normal", torch.Generator().manual_seed(1), "cpu") for t in asked["inputs"]
    ]
    ((whole, near),) = answers(asked, tensors, {}, attention)
    ((part, _),) = answers(asked, tensors, {"b": [0, 1], "h": [2, 4], "g": [1, 2]}, attention)
    assert torch.allclose(whole[:, 2:4], part, atol=1e-14)
    assert 1e-4 < float((whole - near).norm() / whole.norm()) < 4e-3  # bf16 probabilities and outputs


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_inputs_on_the_device_are_like_those_of_the_host(distribution: str) -> None:
    here = draw((64, 4096), "bf16", distribution, torch.Generator().manual_seed(3), "cpu").double()
    there = DISTRIBUTIONS[distribution]((64, 4096), "bf16", np.random.default_rng(3))
    assert here.shape == there.shape
    assert math.isclose(float(here.square().mean().sqrt()), float(np.sqrt(np.mean(there**2))), rel_tol=0.2)
    again = draw((64, 4096), "bf16", distribution, torch.Generator().manual_seed(3), "cpu").double()
    assert torch.equal(here, again)


# The verdict from figures is the verdict from arrays ----------------------------------------------


def spoilt(kind: str, right: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    got = right * (1 + rng.normal(0, 2.0**-9, right.shape))
    match kind:
        case "one element":
            got[3, 5] += 1.0
        case "one row":
            got[7] *= 1.05
        case "one column":
            got[:, 2] *= 1.04
        case "lean":
            got *= 0.995
        case "zeros":
            got[:] = 0.0
        case "nan":
            got[0, 0] = np.nan
        case "inf":
            got[1, 1] = np.inf
    return got


def _projected(x, w):
    return (x @ w).relu() * 2


def test_what_a_program_names_inside_is_in_the_honest_answer_of_a_device() -> None:
    text = "kernel p\nin x[r c] bf16, w[c f] bf16\nout y[r f] f32\nq[r f] bf16 = sum[c](x * w)\ny = max(q, 0) * 2\n"
    assert named_inside(parse(text)) == "bf16"
    assert not any(named_inside(parse(target(n).seed)) for n in BUILTIN)
    shape = {"axes": ["r", "c"], "dtype": "bf16"}
    asked = {"inputs": [shape, shape], "outputs": [{"dtype": "f32"}], "params": {}, "inside": "bf16"}
    x, w = torch.randn(40, 96).bfloat16(), torch.randn(96, 50).bfloat16()
    got = (x.float() @ w.float()).bfloat16().float().relu() * 2

    def judged(inside):
        ((oracle, honest),) = answers({**asked, "inside": inside}, [x, w], {}, _projected)
        return errors.judge(figures(got, oracle, honest, tolerance.BLOCK, tolerance.SMALL_ROW), "f32").passed

    assert judged("bf16") and not judged(None)


@pytest.mark.parametrize("kind", ["honest", "one element", "one row", "one column", "lean", "zeros", "nan", "inf"])
def test_the_verdict_from_figures_is_the_verdict_from_arrays(kind: str) -> None:
    rng = np.random.default_rng(5)
    oracle = rng.standard_normal((64, 48))
    honest = oracle * (1 + rng.normal(0, 2.0**-9, oracle.shape))
    got = spoilt(kind, oracle, rng)
    whole = tolerance.verdict(got, oracle, honest, "bf16")
    sums = figures(*(torch.from_numpy(x.copy()) for x in (got, oracle, honest)), tolerance.BLOCK, tolerance.SMALL_ROW)
    found = errors.judge(sums, "bf16")
    assert found.passed == whole.passed == (kind == "honest")
    if kind not in ("nan", "inf"):
        assert found.evidence == whole.evidence
    flat = [torch.from_numpy(x.reshape(-1).copy()) for x in (got, oracle, honest)]
    sums = figures(*flat, tolerance.BLOCK, tolerance.SMALL_ROW)
    whole = tolerance.verdict(*(x.reshape(-1) for x in (got, oracle, honest)), "bf16")
    assert errors.judge(sums, "bf16").passed == whole.passed


def test_integers_have_to_be_equal() -> None:
    right = torch.arange(6)
    assert errors.judge(figures(right, right, right, 16, 0.05), "i32").passed
    assert errors.judge(figures(right + (right == 2), right, right, 16, 0.05), "i32").reasons == ("1 of 6 differ",)


# A candidate on the worker's side (plain torch stands for a kernel) --------------------------------

SMALL = replace(target("softmax"), workloads=(Workload({"r": 24, "c": 96}),), checks=(Workload({"r": 5, "c": 40}),))
HONEST = """
import torch
def entry(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    y.copy_(torch.softmax(x.float(), -1))
    return y
"""


def verified(source: str, job_: Target = SMALL) -> tuple[dict, dict]:
    asked = prepared(job_, job_.workloads[0], seed=11, rotate=True)
    result, _ = device_tasks.verify_task({"arm": {"source": source, "entry": "entry"}, "jobs": [asked]}, ())
    return asked, result["rows"][0]


def reasons(source: str) -> list[str]:
    asked, row = verified(source)
    found = [*row["mutated"], *row["strayed"]]
    for t, output in zip(asked["outputs"], row["outputs"], strict=True):
        found += wrong_with(t, output, asked, {})
    return found


def test_an_honest_candidate_passes() -> None:
    assert reasons(HONEST) == []
    assert verified(HONEST)[1]["repeatable"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x.float().softmax(-1).to(x.dtype) * 1.02", "relative L2"),
        ("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "never written"),
        ("x.add_(0)", "memory of input"),
        ("torch.softmax(x.float(), -1)", "dtype f32"),
        ("torch.softmax(x.float(), -1).to(x.dtype)[:, :-1]", "shape"),
        ("torch.softmax(x.float(), -1).to(x.dtype).t().contiguous().t()", "row-major"),
    ],
)
def test_a_wrong_candidate_is_told_why(body: str, said: str) -> None:
    assert any(said in reason for reason in reasons(f"import torch\ndef entry(x):\n    return {body}\n"))


def test_an_input_that_changes_and_a_stray_write_are_seen() -> None:
    assert "x" in reasons(HONEST.replace("    return y", "    x[0, 0] += 1\n    return y"))
    stray = """
import torch
def entry(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    y.copy_(torch.softmax(x.float(), -1))
    torch.as_strided(y, (1,), (1,), y.storage_offset() - 4).zero_()
    return y
"""
    assert "output 0" in reasons(stray)


def test_an_error_of_the_candidate_is_the_candidates() -> None:
    with pytest.raises(CandidateError, match="ZeroDivisionError"):
        verified("def entry(x):\n    return 1 / 0\n")
    with pytest.raises(CandidateError, match="no function"):
        verified("x = 1\n")


def test_timed_segments_alternate_and_their_output_is_judged_again() -> None:
    asked = prepared(SMALL, SMALL.workloads[0], seed=11, rotate=True)
    arms = [{"source": HONEST, "entry": "entry"}] * 2
    payload = {"arms": arms, "jobs": [asked], "order": "ABBA", "untimed_s": 0.0, "timed_s": 1e-4}
    result, _ = device_tasks.race_task(payload, ())
    (found,) = result["timed"]
    assert [s["arm"] for s in found["samples"]] == [0, 1, 1, 0]
    assert all(s["seconds"] > 0 for s in found["samples"])
    assert found["sets"] >= 2 and found["mutated"] == []
    assert found["figures"] and all(errors.judge(f, "bf16").passed for f in found["figures"])
    assert result["parts"]["timing"] > 0


def test_one_look_verifies_and_times() -> None:
    small, timed = prepared(SMALL, SMALL.checks[0]), prepared(SMALL, SMALL.workloads[0], seed=11, rotate=True)
    payload = {"arm": {"source": HONEST, "entry": "entry"}, "checks": [small, timed], "timed": [timed], "pick": 3}
    result, _ = device_tasks.screen_task(payload, ())
    assert [row["repeatable"] for row in result["rows"]] == [True, True]
    (found,) = result["timed"]
    assert len(found["samples"]) == 1 and found["samples"][0]["calls"] >= 1
    assert all(errors.judge(f, "bf16").passed for f in found["figures"])


def test_a_candidate_that_turns_wrong_after_some_calls_is_caught() -> None:
    source = HONEST.replace("def entry", "calls = []\ndef entry").replace(
        "    return y", "    calls.append(1)\n    return y * 0 if len(calls) > 3 else y"
    )
    asked = prepared(SMALL, SMALL.workloads[0], seed=11, rotate=True)
    arm = {"source": source, "entry": "entry"}
    payload = {"arms": [arm], "jobs": [asked], "order": "AAA", "untimed_s": 0.0, "timed_s": 1e-4}
    result, _ = device_tasks.race_task(payload, ())
    assert not all(errors.judge(f, "bf16").passed for f in result["timed"][0]["figures"])
    result, _ = device_tasks.screen_task({"arm": arm, "checks": [asked] * 2, "timed": [asked], "pick": 0}, ())
    assert not all(errors.judge(f, "bf16").passed for f in result["timed"][0]["figures"])


def test_a_rehearsal_goes_through_a_whole_first_look_and_leaves_nothing(tmp_path: Path) -> None:
    code = """
import json
from evaluators.interpreter import install
install()
from evaluators import device_prepared, device_tasks, errors, rehearsal
found = rehearsal.rehearse()
print(json.dumps([len(found["rows"]), len(found["timed"]), device_prepared.kept(), len(device_tasks._call_s)]))
right = [f for row in found["rows"] for o in row["outputs"] for f in o["figures"]]
assert right and all(errors.judge(f, "bf16").passed for f in right)
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout.strip() == "[4, 1, 0, 0]", done.stderr[-800:]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_device_verifies_and_times() -> None:
    device_tasks.begin()
    assert reasons(HONEST) == []
