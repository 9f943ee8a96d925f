"""Runs of raw Triton: a model writes files, the sandbox judges them, and gaming is told to whoever proposes next."""

from __future__ import annotations

from pathlib import Path

import pytest

import avo
from avo.agents.answer import Unreadable, read_answer
from avo.agents.model_agent import ModelAgent
from avo.errors import UserMistake
from avo.models.scripted import ScriptedModel
from avo.python_arm import lowered, trouble
from dsl.hardware import hardware
from evaluators.loading import complete
from evaluators.targets import target

CORPUS = Path(__file__).parents[1] / "integrity"
HONEST = (CORPUS / "honest" / "base_two.py").read_text()
CHEAT = (CORPUS / "attacks" / "decoy_numpy.py").read_text()


def fenced(text):
    return f"why: because\n\n```python\n{text}```\n"


def test_a_model_that_cheats_is_told_and_then_does_the_work(tmp_path):
    model = ScriptedModel([fenced(CHEAT), fenced("def run(x:\n"), fenced(HONEST)])
    agent = ModelAgent(model)
    job = {"target": "softmax", "hw": "h200", "language": "python", "archive": tmp_path / "a.db", "jobs": 1}
    with avo.evolve(agent=agent, steps=2, **job) as run:
        found = run.history().all()
        assert [c.status for c in found] == ["ok", "gaming", "ok"]
        assert found[0].text == lowered(complete(target("softmax")), hardware("h200"))
        assert found[2].text == HONEST
        assert run.record.config["given"]["language"] == "python"
    briefs = [m.text for request in model.requests for m in request.messages if m.role == "user"]
    assert (
        "def run(x[r c] bf16)" in briefs[0]
        and "(host::numpy); this target" in briefs[1]
        and "(rule: library calls)" in briefs[1]
    )
    assert any("it is no Python: line 1" in text for text in briefs)
    assert "in a sandbox" in model.requests[0].system
    with avo.resume(
        archive=tmp_path / "a.db", steps=3, agent=ModelAgent(ScriptedModel([fenced(CHEAT + "# 2")]))
    ) as again:
        last = again.history().all()[-1]
        assert last.status == "gaming" and last.inherited == 1


@pytest.mark.slow
def test_a_weak_sandbox_promotes_nothing_unless_it_is_accepted(tmp_path, monkeypatch):
    from evaluators.integrity import sandbox

    monkeypatch.setattr(sandbox, "best", lambda: "process")
    model = ModelAgent(ScriptedModel([fenced(HONEST)]))
    job = {"target": "softmax", "hw": "h200", "language": "python", "steps": 1, "jobs": 1}
    with avo.evolve(agent=model, archive=tmp_path / "a.db", **job) as run:
        kept = run.history().all()[1].evaluation
        assert kept.environment["sandbox"] == {"level": "process", "accepted": "full", "promotable": False}
    with avo.evolve(agent=model, archive=tmp_path / "b.db", accept_sandbox="process", **job) as run:
        assert run.history().all()[1].evaluation.environment["sandbox"]["promotable"]


def test_who_may_not_propose_and_what_a_run_may_not_begin_with(tmp_path):
    with pytest.raises(UserMistake, match="heuristic edits programs of the language"):
        avo.evolve("softmax", "h200", language="python", archive=tmp_path / "a.db")
    file = tmp_path / "kernel.py"
    file.write_text("def kernel(x):\n    return x\n")
    with pytest.raises(UserMistake, match="has no function `run"):
        avo.evolve("softmax", "h200", language="python", agent="outside", program=file, archive=tmp_path / "a.db")
    with pytest.raises(UserMistake, match="language"):
        avo.evolve("softmax", "h200", language="cuda", archive=tmp_path / "a.db")
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ("def run(x):\n    return x\n", "def run(x):\n    return x\n"),
        ("Prose.\n```\nold\n```\n```python\nimport torch\nrun = torch.abs\n```\n", "import torch\nrun = torch.abs\n"),
        ("```diff\n@@\n-    return x\n+    return x + 1\n```", "def run(x):\n    return x + 1\n"),
        ('{"program": "def run(x):\\n    pass"}', "def run(x):\n    pass\n"),
    ],
)
def test_forms_of_an_answer(answer, wanted):
    assert read_answer(answer, "def run(x):\n    return x\n", "python").text == wanted


def test_an_answer_without_a_file():
    with pytest.raises(Unreadable, match="no `run` in the answer"):
        read_answer("tile m=128", "def run(x):\n    return x\n", "python")
    assert trouble("from lib import run\n") == "" and "no Python" in trouble("def run(")
