"""Targets are judged too: what skips the job passes none of the built-in ones, and a bad target is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluators.integrity.targets import audit, insist_fit
from evaluators.loading import complete, ready
from evaluators.target import Target, TargetError, Workload
from evaluators.targets import BUILTIN, target

SCALE = """
kernel scale
in  x[r c] bf16, w[c] bf16
out y[r c] bf16
y = {value}

schedule
tile r=16 c=all
grid r
"""


def job(value="x * w", reference=lambda x, w: x * w, **more):
    return Target("scale", reference, SCALE.format(value=value), (Workload({"r": 512, "c": 256}),), unit="GB/s", **more)


def verdicts(target):
    return {f.test: f.verdict for f in audit(complete(target))}


@pytest.mark.parametrize("name", BUILTIN)
def test_no_trivial_answer_passes_a_builtin_target(name):
    found = audit(complete(target(name)))
    assert [f for f in found if f.verdict != "pass"] == []
    assert {"honest", "zeros", "constant", "stale buffer"} <= {f.test for f in found}


def test_a_sound_target_is_ready_and_asked_once():
    one = ready(job())
    assert set(verdicts(one).values()) == {"pass"}
    insist_fit(one)


def test_zero_inputs_make_zeros_the_right_answer():
    bad = job(make_inputs=lambda w, d, rng: {"x": np.zeros((w.sizes["r"], w.sizes["c"])), "w": np.ones(w.sizes["c"])})
    assert verdicts(bad)["zeros"] == "fail"
    with pytest.raises(TargetError, match="zeros"):
        ready(bad)


def test_an_input_that_changes_nothing_is_named():
    bad = job("x + 0.0 * w", lambda x, w: x + 0.0 * w)
    found = verdicts(bad)
    assert found["input w"] == "fail" and found["copy of x"] == "fail" and found["input x"] == "pass"
    with pytest.raises(TargetError, match="another w"):
        ready(bad)


def test_inputs_that_are_always_the_same_let_a_stale_buffer_pass():
    def fixed(workload, distribution, rng):
        rng = np.random.default_rng(7)
        return {
            "x": rng.standard_normal((workload.sizes["r"], workload.sizes["c"])),
            "w": rng.standard_normal(workload.sizes["c"]),
        }

    bad = job(make_inputs=fixed)
    assert verdicts(bad)["honest"] == "pass"
    assert verdicts(bad)["stale buffer"] == "fail"
    with pytest.raises(TargetError):
        ready(bad)


def test_a_task_whose_rows_are_all_alike_is_refused():
    def alike(workload, distribution, rng):
        row = rng.standard_normal((1, workload.sizes["c"]))
        return {"x": np.repeat(row, workload.sizes["r"], 0), "w": rng.standard_normal(workload.sizes["c"])}

    found = verdicts(job(make_inputs=alike))
    assert found["axis r of y"] == "fail" and found["axis c of y"] == "pass"


@pytest.mark.slow
def test_checks_that_know_one_value_of_a_param_do_not_hide_the_other():
    causal = complete(target("attention"))
    checks = tuple(w for w in causal.checks if w.params["causal"])
    found = verdicts(
        dataclasses.replace(causal, workloads=causal.workloads[4:], hidden=causal.hidden[:1], checks=checks)
    )
    assert found["param causal"] == "pass" and "param causal=True" not in found


def test_the_command_says_what_was_tried_and_exits_by_what_was_seen(tmp_path: Path):
    file = tmp_path / "bad.py"
    file.write_text(
        "from avo import Target, Workload\n"
        f"SEED = {SCALE.format(value='x + 0.0 * w')!r}\n"
        "TARGET = Target('scale', lambda x, w: x, SEED, (Workload({'r': 512, 'c': 256}),), unit='GB/s')\n"
    )
    run = [sys.executable, "-m", "avo", "audit", "--target"]
    bad = subprocess.run([*run, str(file), "--json"], capture_output=True, text=True)
    assert bad.returncode == 1, bad.stderr
    (told,) = json.loads(bad.stdout)
    assert told["fit"] is False and {f["test"] for f in told["findings"] if f["verdict"] == "fail"} >= {"input w"}
    good = subprocess.run([*run, "softmax"], capture_output=True, text=True)
    assert good.returncode == 0 and "is fit" in good.stdout and "stale buffer" in good.stdout


def test_a_part_that_nobody_would_miss_is_named():
    """A softmax beside something far larger, and a sum of which the first places are enough."""
    small = job("2 * x + 0.01 * w * softmax[c](x)", lambda x, w: x)
    assert verdicts(small)["without the term 0.01 * w * softmax[c](x) (statement 1)"] == "fail"
    with pytest.raises(TargetError, match="without the term"):
        insist_fit(complete(small))
    decay = SCALE.replace("w[c] bf16\nout y[r c]", "w[c f] bf16\nout y[r f]").replace("c=all\ngrid r", "f=16\ngrid r f")
    seed = decay.format(value="sum[c](x * exp(-c * 0.5) * w)")
    found = verdicts(Target("decay", lambda x, w: x, seed, (Workload({"r": 512, "c": 256, "f": 128}),)))
    assert found["second half of c of x"] == "fail" and found["first half of c of x"] == "pass"


def test_what_is_another_way_to_the_answer_skips_nothing():
    one = job("exp(x - max[c](x)) / sum[c](exp(x - max[c](x))) * w", lambda x, w: x)
    assert "fail" not in verdicts(one).values()


def test_a_number_that_no_check_tells_from_others_is_noted():
    found = verdicts(job("(x + 1e-30) * w", lambda x, w: x * w))
    assert found["with 0 for 1e-30 (statement 1)"] == "note"
    found = verdicts(target("rmsnorm"))
    assert found["with 0 for 1e-06 (statement 1)"] == found["with 2e-06 for 1e-06 (statement 1)"] == "pass"
