"""The contract tests that avo ships, over what this package brings."""

from avo_example.agent import OneKnob
from avo_example.evaluator import WavesEvaluator
from avo_example.target import ROW_L2

from avo.testing import AgentContract, EvaluatorContract, TargetContract


class TestRowL2(TargetContract):
    target = ROW_L2


class TestWaves(EvaluatorContract):
    target = ROW_L2
    wrong = ROW_L2.seed.replace("x * rsqrt", "2 * x * rsqrt")

    def make(self) -> WavesEvaluator:
        return WavesEvaluator()


class TestOneKnob(AgentContract):
    target = ROW_L2

    def make(self) -> OneKnob:
        return OneKnob()
