"""How the tests of the command line call it: in this process, as a person would, with code and output caught."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """`cli("check", "x.avo")` -> exit code, stdout, stderr. No answer may be a traceback."""
    from avo.cli import main

    def call(*arguments: object) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([os.fspath(a) if isinstance(a, os.PathLike) else str(a) for a in arguments])
        caught = capsys.readouterr()
        assert "Traceback" not in caught.out + caught.err
        assert "this is a bug in avo" not in caught.err, caught.err
        code = left.value.code
        return Answer(code if isinstance(code, int) else 0, caught.out, caught.err)

    return call


@pytest.fixture(scope="session")
def evolved_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of one short run, by the example package's target, agent and evaluator."""
    from avo.cli import main

    folder = tmp_path_factory.mktemp("evolved")
    parts = [str(part) for kind in ("target", "agent", "evaluator") for part in (f"--{kind}", EXAMPLE / f"{kind}.py")]
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as left:
        main(["evolve", *parts, "--steps", "4"])
    assert left.value.code == 0
    return folder


@pytest.fixture
def evolved(evolved_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `evolved_once` for each test, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(evolved_once, tmp_path, dirs_exist_ok=True)
    return tmp_path
