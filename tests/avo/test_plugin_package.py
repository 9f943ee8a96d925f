"""A real third-party distribution, installed by pip and used from outside the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[1] / "plugin_package"
AVO = [sys.executable, "-c", "from avo.cli import main; main()"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example package is installed, as pip does it."""
    work = tmp_path_factory.mktemp("plugin")
    source = work / "source"
    shutil.copytree(PACKAGE, source)  # a build writes beside what it builds
    into = work / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "--no-deps", "--no-build-isolation", "--no-index", "--target", str(into), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return into


def test_its_target_evaluator_and_agent_work_by_name_from_outside(site: Path, tmp_path: Path) -> None:
    parts = ["--target", "row_l2", "--evaluator", "waves", "--agent", "one_knob", "--steps", "3"]
    command = [*AVO, "evolve", *parts, "--set", "evaluator_options.penalty=0.2"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr
    assert "run 1 ended: all steps are done" in done.stdout


@pytest.fixture
def installed(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In this process, as if it were installed; the working folder is somewhere else."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_parts_work_by_name_and_by_module_and_resume(cli: Callable[..., Any], installed: Path) -> None:
    parts = ["--target", "avo_example.target:ROW_L2", "--evaluator", "avo_example.evaluator:WavesEvaluator"]
    more = ["--set", "evaluator_options.penalty=0.2"]
    done = cli("evolve", *parts, "--agent", "avo_example.agent:OneKnob", "--steps", 2, *more)
    assert done.code == 0, done.err
    shown = json.loads(cli("show", "1/0", "--json").out)
    assert {"penalty": 0.2} in [g["evidence"] for g in shown["evaluation"]["gates"]]
    assert "[5/5]" in cli("evolve", "--resume", "--steps", 5).out
    assert "row_l2" in cli("targets").out
    wrong = cli("evolve", "--target", "row_l2", "--evaluator", "waves", "--set", "evaluator_options.penalti=1")
    assert wrong.code == 2 and "did you mean 'penalty'?" in wrong.err


def test_doctor_lists_it_and_shows_what_is_broken(
    cli: Callable[..., Any], installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = json.loads(cli("doctor", "--quick", "--json").out)
    (line,) = [f["found"] for f in found if f["name"] == "plug-ins"]
    assert "target row_l2 (avo-example 1.2.3)" in line and "evaluator waves" in line
    other = installed / "other"
    info = other / "their_dist-0.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-dist\nVersion: 0.5\n")
    (info / "entry_points.txt").write_text(
        "[avo.targets]\nrow_l2 = theirs:X\n[avo.agents]\ngone = no_such_module_x:Y\n"
    )
    monkeypatch.syspath_prepend(str(other))
    shown = cli("doctor", "--quick")
    assert shown.code == 0, shown.out  # a plug-in that is broken stops nobody else
    text = " ".join(shown.out.split())
    assert "plug-in gone" in text and "no_such_module_x" in text
    assert "avo-example 1.2.3" in text and "their-dist 0.5" in text
    clash = cli("targets", "row_l2")
    assert clash.code == 2 and "two owners claim the target 'row_l2': " in clash.err
    assert "avo-example 1.2.3 (avo_example.target:ROW_L2)" in clash.err and "their-dist 0.5 (theirs:X)" in clash.err
    listed = cli("targets")
    assert listed.code == 0 and "attention" in listed.out and "two owners claim" in listed.err
    used = cli("evolve", "--target", "gemm", "--agent", "gone", "--evaluator", "waves")
    assert used.code == 2 and "the agent plugin 'gone' of their-dist 0.5 is broken" in used.err


def test_the_contract_tests_that_it_ships_pass(site: Path, tmp_path: Path) -> None:
    shutil.copy(PACKAGE / "tests" / "test_contract.py", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    command = [sys.executable, "-m", "pytest", "-q", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=500)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(".") >= 15, "all of three contracts ran"


def test_the_documents_show_the_package_as_it_is() -> None:
    page = (PACKAGE.parents[1] / "docs" / "plugins.md").read_text()
    for name in ("evaluator.py", "agent.py"):
        assert (PACKAGE / "avo_example" / name).read_text().strip() in page, f"docs/plugins.md does not show {name}"
    assert (PACKAGE / "pyproject.toml").read_text().strip() in page
    assert (PACKAGE / "tests" / "test_contract.py").read_text().strip() in page
