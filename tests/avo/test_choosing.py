"""Which chip and judge a run gets where there is a device, and how many candidates at once; devices are made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import avo
from avo import choosing
from avo.errors import UserMistake
from dsl.hardware import hardware
from evaluators import device
from evaluators.device import DeviceFacts
from evaluators.targets import target

H200 = DeviceFacts(name="NVIDIA H200", uuid="GPU-1")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def has(*devices: DeviceFacts) -> None:
        monkeypatch.setattr(device, "local_devices", lambda: list(devices))

    return has


def test_auto_names_the_chip_that_is_here(machine: Any) -> None:
    machine(H200)
    chip = choosing.chip("auto")
    assert chip.name == "h200" and choosing.judge("local", chip) == "measured"
    machine()
    with pytest.raises(UserMistake, match=r"no device was found here.*Name a chip to predict times for.*b200"):
        choosing.chip("auto")
    machine(H200.model_copy(update={"name": "NVIDIA T4"}))
    with pytest.raises(UserMistake, match="NVIDIA T4, is none that avo knows peaks of"):
        choosing.chip("auto")


def test_another_chip_than_the_one_named_is_an_error_that_says_how_to_go_on(machine: Any) -> None:
    machine(H200)
    with pytest.raises(UserMistake, match=r"NVIDIA H200, not b200.*--hw h200.*--evaluator predicted"):
        choosing.judge("local", hardware("b200"))
    assert choosing.judge("predicted", hardware("b200")) == "predicted"  # who asks for a prediction gets one
    machine(H200.model_copy(update={"mig": True}))
    with pytest.raises(UserMistake, match="MIG"):
        choosing.judge("local", hardware("h200"))


def test_without_a_known_device_times_are_predicted(machine: Any) -> None:
    machine()
    assert choosing.judge("local", hardware("b200")) == "local"
    machine(H200.model_copy(update={"name": "NVIDIA T4"}))
    assert choosing.judge("local", hardware("b200")) == "local"
    assert choosing.judge("local", hardware("cpu")) == "local"


def test_a_device_gets_candidates_from_every_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluators.process.cores", lambda: 16)
    assert choosing.jobs("measured") == 24 and choosing.jobs("local") == choosing.jobs("predicted") == 2
    monkeypatch.setattr("evaluators.process.cores", lambda: 200)
    assert choosing.jobs("measured") == 32
    monkeypatch.setattr("evaluators.process.cores", lambda: 1)
    assert choosing.jobs("measured") == 2


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("sol", "--target", "softmax"), "NVIDIA H200"),
        (("spec",), "h200"),
        (("knowledge", "tma"), ""),
        (("grammar", "--for", "x.avo"), ""),
    ],
)
def test_every_verb_with_a_chip_takes_the_one_that_is_here(
    cli: Callable[..., Any], machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, shown: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.avo").write_text(target("softmax").seed)
    machine(H200)
    found, named = cli(*arguments, "--hw", "auto"), cli(*arguments, "--hw", "h200")
    assert found.code == 0 and found.out == named.out and shown in found.out
    machine()
    nothing = cli(*arguments, "--hw", "auto")
    assert nothing.code == 2 and "--hw auto: no device was found here" in nothing.err


def test_auto_is_a_chip_for_facts_imports_and_loading_too(
    cli: Callable[..., Any], machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(H200)
    assert cli("hardware", "auto").out == cli("hardware", "h200").out
    assert avo.load(target("softmax").seed, "auto").hardware.name == "h200"
    machine()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.py").write_text("def f(x):\n    return x * 2\n")
    answer = cli("import", "f.py:f", "--hw", "auto", "--shapes", "x[r=4 c=8] f32")
    assert answer.code == 2 and "no device was found here" in answer.err


UNTIMED = """
from avo import Evaluation, Status

class Untimed:
    def evaluate(self, text, target, hardware):
        return Evaluation(status=Status.OK, unit=target.unit)
    def close(self): ...
"""


def test_a_run_without_times_says_that_nothing_is_ranked(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the CPU: all are right, so none may be called not accepted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "untimed.py").write_text(UNTIMED)
    more = ("--evaluator", "untimed.py", "--agent", "random", "--steps", "1", "--jobs", "1")
    answer = cli("evolve", "--target", "softmax", "--hw", "cpu", *more)
    assert answer.code == 0, answer.err
    assert "2 of 2 candidates passed every gate; without times none of them is the best" in answer.out
    assert "accepted yet" not in answer.out and "finishing 0" not in answer.out


def test_what_has_to_be_measured_without_its_chip_is_no_mistake(
    cli: Callable[..., Any], machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The harness is not there: 3, as of the verbs that only measure. A run that is taken up cannot be predicted."""
    from archive import open_archive
    from avo.config import RunConfig

    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.avo").write_text(target("softmax").seed)
    machine()
    named = ("--target", "softmax", "--hw", "h200", "--evaluator", "measured")
    judged = cli("eval", "x.avo", *named)
    assert judged.code == 3
    assert "no h200 is here, so nothing can be measured. --evaluator predicted predicts its times" in judged.err
    begun = cli("evolve", *named, "--steps", "1")
    assert begun.code == 3 and "A new run predicts with --evaluator predicted" in begun.err
    assert not (tmp_path / "avo.db").exists()
    config = RunConfig(target="softmax", hw="h200", evaluator="measured", steps=1, jobs=2).model_dump(mode="json")
    with open_archive(tmp_path / "avo.db") as store:
        store.create_run(target="softmax", hardware="h200", agent="heuristic", seed=0, jobs=2, judge="j", config=config)
    resumed = cli("evolve", "--resume", "1")
    assert resumed.code == 3 and "`avo replay RUN` does it again from the record anywhere" in resumed.err
    machine(H200.model_copy(update={"name": "NVIDIA B200"}))
    other = cli("evolve", "--resume", "1")
    assert other.code == 3 and "the device here is NVIDIA B200, not h200: measure here with --hw b200" in other.err
