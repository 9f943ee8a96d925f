"""Models over real HTTP: both providers' formats, and everything that goes wrong on the way."""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer, Say
from stopwatch import Stopwatch

from archive.records import Spend
from avo.errors import Halted, HarnessUnavailable, UserMistake
from avo.models import Message, Price, Reply, Request, Trouble, Usage, open_model
from avo.models.calling import Waits, converse
from avo.models.prices import PRICES, most, price_of
from avo.models.scripted import ScriptedModel
from avo.models.secrets import redacted

pytest.importorskip("openai")
pytest.importorskip("anthropic")

KEY = "sk-test-0123456789abcdef"
KINDS = ("openai", "anthropic", "chat")
REQUEST = Request("You make kernels fast.", (Message("user", "the brief"),), 500)
QUICK = Waits(timeout_s=60, attempts=3, first_s=0.02)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def opened(kind: str, server: ModelServer, **options: Any) -> Any:
    if kind == "chat":
        return open_model(f"{server.url}/v1#m", **options)
    name = {"openai": "openai:gpt-6-sol", "anthropic": "anthropic:claude-opus-5-5"}[kind]
    base = server.url + ("/v1" if kind == "openai" else "")
    return open_model(name, base_url=base, **options)


class Kept:
    """A journal in memory."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Spend]] = []
        self.replies: dict[int, tuple[str, str, Spend]] = {}

    def recall(self, model: str, request: str) -> str | None:
        return None

    def ask(self, model: str, request: str, maximum: Spend) -> int:
        self.asked.append((model, request, maximum))
        return len(self.asked)

    def answered(self, exchange: int, reply: str, outcome: str, spent: Spend) -> None:
        self.replies[exchange] = (reply, outcome, spent)

    @property
    def outcomes(self) -> list[str]:
        return [self.replies[n + 1][1] for n in range(len(self.asked))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_comes_with_its_tokens_and_its_price(kind: str) -> None:
    journal = Kept()
    with ModelServer([Say("warps 8")]) as server:
        model = opened(kind, server)
        reply = converse(model, REQUEST, journal, waits=QUICK)
        model.close()
    assert (reply.text, reply.outcome) == ("warps 8", "ok")
    cached, written = (0, 0) if kind == "chat" else (800, 100)
    assert reply.usage == Usage(1000, 50, cached, written)
    assert journal.outcomes == ["ok"]
    spent = journal.replies[1][2]
    usd = {"openai": 100 * 2 + 800 * 0.2 + 100 * 2.5 + 50 * 10, "anthropic": 100 * 4 + 800 * 0.2 + 100 * 5 + 50 * 20}
    assert spent.usd == (pytest.approx(usd[kind] / 1e6) if kind in usd else None)
    assert (spent.tokens_in, spent.tokens_out, spent.tokens_cached) == (1000, 50, cached)
    maximum = journal.asked[0][2]
    assert maximum.tokens_out == 500 and (maximum.usd is None or maximum.usd > (spent.usd or 0))
    sent = server.requests[0]
    assert KEY not in str(sent) and "temperature" not in sent
    given = server.headers[0]
    if kind == "chat":
        assert given["authorization"] == "Bearer none"  # a key of a provider's never goes to another address
        assert [m["role"] for m in sent["messages"]] == ["system", "user"]
    elif kind == "openai":
        assert given["authorization"] == f"Bearer {KEY}" and sent["store"] is False
        assert sent["instructions"] == REQUEST.system and sent["max_output_tokens"] == 500
    else:
        assert KEY in given.get("x-api-key", given.get("authorization", ""))
        assert sent["system"][0]["cache_control"] == sent["messages"][0]["content"][0]["cache_control"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("say", "outcome", "detail"),
    [
        (Say("I will not.", stop="refusal"), "refused", "I will not"),
        (Say("kernel a", stop="length"), "truncated", "cut: max_"),
        (Say(""), "empty", "no text"),
    ],
)
def test_replies_that_are_no_answer_are_told_apart(kind: str, say: Say, outcome: str, detail: str) -> None:
    with ModelServer([say]) as server:
        reply = converse(opened(kind, server), REQUEST, Kept(), waits=QUICK)
    assert reply.outcome == outcome and detail in reply.detail
    assert Reply.from_json(reply.to_json()) == reply


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("say", "outcome"),
    [
        (Say("slow down", 429), "rate limited"),
        (Say("oops", 500), "server error"),
        (Say("busy", 529), "overloaded"),
        (Say("warps 8", cut=True), "no connection"),
        (Say(raw='{"id": "x", "content": [{"type'), "broken reply"),
        (Say(raw="<html>bad gateway</html>", status=502), "server error"),
        (Say(raw='{"hello": 1}'), "broken reply"),
    ],
)
def test_what_passes_is_tried_again(kind: str, say: Say, outcome: str) -> None:
    journal = Kept()
    with ModelServer([say, Say("warps 8")]) as server:
        reply = converse(opened(kind, server), REQUEST, journal, waits=QUICK)
    assert reply.text == "warps 8" and len(server.requests) == 2
    assert journal.outcomes[1] == "ok" and journal.outcomes[0] in (outcome, "broken reply", "no connection")
    # a reply that was made may be billed, so its maximum stays; an error is not
    booked = journal.replies[1][2].tokens_out
    assert booked == (500 if journal.outcomes[0] == "broken reply" else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_wait_that_a_provider_asks_for_is_kept(kind: str) -> None:
    with ModelServer([Say("later", 429, {"Retry-After": "0.5"}), Say("ok then")]) as server:
        converse(opened(kind, server), REQUEST, Kept(), waits=QUICK)
    assert 0.5 <= server.times[1] - server.times[0] < 2
    then = email.utils.format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=4000), usegmt=True)
    with (
        ModelServer([Say("later", 429, {"Retry-After": then})]) as server,
        pytest.raises(HarnessUnavailable, match="asks to wait"),
    ):
        converse(opened(kind, server), REQUEST, Kept(), waits=QUICK)


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_stays_away_makes_the_harness_unavailable(kind: str) -> None:
    journal = Kept()
    with ModelServer([Say("busy", 503)]) as server, pytest.raises(HarnessUnavailable, match=r"overloaded.*3 attempts"):
        converse(opened(kind, server), REQUEST, journal, waits=QUICK)
    assert journal.outcomes == ["overloaded"] * 3
    with pytest.raises(HarnessUnavailable, match="no connection"):
        converse(opened(kind, server), REQUEST, journal, waits=QUICK)  # nobody listens there any more


@pytest.mark.parametrize("kind", KINDS)
def test_silence_ends_at_the_timeout_and_is_booked_at_its_most(kind: str) -> None:
    journal = Kept()
    with ModelServer([Say("late", hang_s=60), Say("warps 8")]) as server:
        began = time.monotonic()
        reply = converse(opened(kind, server), REQUEST, journal, waits=Waits(timeout_s=1.0, first_s=0.02))
    assert reply.text == "warps 8" and time.monotonic() - began < 30
    *late, last = journal.outcomes  # on a busy machine an answer may come too late once more
    assert set(late) == {"timeout"} and last == "ok" and journal.replies[1][2] == journal.asked[0][2]


@pytest.mark.parametrize(
    ("say", "kind_of_error", "message"),
    [
        (Say(f"Incorrect API key provided: {KEY}", 401), UserMistake, "not allowed: 401"),
        (Say("no such model", 404), UserMistake, "unknown model: 404"),
        (Say("max_tokens is too large", 400), UserMistake, "bad request: 400"),
        (Say("you have no quota", 429, code="insufficient_quota"), HarnessUnavailable, "no credit"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_helped_is_not_tried_again(
    kind: str, say: Say, kind_of_error: type[Exception], message: str
) -> None:
    if kind == "anthropic" and say.code:
        pytest.skip("a code of OpenAI's")
    journal = Kept()
    with ModelServer([say]) as server, pytest.raises(kind_of_error, match=message) as caught:
        converse(opened(kind, server), REQUEST, journal, waits=QUICK)
    assert len(server.requests) == 1
    assert KEY not in str(caught.value) + str(journal.replies) and "0123456789" not in str(journal.replies)


@pytest.mark.parametrize("say", [Say("late", hang_s=60), Say("busy", 503, {"Retry-After": "60"})])
def test_the_end_of_a_run_ends_a_request_and_a_wait_within_two_seconds(say: Say) -> None:
    stop, journal, pressed = threading.Event(), Kept(), []

    def press() -> None:
        while not server.requests:
            time.sleep(0.01)
        time.sleep(0.1)  # for the answer that asks to wait
        pressed.append(Stopwatch())
        stop.set()

    with ModelServer([say]) as server:
        threading.Thread(target=press, daemon=True).start()
        with pytest.raises(Halted, match="interrupted"):
            converse(opened("openai", server), REQUEST, journal, stop=stop)
        assert pressed[0].seconds < 2
    assert journal.outcomes in (["cancelled"], ["overloaded"])
    if journal.outcomes == ["cancelled"]:
        assert journal.replies[1][2] == journal.asked[0][2]


def test_no_wait_outlives_the_run() -> None:
    with ModelServer([Say("busy", 503, {"Retry-After": "60"})]) as server, pytest.raises(Halted, match="minutes"):
        converse(opened("openai", server), REQUEST, Kept(), seconds=5.0)


def test_a_missing_key_is_told_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("ANTHROPIC_API_KEY", " ")
    for name, variable in (("openai:gpt-6-sol", "OPENAI_API_KEY"), ("anthropic:claude-opus-5", "ANTHROPIC_API_KEY")):
        with pytest.raises(UserMistake, match=f"set the environment variable {variable}"):
            open_model(name).check()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gpt-6", {}, "is no model: write anthropic:NAME"),
        ("openai:", {}, "write openai:NAME"),
        ("http://localhost:8000/v1", {}, "write http://localhost:8000/v1#NAME"),
        ("openai:x", {"usd_out": 3}, "a price needs both"),
        ("openai:x", {"usd_in": -1, "usd_out": 3}, "at least 0"),
        ("openai:x", {"price": 3}, "unknown option of a model: 'price'"),
    ],
)
def test_names_and_options_that_are_none(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserMistake) as caught:
        open_model(name, **options)
    assert message in str(caught.value)


def test_prices_have_a_date_and_a_source_and_may_be_given() -> None:
    for name, price in PRICES.items():
        assert price.source.startswith("https://") and dt.date.fromisoformat(price.read), name
        assert 0 < price.cached < price.tokens_in < price.tokens_out and price.written >= price.tokens_in
    assert price_of("anthropic:claude-sonnet-4-5-20250929") == PRICES["anthropic:claude-sonnet-4-5"]
    assert price_of("openai:gpt-9") is None
    assert open_model("openai:gpt-9", usd_in=1, usd_out=2).price == Price(1.0, 2.0, 1.0, 1.25, source="given")
    assert most(None, REQUEST).usd is None and most(Price(1, 1), REQUEST).usd > 500e-6  # type: ignore[operator]


@pytest.mark.parametrize(
    "text", [f"key {KEY}!", "sk-ant-api03-abcdefgh", "Authorization: Bearer abcdefgh12345678", "x-api-key: abcdefghijk"]
)
def test_keys_are_taken_out(text: str) -> None:
    assert "[key removed]" in redacted(text) and "abcdefgh" not in redacted(text) and KEY not in redacted(text)
    assert redacted("kernel rows, tile b=8: task-8 disk-drive") == "kernel rows, tile b=8: task-8 disk-drive"


@pytest.mark.parametrize("kind", ["compile", "cpu", "device"])
def test_no_key_reaches_a_worker(kind: str, tmp_path: Path) -> None:
    from evaluators.process import environment

    assert KEY not in str(environment(kind, tmp_path))


def test_a_trouble_of_a_scripted_model_is_a_trouble() -> None:
    model = ScriptedModel([Trouble("server error", "oops", again=True), "warps 8"])
    assert converse(model, REQUEST, Kept(), waits=QUICK).text == "warps 8"
    with pytest.raises(UserMistake):
        converse(ScriptedModel([Trouble("not allowed", "no", again=False)]), REQUEST, Kept(), waits=QUICK)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_providers_stream_unless_told_not_to(kind: str) -> None:
    calls = (("check", {"answer": "warps 8"}),)
    found = []
    for stream in (True, False):
        with ModelServer([Say("I look.", calls=calls, thinks=True)]) as server:
            found.append(converse(opened(kind, server, stream=stream), REQUEST, Kept(), waits=QUICK))
            assert bool(server.requests[0].get("stream")) == stream
    streamed, whole = found
    assert streamed.calls == whole.calls and streamed.usage == whole.usage and streamed.text == whole.text == "I look."
    assert [b["type"] for b in json.loads(streamed.kept)] == [b["type"] for b in json.loads(whole.kept)]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_stream_that_ends_early_is_no_reply(kind: str) -> None:
    begun = {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m"}}
    begun["message"] |= {"content": [], "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    text = f"event: message_start\ndata: {json.dumps(begun)}\n\n" if kind == "anthropic" else ""
    say = Say(raw=text or ": nothing\n\n", headers={"Content-Type": "text/event-stream"})
    journal = Kept()
    with ModelServer([say, Say("warps 8")]) as server:
        assert converse(opened(kind, server), REQUEST, journal, waits=QUICK).text == "warps 8"
    assert journal.outcomes == ["broken reply", "ok"] and journal.replies[1][2].tokens_out == 500  # it may be billed
