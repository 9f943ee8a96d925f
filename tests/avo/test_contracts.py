"""The contract tests that avo ships for plug-ins: over all that it brings itself, and on what they have to catch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from avo import plugins
from avo.agents import Agent, Brief, Proposal
from avo.testing import AgentContract, EvaluatorContract, TargetContract, judged
from dsl.hardware import Hardware
from evaluators.evaluation import Evaluation, Status
from evaluators.judge import LocalEvaluator
from evaluators.target import Target, Workload

for _name in plugins.builtins("target"):
    _title = "TestTarget" + _name.title().replace("_", "")
    globals()[_title] = type(_title, (TargetContract,), {"target": _name})

for _name in sorted(set(plugins.builtins("agent")) - {"avo", "mantis", "outside"}):  # a model, or a person, proposes
    _title = "TestAgent" + _name.title().replace("_", "")
    _make = {"make": lambda self, name=_name: plugins.create("agent", name, {"seed": 0})}
    globals()[_title] = type(_title, (AgentContract,), {"target": "softmax", **_make})


@pytest.mark.slow
class TestLocalEvaluator(EvaluatorContract):
    """The judge itself, on the smallest built-in job."""

    target = "softmax"
    wrong = plugins.load("target", "softmax").seed.replace("softmax[c](x)", "softmax[c](x * 2)")

    def make(self) -> LocalEvaluator:
        return LocalEvaluator(jobs=2)


# What the contracts have to catch -----------------------------------------------------------------


class Forgetful:
    """An agent that keeps something between calls."""

    name = "forgetful"

    def __init__(self) -> None:
        self.calls = 0

    def propose(self, brief: Brief) -> Proposal | None:
        self.calls += 1
        return Proposal(text=f"{brief.parent.text}# {self.calls}")


class TestTheContractsCatch:
    def test_an_agent_with_a_memory(self) -> None:
        class Contract(AgentContract):
            target = "softmax"

            def make(self) -> Agent:
                return Forgetful()

        with pytest.raises(AssertionError, match="keeps nothing between calls"):
            Contract().test_a_proposal_follows_from_the_brief_alone()

    def test_a_target_whose_reference_computes_something_else(self) -> None:
        from evaluators.target import TargetError

        wrong = replace(plugins.load("target", "softmax"), reference=lambda x: x.softmax(-1) * 1.001)
        contract = type("Contract", (TargetContract,), {"target": wrong})()
        with pytest.raises(TargetError, match="softmax"):
            contract.test_the_seed_means_what_the_reference_computes()

    def test_a_target_with_a_workload_twice(self) -> None:
        target = plugins.load("target", "softmax")
        twice = replace(target, workloads=(*target.workloads, Workload(dict(target.workloads[0].sizes))))
        contract = type("Contract", (TargetContract,), {"target": twice})()
        with pytest.raises(AssertionError, match="stands twice"):
            contract.test_names_are_unique_and_plain()

    def test_an_evaluator_that_accepts_everything(self) -> None:
        class Blind:
            def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
                return judged(target).evaluation

            def close(self) -> None: ...

        class Contract(EvaluatorContract):
            target = "softmax"
            wrong = "kernel x"

            def make(self) -> Blind:
                return Blind()

        contract = Contract()
        contract.test_the_seed_is_accepted_with_a_time_per_workload()
        with pytest.raises(AssertionError, match="nonsense is the candidate's own fault"):
            contract.test_a_bad_program_is_a_status_and_never_an_exception()
        with pytest.raises(AssertionError, match="computes something else"):
            contract.test_a_wrong_program_is_rejected()

    def test_an_evaluator_that_rejects_the_seed(self) -> None:
        class Strict:
            def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
                return Evaluation(status=Status.INCORRECT, message="no")

            def close(self) -> None: ...

        contract = type("Contract", (EvaluatorContract,), {"target": "softmax", "make": lambda self: Strict()})()
        with pytest.raises(AssertionError, match="the target's own seed was rejected"):
            contract.test_the_seed_is_accepted_with_a_time_per_workload()
