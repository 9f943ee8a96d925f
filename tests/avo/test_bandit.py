"""Several models for one agent: who proposes follows from gains and prices, and so when resumed or replayed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_parts import HW, TARGET, HashEvaluator, program
from model_server import ModelServer, Say

from archive import Archive, open_archive
from avo.agents.bandit import Bandit, cheapness
from avo.agents.model_agent import ModelAgent
from avo.asking import names, options, prices
from avo.budget import Budget
from avo.config import RunConfig
from avo.errors import UserMistake
from avo.models import Price, Request
from avo.models.calling import Waits
from avo.models.scripted import ReplayModel, ScriptedModel
from avo.run import Run, begin, proceed
from evaluators.evaluation import score

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
PARTS = ["--target", EXAMPLE / "target.py", "--evaluator", EXAMPLE / "evaluator.py", "--hw", "h200"]
GRID = [program(b, warps) for b in (1, 2, 4, 8, 16) for warps in (1, 2, 4, 8, 16)]
DEAR, CHEAP = Price(10.0, 50.0), Price(0.1, 0.5)


def told(request: Request) -> str:
    k = int(request.messages[0].text.split("# Step ", 1)[1].split(":", 1)[0])
    return GRID[k % len(GRID)]


def agent(models: list[Any], jobs: int = 1, **costs: Price | None) -> Bandit:
    made = {m.name: ModelAgent(m, tools=False, waits=Waits(attempts=1), jobs=jobs, review_after=0) for m in models}
    return Bandit(made, costs, jobs)


def search(archive: Archive, bandit: Bandit, steps: int, jobs: int = 1, run: Run | None = None) -> Run:
    parts: dict[str, Any] = {"target": TARGET, "hardware": HW, "agent": bandit, "evaluator": HashEvaluator()}
    run = run or begin(archive, **parts, seed=3, jobs=jobs)
    return proceed(run, **parts, budget=Budget(steps=steps), options={})


def who(archive: Archive, run: Run) -> list[str]:
    return [e.model for e in archive.exchanges(run.id)]


def rows(run: Run) -> list[tuple[Any, ...]]:
    return [(c.k, c.digest, c.parents, c.rationale, c.status) for c in run.candidates]


def test_cheapness_is_1_for_the_cheapest_and_the_unknown_count_as_the_dearest() -> None:
    assert cheapness([CHEAP, DEAR]) == pytest.approx([1.0, 0.01])
    assert cheapness([None, DEAR, CHEAP, Price()]) == pytest.approx([0.01, 0.01, 1.0, 1.0])
    assert cheapness([None, None]) == [1.0, 1.0] and cheapness([Price(), None]) == [1.0, 1.0]


def test_each_is_asked_once_and_then_the_cheap_one_more_often_where_neither_gains(tmp_path: Path) -> None:
    def same(request: Request) -> str:
        return "I do not know."

    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, agent([ScriptedModel([same], n) for n in ("dear", "cheap")], dear=DEAR, cheap=CHEAP), 12)
        asked = [m for k in range(1, 13) for m in {e.model for e in archive.exchanges(run.id, k)}]
        assert asked[:2] == ["dear", "cheap"] and len(asked) == 12
        assert asked.count("cheap") > asked.count("dear") >= 2  # the bound sends a proposal there now and then


def test_one_that_gains_is_asked_more_often_though_it_is_dear(tmp_path: Path) -> None:
    judge = HashEvaluator()
    every = [score(judge.evaluate(text, TARGET, HW)).predicted or 0.0 for text in GRID]
    rising = sorted((s, text) for s, text in zip(every, GRID, strict=True) if s)
    good = iter([text for _, text in rising])

    with open_archive(tmp_path / "a.db") as archive:
        models = [ScriptedModel([lambda r: next(good)], "dear"), ScriptedModel(["no idea"], "cheap")]
        run = search(archive, agent(models, dear=DEAR, cheap=Price(9.0, 45.0)), 12)
        asked = [m for k in range(1, 13) for m in {e.model for e in archive.exchanges(run.id, k)}]
        assert asked.count("dear") > asked.count("cheap") >= 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_resumed_and_a_replayed_run_ask_the_same_models(tmp_path: Path, jobs: int) -> None:
    def both() -> Bandit:
        return agent([ScriptedModel([told], n) for n in ("dear", "cheap")], jobs, dear=DEAR, cheap=CHEAP)

    with open_archive(tmp_path / "a.db") as archive, open_archive(tmp_path / "b.db") as other:
        run = search(archive, both(), 9, jobs)
        part = search(other, both(), 3, jobs)
        search(other, both(), 9, jobs, part)
        assert (
            rows(part) == rows(run)
            and who(other, part) == who(archive, run)
            and set(who(archive, run)) == {"dear", "cheap"}
        )
    with open_archive(tmp_path / "a.db") as archive, open_archive(tmp_path / "c.db") as third:
        found = archive.exchanges(run.id)
        models = [ReplayModel(n, [e for e in found if e.model == n]) for n in ("dear", "cheap")]
        again = search(third, agent(models, jobs, dear=DEAR, cheap=CHEAP), 9, jobs)
        assert who(third, again) == [e.model for e in found]


def test_over_http_with_prices_of_each(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai")
    monkeypatch.chdir(tmp_path)

    def says(body: dict[str, Any]) -> Say:
        if "tools" in body:
            return Say("this model does not support tools", 400)
        k = int(json.dumps(body).split("# Step ", 1)[1].split(":", 1)[0])
        return Say(f"why: more warps\nexpect: 1.05\n```\nwarps {(2, 8, 16)[k % 3]}\n```")

    with ModelServer([says]) as one, ModelServer([says]) as two:
        first, second = f"{one.url}/v1#small", f"{two.url}/v1#large"
        Path("c.toml").write_text(
            f'[model_options."{first}"]\nusd_in = 0.1\nusd_out = 0.5\n'
            f'[model_options."{second}"]\nusd_in = 5\nusd_out = 25\n'
        )
        line = [*PARTS, "--model", f"{first},{second}", "-c", "c.toml", "--steps", 5, "--jobs", 1, "--window", 0]
        refused = cli("evolve", *line)
        assert refused.code == 2 and "costs money and nothing limits it" in refused.err
        done = cli("evolve", *line, "--max-usd", 5)
        assert done.code == 0, done.err
        # Each endpoint is told once that it takes no tools, though the other's turn comes in between.
        assert [sum("tools" in b for b in s.requests) for s in (one, two)] == [1, 1]
        assert len(one.requests) > len(two.requests) >= 2
    with open_archive("avo.db", readonly=True) as store:
        spent = store.spend_by(1, "model")
        assert spent[second].usd and spent[first].usd and spent[second].usd > spent[first].usd
    again = cli("replay", "1")
    assert again.code == 0, again.out + again.err


def test_names_prices_and_options_of_several() -> None:
    config = RunConfig(
        model="openai:gpt-6-sol, http://h/v1#m",
        model_options={"stream": False, "http://h/v1#m": {"usd_in": 1, "usd_out": 2}},
    )
    assert names(config) == ["openai:gpt-6-sol", "http://h/v1#m"]
    assert options(config, "openai:gpt-6-sol") == {"stream": False}
    assert options(config, "http://h/v1#m") == {"stream": False, "usd_in": 1, "usd_out": 2}
    assert (found := prices(config))["http://h/v1#m"] is not None and found["openai:gpt-6-sol"] is not None
    for wrong in ("a,,b", "a,a", ","):
        with pytest.raises(UserMistake, match="several different ones"):
            names(RunConfig(model=wrong))
