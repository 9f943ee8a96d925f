"""Packages: they run, and pass their own tests, where avo is not on the path; what cannot be shipped is told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from export_parts import H200, ROWS, doubled, made, rows, target_of_rows, tried, variant

import avo
from archive.archive import open_archive
from archive.records import Spend
from avo.candidates import each
from avo.errors import UserMistake
from avo.export import build, write
from avo.export.evidence import circumstances
from avo.export.reference import source_of
from dsl.parser import parse
from evaluators.evaluation import Evaluation, Status
from evaluators.loading import complete
from evaluators.target import Target, Workload
from evaluators.targets import target

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def test_a_package_passes_its_own_tests_without_avo(tmp_path: Path) -> None:
    job = target_of_rows()
    slow = ROWS.replace("warps 4", "warps 8")
    one, other = (w.name for w in job.workloads)
    first = variant(job, ROWS, {one: 1e-5, other: 4e-5})
    second = variant(job, slow, {one: 2e-5, other: 3e-5})
    done = tried(made(job, first, second), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 skipped" in done.stdout and "needs a GPU" in done.stdout, done.stdout
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import scaled_h200 as p; from scaled_h200 import facts; "
        "ours = [m for m in ('avo', 'dsl', 'evaluators') if m in sys.modules]; "
        "print(json.dumps([[r['kernel'] for r in facts.TABLE], ours]))"
    )
    shown = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
    assert json.loads(shown.stdout) == [[0, 1], []], shown.stderr
    facts = json.loads((tmp_path / "scaled_h200" / "provenance.json").read_text())
    assert facts["mode"] == "predicted" and len(facts["variants"]) == 2 and facts["hardware"]["arch"] == "sm_90"
    page = (tmp_path / "README.md").read_text()
    assert "**predicted** from the machine code and not measured on a chip" in page and "Forward only" in page
    for path in tmp_path.rglob("*.py"):
        assert path.read_text().startswith("# SPDX-License-Identifier: Apache-2.0\n"), path


LSE = (EXAMPLES / "attention_lse.avo").read_text().replace("bf16", "f16")
BACKWARD = (EXAMPLES / "attention_backward.avo").read_text().replace("bf16", "f16")


def with_lse(q, k, v):  # type: ignore[no-untyped-def]
    import torch

    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return torch.softmax(scores, dim=-1) @ v, torch.logsumexp(scores, dim=-1)


def target_with_lse() -> Target:
    big = Workload({"b": 2, "h": 8, "g": 8, "m": 2048, "n": 2048, "d": 64, "e": 64})
    small = Workload({"b": 1, "h": 2, "g": 1, "m": 70, "n": 90, "d": 32, "e": 32})
    return complete(Target(name="lse", reference=with_lse, seed=LSE, workloads=(big,), checks=(small,)))


@pytest.mark.slow
def test_a_backward_program_gives_gradients(tmp_path: Path) -> None:
    """Kernels forward and backward, in the interpreter, against autograd of the reference."""
    job = target_with_lse()
    package = made(job, variant(job, LSE, 1e-4), backward=parse(BACKWARD), backward_text=BACKWARD)
    done = tried(package, tmp_path)
    assert done.returncode == 0 and "9 skipped" in done.stdout, done.stdout + done.stderr
    assert "It has a backward kernel" in (tmp_path / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "cross_entropy", "matmul_fp8"])
def test_what_the_interpreter_cannot_run_is_skipped_with_a_reason_and_the_rest_passes(
    name: str, tmp_path: Path
) -> None:
    job = target(name)
    done = tried(made(job, variant(job, job.seed, 1e-4)), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the interpreter is wrong on their dtypes" in done.stdout


def test_a_backward_program_of_something_else_is_a_mistake() -> None:
    job = target_with_lse()
    one = variant(job, LSE, 1e-4)
    with pytest.raises(UserMistake, match="the backward program reads go2; it may read glse, go, k"):
        wrong = BACKWARD.replace("go[", "go2[").replace("* go)", "* go2)").replace("(go *", "(go2 *")
        made(job, one, backward=parse(wrong.replace("p * go)", "p * go2)")))
    with pytest.raises(UserMistake, match="the backward program gives o; it gives gradients of inputs: gq, gk, gv"):
        made(job, one, backward=parse(LSE.replace(", lse[b h m] f32", "").replace("lse = x + log(l)\n", "")))


def test_programs_of_one_package_are_alike() -> None:
    job = target_of_rows()
    one = variant(job, ROWS, 1e-5)
    with pytest.raises(UserMistake, match="measured and predicted times never stand in one table"):
        made(job, one, variant(job, ROWS, 1e-5, "measured"))
    with pytest.raises(UserMistake, match="a package has programs of one target on one chip"):
        made(job, one, replace(one, hardware="b200"))
    with pytest.raises(UserMistake, match="nothing to dispatch on"):
        made(job, replace(one, seconds={}))
    with pytest.raises(UserMistake, match="called by a Python name"):
        build(job, H200, [one], name="no-name")


class Card:
    """A tensor on a device that is made up, as `dispatch.here` looks at it."""

    is_cuda, device = True, "cuda:0"


@pytest.mark.parametrize(
    ("hip", "arch", "runs"),
    [(None, (9, 0), True), (None, (10, 0), False), ("6.4", "gfx942:sramecc+", False)],
)
def test_kernels_run_on_the_chip_that_they_were_made_for(
    hip: str | None, arch: Any, runs: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On NVIDIA's cards torch has the card's name where AMD's have their architecture."""
    import importlib
    import types

    import torch

    from avo.export import write

    job = target("softmax")
    write(build(job, H200, [variant(job, job.seed, 1e-4)], name=f"chosen_{abs(hash((hip, arch)))}"), tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    major, minor = arch if hip is None else (9, 0)
    facts = types.SimpleNamespace(major=major, minor=minor, gcnArchName="NVIDIA H200" if hip is None else arch)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    monkeypatch.setattr(torch.version, "hip", hip)
    (name,) = (p.name for p in tmp_path.iterdir() if p.name.startswith("chosen_"))
    assert importlib.import_module(f"{name}.dispatch").here(Card()) is runs


def test_a_program_that_is_the_fastest_nowhere_is_left_out() -> None:
    job = target_of_rows()
    slow = variant(job, ROWS, 2e-5)
    package = made(job, slow, variant(job, ROWS.replace("warps 4", "warps 8"), 1e-5))
    assert "scaled_h200/kernel_1.py" not in package.files and "num_warps=8" in package.files["scaled_h200/kernel_0.py"]
    assert len(json.loads(package.files["scaled_h200/provenance.json"])["variants"]) == 1


def test_a_reference_that_cannot_stand_alone_is_told() -> None:
    text = source_of(rows)
    space: dict[str, Any] = {}
    exec(text, space)
    assert space["reference"](2.0, 3.0) == 3.0 and "SCALE = 0.5" in text and "def doubled" in text
    with pytest.raises(UserMistake, match="no plain function"):
        source_of(lambda x: x)
    offset = 1

    def closure(x: Any) -> Any:
        return x + offset

    with pytest.raises(UserMistake, match="uses offset of the function around it"):
        source_of(closure)
    assert doubled(4.0) == 2.0


def test_every_builtin_target_can_be_exported() -> None:
    from evaluators.targets import BUILTIN

    for name in BUILTIN:
        job = target(name)
        package = made(job, variant(job, job.seed, 1e-4))
        for path, text in package.files.items():
            assert "@" not in text.replace("@triton", "").replace("@pytest", "").replace(" @ ", ""), (name, path)
            if path.endswith(".py"):
                compile(text, path, "exec")


def test_a_program_with_roles_is_exported_as_gluon_and_never_interpreted() -> None:
    job = target("attention")
    text = (EXAMPLES / "attention_sm90.avo").read_text()
    package = made(job, variant(job, text, 1e-3))
    source = package.files["attention_h200/kernel_0.py"]
    assert "from triton.experimental import gluon" in source
    compile(source, "kernel_0.py", "exec")
    assert "INTERPRETED = False" in package.files["attention_h200/facts.py"]


def test_the_verb(cli: Callable[..., Any], evolved: Path) -> None:
    answer = cli("export", "1/0", "-o", "out")
    assert answer.code == 0, answer.err
    assert "forward-only" in answer.out and (evolved / "out" / "pyproject.toml").exists()
    again = cli("export", "1/0", "-o", "out")
    assert again.code == 2 and "--force writes into it" in again.err
    missing = cli("export", "no.avo", "-o", "other")
    assert missing.code == 2 and "no such file" in missing.err
    (evolved / "x.avo").write_text(target("softmax").seed)
    file = cli("export", "x.avo", "-o", "other")
    assert file.code == 2 and "--target and --hw to have it judged now" in file.err


@pytest.mark.parametrize(
    "more", [("--hw", "h200"), ("--target", "softmax"), ("--workload", "r=64"), ("--bench", "table.json")]
)
def test_options_of_files_are_refused_for_candidates(
    cli: Callable[..., Any], evolved: Path, more: tuple[str, str]
) -> None:
    """A package for the run's chip under another one's name would come of it."""
    answer = cli("export", "1/0", "-o", "out", *more)
    assert answer.code == 2 and not (evolved / "out").exists()
    assert f"is a candidate: target, chip, sizes and verdict are its run's, and {more[0]} is for" in answer.err


def test_a_licence_is_named(cli: Callable[..., Any], evolved: Path) -> None:
    for licence in ("", " ", "MIT\nimport os"):
        answer = cli("export", "1/0", "-o", "out", "--licence", licence)
        assert answer.code == 2 and "an SPDX name, such as MIT" in answer.err and not (evolved / "out").exists()
    assert cli("export", "1/0", "-o", "out", "--licence", "Apache-2.0 OR MIT").code == 0


def judged_again(folder: Path, k: int, evaluation: Evaluation) -> None:
    """Records what came of candidate k of run 1 as a winner."""
    with open_archive(folder / "avo.db") as store:
        writer = store.claim(1)
        writer.record_promotion(k, evaluation, Spend())
        writer.release("steps")


def test_a_winner_that_failed_when_it_was_judged_again_is_not_shipped(cli: Callable[..., Any], evolved: Path) -> None:
    """Its verdict in the run stands, but it was wrong where nobody had looked before."""
    with open_archive(evolved / "avo.db", readonly=True) as store:
        top = store.best(1)
    assert top is not None and top.k in each(1)
    judged_again(evolved, top.k, Evaluation(status=Status.INCORRECT, message="wrong at a hidden size"))
    answer = cli("export", f"1/{top.k}", "-o", "out")
    assert answer.code == 2 and not (evolved / "out").exists()
    assert (
        f"candidate {top.digest[:8]}, judged again as the best of its run, was not accepted "
        "(incorrect: wrong at a hidden size)"
    ) in answer.err
    assert top.k not in each(1) and cli("export", "1/each", "-o", "out").code == 0
    with pytest.raises(avo.UserMistake, match="judged again as the best of its run, was not accepted"):
        avo.load(f"1/{top.k}", archive=evolved / "avo.db")


def test_what_was_judged_again_is_part_of_where_it_comes_from(cli: Callable[..., Any], evolved: Path) -> None:
    judged_again(evolved, 0, Evaluation(status=Status.OK, environment={"regime": {"name": "sustained"}}))
    assert cli("export", "1/0", "-o", "out").code == 0
    (place,) = (evolved / "out").glob("*/provenance.json")
    (variant,) = json.loads(place.read_text())["variants"]
    assert variant["promotion"]["environment"]["regime"]["name"] == "sustained"


def test_measured_times_name_device_regime_and_versions() -> None:
    job = target("softmax")
    facts = {
        "device": {"name": "NVIDIA H200"},
        "regime": {"name": "racing"},
        "versions": {"torch": "2.11.0", "triton": "3.6.0"},
    }
    one = replace(variant(job, job.seed, 1e-3), mode="measured", provenance={"evaluation": {"environment": facts}})
    assert circumstances(one) == "NVIDIA H200, racing regime, torch 2.11.0, triton 3.6.0"
    assert circumstances(replace(one, provenance={"benchmark": facts})) == circumstances(one)
    assert circumstances(replace(one, mode="predicted")) == ""
    text = made(job, one).files["README.md"]
    assert "**measured** (NVIDIA H200, racing regime, torch 2.11.0, triton 3.6.0).\n" in text


def test_a_package_written_over_one_of_more_kernels_has_only_its_own(tmp_path: Path) -> None:
    job = target_of_rows()
    one, other = (w.name for w in job.workloads)
    first = variant(job, ROWS, {one: 1e-5, other: 4e-5})
    second = variant(job, ROWS.replace("warps 4", "warps 8"), {one: 2e-5, other: 3e-5})
    write(made(job, first, second), tmp_path)
    (tmp_path / "scaled_h200" / "kernel_notes.py").write_text("# somebody's own")
    write(made(job, first), tmp_path, force=True)
    assert sorted(p.name for p in (tmp_path / "scaled_h200").glob("kernel_*.py")) == ["kernel_0.py", "kernel_notes.py"]
