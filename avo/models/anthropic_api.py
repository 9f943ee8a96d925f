"""Anthropic's Messages API, with its cache for what stays the same from step to step."""

from __future__ import annotations

import json
import threading
from typing import Any, ClassVar

from avo.errors import UserMistake
from avo.models.endpoint import key_from, lacking, sdk, trouble
from avo.models.prices import Price
from avo.models.protocol import Call, Message, Outcome, Reply, Request, Trouble, Usage


class AnthropicModel:
    """The client is made at the first request: without a key or the SDK, nothing else of avo fails."""

    takes: ClassVar = frozenset({"tools", "schema"})

    def __init__(
        self,
        name: str,
        model: str,
        base_url: str | None,
        price: Price | None,
        key_env: str | None,
        stream: bool = True,
    ) -> None:
        self._stream = stream
        self.name = name
        self.price = price
        self._model = model
        self._base_url = base_url
        self._key_env = key_env or "ANTHROPIC_API_KEY"
        self._client: Any = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises UserMistake where the SDK or the key is missing."""
        with self._lock:
            if self._client is None:
                kit = sdk("anthropic")
                key = key_from(self._key_env)
                self._client = kit.Anthropic(api_key=key, base_url=self._base_url, max_retries=0)

    def send(self, request: Request, timeout_s: float) -> Reply:
        self.check()
        kit = sdk("anthropic")
        try:
            return self._send(request, timeout_s)
        except (Trouble, UserMistake):
            raise
        except Exception as error:
            raise lacking(trouble(kit, error, self._client.api_key or ""), request) from None

    def _send(self, request: Request, timeout_s: float) -> Reply:
        cache = {"type": "ephemeral"}
        messages: list[dict[str, Any]] = [{"role": m.role, "content": _blocks(m)} for m in request.messages]
        # What is asked next sends all of this again: it is read from the cache then. The first message holds the
        # brief, the last one all that was said up to here.
        for m in {0, len(messages) - 1}:
            messages[m]["content"][-1]["cache_control"] = cache
        more: dict[str, Any] = {}
        tools = [t for t in request.tools if not t.grammar]
        if tools:
            more["tools"] = [{"name": t.name, "description": t.doc, "input_schema": t.schema} for t in tools]
            more["tools"][-1]["cache_control"] = cache
        if request.schema:
            more["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
        more |= {
            "model": self._model,
            "system": [{"type": "text", "text": request.system, "cache_control": cache}],
            "messages": messages,
            "max_tokens": request.max_tokens,
            "timeout": timeout_s,
        }
        if self._stream:
            with self._client.messages.stream(**more) as events:
                answer = events.get_final_message()
            if answer.stop_reason is None:
                raise ValueError("the stream ended before the reply did")
        else:
            answer = self._client.messages.create(**more)
        if not isinstance(answer.content, list):
            raise ValueError("the reply has no content")
        text = "".join(part.text for part in answer.content if part.type == "text")
        calls = tuple(Call(p.id, p.name, json.dumps(p.input)) for p in answer.content if p.type == "tool_use")
        kept = ""
        if calls and any(p.type in ("thinking", "redacted_thinking") for p in answer.content):
            kept = json.dumps([p.model_dump(mode="json", exclude_none=True) for p in answer.content])
        used = answer.usage
        read = used.cache_read_input_tokens or 0
        written = used.cache_creation_input_tokens or 0
        usage = Usage(used.input_tokens + read + written, used.output_tokens, read, written)
        outcome: Outcome = "ok"
        detail = ""
        if answer.stop_reason == "refusal":
            outcome, detail = "refused", text.strip()[:300] or "the model refused"
        elif answer.stop_reason in ("max_tokens", "model_context_window_exceeded"):
            outcome, detail = "truncated", f"cut: {answer.stop_reason}"
        elif not text.strip() and not calls:
            outcome, detail = "empty", "the reply has no text"
        return Reply(text, outcome, usage, detail, calls, kept)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


def _blocks(m: Message) -> list[dict[str, Any]]:
    """A message's content; never empty, since the API refuses that."""
    if m.kept:
        found: list[dict[str, Any]] = json.loads(m.kept)
        return found
    blocks: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": r.id, "content": [{"type": "text", "text": r.text or "(nothing)"}]}
        for r in m.results
    ]
    if m.text.strip() or not (m.calls or m.results):
        blocks.append({"type": "text", "text": m.text})
    return blocks + [{"type": "tool_use", "id": c.id, "name": c.name, "input": _input(c)} for c in m.calls]


def _input(call: Call) -> dict[str, Any]:
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
