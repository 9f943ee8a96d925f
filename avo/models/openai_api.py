"""OpenAI's Responses API, and the chat completions that every OpenAI-compatible server has."""

from __future__ import annotations

import threading
from typing import Any

from avo.errors import UserMistake
from avo.models.endpoint import key_from, sdk, trouble
from avo.models.prices import Price
from avo.models.protocol import Outcome, Reply, Request, Trouble, Usage


class _Endpoint:
    """A client that is made at the first request: without a key or an SDK, nothing else of avo fails."""

    def __init__(self, name: str, model: str, base_url: str | None, price: Price | None, key_env: str | None) -> None:
        self.name = name
        self.price = price
        self._model = model
        self._base_url = base_url
        self._key_env = key_env
        self._client: Any = None
        self._lock = threading.Lock()

    def _key(self) -> str:
        return key_from(self._key_env or "OPENAI_API_KEY")

    def check(self) -> None:
        """Raises UserMistake where the SDK or the key is missing."""
        with self._lock:
            if self._client is None:
                kit = sdk("openai")
                # Retries are avo's own: each attempt is journalled.
                self._client = kit.OpenAI(api_key=self._key(), base_url=self._base_url, max_retries=0)

    def send(self, request: Request, timeout_s: float) -> Reply:
        self.check()
        kit = sdk("openai")
        try:
            return self._send(request, timeout_s)
        except (Trouble, UserMistake):
            raise
        except Exception as error:
            raise trouble(kit, error, self._client.api_key) from None

    def _send(self, request: Request, timeout_s: float) -> Reply:
        raise NotImplementedError

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


class OpenAIModel(_Endpoint):
    """The Responses API with plain text; nothing is stored at the provider."""

    def _send(self, request: Request, timeout_s: float) -> Reply:
        answer = self._client.responses.create(
            model=self._model,
            instructions=request.system,
            input=[{"role": m.role, "content": m.text} for m in request.messages],
            max_output_tokens=request.max_tokens,
            store=False,
            timeout=timeout_s,
        )
        texts, refusals = [], []
        if not isinstance(answer.output, list):
            raise ValueError("the reply has no output")
        for item in answer.output:
            for part in getattr(item, "content", None) or ():
                if part.type == "output_text":
                    texts.append(part.text)
                elif part.type == "refusal":
                    refusals.append(part.refusal)
        usage = answer.usage
        counted = (
            Usage()
            if usage is None
            else Usage(
                usage.input_tokens,
                usage.output_tokens,
                getattr(usage.input_tokens_details, "cached_tokens", 0) or 0,
                getattr(usage.input_tokens_details, "cache_write_tokens", 0) or 0,
            )
        )
        why = getattr(answer.incomplete_details, "reason", "") or ""
        if answer.status == "failed":
            failure = getattr(answer.error, "message", "") or "the provider gives no reason"
            raise Trouble("server error", failure, again=True, billed=True)
        return _reply("".join(texts), refusals, why, counted)


class ChatModel(_Endpoint):
    """Chat completions at an address of one's own: vLLM, Ollama, llama.cpp and others."""

    def _key(self) -> str:
        return key_from(self._key_env) if self._key_env else "none"

    def _send(self, request: Request, timeout_s: float) -> Reply:
        messages = [{"role": "system", "content": request.system}]
        messages += [{"role": m.role, "content": m.text} for m in request.messages]
        answer = self._client.chat.completions.create(
            model=self._model, messages=messages, max_tokens=request.max_tokens, timeout=timeout_s
        )
        if not answer.choices:
            raise ValueError("the reply has no choices")
        choice = answer.choices[0]
        usage = answer.usage
        details = getattr(usage, "prompt_tokens_details", None)
        counted = (
            Usage()
            if usage is None
            else Usage(
                usage.prompt_tokens or 0, usage.completion_tokens or 0, getattr(details, "cached_tokens", 0) or 0
            )
        )
        refusals = [choice.message.refusal] if getattr(choice.message, "refusal", None) else []
        why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(choice.finish_reason or "", "")
        return _reply(choice.message.content or "", refusals, why, counted)


def _reply(text: str, refusals: list[str], why: str, usage: Usage) -> Reply:
    outcome: Outcome = "ok"
    detail = ""
    if refusals or why == "content_filter":
        outcome, detail = "refused", " ".join(refusals) or "stopped by the provider's content filter"
    elif why:
        outcome, detail = "truncated", f"cut: {why}"
    elif not text.strip():
        outcome, detail = "empty", "the reply has no text"
    return Reply(text, outcome, usage, detail)
