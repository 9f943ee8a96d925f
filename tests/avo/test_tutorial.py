"""The commands of the tutorial and of the how-tos, run as a reader would: in order, in one new folder each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def commands(page: str) -> list[str]:
    """The lines after `$ ` in blocks marked console."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, flags=re.M | re.S)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def follow(page: str, folder: Path) -> None:
    folder.mkdir()
    programs = folder.parent / "bin"
    programs.mkdir(exist_ok=True)
    for name, module in (("avo", "-m avo "), ("python", "")):
        file = programs / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        file.chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    for command in commands(page):
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, f"{page}: {command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert "Traceback" not in done.stderr, command


def test_there_are_commands_to_follow() -> None:
    assert len(commands("tutorial.md")) > 10 and len(commands("howto.md")) > 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    follow("tutorial.md", tmp_path / "new")
    assert (tmp_path / "new" / "avo-report-1.html").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_how_tos_can_be_followed(tmp_path: Path) -> None:
    follow("howto.md", tmp_path / "new")
