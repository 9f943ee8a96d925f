"""Anthropic's Messages API, with its cache for what stays the same from step to step."""

from __future__ import annotations

import threading
from typing import Any

from avo.errors import UserMistake
from avo.models.endpoint import key_from, sdk, trouble
from avo.models.prices import Price
from avo.models.protocol import Outcome, Reply, Request, Trouble, Usage


class AnthropicModel:
    """The client is made at the first request: without a key or the SDK, nothing else of avo fails."""

    def __init__(self, name: str, model: str, base_url: str | None, price: Price | None, key_env: str | None) -> None:
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
            raise trouble(kit, error, self._client.api_key or "") from None

    def _send(self, request: Request, timeout_s: float) -> Reply:
        cache = {"type": "ephemeral"}
        messages: list[dict[str, Any]] = [
            {"role": m.role, "content": [{"type": "text", "text": m.text}]} for m in request.messages
        ]
        # A repair sends the brief again: it is read from the cache then.
        messages[0]["content"][-1]["cache_control"] = cache
        answer = self._client.messages.create(
            model=self._model,
            system=[{"type": "text", "text": request.system, "cache_control": cache}],
            messages=messages,
            max_tokens=request.max_tokens,
            timeout=timeout_s,
        )
        if not isinstance(answer.content, list):
            raise ValueError("the reply has no content")
        text = "".join(part.text for part in answer.content if part.type == "text")
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
        elif not text.strip():
            outcome, detail = "empty", "the reply has no text"
        return Reply(text, outcome, usage, detail)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None
