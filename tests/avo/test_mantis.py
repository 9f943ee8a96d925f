"""`--agent mantis`: phases as short questions, ROI, expected beside actual, over real HTTP and replayed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_parts import HW, TARGET, HashEvaluator
from model_server import ModelServer, Say

from archive import Archive, open_archive
from avo.agents.mantis import MantisAgent, roi
from avo.budget import Budget
from avo.models import Request
from avo.models.calling import Waits
from avo.models.scripted import ReplayModel, ScriptedModel
from avo.run import Run, begin, proceed
from avo.testing import AgentContract

EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"
PARTS = ["--target", EXAMPLE / "target.py", "--evaluator", EXAMPLE / "evaluator.py", "--hw", "h200"]
CHANGES = ("warps 8", "warps 2", "warps 16", "warps 1")


def answer(text: str) -> str:
    """What a model says to each phase; the third nominee is rated best, then the first."""
    phase = text.split("(mantis: ", 1)[1].split(")", 1)[0]
    match phase:
        case "analyse":
            return json.dumps({"bottleneck": "latency", "gap": 4.5, "because": "most of the time is latency"})
        case "nominate":
            found = [{"claim": f"more of {c}", "change": c, "bottleneck": "latency"} for c in CHANGES]
            return "Here they are:\n" + json.dumps({"hypotheses": found})
        case "triage":
            speed = (1.2, 1.0, 1.5, 1.05)
            found = [{"number": n, "speedup": s, "implement": 1, "perform": 2} for n, s in enumerate(speed, 1)]
            return json.dumps({"ratings": found})
        case "implement":
            change = text.split("It was sketched as: ", 1)[1].split("\n", 1)[0]
            return json.dumps({"answer": change, "why": f"because {change}"})
        case "summarise":
            return json.dumps({"lesson": "it is the latency", "topic": "warps"})
    raise AssertionError(phase)


def scripted(request: Request) -> str:
    return answer(request.messages[0].text)


def search(archive: Archive, model: Any, steps: int, jobs: int = 1, **options: Any) -> Run:
    agent = MantisAgent(model, waits=Waits(timeout_s=60, attempts=1), jobs=jobs, **options)
    evaluator = HashEvaluator()
    run = begin(archive, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, seed=3, jobs=jobs)
    return proceed(
        run, target=TARGET, hardware=HW, agent=agent, evaluator=evaluator, budget=Budget(steps=steps), options={}
    )


def phases(archive: Archive, run: Run, k: int) -> list[str]:
    texts = [Request.from_json(e.request).messages[0].text for e in archive.exchanges(run.id, k)]
    return [t.split("(mantis: ", 1)[1].split(")", 1)[0] for t in texts]


def rows(run: Run) -> list[tuple[Any, ...]]:
    return [(c.k, c.digest, c.parents, c.agent, c.rationale, c.status, c.prompts) for c in run.candidates]


def test_roi_is_the_formula_of_the_paper() -> None:
    assert roi(1.5, 1, 2, None) == pytest.approx(0.75) and roi(1.5, 1, 2, 4) == pytest.approx(0.75)
    assert roi(2.0, 1, 1, 10) == pytest.approx(2 ** (1 + 0.30103)) and roi(2.0, 2, 1, 50) == pytest.approx(2.0)


def test_a_round_tries_the_best_rated_and_keeps_what_was_expected(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel([scripted], takes={"schema"}), 2)
        assert phases(archive, run, 1) == ["analyse", "nominate", "triage", "implement"]
        first, second = run.candidates[1:3]
        assert first.rationale == "because warps 16" and "warps 16" in first.text
        assert phases(archive, run, 2)[0] == "summarise"
        tested = [(t.k, t.hypothesis.claim, t.hypothesis.expected_gain) for t in archive.hypotheses(run.id)]
        assert tested[0] == (None, "more of warps 8", 1.2) and (1, "more of warps 16", 1.5) in tested
        considered = [t for t in archive.hypotheses(run.id) if t.k is None and t.nominated_k == 1]
        gap = run.history().all()[0].score.headroom
        wanted = [roi(1.2, 1, 2, gap), roi(1.05, 1, 2, gap), roi(1.0, 1, 2, gap)]
        assert [t.detail["roi"] for t in considered] == pytest.approx(wanted)
        (note,) = [n for n in archive.notes() if n.k == 2]
        assert note.topic == "warps" and note.body.startswith("it is the latency (expected 1.50x its parent's score, ")
        if first.k == run.history().best(1).k:
            assert phases(archive, run, 2)[1] == "analyse"  # the best is another program: it is looked at anew
        else:
            assert phases(archive, run, 2)[1:] == ["implement"] and second.rationale == "because warps 8"
        schemas = [Request.from_json(e.request).schema for e in archive.exchanges(run.id, 1)]
        assert all(s["additionalProperties"] is False for s in schemas) and len({json.dumps(s) for s in schemas}) == 4
        assert first.prompts.startswith("mantis ")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_journal_gives_the_same_run_again(tmp_path: Path, jobs: int) -> None:
    with open_archive(tmp_path / "a.db") as archive, open_archive(tmp_path / "b.db") as other:
        run = search(archive, ScriptedModel([scripted]), 6, jobs)
        replayed = search(other, ReplayModel("scripted", archive.exchanges(run.id)), 6, jobs)
        assert rows(replayed) == rows(run) and len(rows(run)) == 7


def test_answers_of_no_form_are_asked_for_once_more_and_then_done_without(tmp_path: Path) -> None:
    def babble(request: Request) -> str:
        return "warps 8" if "(mantis: implement)" in request.messages[0].text else "Well, it depends."

    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel([babble]), 1)
        assert phases(archive, run, 1) == ["analyse"] * 2 + ["nominate"] * 2 + ["implement"]
        assert "warps 8" in run.candidates[1].text and run.candidates[1].rationale.startswith("answer the bottleneck")
        run = search(archive, ScriptedModel(["{"]), 1)
        assert "no program in two replies" in run.candidates[1].rationale

        def illegal(request: Request) -> str:
            return answer(request.messages[0].text).replace("warps 16", "warps 7")

        run = search(archive, ScriptedModel([illegal]), 1)
        assert "still wrong after a repair: <program>" in run.candidates[1].rationale


def in_one(request: Request) -> str:
    """A whole round; the third change is rated best, then the first, and the second is not legal."""
    assert request.messages[0].text.startswith("(mantis: round)")
    rated = zip(("warps 8", "warps 7", "warps 16", "warps 2"), (1.2, 9.0, 1.5, 1.05), strict=True)
    ideas = [
        {"claim": f"more of {c}", "change": c, "bottleneck": "latency", "speedup": s, "implement": 1, "perform": 2}
        | {"answer": c}
        for c, s in rated
    ]
    known = "Since the last round:" in request.messages[0].text
    said = {"bottleneck": "latency", "gap": 4.5, "because": "it says so", "hypotheses": ideas}
    return json.dumps(said | {"lesson": "warps decide" if known else "", "topic": "warps" if known else ""})


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_round_in_one_prompt_tries_the_best_rated_that_is_legal(tmp_path: Path, jobs: int) -> None:
    with open_archive(tmp_path / "a.db") as archive, open_archive(tmp_path / "b.db") as other:
        run = search(archive, ScriptedModel([in_one], takes={"schema"}), 6, jobs, one_prompt=True)
        first = run.candidates[1]
        assert first.rationale == "more of warps 16" and "warps 16" in first.text
        assert [len(archive.exchanges(run.id, 1)), phases(archive, run, 1)] == [1, ["round"]]
        considered = [t.hypothesis.claim for t in archive.hypotheses(run.id) if t.k is None and t.nominated_k == 1]
        assert sorted(considered) == ["more of warps 2", "more of warps 7", "more of warps 8"]
        if jobs == 1 and run.history().best(1).k == 0:
            assert archive.exchanges(run.id, 2) == [] and run.candidates[2].rationale == "more of warps 8"
        asked = [k for k in range(1, 7) if archive.exchanges(run.id, k)]
        assert 1 in asked and len(asked) >= 2
        assert {n.body for n in archive.notes()} == {"warps decide"}
        replay = ReplayModel("scripted", archive.exchanges(run.id), takes={"schema"})
        assert rows(search(other, replay, 6, jobs, one_prompt=True)) == rows(run)


def test_a_round_in_one_prompt_that_is_no_round_goes_back_once(tmp_path: Path) -> None:
    def illegal(request: Request) -> str:
        return in_one(request).replace('"answer": "warps ', '"answer": "warps 7')

    with open_archive(tmp_path / "a.db") as archive:
        run = search(archive, ScriptedModel(["Well.", in_one]), 1, one_prompt=True)
        assert run.candidates[1].rationale == "more of warps 16" and phases(archive, run, 1) == ["round"] * 2
        run = search(archive, ScriptedModel(["Well.", "It depends."]), 1, one_prompt=True)
        assert run.candidates[1].rationale.startswith("no program in two replies")
        run = search(archive, ScriptedModel([illegal]), 1, one_prompt=True)
        assert "still wrong after a repair" in run.candidates[1].rationale


class TestMantisContract(AgentContract):
    target = "softmax"

    def make(self) -> MantisAgent:
        def by_step(request: Request) -> str:
            text = request.messages[0].text
            if "(mantis: implement)" not in text:
                return answer(text)
            return json.dumps({"answer": f"warps {8 if '# Step 1:' in text else 2}", "why": "x"})

        return MantisAgent(ScriptedModel([by_step]))


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("chat", False),
        ("openai", True),
        ("anthropic", True),
        *(
            pytest.param(*given, marks=pytest.mark.slow)
            for given in (("chat", True), ("openai", False), ("anthropic", False))
        ),
    ],
)
def test_over_http_with_and_without_schemas(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, schema: bool
) -> None:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-test-0123456789abcdef")

    def server_says(body: dict[str, Any]) -> Say:
        asked = any(key in body for key in ("response_format", "text", "output_config"))
        if asked and not schema:
            return Say("this model does not support response_format json_schema / output_config", 400)
        return Say(answer(json.loads(json.dumps(_first(body)))))

    with ModelServer([server_says]) as server:
        model = {
            "chat": ["--model", f"{server.url}/v1#m"],
            "openai": [
                "--model",
                "openai:gpt-6-sol",
                "--set",
                f"model_options.base_url={server.url}/v1",
                "--max-usd",
                5,
            ],
            "anthropic": [
                *["--model", "anthropic:claude-opus-5", "--set", f"model_options.base_url={server.url}"],
                *["--max-usd", 5],
            ],
        }[kind]
        done = cli("evolve", *PARTS, "--agent", "mantis", *model, "--steps", 2, "--jobs", 1)
        assert done.code == 0, done.err
    with open_archive("avo.db", readonly=True) as store:
        outcomes = [e.outcome for e in store.exchanges(1)]
        assert outcomes.count("no schema") == (0 if schema else 1)
        assert store.candidates(1)[1].rationale == "because warps 16"
    again = cli("replay", "1")
    assert again.code == 0, again.out


def _first(body: dict[str, Any]) -> str:
    """The first message of the user in any of the three protocols."""
    for m in body.get("messages", body.get("input", [])):
        if m["role"] == "user":
            content = m["content"]
            return content if isinstance(content, str) else content[0]["text"]
    raise AssertionError(body)
