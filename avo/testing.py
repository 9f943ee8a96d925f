"""Contract tests for plug-ins: subclass one, say what to test, and pytest runs the rest.

    from avo.testing import TargetContract
    from my_package import MY_TARGET

    class TestMyTarget(TargetContract):
        target = MY_TARGET

avo runs the same classes over its built-ins, so a plug-in that passes does all that avo relies on.
"""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from avo.agents import Agent, Brief, Judged
    from dsl.hardware import Hardware
    from evaluators.evaluation import Evaluation
    from evaluators.protocol import Evaluator
    from evaluators.target import Target

__all__ = ["AgentContract", "EvaluatorContract", "TargetContract", "brief", "judged"]

_NONSENSE = "kernel ]]] this is no program"


def _target(given: Target | str) -> Target:
    from avo import plugins
    from evaluators.loading import complete

    return complete(plugins.load("target", given) if isinstance(given, str) else given)


def _hardware(given: Hardware | str) -> Hardware:
    from avo import plugins

    return plugins.load("hardware", given) if isinstance(given, str) else given


class EvaluatorContract:
    """What the evolution loop relies on in an evaluator. Give `make`, and the target and chip to try it on.

    `wrong` is a program of the target's signature that computes something else; None leaves that test out.
    `deterministic` False leaves out the test that two judgements agree (an evaluator that measures).
    """

    target: ClassVar[Target | str] = "attention"
    hardware: ClassVar[Hardware | str] = "b200"
    wrong: ClassVar[str | None] = None
    deterministic: ClassVar[bool] = True

    def make(self) -> Evaluator:
        raise NotImplementedError("return a new instance of your evaluator")

    def _judge(self, *texts: str, threads: int = 1) -> list[Evaluation]:
        target, hardware = _target(self.target), _hardware(self.hardware)
        evaluator = self.make()
        try:
            with ThreadPoolExecutor(threads) as pool:
                return list(pool.map(lambda t: evaluator.evaluate(t, target, hardware), texts))
        finally:
            evaluator.close()

    def test_follows_the_protocol(self) -> None:
        from evaluators.protocol import Evaluator

        evaluator = self.make()
        try:
            assert isinstance(evaluator, Evaluator), "it needs evaluate(text, target, hardware) and close()"
        finally:
            evaluator.close()

    def test_the_seed_is_accepted_with_a_time_per_workload(self) -> None:
        from evaluators.evaluation import Evaluation, Status, score

        target = _target(self.target)
        (found,) = self._judge(target.seed)
        assert isinstance(found, Evaluation), f"evaluate returns an Evaluation, not {type(found).__name__}"
        assert found.status is Status.OK, f"the target's own seed was rejected: {found.status} {found.message}"
        assert found.failed_gate is None, "an accepted candidate has no failed gate"
        if found.mode == "none":
            return
        names = [w.name for w in target.workloads]
        assert [w.workload for w in found.workloads] == names, "one result per public workload, in the target's order"
        for w in found.workloads:
            time, other = (w.measured_s, w.predicted_s) if found.mode == "measured" else (w.predicted_s, w.measured_s)
            assert time is not None and math.isfinite(time) and time > 0, f"{w.workload}: no {found.mode} time"
            assert other is None or found.mode == "measured", f"{w.workload}: a measured time in predicted mode"
            assert w.work > 0 and w.floor_s >= 0, f"{w.workload}: work is positive and the floor not negative"
        value = getattr(score(found), found.mode)
        assert value is not None and value > 0, "an accepted candidate has a positive score"

    def test_the_evaluation_survives_json(self) -> None:
        from evaluators.evaluation import Evaluation

        (found,) = self._judge(_target(self.target).seed)
        assert Evaluation.model_validate_json(found.model_dump_json()) == found, "evidence must be plain JSON"

    def test_a_bad_program_is_a_status_and_never_an_exception(self) -> None:
        from evaluators.evaluation import Status, score

        for found in self._judge("", _NONSENSE):
            assert found.status not in (Status.OK, Status.UNAVAILABLE), "nonsense is the candidate's own fault"
            assert found.message, "a rejection says why in `message`"
            assert not score(found).predicted and not score(found).measured

    def test_a_wrong_program_is_rejected(self) -> None:
        from evaluators.evaluation import Status

        if self.wrong is None:
            return
        (found,) = self._judge(self.wrong)
        assert found.status is not Status.OK, "a program that computes something else was accepted"

    def test_two_judgements_agree(self) -> None:
        if not self.deterministic:
            return
        seed = _target(self.target).seed
        first, second = self._judge(seed, seed)
        assert facts(first) == facts(second), "evidence and predicted times must not change between two judgements"

    def test_threads_may_judge_at_once(self) -> None:
        seed = _target(self.target).seed
        statuses = [e.status for e in self._judge(seed, _NONSENSE, seed, threads=3)]
        assert statuses[0] == statuses[2] != statuses[1]


def facts(evaluation: Evaluation) -> dict[str, Any]:
    """What has to repeat in a second judgement: all but measured times and the seconds that a gate took."""
    whole = json.loads(evaluation.model_dump_json())
    for gate in whole["gates"]:
        del gate["seconds"]
    for workload in whole["workloads"]:
        workload.pop("measured_s")
    del whole["environment"]
    return whole


class TargetContract:
    """What the judge relies on in a target. Give `target` (an object or a name) and the chip of the seed program."""

    target: ClassVar[Target | str]
    hardware: ClassVar[Hardware | str] = "b200"

    def test_names_are_unique_and_plain(self) -> None:
        target = _target(self.target)
        assert target.name and target.name == target.name.strip() and " " not in target.name
        assert target.workloads, "a target has at least one public workload"
        for group in (target.workloads, target.hidden, target.checks, target.tiny):
            names = [w.name for w in group]
            assert len(names) == len(set(names)), f"a workload stands twice in {names}"
        public, hidden = {w.name for w in target.workloads}, {w.name for w in target.hidden}
        assert not public & hidden, "a hidden workload is public"

    def test_the_seed_parses_and_checks(self) -> None:
        from dsl.check import check
        from dsl.parser import parse

        target = _target(self.target)
        program = parse(target.seed, f"<seed of {target.name}>")
        errors = [d for d in check(program, _hardware(self.hardware)) if d.severity == "error"]
        assert not errors, "\n".join(d.render(target.seed) for d in errors)

    def test_every_workload_gives_every_extent(self) -> None:
        from dsl.parser import parse
        from evaluators.inputs import input_shapes

        target = _target(self.target)
        algorithm = parse(target.seed).algorithm
        for w in (*target.workloads, *target.hidden, *target.checks, *target.tiny):
            assert all(extent >= 1 for shape in input_shapes(algorithm, w).values() for extent in shape), w.name
            missing = [p.name for p in algorithm.params if p.default is None and p.name not in w.params]
            assert not missing, f"{w.name} lacks the param {missing[0]}"

    def test_inputs_follow_from_the_seed_alone(self) -> None:
        import numpy as np

        from dsl.parser import parse
        from evaluators.inputs import DISTRIBUTIONS, draw_inputs, generator

        target = _target(self.target)
        algorithm = parse(target.seed).algorithm
        for distribution in DISTRIBUTIONS:
            one, two = (draw_inputs(target, algorithm, target.tiny[0], distribution, generator(7)) for _ in range(2))
            for name in one:
                assert np.array_equal(one[name], two[name]), f"{name} differs between two draws of one seed"
                assert np.isfinite(np.asarray(one[name], dtype=np.float64)).all(), f"{name} is not finite"

    def test_the_seed_means_what_the_reference_computes(self) -> None:
        from evaluators.loading import ready

        ready(_target(self.target))  # raises TargetError, which says what differs and where


class AgentContract:
    """What the loop relies on in an agent. Give `make`, and the target and chip to brief it on."""

    target: ClassVar[Target | str] = "attention"
    hardware: ClassVar[Hardware | str] = "b200"

    def make(self) -> Agent:
        raise NotImplementedError("return a new instance of your agent")

    def test_follows_the_protocol(self) -> None:
        from avo.agents import Agent

        agent = self.make()
        assert isinstance(agent, Agent), "it needs a `name` and propose(brief)"
        assert agent.name, "its name is stored with each candidate"

    def test_proposes_a_program_and_names_its_parents(self) -> None:
        from avo.agents import Proposal

        given = brief(_target(self.target), _hardware(self.hardware))
        found = self.make().propose(given)
        assert found is None or isinstance(found, Proposal), f"propose returns a Proposal or None, not {found!r}"
        if found is not None:
            assert found.text.strip(), "a proposal has a text"
            unknown = [p for p in found.parents if given.find(p) is None]
            assert not unknown, f"the brief showed no candidate {unknown}"

    def test_a_proposal_follows_from_the_brief_alone(self) -> None:
        target, hardware = _target(self.target), _hardware(self.hardware)
        used = self.make()
        for k in (1, 2, 3):
            used.propose(brief(target, hardware, k=k))
        again = brief(target, hardware, k=2)
        assert used.propose(again) == self.make().propose(again), (
            "an agent keeps nothing between calls: resume needs it"
        )

    def test_the_number_of_the_proposal_matters(self) -> None:
        target, hardware = _target(self.target), _hardware(self.hardware)
        agent = self.make()
        texts = {p.text for k in range(1, 9) if (p := agent.propose(brief(target, hardware, k=k))) is not None}
        assert len(texts) != 1, "eight proposals from one brief are all the same program"


def judged(target: Target, k: int = 0, text: str | None = None, seconds: float = 1e-3) -> Judged:
    """A candidate with a made-up but well-formed verdict: accepted, `seconds` predicted on every workload."""
    from avo.agents import Judged
    from dsl.parser import parse
    from dsl.printer import digest
    from evaluators.evaluation import Evaluation, Status, WorkloadResult, score

    text = target.seed if text is None else text
    results = [
        WorkloadResult(
            workload=w.name,
            work=1e12,
            floor_s=seconds / 10,
            bottleneck="matrix",
            predicted_s=seconds,
            limiter="latency",
        )
        for w in target.workloads
    ]
    evaluation = Evaluation(status=Status.OK, mode="predicted", unit=target.unit, workloads=tuple(results))
    found = digest(parse(text))
    return Judged(
        k=k,
        digest=found,
        text=text,
        parents=(),
        agent="seed",
        evaluation=evaluation,
        score=score(evaluation),
        committed=True,
    )


def brief(target: Target, hardware: Hardware, k: int = 1, seed: int = 0, candidates: tuple[Judged, ...] = ()) -> Brief:
    """A brief as the loop makes it; without `candidates` the agent has seen only the judged seed program."""
    from avo.agents import Brief, Left

    seen = candidates or (judged(target),)
    best = max(seen, key=lambda c: c.value)
    left = Left(steps=40)
    made = Brief(k=k, seed=seed, target=target, hardware=hardware, parent=best, best=best, candidates=seen, left=left)
    return replace(made, opens=target.opens)
