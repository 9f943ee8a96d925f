"""Stopping where little is left to gain, what a rule would have saved, and money that somebody has to allow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_parts import HW, TARGET, HashEvaluator, WalkAgent, program

from archive import open_archive
from archive.records import Spend
from avo.agents.protocol import Brief, Proposal
from avo.budget import Budget
from avo.errors import UserMistake
from avo.run import Run, begin, proceed
from avo.stopping import REACHED, ceiling, replay_budget
from evaluators.evaluation import Evaluation, Status, WorkloadResult

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
PARTS = ["--target", EXAMPLE / "target.py", "--evaluator", EXAMPLE / "evaluator.py", "--hw", "h200"]


class Ladder:
    """Times by the program's `tile b`: 2 is better than 1, 4 than 2, ...; nothing beats 16."""

    key = "ladder"

    def evaluate(self, text: str, target: Any, hardware: Any) -> Evaluation:
        b = int(text.split("tile b=", 1)[1].split("\n", 1)[0].split()[0])
        seconds = {1: 10e-4, 2: 8e-4, 4: 6e-4, 8: 4e-4, 16: 2.4e-4}.get(b, 9e-4)
        row = [
            WorkloadResult(workload=w.name, work=1e9, floor_s=2e-4, bottleneck="memory", predicted_s=seconds)
            for w in target.workloads
        ]
        environment = {"device_s": 2.0}
        return Evaluation(status=Status.OK, mode="predicted", workloads=tuple(row), environment=environment)

    def close(self) -> None: ...


class Climber:
    """Two rungs up, then rungs that gain nothing, then the top."""

    name = "climber"
    path = (2, 4, 3, 5, 6, 7, 9, 10, 16, 11, 12, 13)

    def propose(self, brief: Brief) -> Proposal | None:
        return Proposal(program(self.path[brief.k - 1], 4)) if brief.k <= len(self.path) else None


def climb(store: Any, budget: Budget) -> Run:
    agent, evaluator = Climber(), Ladder()
    run = begin(store, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, seed=0, jobs=1)
    return proceed(run, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, budget=budget)


def test_the_ceiling_is_what_was_reached_on_a_chip_and_the_floor_elsewhere() -> None:
    row = WorkloadResult(workload="w", work=1.0, floor_s=1.0, bottleneck="matrix bf16", measured_s=2.0)
    found = Evaluation(status=Status.OK, mode="measured", workloads=(row,))
    assert ceiling(found, "b200") == 2.0
    assert ceiling(found, "h200") == pytest.approx(2 * REACHED["h200"]["matrix"])
    assert ceiling(Evaluation(status=Status.OK), "h200") is None
    untimed = found.model_copy(update={"workloads": (row.model_copy(update={"measured_s": None}),)})
    assert ceiling(untimed, "h200") is None


def test_a_run_stops_near_the_ceiling_or_when_nothing_gains(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.db") as store:
        assert climb(store, Budget(steps=12)).record.ended == "steps"
        near = climb(store, Budget(steps=12, epsilon=0.25, hardware="b200"))
        assert near.record.ended == "epsilon" and len(near.candidates) == 10  # the top is proposal 9
        stale = climb(store, Budget(steps=12, window=4, hardware="b200"))
        assert stale.record.ended == "window" and len(stale.candidates) == 7
        proceed(
            stale, target=TARGET, hardware=HW, agent=Climber(), evaluator=Ladder(), budget=Budget(steps=12, window=9)
        )
        assert len(stale.candidates) == 13  # what was stopped goes on under another rule
        timed = climb(store, Budget(steps=12, device_s=7.0))
        assert timed.record.ended == "steps"  # every verdict was there already: no device was used
    with open_archive(tmp_path / "b.db") as store:
        assert climb(store, Budget(steps=12, device_s=7.0)).record.ended == "device"
        assert len(store.candidates(1)) == 4 and store.spend(1).device_s == 8.0


def test_what_a_rule_keeps_and_saves_is_counted_as_the_paper_does(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.db") as store:
        run = climb(store, Budget(steps=12))
        with store.claim(run.id) as writer:
            for k in range(1, 13):
                writer.book(k, "propose", spend=Spend(usd=0.1, tokens_in=900, tokens_out=100))
        window = replay_budget(store, run.id, None, 4)
        assert (window.whole, window.stopped, window.reason) == (12, 6, "window")
        assert window.retention == pytest.approx(2.4 / 6) and window.steps == 0.5
        assert window.tokens == pytest.approx(0.5) and window.usd == pytest.approx(0.5)
        assert window.gain == pytest.approx(0.4 / 0.5) and window.device == pytest.approx(1 - 14 / 26)
        near = replay_budget(store, run.id, 0.25, None)
        assert (near.stopped, near.reason, near.retention) == (9, "epsilon", 1.0)
        assert near.gain == pytest.approx(1 / (9 / 12))
        none = replay_budget(store, run.id, 0.0, 11)
        assert (none.stopped, none.reason, none.gain) == (12, "", 1.0)
        with pytest.raises(UserMistake, match="no proposal with a score"):
            replay_budget(store, climb(store, Budget(steps=0)).id, 0.25, 4)


def test_it_is_what_a_run_under_the_rule_does(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.db") as store:
        for jobs in (1, 2, 3):
            agent, evaluator = WalkAgent(), HashEvaluator()
            parts: dict[str, Any] = {"target": TARGET, "hardware": HW, "agent": agent, "evaluator": evaluator}
            whole = begin(store, **parts, seed=5, jobs=jobs)
            proceed(whole, **parts, budget=Budget(steps=30))
            ruled = begin(store, **parts, seed=5, jobs=jobs)
            proceed(ruled, **parts, budget=Budget(steps=30, window=5))
            assert replay_budget(store, whole.id, None, 5).stopped == len(ruled.candidates) - 1


def test_replay_budget_by_the_command_line(cli: Callable[..., Any], evolved: Path) -> None:
    listed = cli("replay-budget")
    assert listed.code == 0 and "kept" in listed.out and max(map(len, listed.out.splitlines())) <= 80
    one = cli("replay-budget", 1, "--epsilon", 0.25, "--window", 2, "--json")
    (found,) = json.loads(one.out)
    assert found["epsilon"] == 0.25 and found["window"] == 2 and 0 < found["retention"] <= 1
    assert found["runs"][0]["whole"] == 4
    assert cli("replay-budget", 7).code == 2


def test_money_is_asked_for_on_a_terminal_and_refused_elsewhere(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    line = ["evolve", *PARTS, "--model", "openai:gpt-6-sol", "--set", "model_options.base_url=http://127.0.0.1:9/v1"]
    refused = cli(*line)
    assert refused.code == 2 and "costs money and nothing limits it" in refused.err

    asked = []

    def prompt(question: str, default: float, type: Any) -> float:
        asked.append((question, default))
        return 2.0 if len(asked) == 1 else 0.0

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr("avo.cli.evolve._on_a_terminal", lambda: True)
    allowed = cli(*line, "--steps", 1, "--set", "agent_options.attempts=1")
    assert allowed.code == 3 and "2 USD" in allowed.out and "16 proposals without a gain" in allowed.out
    assert "within 25% of the practical ceiling" in " ".join(allowed.out.split()) and asked[0][1] == 5.0
    stopped = cli(*line)
    assert stopped.code == 2 and "nothing was started" in stopped.err
    with pytest.raises(UserMistake, match="costs money"):
        import avo

        avo.evolve(target=str(PARTS[1]), hw="h200", evaluator=str(PARTS[3]), model="openai:gpt-6-sol", steps=1)
