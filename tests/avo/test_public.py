"""The public face: what `import avo` gives and costs, and what still works where Triton is not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import avo
import avo.plugins

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"

PROGRAM = """\
kernel scale
in  x[r c] f32
out y[r c] f32
y = x * 2

schedule
tile r=1 c=all
grid r
"""

HEAVY = {"torch", "triton", "sqlalchemy", "optuna", "numpy", "pydantic", "rich", "lark", "typer"}


def loaded_after(code: str, cwd: Path, prelude: str = "") -> set[str]:
    """Top names of the modules that a fresh interpreter has loaded after `code`."""
    script = f"{prelude}\nimport sys\n{code}\nprint('\\n' + ' '.join(sorted(m for m in sys.modules if '.' not in m)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=cwd, timeout=300)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def run_main(*arguments: str) -> str:
    return (
        f"from avo.cli import main\ntry: main({list(arguments)!r})\nexcept SystemExit as e: assert not e.code, e.code"
    )


def test_import_avo_loads_nothing_heavy(tmp_path: Path) -> None:
    assert not loaded_after("import avo", tmp_path) & HEAVY
    assert not loaded_after("from avo import Evaluator, Target, Workload, evolve, load", tmp_path) & (
        HEAVY - {"pydantic"}
    )


def test_help_and_check_load_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "p.avo").write_text(PROGRAM)
    assert not loaded_after(run_main("--help"), tmp_path) & (HEAVY - {"typer"})
    loaded = loaded_after(run_main("check", "p.avo", "--hw", "b200"), tmp_path)
    assert not loaded & (HEAVY - {"typer", "lark", "pydantic"})  # typer itself loads pydantic where it finds it


def test_every_public_name_resolves() -> None:
    for name in avo.__all__:
        assert getattr(avo, name) is not None
    assert set(avo.__all__) <= set(dir(avo))
    assert callable(avo.evolve) and callable(avo.load)
    with pytest.raises(AttributeError, match="has no attribute 'evlove'"):
        avo.evlove  # noqa: B018


def test_a_loaded_kernel_has_its_source_and_its_meaning(tmp_path: Path) -> None:
    path = tmp_path / "scale.avo"
    path.write_text(PROGRAM)
    kernel = avo.load(path, hw="h200")
    assert "import triton" in kernel.source and kernel.text.startswith("kernel scale")
    compile(kernel.source, "kernel.py", "exec")
    x = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(kernel.meaning({"x": x})["y"], 2 * x)
    assert repr(kernel).startswith("<avo kernel scale ")
    assert avo.load(PROGRAM).program == kernel.program
    import torch

    with pytest.raises(avo.UserMistake, match="runs on a GPU"):
        kernel(torch.ones(2, 3))
    with pytest.raises(avo.UserMistake, match=r"takes 1 tensor \(x\)"):
        kernel()
    with pytest.raises(avo.UserMistake, match="no such file"):
        avo.load(tmp_path / "none.avo")
    with pytest.raises(avo.ProgramError, match="unknown"):
        avo.load(PROGRAM.replace("x * 2", "z * 2"))


# Without Triton: macOS and Windows, where it has no wheel ------------------------------------------------------------

NO_TRITON = """
import importlib.machinery as machinery, sys
sys.modules.update(dict.fromkeys(("resource", "fcntl", "pwd", "grp", "termios", "pty")))  # nor are these on Windows
whole = machinery.PathFinder.find_spec
def without(name, path=None, target=None):
    return None if name.partition(".")[0] == "triton" else whole(name, path, target)
machinery.PathFinder.find_spec = without
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with one short run, made where Triton is."""
    archive = tmp_path_factory.mktemp("run") / "run.db"
    target = avo.plugins.load("target", str(EXAMPLE / "target.py"))
    agent, evaluator = (avo.plugins.load(kind, str(EXAMPLE / f"{kind}.py"))() for kind in ("agent", "evaluator"))
    avo.evolve(target, steps=2, agent=agent, evaluator=evaluator, archive=archive).close()
    return archive


def without_triton(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = f"{NO_TRITON}\nfrom avo.cli import main\nmain({list(arguments)!r})"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=where, timeout=500)


QUICK = [
    ("check", "p.avo", "--hw", "b200"),
    ("fmt", "p.avo"),
    ("knobs", "p.avo", "--hw", "b200"),
    ("sol", "--target", "attention"),
    ("lower", "p.avo", "--hw", "b200"),
    ("report", "--archive", "run.db"),
    ("log", "1", "--archive", "run.db"),
    ("diff", "1/0", "1/1", "--archive", "run.db"),
    ("targets",),
    ("hardware", "b200"),
]


def test_what_needs_no_compiler_works_without_triton(tmp_path: Path, run: Path) -> None:
    (tmp_path / "p.avo").write_text(PROGRAM)
    shutil.copy(run, tmp_path)
    lines = [f"{run_main(*arguments)}\nprint('done', {arguments[0]!r})" for arguments in QUICK]
    script = "\n".join([NO_TRITON, *lines])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=500)
    assert done.returncode == 0, done.stderr
    assert [row[5:] for row in done.stdout.splitlines() if row.startswith("done ")] == [a[0] for a in QUICK]


@pytest.mark.parametrize(
    "arguments",
    [
        ("lower", "p.avo", "--hw", "b200", "--emit", "ptx", "--target", "softmax"),
        ("evolve", "--target", "softmax", "--steps", "2"),
    ],
)
def test_what_compiles_says_what_is_missing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "p.avo").write_text(PROGRAM)
    done = without_triton(tmp_path, *arguments)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "needs Triton, which is not installed" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "avo.db").exists()


def test_eval_goes_as_far_as_the_meaning_without_triton(tmp_path: Path) -> None:
    (tmp_path / "p.avo").write_text(avo.plugins.load("target", "softmax").seed)
    done = without_triton(tmp_path, "eval", "p.avo", "--target", "softmax", "--hw", "b200")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "meaning  ok" in done.stdout and "triton" in done.stdout and "Traceback" not in done.stderr


def test_doctor_says_that_triton_is_missing(tmp_path: Path) -> None:
    done = without_triton(tmp_path, "doctor", "--json")
    found = {f["name"]: f for f in json.loads(done.stdout)}
    assert found["triton"]["verdict"] == ("fail" if sys.platform == "linux" else "warn")
    assert "nothing can be compiled" in found["triton"]["found"] and found["triton"]["advice"]
    assert "interpreter" not in found
