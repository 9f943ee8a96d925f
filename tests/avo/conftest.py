"""How the tests of the command line call it: in this process, as a person would, with code and output caught."""

from __future__ import annotations

import os
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


@pytest.fixture
def evolved(cli: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an archive of one short run, by the example package's target, agent and evaluator."""
    monkeypatch.chdir(tmp_path)
    parts = [part for kind in ("target", "agent", "evaluator") for part in (f"--{kind}", EXAMPLE / f"{kind}.py")]
    done = cli("evolve", *parts, "--steps", 4)
    assert done.code == 0, done.err
    return tmp_path
