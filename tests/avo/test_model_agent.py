"""`--agent avo`: a model proposes, over HTTP and from scripts; every outcome is recorded, nothing is bought twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_parts import ALGORITHM, HW, TARGET, HashEvaluator, program
from model_server import ModelServer, Say
from stopwatch import Stopwatch

from archive import Archive, open_archive
from avo.agents.model_agent import ModelAgent
from avo.budget import Budget
from avo.errors import HarnessUnavailable, UserMistake
from avo.models import Price, Reply, Request, Trouble, Usage
from avo.models.calling import Waits
from avo.models.scripted import ReplayModel, ScriptedModel
from avo.run import Run, begin, proceed
from avo.testing import AgentContract

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
PARTS = ["--target", EXAMPLE / "target.py", "--evaluator", EXAMPLE / "evaluator.py", "--hw", "h200"]
QUICK = Waits(timeout_s=60, attempts=2, first_s=0.01)


def search(
    archive: Archive, model: Any, budget: Budget, run: Run | None = None, evaluator: Any = None, jobs: int = 1
) -> Run:
    agent, evaluator = ModelAgent(model, max_tokens=1000, waits=QUICK), evaluator or HashEvaluator()
    run = run or begin(archive, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, seed=3, jobs=jobs)
    return proceed(run, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, budget=budget)


def rows(run: Run) -> list[tuple[Any, ...]]:
    return [(c.k, c.digest, c.parents, c.agent, c.rationale, c.status, c.text) for c in run.candidates]


def numbered(request: Request) -> str:
    """A new program for each step, from the brief alone, as a model's reply would be; a reviewer's where it is one."""
    if "# Step " not in request.messages[0].text:
        return "Try what was never tried."
    k = int(request.messages[0].text.split("# Step ", 1)[1].split(":", 1)[0])
    return f"why: try {k}\nexpect: 1.1\n```\n{program(2 << k // 4 % 6, (1, 2, 4, 8)[k % 4])}```"


def test_a_model_proposes_and_all_of_it_is_kept(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel([numbered], price=Price(1.0, 2.0)), Budget(steps=4))
        assert [c.rationale for c in run.candidates[1:]] == ["try 1", "try 2", "try 3", "try 4"]
        assert run.candidates[1].agent == "avo"
        assert all(t.hypothesis.expected_gain == 1.1 for t in archive.hypotheses(run.id))
        found = archive.exchanges(run.id)
        assert [(e.k, e.seq, e.model, e.outcome) for e in found] == [(k, 0, "scripted", "ok") for k in (1, 2, 3, 4)]
        request = json.loads(found[3].request)
        assert "# Step 4: make `rows` faster" in request["messages"][0]["text"] and "try 3" in found[3].request
        assert request["system"].startswith("You make GPU kernels faster")
        spend = archive.spend_by(run.id, "model")["scripted"]
        assert spend.tokens_in > 1000 and spend.tokens_out > 40
        assert spend.usd == pytest.approx((spend.tokens_in + 2 * spend.tokens_out) / 1e6)


@pytest.mark.parametrize(
    ("replies", "why", "status"),
    [
        (["tile b=3\nwarps 5", "warps 2"], "repaired: ", None),
        (["I would rather not say.", "warps 2"], "repaired: there is no program", None),
        ([Reply("no", "refused", Usage(9, 1), "unsafe"), "warps 2"], "repaired: you refused (unsafe)", None),
        ([Reply("", "empty", Usage(9, 0), "no text"), "warps 2"], "repaired: the answer is empty", None),
        (
            [Reply("kernel rows\nin x[b", "truncated", Usage(9, 1), "cut: max_tokens"), "warps 2"],
            "repaired: your",
            None,
        ),
        ([f"```\n{TARGET.seed}```", "warps 2"], "repaired: this program was judged already, as proposal 0", None),
        ([program(2, 2).replace("x * 2", "x * 3"), "warps 2"], "repaired: <program>:4:", None),
        (["```diff\n@@ @@\n-warps 9\n+warps 2\n```", "warps 2"], "repaired: hunk 1 of the diff does not apply", None),
        (["warps 5", "warps 6"], "still wrong after a repair: ", "warps 6"),
        (["", ""], "no program in two replies: the answer is empty", ""),
        (["sorry", Reply("no", "refused", Usage(9, 1), "")], "no program in two replies: you refused", "no"),
    ],
)
def test_what_is_wrong_goes_back_once_and_is_recorded(
    tmp_path: Path, replies: list[Any], why: str, status: str | None
) -> None:
    model = ScriptedModel(replies)
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, model, Budget(steps=1))
        candidate = run.candidates[1]
        assert why in candidate.rationale
        assert "warps 2" in candidate.text if status is None else status in candidate.text
        first, second = archive.exchanges(run.id, 1)
        assert (first.seq, second.seq) == (0, 1) and second.outcome is not None
        assert json.loads(second.request)["messages"][:1] == json.loads(first.request)["messages"]
        assert "That was not judged, for this reason" in second.request and len(model.requests) == 2


def test_prompts_may_come_from_a_folder(tmp_path: Path) -> None:
    from avo.plugins import load
    from avo.testing import brief

    (tmp_path / "system.md").write_text("Be brief.")
    model = ScriptedModel(["no", "warps 2"])
    ModelAgent(model, prompts=str(tmp_path)).propose(brief(load("target", "softmax"), HW))
    assert model.requests[0].system == "Be brief."
    assert "That was not judged" in model.requests[1].messages[2].text  # what the folder lacks is as it was
    with pytest.raises(UserMistake, match=r"agent_options\.prompts names a folder"):
        ModelAgent(model, prompts=str(tmp_path / "none"))


def test_an_ancestor_that_the_answer_names_is_the_parent(tmp_path: Path) -> None:
    from dsl.parser import parse
    from dsl.printer import digest

    seed = digest(parse(TARGET.seed))
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel([numbered, f"parent: {seed[:6]}\nwarps 8"]), Budget(steps=2))
        assert run.candidates[2].parents == (0,) and "tile b=1" in run.candidates[2].text


@pytest.mark.parametrize("limit", ["usd", "tokens"])
def test_a_budget_is_never_passed(tmp_path: Path, limit: str) -> None:
    budget = Budget(steps=50, usd=0.03) if limit == "usd" else Budget(steps=50, tokens=20_000)
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel([numbered], price=Price(1.0, 2.0)), budget)
        assert run.record.ended == limit and 2 < len(run.candidates) < 40
        spend = archive.spend(run.id)
        assert 0 < (spend.usd or 0) <= 0.03 if limit == "usd" else 0 < spend.tokens <= 20_000
        assert archive.candidates(run.id, pending=True) == []
        before = rows(run)
        search(archive, ScriptedModel([numbered]), budget, run)  # resumed: the spend is kept, so nothing is asked
        assert rows(run) == before
        search(archive, ScriptedModel([numbered]), Budget(steps=len(before)), run)
        assert len(rows(run)) == len(before) + 1


def test_a_provider_that_is_away_stops_the_run_and_costs_no_candidate(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.db") as archive:
        away = ScriptedModel([numbered, Trouble("overloaded", "busy", again=True)])
        with pytest.raises(HarnessUnavailable, match="scripted: overloaded: busy"):
            search(archive, away, Budget(steps=3))
        run = Run(archive, 1)
        assert len(run.candidates) == 2 and run.record.ended == "unavailable"
        assert [e.outcome for e in archive.exchanges(1, 2)] == ["overloaded"] * 2
        whole = search(archive, ScriptedModel([numbered]), Budget(steps=3), run)
        with open_archive(tmp_path / "b.db") as other:
            assert rows(whole) == rows(search(other, ScriptedModel([numbered]), Budget(steps=3)))


def test_a_reply_that_a_kill_left_unused_is_not_bought_again(tmp_path: Path) -> None:
    class Dies(HashEvaluator):
        """As a kill between the reply and the record of its proposal: the seed is judged, then nothing is."""

    with open_archive(tmp_path / "a.db") as archive:
        model = ScriptedModel([numbered])
        run = search(archive, model, Budget(steps=2))
        with open_archive(tmp_path / "b.db") as other:
            again = begin(
                other, target=TARGET, hardware=HW, agent=ModelAgent(model), evaluator=HashEvaluator(), seed=3, jobs=1
            )
            with other.claim(again.id) as writer:
                for e in archive.exchanges(run.id, 1):
                    from archive.records import Spend

                    writer.answered(writer.ask(1, e.model, e.request, Spend()), e.reply or "", "ok", Spend(usd=0.5))
                writer.ask(2, "scripted", "lost", Spend(usd=2.0))  # its reply never came: it stays at its most
            fresh = ScriptedModel([numbered])
            search(other, fresh, Budget(steps=2), again)
            assert rows(again) == rows(run) and len(fresh.requests) == 1  # step 2 alone was asked
            assert len(other.exchanges(again.id, 1)) == 1
            assert (other.spend(again.id).usd or 2.5) >= 2.5


def test_a_journal_gives_the_same_run_again(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.db") as archive, open_archive(tmp_path / "b.db") as other:
        run = search(archive, ScriptedModel([numbered, "warps 5", numbered, "sorry", numbered]), Budget(steps=4))
        again = search(other, ReplayModel("scripted", archive.exchanges(run.id)), Budget(steps=4))
        assert rows(again) == rows(run)
        short = ReplayModel("scripted", archive.exchanges(run.id, 1))
        with pytest.raises(HarnessUnavailable, match="the journal holds no reply"):
            search(other, short, Budget(steps=4))


def test_ctrl_c_ends_a_question_and_the_run_goes_on_later(tmp_path: Path) -> None:
    import os
    import signal
    import time

    def slow(request: Request) -> str:
        time.sleep(20)
        return ""

    with open_archive(tmp_path / "a.db") as archive:
        model = ScriptedModel([slow])
        pressed = []

        def press() -> None:
            while not model.requests:
                time.sleep(0.01)
            pressed.append(Stopwatch())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press, daemon=True).start()
        run = search(archive, model, Budget(steps=3))
        assert pressed[0].seconds < 2 and run.record.ended == "interrupted"
        assert [e.outcome for e in archive.exchanges(run.id)] == ["cancelled"] and len(run.candidates) == 1
        assert len(search(archive, ScriptedModel([numbered]), Budget(steps=2), run).candidates) == 3


class TestModelAgentContract(AgentContract):
    target = "softmax"

    def make(self) -> ModelAgent:
        return ModelAgent(ScriptedModel([lambda request: f"warps {8 if 'Step 1:' in request.messages[0].text else 2}"]))


# Over HTTP, by the command line ------------------------------------------------------------------------


KEY = "sk-live-0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return tmp_path


def by_step(body: dict[str, Any]) -> Say:
    text = json.dumps(body)
    k = int(text.split("# Step ", 1)[1].split(":", 1)[0])
    if "That was not judged" in text:
        return Say(f"Right. My key is {KEY}.\n```\nwarps {(2, 16, 1)[k % 3]}\n```")
    return (Say("why: more warps\n\n```\nwarps 8\n```"), Say("warps 7"), Say("Sorry.", stop="refusal"))[(k - 1) % 3]


@pytest.mark.parametrize("kind", ["chat", "openai", "anthropic"])
def test_a_run_over_http_by_the_command_line(cli: Callable[..., Any], folder: Path, kind: str) -> None:
    with ModelServer([by_step]) as server:
        model = (
            f"{server.url}/v1#small"
            if kind == "chat"
            else f"{kind}:{'gpt-6-sol' if kind == 'openai' else 'claude-opus-5'}"
        )
        base = [] if kind == "chat" else ["--set", f"model_options.base_url={server.url}{'/v1' * (kind == 'openai')}"]
        limit = ["--set", "agent_options.tools=false", *([] if kind == "chat" else ["--max-usd", 5])]
        done = cli("evolve", *PARTS, "--model", model, *base, *limit, "--steps", 3, "--jobs", 1)
        assert done.code == 0, done.err
        assert f"avo, asking {model}" in " ".join(done.out.split())
        assert f"models: {'price unknown' if kind == 'chat' else '0.0'}" in done.out and " tokens in" in done.out
        assert ("5 USD" in done.out) == (kind != "chat") and len(server.requests) >= 3
        with open_archive("avo.db", readonly=True) as store:
            found = store.exchanges(1)
            why = [c.rationale for c in store.candidates(1)]
            usd = store.spend(1).usd
        assert why[1] == "more warps" and "repaired: " in why[2] and "you refused" in why[3]
        assert (usd is None) == (kind == "chat")
        assert KEY not in str(found) and any("[key removed]" in str(e.reply) for e in found)
        whole = cli("evolve", "--resume", 1, "--steps", 4)
        assert whole.code == 0, whole.err
    again = cli("replay", "1")  # the server is gone
    assert again.code == 0 and "run 2 is run 1 again: 5 candidates, all the same" in again.out, again.out
    for path in folder.iterdir():
        assert KEY.encode() not in path.read_bytes(), path  # neither the archive nor the report
    assert cli("log", "1").code == 0


@pytest.mark.slow
def test_a_kill_books_the_lost_request_at_its_most_and_changes_nothing_else(
    cli: Callable[..., Any], folder: Path
) -> None:
    import subprocess
    import sys
    import time

    prices = ["--set", "model_options.usd_in=1", "--set", "model_options.usd_out=2"]
    with ModelServer([by_step, Say(hang_s=60), by_step]) as server:
        arguments = [*map(str, PARTS), "--model", f"{server.url}/v1#m", *prices, "--steps", "3", "--jobs", "1"]
        child = subprocess.Popen(
            [sys.executable, "-m", "avo", "evolve", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 60
        while len(server.requests) < 2 and child.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        child.kill()
        child.wait()
        assert len(server.requests) == 2
        done = cli("evolve", "--resume", 1)
        assert done.code == 0, done.err
        undisturbed = cli("evolve", *arguments, "--archive", "straight.db")
        assert undisturbed.code == 0, undisturbed.err
    with open_archive("avo.db", readonly=True) as store, open_archive("straight.db", readonly=True) as straight:
        assert rows(Run(store, 1)) == rows(Run(straight, 1))
        lost, *found = store.exchanges(1, 2)
        assert lost.outcome is None and [e.outcome for e in found] == ["ok", "ok"]
        (booked,) = [b for b in store.bookings(1) if not b.settled]
        assert booked.spend.tokens_out == 16_000 and (booked.spend.usd or 0) > 0.032
        extra = (store.spend(1).usd or 0) - (straight.spend(1).usd or 0)
        assert extra == pytest.approx(booked.spend.usd)


def test_a_replay_names_the_first_difference(cli: Callable[..., Any], folder: Path) -> None:
    import sqlite3

    with ModelServer([by_step]) as server:
        assert cli("evolve", *PARTS, "--model", f"{server.url}/v1#m", "--steps", 2, "--jobs", 1).code == 0
    Path("a.md").write_text("warps 1")
    assert cli("tell", "a.md").code == 0
    assert cli("replay", "1").code == 0  # with the proposal that was told
    with sqlite3.connect("avo.db") as raw:
        raw.execute("UPDATE candidates SET rationale = 'another' WHERE run_id = 1 AND k = 2")
    raw.close()
    answer = cli("replay", "1", "--json")
    found = json.loads(answer.out)
    assert (answer.code, found["same"]) == (1, 2) and "proposal 2: its rationale was another" in found["difference"]
    with sqlite3.connect("avo.db") as raw:
        raw.execute("UPDATE journal SET outcome = NULL WHERE run_id = 1 AND k = 1")
    raw.close()
    answer = cli("replay", "1")
    assert answer.code == 1 and "a request was made that the journal does not hold" in " ".join(answer.out.split())
    assert cli("replay", "9").code == 2 and cli("replay", "--archive", "none.db").code == 2


def test_mistakes_are_told_before_anything_is_written(
    cli: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, message in (
        (["--agent", "avo"], "the agent 'avo' asks a model: --model NAME"),
        (["--model", "gpt"], "'gpt' is no model"),
        (["--model", "openai:gpt-6-sol"], "costs money and nothing limits it: give --max-usd N"),
        (["--model", "openai:gpt-6-sol", "--agent", "random"], "the agent 'random' asks no model"),
        (["--model", "openai:gpt-99"], "the price of openai:gpt-99 is not known"),
        (["--model", "http://127.0.0.1:9/v1#m", "--max-usd", 1], "so --max-usd cannot be kept"),
    ):
        answer = cli("evolve", *PARTS, *arguments)
        assert answer.code == 2 and message in answer.err, answer.err
    monkeypatch.delenv("OPENAI_API_KEY")
    answer = cli("evolve", *PARTS, "--model", "openai:gpt-6-sol", "--max-usd", 1)
    assert answer.code == 2 and "set the environment variable OPENAI_API_KEY" in answer.err
    assert list(folder.iterdir()) == []


def test_models_are_listed_with_price_and_what_is_missing(
    cli: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    found = {row["name"]: row for row in json.loads(cli("models", "--json").out)}
    assert found["openai:gpt-6-sol"]["missing"] == "no key" and found["anthropic:claude-opus-5-5"]["missing"] == ""
    assert found["openai:gpt-6-sol"]["usd_out"] == 10 and found["openai:gpt-6-sol"]["source"].startswith("https://")
    listed = cli("models").out
    assert "no key" in listed and max(map(len, listed.splitlines())) <= 80
    with ModelServer([Say("")]) as server:
        assert cli("models", f"{server.url}/v1").out == f"{server.url}/v1#small\n"
    assert cli("models", f"{server.url}/v1").code == 3 and cli("models", "localhost").code == 2


def test_without_the_sdk_it_says_what_to_install(
    cli: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openai", None)
    answer = cli("evolve", *PARTS, "--model", "openai:gpt-6-sol", "--max-usd", 1)
    assert answer.code == 2 and "pip install 'avo-kernels[models]'" in answer.err


def test_a_server_that_is_not_there_is_unavailable(cli: Callable[..., Any], folder: Path) -> None:
    options = ["--set", "agent_options.attempts=1", "--jobs", 1]
    answer = cli("evolve", *PARTS, "--model", "http://127.0.0.1:9/v1#m", "--steps", 2, *options)
    assert answer.code == 3 and "no connection" in answer.err
    with pytest.raises(UserMistake):
        ModelAgent()
    assert "x * 2" in ALGORITHM
