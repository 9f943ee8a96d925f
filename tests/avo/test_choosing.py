"""Which chip and judge a run gets where there is a device, and how many candidates at once; devices are made up."""

from __future__ import annotations

from typing import Any

import pytest

from avo import choosing
from avo.errors import UserMistake
from dsl.hardware import hardware
from evaluators import device
from evaluators.device import DeviceFacts

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
