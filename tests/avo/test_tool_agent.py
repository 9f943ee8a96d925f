"""`--agent avo` with tools: conversations over real HTTP in three protocols, rebuilt from the journal, replayed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_parts import HW, TARGET, HashEvaluator, program
from model_server import ModelServer, Say
from stopwatch import Stopwatch

from archive import Archive, open_archive
from avo.agents.model_agent import ModelAgent
from avo.budget import Budget
from avo.models import Price, Reply, Request, Usage
from avo.models.calling import Waits
from avo.models.protocol import Call, Message, Result
from avo.models.scripted import ReplayModel, ScriptedModel
from avo.run import Run, begin, proceed

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
PARTS = ["--target", EXAMPLE / "target.py", "--evaluator", EXAMPLE / "evaluator.py", "--hw", "h200"]
QUICK = Waits(timeout_s=60, attempts=2, first_s=0.01)
TOOLS = {"tools", "lark", "schema"}


def search(archive: Archive, model: Any, budget: Budget, run: Run | None = None, jobs: int = 1, **options: Any) -> Run:
    agent = ModelAgent(model, max_tokens=1000, waits=QUICK, jobs=jobs, **options)
    evaluator = HashEvaluator()
    run = run or begin(archive, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, seed=3, jobs=jobs)
    return proceed(run, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, budget=budget)


def calls(*found: tuple[str, dict[str, Any]]) -> Reply:
    made = tuple(Call(f"c{n}", name, json.dumps(arguments)) for n, (name, arguments) in enumerate(found))
    return Reply("", "ok", Usage(100, 10), calls=made)


def evaluate(b: int, warps: int, **more: Any) -> tuple[str, dict[str, Any]]:
    return "evaluate", {"answer": f"tile b={b}\nwarps {warps}", "why": f"try {b} {warps}", "expect": 1.1} | more


def rows(run: Run) -> list[tuple[Any, ...]]:
    return [(c.k, c.digest, c.parents, c.agent, c.rationale, c.status, c.prompts) for c in run.candidates]


def said(request: Request) -> list[str]:
    """Every result that the model was given, in order."""
    return [r.text for m in request.messages for r in m.results]


def test_a_line_of_work_reads_checks_evaluates_and_goes_on_with_the_verdict(tmp_path: Path) -> None:
    script = [
        calls(("read_lineage", {}), ("list_knobs", {}), ("profile", {}), ("search_knowledge", {"query": "tile"})),
        calls(("check", {"answer": "warps 5"})),
        calls(("check", {"answer": "warps 8"}), ("write_note", {"topic": "warps", "text": "five are refused"})),
        calls(evaluate(2, 8)),
        calls(("diff", {"old": "0", "new": "1"}), ("read_program", {"digest": "1"})),
        calls(evaluate(4, 4)),
    ]
    model = ScriptedModel(script, takes=TOOLS)
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, model, Budget(steps=2))
        assert [c.rationale for c in run.candidates[1:]] == ["try 2 8", "try 4 4"]
        assert [t.hypothesis.expected_gain for t in archive.hypotheses(run.id)] == [1.1, 1.1]
        assert [(n.k, n.topic, n.body) for n in archive.notes()] == [(1, "warps", "five are refused")]
        assert all(c.prompts.startswith("avo ") for c in run.candidates[1:]) and run.candidates[0].prompts == ""
        found = [Request.from_json(e.request) for e in archive.exchanges(run.id)]
    lineage, knobs, profile, knowledge, *_ = said(found[1])
    assert "1 candidates; the best is 0" in lineage and "warps 4: 1 2 4 8" in knobs
    assert "latency" in profile and ("pages on" in knowledge or "#" in knowledge)
    assert "warps 5" in said(found[2])[-1] and "Legal on b200" in said(found[3])[-2] and said(found[3])[-1] == "Kept."
    verdict = said(found[4])[-1]
    assert verdict.startswith("Verdict: - 1 `") and "The best so far is proposal" in verdict
    diff, text = said(found[5])[-2:]
    assert "tile b: 1 → 2" in diff and "warps 8" in text
    assert len(found) == 6 and found[5].messages[:8] == found[4].messages[:8]
    assert found[0].system.startswith("You make GPU kernels faster") and "Call tools." in found[0].messages[0].text


def test_calls_that_cannot_be_carried_out_are_told_and_cost_nothing(tmp_path: Path) -> None:
    wrong = Reply("", "ok", Usage(9, 9), calls=(Call("a", "check", '{"answer": '), Call("b", "fly", "{}")))
    script = [
        wrong,
        calls(("evaluate", {"answer": "warps 8"}), ("diff", {"old": "9", "new": "0"}), ("profile", {"x": 1})),
        calls(evaluate(2, 5), evaluate(2, 8)),
        calls(("evaluate", {"answer": "```diff\n@@ @@\n-nothing\n+warps 8\n```", "why": "x", "expect": 1.1})),
        calls(("evaluate", {"answer": TARGET.seed, "why": "x", "expect": 1.1})),
        calls(evaluate(2, 8)),
    ]
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel(script, takes=TOOLS), Budget(steps=1))
        assert len(run.candidates) == 2 and "try 2 8 (repaired: <program>:" in run.candidates[1].rationale
        texts = said(Request.from_json(archive.exchanges(run.id)[-1].request))
    for part, text in zip(
        (
            "check are no JSON",
            "unknown tool 'fly'",
            "why: field required; expect: field required",
            "9 is no candidate; the newest are 0",
            "It takes digest",
            "warps 5",
            "one evaluation a reply",
            "hunk 1 of the diff does not apply",
            "judged already, as proposal 0",
        ),
        texts,
        strict=True,
    ):
        assert part in text, text


def test_commit_and_give_up_begin_a_new_line_with_the_notes_of_the_old(tmp_path: Path) -> None:
    def commit(request: Request) -> Reply:
        digest = said(request)[-1].split("`")[1]
        return calls(("commit", {"digest": digest, "lesson": "eight warps hide latency"}))

    first = [calls(evaluate(b, w)) for b in (2, 4) for w in (8, 16)]
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel([first[0], commit, *first[1:]], takes=TOOLS), Budget(steps=2))
        requests = [Request.from_json(e.request) for e in archive.exchanges(run.id, 2)]
        good = next(c for c in run.history().all() if c.k == 1).committed
        if good:
            assert len(requests[1].messages) == 1  # a new line of work, with the record alone
        else:
            assert "was rejected" in said(requests[1])[-1] or "is slower" in said(requests[1])[-1]
        quits = [calls(("give_up", {"why": "nothing helps"}))]
        other = search(archive, ScriptedModel(quits, takes=TOOLS), Budget(steps=9))
        assert other.record.ended == "agent" and len(other.candidates) == 1
        third = search(archive, ScriptedModel(first, takes=TOOLS), Budget(steps=1))
        page = Request.from_json(archive.exchanges(third.id)[0].request).messages[0].text
        assert '- "given up" (rows): "nothing helps"' in page


def test_two_lines_of_work_go_on_side_by_side(tmp_path: Path) -> None:
    def by_step(request: Request) -> Reply:
        n = sum(t.startswith("Verdict") for t in said(request))
        line = int(request.messages[0].text.split("# Step ", 1)[1].split(":", 1)[0])
        return calls(evaluate(2 << line, (1, 2, 8)[n % 3]))

    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel([by_step], takes=TOOLS), Budget(steps=6), jobs=2, evaluations=4)
        assert [c.rationale for c in run.candidates[1:]] == [f"try {b} {w}" for w in (1, 2, 8) for b in (4, 8)]
        with open_archive(tmp_path / "b.db") as other:
            model = ReplayModel("scripted", archive.exchanges(run.id), TOOLS)
            assert rows(search(other, model, Budget(steps=6), jobs=2, evaluations=4)) == rows(run)


def test_a_resumed_conversation_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    def by_verdicts(request: Request) -> Reply:
        n = sum(t.startswith("Verdict") for t in said(request))
        looked = any("candidates; the best is" in t for t in said(request)[-1:])
        return calls(evaluate(2, (1, 2, 8, 16)[n])) if looked else calls(("read_lineage", {}))

    with open_archive(tmp_path / "a.db") as archive, open_archive(tmp_path / "b.db") as other:
        whole = search(archive, ScriptedModel([by_verdicts], takes=TOOLS), Budget(steps=4))
        run = search(other, ScriptedModel([by_verdicts], takes=TOOLS), Budget(steps=1))
        for steps in (2, 3, 4):
            search(other, ScriptedModel([by_verdicts], takes=TOOLS), Budget(steps=steps), run)
        assert rows(run) == rows(whole) and len(rows(whole)) == 5
        assert [e.request for e in archive.exchanges(whole.id)] == [e.request for e in other.exchanges(run.id)]


def test_a_long_conversation_begins_anew_and_turns_end(tmp_path: Path) -> None:
    def busy(request: Request) -> Reply:
        return calls(("read_brief", {}))

    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel([busy], takes=TOOLS), Budget(steps=1), turns=3)
        assert len(archive.exchanges(run.id)) == 3
        assert "it called tools and had nothing judged" in run.candidates[1].rationale
        legal = [calls(("check", {"answer": "warps 8"})), busy]
        run = search(archive, ScriptedModel(legal, takes=TOOLS), Budget(steps=1), turns=3)
        assert run.candidates[1].rationale == "the last that was checked" and "warps 8" in run.candidates[1].text

        def each(request: Request) -> Reply:
            k = int(request.messages[0].text.split("# Step ", 1)[1].split(":", 1)[0])
            return calls(evaluate(2 << k, 8))

        run = search(archive, ScriptedModel([each], takes=TOOLS), Budget(steps=3), evaluations=1)
        assert all(len(Request.from_json(e.request).messages) == 1 for e in archive.exchanges(run.id))


def test_what_was_checked_is_judged_when_the_money_is_spent(tmp_path: Path) -> None:
    dear = replace(calls(("check", {"answer": "warps 8"})), usage=Usage(14_000, 100))
    script = [dear, calls(evaluate(2, 2))]
    with open_archive(tmp_path / "a.db") as archive, open_archive(tmp_path / "b.db") as other:
        model = ScriptedModel(script, price=Price(1.0, 2.0), takes=TOOLS)
        run = search(archive, model, Budget(steps=9, usd=0.02))
        assert len(model.requests) == 1 and [e.outcome for e in archive.exchanges(run.id, 1)] == ["ok", "withheld"]
        assert run.record.ended == "usd" and run.candidates[1].rationale == "the last that was checked"
        assert 0 < (archive.spend(run.id).usd or 0) <= 0.02
        again = search(other, ReplayModel("scripted", archive.exchanges(run.id), TOOLS), Budget(steps=1))
        assert rows(again) == rows(run)


def test_a_reviewer_is_asked_on_counters_with_a_clean_context(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        if request.system.startswith("Somebody"):
            assert not request.tools and len(request.messages) == 1
            return Reply("Try the loop.", "ok", Usage(9, 9))
        n = sum(t.startswith("Verdict") for t in said(request))
        k = int(request.messages[0].text.split("# Step ", 1)[1].split(":", 1)[0]) + n
        return calls(evaluate(2 << k % 5, (1, 2, 8, 16)[k // 5 % 4]))

    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel([answer], takes=TOOLS), Budget(steps=14), review_after=4)
        found = [Request.from_json(e.request) for e in archive.exchanges(run.id)]
        reviews = [n for n, r in enumerate(found) if r.system.startswith("Somebody")]
        assert 1 <= len(reviews) <= 3
        for n in reviews:
            assert "no better program in" in found[n].messages[0].text or "in a row" in found[n].messages[0].text
            following = found[n + 1]
            assert len(following.messages) == 1 and "Try the loop." in following.messages[0].text
        with open_archive(tmp_path / "b.db") as other:
            model = ReplayModel("scripted", archive.exchanges(run.id), TOOLS)
            assert rows(search(other, model, Budget(steps=14), review_after=4)) == rows(run)


def test_messages_come_back_from_the_journal_as_they_were() -> None:
    spoken = Message(
        "assistant", "", (Call("1", "check", "{}"), Call("2", "evaluate_edit", "warps 8", True)), kept="[]"
    )
    heard = Message("user", "", results=(Result("1", ""), Result("2", "no", True)))
    request = Request("", (Message("user", ""), spoken, heard), 5, grammar="root", schema={"type": "object"})
    assert Request.from_json(request.to_json()) == request
    reply = Reply("", "ok", Usage(1, 2), "", spoken.calls, "[]")
    assert Reply.from_json(reply.to_json()) == reply and reply.said == spoken


# Over HTTP ----------------------------------------------------------------------------------------------


KEY = "sk-live-0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return tmp_path


def named(kind: str, server: ModelServer) -> list[str]:
    if kind == "chat":
        return ["--model", f"{server.url}/v1#small"]
    model = {"openai": "openai:gpt-6-sol", "anthropic": "anthropic:claude-opus-5-5"}[kind]
    base = server.url + ("/v1" if kind == "openai" else "")
    return ["--model", model, "--set", f"model_options.base_url={base}", "--max-usd", "5"]


def told(body: dict[str, Any]) -> list[str]:
    """The results of tools in a request of any of the three protocols."""
    found = []
    for m in body.get("messages", body.get("input", [])):
        if m.get("role") == "tool":
            found.append(m["content"])
        elif str(m.get("type", "")).endswith("call_output"):
            found.append(m["output"])
        elif isinstance(m.get("content"), list):
            found += [p["content"][0]["text"] for p in m["content"] if p.get("type") == "tool_result"]
    return found


def colleague(body: dict[str, Any]) -> Say:
    """Looks, makes a mistake, has two changes judged, ends the line."""
    results = told(body)
    match len(results):
        case 0:
            return Say("I look first.", calls=(("read_lineage", {}),), thinks=True)
        case 1:
            return Say(calls=(("check", {"answer": "warps 7"}),))
        case 2:
            return Say(f"My key is {KEY}.", calls=(("evaluate", {"answer": "warps 8", "why": "more", "expect": 1.1}),))
        case 3:
            if any(t.get("type") == "custom" for t in body.get("tools", [])):
                return Say(calls=(("evaluate_edit", "why: fewer warps here\nexpect: 1.05\nwarps 2"),), thinks=True)
            return Say(calls=(("evaluate", {"answer": "warps 2", "why": "fewer warps here", "expect": 1.05}),))
        case _:
            return Say(calls=(("give_up", {"why": "two tried"}),))


@pytest.mark.parametrize("kind", ["chat", "openai", "anthropic"])
def test_a_whole_run_over_http_and_its_replay_without_a_network(
    cli: Callable[..., Any], folder: Path, kind: str
) -> None:
    with ModelServer([colleague]) as server:
        done = cli("evolve", *PARTS, *named(kind, server), "--steps", 2, "--jobs", 1)
        assert done.code == 0, done.err
        bodies = server.requests
    assert "models: " in done.out and " tokens in" in done.out and "prompts: avo " in cli("show", "1/1").out
    with open_archive("avo.db", readonly=True) as store:
        assert [c.rationale for c in store.candidates(1)][1:] == ["more", "fewer warps here"]
        assert [t.hypothesis.expected_gain for t in store.hypotheses(1)] == [1.1, 1.05]
        assert KEY not in str(store.exchanges(1))
    assert len(bodies) == 4
    last = bodies[3]
    assert "1 candidates" in told(last)[0] and "warps 7" in told(last)[1] and told(last)[2].startswith("Verdict: ")
    if kind == "openai":
        kinds = {t["type"]: t for t in last["tools"]}
        assert set(kinds) == {"function", "custom"} and kinds["custom"]["format"]["syntax"] == "lark"
        assert '"warps "' in kinds["custom"]["format"]["definition"]
        assert {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"} in last["input"]
        assert last["include"] == ["reasoning.encrypted_content"] and last["store"] is False
    elif kind == "anthropic":
        blocks = [p for m in last["messages"] for p in m["content"]]
        assert {"type": "thinking", "thinking": "hm", "signature": "c2ln"} in blocks
        assert [m["role"] for m in last["messages"]] == ["user", "assistant"] * 3 + ["user"]
        marked = [p for p in blocks if "cache_control" in p]
        assert marked == [last["messages"][0]["content"][-1], last["messages"][-1]["content"][-1]]
        assert "cache_control" in last["tools"][-1] and all("input_schema" in t for t in last["tools"])
    else:
        assert all(t["type"] == "function" for t in last["tools"]) and last["messages"][2]["tool_calls"]
    again = cli("replay", "1")
    assert again.code == 0 and "3 candidates, all the same" in again.out, again.out + again.err
    for path in folder.iterdir():
        assert KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    "refusal",
    [
        Say('"auto" tool choice requires --enable-auto-tool-choice', 400),
        Say("tools param requires --jinja flag", 500),
        Say("registry.example/small does not support tools", 400),
    ],
)
def test_a_server_without_tools_is_asked_for_whole_answers_under_a_grammar(
    cli: Callable[..., Any], folder: Path, refusal: Say
) -> None:
    def server_says(body: dict[str, Any]) -> Say:
        if "tools" in body:
            return refusal
        k = int(json.dumps(body).split("# Step ", 1)[1].split(":", 1)[0])
        return Say(f"why: another number of warps\nexpect: 1.05\n```\nwarps {(2, 8, 16)[k % 3]}\n```")

    with ModelServer([server_says]) as server:
        done = cli("evolve", *PARTS, *named("chat", server), "--steps", 3, "--jobs", 1)
        assert done.code == 0, done.err
        bodies = server.requests
    assert ["tools" in b for b in bodies] == [True, False, False, False]  # it is told once
    assert all(b["grammar"].startswith("root ::=") for b in bodies[1:])
    assert bodies[1]["structured_outputs"] == {"grammar": bodies[1]["grammar"]}
    with open_archive("avo.db", readonly=True) as store:
        assert [e.outcome for e in store.exchanges(1)] == ["no tools", "ok", "ok", "ok"]
    again = cli("replay", "1")
    assert again.code == 0, again.out


def test_a_server_that_takes_neither_tools_nor_grammars(cli: Callable[..., Any], folder: Path) -> None:
    def server_says(body: dict[str, Any]) -> Say:
        if "tools" in body or "grammar" in body:
            return Say(f"unsupported: {'tools' if 'tools' in body else 'grammar'}", 422)
        k = int(json.dumps(body).split("# Step ", 1)[1].split(":", 1)[0])
        return Say(f"warps {(2, 8, 16)[k % 3]}")

    with ModelServer([server_says]) as server:
        assert cli("evolve", *PARTS, *named("chat", server), "--steps", 2, "--jobs", 1).code == 0
        assert len(server.requests) == 4
    with open_archive("avo.db", readonly=True) as store:
        assert [e.outcome for e in store.exchanges(1)] == ["no tools", "no grammar", "ok", "ok"]
    assert cli("replay", "1").code == 0


def test_a_server_that_never_tells_the_model_of_the_tools(cli: Callable[..., Any], folder: Path) -> None:
    def server_says(body: dict[str, Any]) -> Say:
        k = int(json.dumps(body).split("# Step ", 1)[1].split(":", 1)[0])
        return Say(f"why: another number\n```\nwarps {(2, 8, 16)[k % 3]}\n```")

    with ModelServer([server_says]) as server:
        assert cli("evolve", *PARTS, *named("chat", server), "--steps", 3, "--jobs", 1).code == 0
        # What it says does not follow the grammar either, so it is given a schema from then on.
        assert [[part in b for part in ("tools", "grammar", "response_format")] for b in server.requests] == [
            [True, False, False],
            [False, True, False],
            [False, False, True],
        ]
    assert cli("replay", "1").code == 0


@pytest.mark.parametrize("refuses", ["", "grammar", "grammar and schema"])
def test_a_server_that_knows_schemas_and_no_grammars(cli: Callable[..., Any], folder: Path, refuses: str) -> None:
    """Ollama leaves `grammar` unread and keeps a reply to `response_format`; others say what they do not take."""

    def server_says(body: dict[str, Any]) -> Say:
        if "tools" in body:
            return Say("registry.example/small does not support tools", 400)
        if "grammar" in body and refuses:
            return Say("unknown field: grammar", 400)
        k = int(json.dumps(body).split("# Step ", 1)[1].split(":", 1)[0])
        if "response_format" not in body:
            return Say(f"Try this.\n```\nwarps {(2, 8, 16)[k % 3]}\n```")
        if "schema" in refuses:
            return Say("response_format is not supported", 400)
        schema = body["response_format"]["json_schema"]["schema"]
        edits = [e for e in schema["properties"]["edits"]["items"]["enum"] if e.startswith("warps ")]
        assert "one JSON object" in json.dumps(body["messages"])
        return Say(json.dumps({"why": "more warps", "expect": 1.05, "edits": [edits[k % len(edits)]]}))

    with ModelServer([server_says]) as server:
        done = cli("evolve", *PARTS, *named("chat", server), "--steps", 4, "--jobs", 1)
        assert done.code == 0, done.err
    with open_archive("avo.db", readonly=True) as store:
        outcomes = [e.outcome for e in store.exchanges(1)]
        found = store.candidates(1)[1:]
    refused = {"": [], "grammar": ["no grammar"], "grammar and schema": ["no grammar", "no schema"]}[refuses]
    told = ["no tools", *refused]  # each once
    assert outcomes[: len(told)] == told and set(outcomes[len(told) :]) == {"ok"}
    if "schema" not in refuses:
        assert all("more warps" in c.rationale for c in found[not refuses :])
    assert len({c.digest for c in found}) >= 2
    assert cli("replay", "1").code == 0


# What goes wrong on the way is tested of all three in test_models.py; here one of them is enough for every day.
MOSTLY = ["chat", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("openai", "anthropic"))]
FAULTS = [
    Say("slow down", 429, {"Retry-After": "0"}),
    Say("oops", 500),
    Say("busy", 529),
    Say("x", cut=True),
    Say(raw='{"id": "x", "content": [{"type'),
    Say("", calls=(("read_lineage", {}),), cut=True),
]


@pytest.mark.parametrize("kind", MOSTLY)
@pytest.mark.parametrize("fault", range(len(FAULTS)))
def test_faults_in_a_conversation_end_in_a_recorded_outcome(
    cli: Callable[..., Any], folder: Path, kind: str, fault: int
) -> None:
    good = Say(calls=(("evaluate", {"answer": "warps 8", "why": "more", "expect": 1.1}),))
    script = [Say(calls=(("read_lineage", {}),)), FAULTS[fault], good]
    with ModelServer(script) as server:
        done = cli("evolve", *PARTS, *named(kind, server), "--steps", 1, "--jobs", 1)
        assert done.code == 0, done.err
    with open_archive("avo.db", readonly=True) as store:
        found = [e.outcome for e in store.exchanges(1)]
        assert len(found) == 3 and found[0] == found[2] == "ok" and found[1] != "ok" and found[1] is not None
        assert store.candidates(1)[1].rationale == "more"


@pytest.mark.parametrize("kind", MOSTLY)
@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (Say("I will not.", stop="refusal"), "you refused"),
        (Say("kernel a\nin x[b", stop="length"), "your reply was cut"),
        (Say(""), "the answer is empty"),
        (Say("I would use more warps, I think."), "there is no program"),
        (Say("", calls=(("evaluate", "{not json"),)), "arguments of evaluate are"),
    ],
)
def test_replies_that_call_nothing_go_back_with_the_reason(
    cli: Callable[..., Any], folder: Path, kind: str, say: Say, reason: str
) -> None:
    good = Say(calls=(("evaluate", {"answer": "warps 8", "why": "more", "expect": 1.1}),))
    with ModelServer([say, good]) as server:
        done = cli("evolve", *PARTS, *named(kind, server), "--steps", 1, "--jobs", 1)
        assert done.code == 0, done.err
        assert reason in json.dumps(server.requests[1])
    with open_archive("avo.db", readonly=True) as store:
        assert store.candidates(1)[1].status is not None


def test_a_conversation_is_left_within_two_seconds(tmp_path: Path) -> None:
    import os
    import signal

    def slow(request: Request) -> Reply:
        time.sleep(20)
        return calls(evaluate(2, 2))

    with open_archive(tmp_path / "a.db") as archive:
        model = ScriptedModel([calls(("read_lineage", {})), slow], takes=TOOLS)
        pressed = []

        def press() -> None:
            while len(model.requests) < 2:
                time.sleep(0.01)
            pressed.append(Stopwatch())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press, daemon=True).start()
        run = search(archive, model, Budget(steps=3))
        assert pressed[0].seconds < 2 and run.record.ended == "interrupted"
        assert [e.outcome for e in archive.exchanges(run.id)] == ["ok", "cancelled"] and len(run.candidates) == 1
        done = search(archive, ScriptedModel([calls(evaluate(2, 2))], takes=TOOLS), Budget(steps=1), run)
        assert len(done.candidates) == 2 and program(2, 2).split()[-1] in done.candidates[1].text
