"""The registry, the scripted agent and random search."""

from __future__ import annotations

from pathlib import Path

import pytest
from loop_parts import HW, TARGET, HashEvaluator, Watch

from archive import open_archive
from avo.agents import Agent, Brief, Judged, Proposal
from avo.agents.random import RandomAgent
from avo.agents.registry import agent
from avo.agents.scripted import ScriptedAgent
from avo.budget import Budget
from avo.errors import UserMistake
from avo.programs import named
from avo.run import begin, proceed
from dsl.check import check
from dsl.hardware import hardware
from dsl.parser import parse
from evaluators.evaluation import Evaluation, Score, Status
from evaluators.target import Target
from evaluators.targets import target


def brief(k: int, seed: int = 0, job: Target | None = None, chip: str = "b200", text: str | None = None) -> Brief:
    job = job or target("attention")
    digest, text = named(text or job.seed)
    first = Judged(0, digest, text, (), "seed", Evaluation(status=Status.OK), Score(predicted=1.0), committed=True)
    return Brief(k=k, seed=seed, target=job, hardware=hardware(chip), parent=first, best=first, candidates=(first,))


def test_an_unknown_agent_names_the_nearest_first() -> None:
    assert isinstance(agent("random"), RandomAgent)
    assert isinstance(agent("random"), Agent)
    with pytest.raises(UserMistake, match=r"unknown agent 'randm'; did you mean 'random'\? known: random, avo, "):
        agent("randm")


def test_the_scripted_agent_says_its_lines_and_gives_up() -> None:
    scripted = ScriptedAgent(["one", Proposal("two"), lambda b: f"three of {b.seed}", lambda b: None])
    said = [scripted.propose(brief(k, seed=4)) for k in range(1, 6)]
    assert [p and p.text for p in said] == ["one", "two", "three of 4", None, None]


@pytest.mark.parametrize("chip", ["b200", "h200", "mi300x"])
def test_random_search_is_legal_varied_and_a_function_of_seed_and_k(chip: str) -> None:
    drawn = []
    for k in range(1, 5):
        proposal = RandomAgent().propose(brief(k, chip=chip))
        assert proposal == RandomAgent().propose(brief(k, chip=chip))
        job = target("attention")
        complaints = check(parse(proposal.text), hardware(chip), job.workloads[0].sizes)
        assert [d for d in complaints if d.severity == "error"] == []
        assert proposal.parents == (named(job.seed)[0],) and proposal.rationale
        drawn.append(proposal.text)
    assert len(set(drawn)) == 4
    assert RandomAgent().propose(brief(1, seed=1, chip=chip)).text != drawn[0]


def test_random_search_needs_a_program_of_the_language() -> None:
    with pytest.raises(UserMistake, match="edits programs in the language, and the seed of attention is none"):
        RandomAgent().propose(brief(1, text="import triton\n"))


def test_random_search_runs(tmp_path: Path) -> None:
    with open_archive(tmp_path / "avo.db") as archive:
        parts = {"target": TARGET, "hardware": HW, "agent": RandomAgent(), "evaluator": HashEvaluator()}
        run = begin(archive, seed=2, jobs=2, **parts)
        proceed(run, budget=Budget(steps=6), observer=Watch(), **parts)
        assert len(run.candidates) == 7
