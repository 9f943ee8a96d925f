"""Attacks that work against a grader as many are written, and what stops each of them here."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsl.hardware import hardware
from evaluators.evaluation import Status
from evaluators.integrity import sandbox
from evaluators.integrity.raw import RawEvaluator
from evaluators.targets import target

HERE = Path(__file__).parent
INCORRECT, GAMING, CRASH, COMPILE = Status.INCORRECT, Status.GAMING, Status.CRASH, Status.COMPILE_ERROR


@dataclass(frozen=True)
class Attack:
    """harness: what it beats (tests/integrity/naive_harnesses.py). layer: what stops it here. said: in the verdict."""

    name: str
    harness: str
    layer: str
    status: Status
    said: str
    target: str = "softmax"
    fast: bool = False


ATTACKS = (
    Attack("zeros_under_atol", "in_process", "tolerance from the honest error", INCORRECT, "all zeros"),
    Attack("uniform_scalar", "in_process", "strict shape and dtype", INCORRECT, "declared"),
    Attack("lazy_subclass", "in_process", "plain tensors only", GAMING, "disguised", fast=True),
    Attack("deferred_thread", "in_process", "outputs looked at twice", GAMING, "changed after", fast=True),
    Attack("input_zeroing", "in_process", "inputs compared, answers elsewhere", INCORRECT, "written to"),
    Attack("patched_oracle", "in_process", "verdict in another process", INCORRECT, "y:"),
    Attack("seed_replay", "in_process", "secret seed", INCORRECT, "y:"),
    Attack("stack_reader", "in_process_first", "no answer in the child", INCORRECT, "all zeros"),
    Attack("pointer_memo", "in_process", "fresh bytes at the same address", GAMING, "state kept", fast=True),
    Attack("identity_memo", "in_process", "fresh bytes in the same tensor", GAMING, "state kept"),
    Attack("call_counter", "in_process", "every call judged", GAMING, "state kept"),
    Attack("reference_import", "in_process", "sandbox: avo is out of reach", COMPILE, "does not load", fast=True),
    Attack("pickle_bomb", "pickle", "bytes and JSON, no pickle", GAMING, "no plain tensor"),
    Attack("result_forger", "result_file", "no verdict from the child", CRASH, "died"),
    Attack("exit_zero", "result_file", "no verdict from the child", COMPILE, "does not load"),
    Attack("channel_forger", "result_pipe", "framed replies with a nonce", CRASH, "nonsense", fast=True),
    Attack("file_replay", "in_process", "sandbox: no shared files", INCORRECT, "ermission"),
    Attack("forked_helper", "in_process", "sandbox: no processes", INCORRECT, "not permitted"),
    Attack("low_precision", "in_process", "tolerance of the dtype", INCORRECT, "loss:", target="cross_entropy"),
    Attack("skipped_tail", "in_process", "worst row, column and element", INCORRECT, "y:"),
)


def cases(fast=tuple(a.name for a in ATTACKS if a.fast)):
    return [pytest.param(a, id=a.name, marks=() if a.name in fast else pytest.mark.slow) for a in ATTACKS]


@pytest.fixture(scope="module")
def judge():
    if sandbox.best() == "process":
        pytest.skip(f"no sandbox here: {sandbox.why_not('full')}; {sandbox.why_not('namespaces')}")
    with RawEvaluator() as one:
        yield one


def test_every_attack_has_a_mechanism_of_its_own_and_a_file():
    assert {a.name for a in ATTACKS} == {f.stem for f in (HERE / "attacks").glob("*.py")}


@pytest.mark.parametrize("attack", cases())
def test_stopped_here(attack, judge):
    text = (HERE / "attacks" / f"{attack.name}.py").read_text()
    found = judge.evaluate(text, target(attack.target), hardware("cpu"))
    assert found.status is attack.status, found.message
    assert attack.said in found.message, f"not stopped by its layer, {attack.layer}"


@pytest.mark.parametrize("attack", cases(fast=("pointer_memo", "channel_forger")))
def test_works_on_a_naive_grader(attack):
    command = [sys.executable, str(HERE / "naive_harnesses.py"), attack.harness]
    command += [str(HERE / "attacks" / f"{attack.name}.py"), attack.target]
    replay = Path("/dev/shm/avo-file-replay.pt")
    runs = 2 if attack.name == "file_replay" else 1
    try:
        for _ in range(runs):
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=60,
                env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
            )
    finally:
        replay.unlink(missing_ok=True)
    told = done.stdout.split()[-2:]
    # What calls the reference is right, and no kernel.
    assert told == ["correct", "right" if attack.name == "reference_import" else "false"], done.stdout + done.stderr
