"""`avo profile` without a device, its page, and the note that it leaves in an archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archive.archive import open_archive
from avo.cli.profile import page
from dsl.hardware import hardware
from evaluators import device, profiling
from evaluators.device import DeviceFacts
from evaluators.profiling import Kernel, Profile
from evaluators.targets import target

FOUND = Profile(
    workload="r=8,c=8", hardware="b200", device="NVIDIA B200", date="2026-01-01T00:00:00", tool="ncu", seconds=2e-5,
    bottleneck="memory (HBM)", why="row_l2_kernel: busy for 91% of its peak", shares={"memory": 0.9, "alu": 0.1},
    kernels=(Kernel(name="row_l2_kernel", seconds=1.9e-5, bottleneck="memory (HBM)"),), tried={"proton": "not here"},
)  # fmt: skip


def test_without_a_device_it_says_so_and_what_works(cli: Callable[..., Any], evolved: Path) -> None:
    answer = cli("profile", "1/0")
    assert answer.code == 3 and "a profile is of a device. `avo show` has the machine code" in answer.err
    answer = cli("profile", "x.avo", "--hw", "h200")
    assert answer.code == 2 and "no such file" in answer.err


def test_mistakes_come_before_the_device_is_asked_for(cli: Callable[..., Any], evolved: Path) -> None:
    (evolved / "x.avo").write_text(target("softmax").seed)
    (evolved / "old.json").write_text("{}")
    job = ("x.avo", "--target", "softmax")
    for arguments, code, said in (
        (("1/0", "--target", "softmax"), 2, "1/0 is a candidate and has its run's target"),
        (("1/0", "--workload", "z=1"), 2, "'z'"),
        (("1/0", "-o", "old.json"), 2, "old.json is there already"),
        ((*job, "--hw", "cpu"), 2, "cpu makes no speed claim"),
        (job, 3, "no GPU was found here: a profile is of a device"),
        ((*job, "--hw", "h200"), 3, "no h200 is here, so nothing can be measured: a profile is of a device"),
    ):
        answer = cli("profile", *arguments)
        assert answer.code == code and said in answer.err, answer.err


def test_the_page_begins_with_the_bottleneck() -> None:
    said = page("1/0", FOUND)
    assert said.splitlines()[0] == "1/0 on NVIDIA B200, r=8,c=8: memory (HBM)"
    assert "measured 20 us a call" in said and "proton was not used: not here" in said


def test_a_profile_is_kept_as_a_note_of_its_run(
    cli: Callable[..., Any], evolved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = DeviceFacts(name="NVIDIA B200", uuid="GPU-x")
    monkeypatch.setattr(device, "local_devices", lambda: [card])
    monkeypatch.setattr(profiling, "profile", lambda *args, **more: FOUND)
    answer = cli("profile", "1/0", "-o", "p.json")
    assert answer.code == 0 and "memory (HBM)" in answer.out, answer.err
    assert Profile.model_validate_json((evolved / "p.json").read_text()) == FOUND
    with open_archive(evolved / "avo.db", readonly=True) as store:
        (note,) = store.notes(run=1)
        record = store.run(1)
    assert note.topic == "profile" and note.k == 0 and "memory (HBM). row_l2_kernel: busy for 91%" in note.body
    assert record.state == "ended" and record.ended == "steps"
    assert hardware(record.hardware).name == "b200"
