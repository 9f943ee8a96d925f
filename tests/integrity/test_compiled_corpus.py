"""Kernels of honest candidates are such as a device's compiler takes, and not the interpreter alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Their kernels are for the interpreter, or are meant to fail wherever they are compiled.
NEVER = {
    "attacks/fallback_to_torch": "equal ranks",
    "attacks/host_code_in_kernel": "Unsupported function referenced",
}
# No kernel is launched as they are called here.
NOT_LAUNCHED = {"attacks/told_another", "attacks/hidden_text"}


def compiled(folder: Path, *parts: str) -> dict[str, dict[str, object]]:
    paths = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": paths, "TRITON_INTERPRET": "0"}
    command = [sys.executable, str(HERE / "compiled_corpus.py"), str(folder), *parts]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr[-1500:]
    return {row["name"]: row for row in rows}


def test_honest_kernels_are_what_the_language_allows() -> None:
    rows = compiled(HERE, "honest")
    assert len(rows) >= 35
    assert {name: row for name, row in rows.items() if row["wrong"] or row["ended"] or not row["kernels"]} == {}


@pytest.mark.slow
def test_all_kernels_become_machine_code() -> None:
    """Of the corpus for a device those that need none to load and launch."""
    rows = compiled(HERE, "--whole")
    odd = {name: row for name, row in rows.items() if row["wrong"] or not row["kernels"]}
    assert odd.keys() == {*NEVER, *NOT_LAUNCHED}
    assert all(said in str(odd[name]["wrong"]) for name, said in NEVER.items())
    assert {name: row["ended"] for name, row in rows.items() if row["ended"]} == {}
    on_device = compiled(HERE / "device", "--whole")
    assert {name: row["wrong"] for name, row in on_device.items() if row["wrong"]} == {}
    assert sum(row["kernels"] != 0 for row in on_device.values()) >= 20


def test_a_kernel_for_the_interpreter_alone_is_found(tmp_path: Path) -> None:
    (tmp_path / "honest").mkdir()
    (tmp_path / "attacks").mkdir()
    (tmp_path / "corpus.toml").write_text('[honest]\ntwo_widths = { reason = "a name of two widths" }\n')
    source = (HERE / "honest" / "base_two.py").read_text()
    body = "    e = tl.exp2(v - tl.max(v, 0))\n"
    assert source.count(body) == 1
    both = f"{body}    if row > 1:\n        v = tl.zeros((2 * BLOCK,), tl.float32)\n"
    (tmp_path / "honest" / "two_widths.py").write_text(source.replace(body, both))
    (row,) = compiled(tmp_path).values()
    assert "CompilationError" in str(row["wrong"]) and row["kernels"] == 0
