"""Where targets, chips, evaluators and agents come from, and what each kind of trouble is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import avo
from avo import plugins
from avo.errors import UserMistake
from evaluators.target import Target


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[tuple[str, str, str]]]]:
    """group -> (name, reference, distribution) that some third party claims."""
    claimed: dict[str, list[tuple[str, str, str]]] = {}

    def entry_points(group: str) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(name=n, value=v, dist=SimpleNamespace(name=d, version="1.0"))
            for n, v, d in claimed.get(group, [])
        ]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    yield claimed


def test_built_ins_are_listed_without_importing_them() -> None:
    assert "attention" in plugins.names("target")
    assert "b200" in plugins.names("hardware")
    assert "local" in plugins.names("evaluator")
    assert "heuristic" in plugins.names("agent")
    assert plugins.names("model") == []


@pytest.mark.parametrize("name", plugins.names("target"))
def test_every_built_in_target_loads_under_its_name(name: str) -> None:
    assert plugins.load("target", name).name == name


@pytest.mark.parametrize("spelling", ["b200", "B200", "sm_100", "NVIDIA B200", "HGX B200"])
def test_a_chip_has_many_spellings(spelling: str) -> None:
    assert plugins.load("hardware", spelling).name == "b200"


def test_an_unknown_name_lists_the_known_ones_nearest_first() -> None:
    with pytest.raises(UserMistake) as told:
        plugins.load("target", "atention")
    assert str(told.value).startswith("unknown target 'atention'; did you mean 'attention'? known: attention,")


def test_a_clash_names_both_owners(claims: dict[str, list[tuple[str, str, str]]]) -> None:
    claims["avo.targets"] = [
        ("attention", "theirs.jobs:ATTENTION", "theirs"),
        ("mine", "a:B", "a"),
        ("mine", "c:D", "c"),
    ]
    with pytest.raises(UserMistake, match=r"two owners claim the target 'attention': avo .* and theirs 1\.0"):
        plugins.load("target", "attention")
    with pytest.raises(UserMistake, match=r"a 1\.0 \(a:B\) and c 1\.0 \(c:D\)"):
        plugins.load("target", "mine")
    assert plugins.load("target", "gemm").name == "gemm"  # the others stay usable
    assert [b.plugin.name for b in plugins.broken()] == ["attention", "mine", "mine"]


def test_a_broken_plugin_fails_by_name_when_used(claims: dict[str, list[tuple[str, str, str]]]) -> None:
    claims["avo.evaluators"] = [("gone", "no_such_package.x:Y", "their-dist")]
    assert "gone" in plugins.names("evaluator")
    with pytest.raises(
        UserMistake, match=r"the evaluator plugin 'gone' of their-dist 1\.0 is broken: .*no_such_package"
    ):
        plugins.load("evaluator", "gone")


def test_a_class_by_module_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_judge_here.py").write_text(
        "class Mine:\n    def __init__(self, jobs=1, x=0): self.seen = (jobs, x)\n"
        "    def evaluate(self, text, target, hardware): ...\n    def close(self): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    made = plugins.create("evaluator", "my_judge_here:Mine", {"jobs": 3, "seed": 9}, {"x": 4})
    assert made.seen == (3, 4)
    with pytest.raises(UserMistake, match=r"unknown option of the evaluator .* 'y'"):
        plugins.create("evaluator", "my_judge_here:Mine", {}, {"y": 4})
    with pytest.raises(UserMistake, match=r"unknown name in my_judge_here: 'Mnie'; did you mean 'Mine'\?"):
        plugins.load("evaluator", "my_judge_here:Mnie")
    with pytest.raises(UserMistake, match=r"cannot import 'no_such_module_x:Y': no module 'no_such_module_x'"):
        plugins.load("evaluator", "no_such_module_x:Y")


def test_a_class_that_lacks_a_method_is_told_which(tmp_path: Path) -> None:
    path = tmp_path / "half.py"
    path.write_text("class Half:\n    def evaluate(self, text, target, hardware): ...\n")
    with pytest.raises(UserMistake, match=r"lacks close\(\)"):
        plugins.load("evaluator", f"{path}:Half")
    with pytest.raises(UserMistake, match="defines no evaluator: it needs a class with evaluate and close"):
        plugins.load("evaluator", str(path))


GOOD = """
from avo import Target, Workload
SEED = '''kernel twice
in  x[r c] bf16
out y[r c] bf16
y = x * 2
'''
def reference(x):
    return x * 2
TARGET = Target(name="twice", reference=reference, seed=SEED, workloads=(Workload({"r": 64, "c": 64}),))
"""


def test_a_target_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(GOOD)
    found = plugins.load("target", str(path))
    assert isinstance(found, Target) and found.name == "twice"
    assert plugins.load("target", f"{path}:TARGET") is found


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise RuntimeError('no luck')", r"bad\.py raised RuntimeError: no luck \(.*bad\.py, line 1\)"),
        ("import sys; sys.exit(3)", r"bad\.py raised SystemExit: 3 \(.*bad\.py, line 1\)"),
        ("x = (", r"SyntaxError: .*bad\.py, line 1"),
        ("import no_such_module_x", r"raised ModuleNotFoundError: .*no_such_module_x"),
        ("x = 1", r"defines no target: it needs a Target at module level"),
        (
            GOOD + "\nOTHER = Target(name='o', reference=reference, seed=SEED, workloads=())\n",
            "defines several: name one of",
        ),
    ],
)
def test_a_target_file_that_does_not_work_says_where(tmp_path: Path, body: str, message: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(body)
    with pytest.raises(UserMistake, match=message):
        plugins.load("target", str(path))


def test_a_missing_file_and_a_wrong_kind_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"no such file: .*gone\.py"):
        plugins.load("target", str(tmp_path / "gone.py"))
    path = tmp_path / "number.py"
    path.write_text("TARGET = 3\n")
    with pytest.raises(UserMistake, match="is int, not an avo Target"):
        plugins.load("target", f"{path}:TARGET")


def test_a_recorded_table_is_named_by_its_path(tmp_path: Path) -> None:
    table = Path(__file__).parents[2] / "benchmarks" / "data" / "tables" / "gemm_4096.json"
    judge = plugins.create("evaluator", f"recorded:{table}", {"jobs": 2})
    assert [t.name for t in judge.tables] == ["gemm_4096"]
    for name, said in (("recorded", "recorded:PATH"), (f"recorded:{tmp_path}", "no *.json in this folder")):
        with pytest.raises(UserMistake) as told:
            plugins.create("evaluator", name, {})
        assert said in str(told.value) and ".py" not in str(told.value)


def test_a_chip_that_cannot_be_is_refused_wherever_it_is_named(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chip.py").write_text(
        "import dataclasses, math\nimport avo\n"
        "CHIP = dataclasses.replace(avo.hardware('h100'), name='mine', sms=0, clock_hz=math.nan)\n"
    )
    said = "sms is 0; it wants a whole number above 0; clock_hz is nan; it wants a finite number above 0"
    for verb in (("sol", "--hw"), ("evolve", "--steps", "1", "--hw"), ("hardware",)):
        answer = cli(*verb, "chip.py")
        assert answer.code == 2 and f"the hardware chip.py: {said}: see docs/plugins.md" in answer.err
    with pytest.raises(UserMistake, match="the hardware mine: sms is 0"):
        avo.evolve(target="softmax", hw=dataclasses.replace(avo.hardware("h100"), name="mine", sms=0), steps=1)
