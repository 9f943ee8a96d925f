"""Numbers left open: a sampler fills them within a stated number of evaluations, for any agent, resumed exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_parts import ALGORITHM, HW, TARGET, HashEvaluator

from archive import Archive, open_archive
from avo.agents.model_agent import ModelAgent
from avo.agents.protocol import Brief, Proposal
from avo.agents.sweeping import fill_of, sweep_before
from avo.budget import Budget
from avo.errors import UserMistake
from avo.models import Reply, Request, Usage
from avo.models.protocol import Call
from avo.models.scripted import ScriptedModel
from avo.run import Run, begin, proceed

OPEN = f"{ALGORITHM}\nschedule\ntile b=?\nwarps ?\n"
EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
LINE = ["--target", EXAMPLE / "target.py", "--evaluator", EXAMPLE / "evaluator.py", "--hw", "h200"]


class Open:
    """Leaves numbers open at every second proposal of its own, counted by what it sees."""

    name = "open"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def propose(self, brief: Brief) -> Proposal:
        self.asked.append(brief.k)
        return Proposal(OPEN, rationale=f"open {brief.k}")


def search(archive: Archive, agent: Any, budget: Budget, run: Run | None = None, jobs: int = 1, **options: Any) -> Run:
    parts: dict[str, Any] = {"target": TARGET, "hardware": HW, "agent": agent, "evaluator": HashEvaluator()}
    run = run or begin(archive, **parts, seed=3, jobs=jobs)
    return proceed(run, **parts, budget=budget, options=options)


def rows(run: Run) -> list[tuple[Any, ...]]:
    return [(c.k, c.digest, c.parents, c.rationale, c.status) for c in run.candidates]


def test_a_structure_is_filled_so_often_and_then_the_agent_is_asked_again(tmp_path: Path) -> None:
    agent = Open()
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, agent, Budget(steps=9), sweep=4)
        assert agent.asked == [1, 5, 9]
        found = run.history().all()[1:]
        fills = [fill_of(c) for c in found]
        assert [(f.number, f.of) for f in fills if f] == [(1, 4), (2, 4), (3, 4), (4, 4)] * 2 + [(1, 4)]
        assert len({c.digest for c in found[:4]}) == 4 and all("?" not in c.text for c in found)
        assert found[4].digest not in {c.digest for c in found[:4]}  # a sweep begins with what was not judged yet
        assert all(f is not None and f.names == ("tile b", "warps") for f in fills)
        assert found[1].rationale.startswith("open 1 [filled 2 of 4: tile b ")
        assert {c.parents for c in found[:4]} == {found[0].parents}


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_a_resumed_sweep_goes_on_as_an_undisturbed_one(tmp_path: Path, jobs: int) -> None:
    with open_archive(tmp_path / "a.db") as archive, open_archive(tmp_path / "b.db") as other:
        whole = search(archive, Open(), Budget(steps=12), jobs=jobs)
        run = search(other, Open(), Budget(steps=2), jobs=jobs)
        for steps in (3, 7, 12):
            search(other, Open(), Budget(steps=steps), run, jobs=jobs)
        assert rows(run) == rows(whole) and len(rows(run)) == 13


def test_a_sweep_ends_early_where_every_setting_was_tried(tmp_path: Path) -> None:
    class One(Open):
        def propose(self, brief: Brief) -> Proposal | None:
            self.asked.append(brief.k)
            return Proposal(OPEN.replace("b=?", "b=2")) if len(self.asked) == 1 else None

    agent = One()
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, agent, Budget(steps=50), sweep=20)
        assert run.record.ended == "agent" and 4 <= len(run.candidates) - 1 <= 6  # warps 1 2 4 8 16
        assert len({c.digest for c in run.candidates}) == len(run.candidates)


def test_what_is_illegal_or_closed_passes_as_it_is(tmp_path: Path) -> None:
    class Wrong(Open):
        def propose(self, brief: Brief) -> Proposal:
            texts = ("what? no", OPEN.replace("warps ?", "warps 5"), OPEN.replace("b=?", "b=4").replace("?", "8"))
            return Proposal(texts[brief.k - 1])

    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, Wrong(), Budget(steps=3))
        assert [c.text.split()[0] for c in run.candidates[1:]] == ["what?", "kernel", "kernel"]
        assert not any(sweep_before(_brief(c.k + 1), 1) for c in run.candidates)
        with pytest.raises(UserMistake, match=r"agent_options\.sweep"):
            search(archive, Wrong(), Budget(steps=3), sweep=0)


def _brief(k: int) -> Brief:
    from avo.testing import brief

    return brief(TARGET, HW, k=k)


def test_a_conversation_hears_of_every_filling(tmp_path: Path) -> None:
    def call(request: Request) -> Reply:
        told = [r.text for m in request.messages for r in m.results]
        arguments = {"answer": "tile b=?\nwarps 8" if not told else "tile b=8\nwarps 2", "why": "x", "expect": 1.1}
        return Reply("", "ok", Usage(9, 9), calls=(Call("c", "evaluate", json.dumps(arguments)),))

    with open_archive(tmp_path / "a.db") as archive:
        agent = ModelAgent(ScriptedModel([call], takes={"tools"}))
        run = search(archive, agent, Budget(steps=4), sweep=3)
        assert [bool(archive.exchanges(run.id, k)) for k in range(1, 5)] == [True, False, False, True]
        last = Request.from_json(archive.exchanges(run.id, 4)[0].request).messages[-1].results[0].text
        assert last.startswith("Verdict: - 1 `") and all(f"[filled {n} of 3" in last for n in (1, 2, 3))


def test_an_answer_from_outside_may_leave_numbers_open(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("ask", *LINE).code == 0
    Path("a.md").write_text("why: try several\nwarps ?\n")
    told = cli("tell", "a.md", "--json")
    found = json.loads(told.out)
    assert told.code == 0 and 1 <= found["k"] <= 6
    with open_archive("avo.db", readonly=True) as store:
        made = store.candidates(1)[1:]
        assert 4 <= len(made) <= 6 and {c.agent for c in made} == {"outside"}
        assert found["score"]["predicted"] == max(c.score.predicted or 0 for c in made)
    Path("b.md").write_text("warps 16\n" if made[0].text.count("warps 16") == 0 else "warps 1\n")
    again = json.loads(cli("tell", "b.md", "--json").out)
    assert again["k"] == len(made) + 1 or again["known"]
